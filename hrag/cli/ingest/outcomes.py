"""Prints the outcomes of an ingest, as lines for people or as lines of JSON."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hrag.cli.ingest.folders import UNKNOWN_FORMAT, SkippedFile, readable_path
from hrag.cli.ingest.ingest_progress import DocumentOutcome, IngestProgress
from hrag.cli.terminal.console import print_json_line, print_line
from hrag.cli.terminal.render import counted
from hrag.values.documents import IngestOutcome, IngestResult
from hrag.values.errors import HragError

_EXTENSIONS_SHOWN = 5


def show_outcomes(progress: IngestProgress) -> None:
    """Prints a line for each failure and each decoded text, then the counts and the rates."""
    for label, encoding in progress.encodings:
        print_line(f"{label}: read as {encoding}")
    for label, reason in progress.failures:
        print_line(f"{label}: {reason}", style="red")
    counts = ", ".join(f"{progress.outcomes[outcome]:,} {outcome}" for outcome in IngestOutcome)
    completed = counted(progress.completed, "document")
    if progress.total:
        completed = f"{progress.completed:,} of {progress.total:,} documents"
    print_line(f"{completed}: {counts}, {len(progress.failures):,} failed")
    print_line(f"{progress.tokens:,} tokens in {progress.seconds:.1f} s ({_rates(progress)})")


def _rates(progress: IngestProgress) -> str:
    documents_per_s = progress.rate(progress.stored)
    return f"{documents_per_s:,.1f} documents/s, {progress.rate(progress.tokens):,.0f} tokens/s"


def skipped_summary(skipped: Sequence[SkippedFile]) -> str:
    """Returns a line such as `skipped 3: 2 of unknown format (.bin, .dat), 1 empty`.

    Returns an empty text if no file was skipped.
    """
    if not skipped:
        return ""
    counts = Counter(file.reason for file in skipped)
    parts = []
    for reason, count in counts.most_common():
        shown = f"{count:,} {reason}"
        if reason == UNKNOWN_FORMAT:
            shown += f" ({_extensions(skipped)})"
        parts.append(shown)
    return f"skipped {len(skipped):,}: {', '.join(parts)}"


def _extensions(skipped: Sequence[SkippedFile]) -> str:
    """Returns the most common extensions of files of unknown format, as a text."""
    unknown = [file for file in skipped if file.reason == UNKNOWN_FORMAT]
    suffixes = (Path(readable_path(file.path)).suffix.lower() for file in unknown)
    counts = Counter(suffix or "no extension" for suffix in suffixes)
    commonest = sorted(counts, key=lambda name: (-counts[name], name))
    shown = ", ".join(commonest[:_EXTENSIONS_SHOWN])
    more = len(commonest) - _EXTENSIONS_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def print_outcome(outcome: DocumentOutcome) -> None:
    """Prints one document's outcome as a line of JSON."""
    line: dict[str, Any] = {"input": outcome.label}
    result = outcome.result
    if isinstance(result, IngestResult):
        line |= {
            "outcome": result.outcome,
            "document_id": result.document_id,
            "sequence": result.sequence,
            "token_count": result.token_count,
            "chunks_per_level": result.chunks_per_level,
        }
    else:
        error = {"type": type(result).__name__, "message": str(result)}
        if isinstance(result, HragError):
            error["field"] = result.field
        line |= {"outcome": "failed", "error": error}
    if outcome.encoding:
        line["encoding"] = outcome.encoding
    print_json_line(line)


def print_summary(
    progress: IngestProgress, skipped: Sequence[SkippedFile], deleted: Sequence[str]
) -> None:
    """Prints the counts as the last line of JSON."""
    summary = {
        "documents": progress.completed,
        **{outcome.value: progress.outcomes[outcome] for outcome in IngestOutcome},
        "failed": len(progress.failures),
        "skipped": Counter(file.reason for file in skipped),
        "deleted": len(deleted),
        "token_count": progress.tokens,
        "seconds": round(progress.seconds, 3),
    }
    print_json_line({"summary": summary})


def print_skipped(skipped: Sequence[SkippedFile]) -> None:
    """Prints each file that was skipped as a line of JSON."""
    for file in skipped:
        path = readable_path(file.path)
        print_json_line({"input": path, "outcome": "skipped", "reason": file.reason})
