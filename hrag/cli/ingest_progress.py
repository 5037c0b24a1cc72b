"""Sends documents as a stream, counts their outcomes, and shows the progress and the result.

Documents are read when the stream needs them, so few of them are in memory at a time. Progress is
a bar on a terminal, plain lines elsewhere. The progress within a document is not known, because
the indexer answers when the document is stored. So progress is counted in bytes of files, and the
display names the current document. Outcomes are printed as lines for people or as lines of JSON.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from hrag.cli.ingest_files import (
    BROKEN_LINK,
    OLD_FORMAT,
    SPECIAL,
    UNKNOWN_FORMAT,
    SkippedFile,
)
from hrag.cli.input_documents import InputDocument, Unreadable, readable_path
from hrag.cli.read_report import (
    UTF_8,
    is_notable,
    left_out_lines,
    report_fields,
    report_text,
)
from hrag.cli.terminal import LINE_INTERVAL_S, print_json_line, print_line, progress_lines
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.documents import Document, IngestOutcome, IngestResult
from hrag.values.errors import (
    BlankDocument,
    CollectionNotFound,
    HragError,
    InvalidArgument,
    TooLarge,
    UnreadableDocument,
)
from hrag.values.read_report import ReadReport

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

# A document of more bytes is sent in a separate stream. By default the indexer accepts documents of
# up to this size, and requests of up to four times this size. If a request is larger, gRPC ends the
# whole stream, and other documents in the same stream would be lost.
_ALONE_BYTES = 32 * 1024 * 1024

# The options of `hrag ingest` that set a field of a document. An error names the field.
_HINTS = {"encoding": " (--encoding)", "mime_type": " (--as)"}
# The reasons for which pictures in folders are skipped, as shown after a count.
_NO_TEXT = "pictures in which no text was found"
_NOT_RECOGNISED = "pictures whose text was not recognised"
# The form of a reason after the count 1, where it is not the form after other counts.
_SINGULAR = {
    BROKEN_LINK: "link that leads nowhere",
    SPECIAL: "no regular file",
    _NO_TEXT: "picture in which no text was found",
    _NOT_RECOGNISED: "picture whose text was not recognised",
}
_LABEL_CHARS = 40
_BAR_WIDTH = 12
_TIME_WIDTH = 10
_EXTENSIONS_SHOWN = 5
_CONVERSION = "to convert: libreoffice --headless --convert-to {} FILE"
_OLD_PRESENTATIONS = (".ppt", ".pps")
# Kinds of skipped files, and examples of each kind, that are shown without --verbose.
_KINDS_SHOWN, _EXAMPLES_SHOWN = 10, 3
# The reports of at most this many documents are shown without --verbose.
_REPORTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """The outcome of one document: the indexer's result, or why the document was not stored.

    `label` names the document in messages. If `skipped_because` is not empty, the document is
    skipped for this reason, and the error does not count as a failure.
    """

    label: str
    result: IngestResult | HragError | Unreadable
    skipped_because: str = ""


@dataclass(frozen=True, slots=True)
class _SentDocument:
    """A document that was sent and whose outcome has not arrived yet."""

    label: str
    size_bytes: int
    may_be_skipped: bool


def _ignore_outcome(_outcome: DocumentOutcome) -> None:
    """Does nothing. It is the default of `IngestProgress.on_outcome`."""


class IngestProgress:
    """The outcomes of an ingest so far.

    `total` is the number of documents, or 0 if it is not known. `failures` contains (label,
    reason) for each document that could not be stored, and `skipped` each picture in which the
    indexer found no text. `reported` contains (label, result) for the first documents that were
    stored, and for those whose report has something to note; with `keeps_all` for each document.
    `error` is the error that ended the stream early, or None. `on_outcome` is called with each
    outcome, sometimes in the stream's thread.
    """

    def __init__(
        self,
        total: int = 0,
        total_bytes: int = 0,
        on_outcome: Callable[[DocumentOutcome], None] = _ignore_outcome,
        *,
        keeps_all: bool = False,
    ) -> None:
        self.total = total
        self._keeps_all = keeps_all
        self.total_bytes = total_bytes
        self.completed_bytes = 0
        self.outcomes: Counter[IngestOutcome] = Counter()
        self.failures: list[tuple[str, str]] = []
        self.skipped: list[SkippedFile] = []
        self.document_ids: list[str] = []
        self.reported: list[tuple[str, IngestResult]] = []
        self.chunks_per_level: tuple[int, ...] = ()
        self.tokens = 0
        self.error: HragError | None = None
        self._sent: deque[_SentDocument] = deque()
        self.on_outcome = on_outcome
        # The lock is needed because two threads add outcomes. The thread of the stream reads files;
        # if a file cannot be read, it adds the outcome itself.
        self._lock = Lock()
        self._started = time.perf_counter()
        self._ended: float | None = None

    @property
    def stored(self) -> int:
        """The number of documents that are in the store, including unchanged ones."""
        return len(self.document_ids)

    @property
    def completed(self) -> int:
        """The number of documents with an outcome."""
        return self.stored + len(self.failures) + len(self.skipped)

    @property
    def seconds(self) -> float:
        """The time since this object was created, in seconds. It stops when `end` is called."""
        return (self._ended or time.perf_counter()) - self._started

    @property
    def next_label(self) -> str:
        """The label of the document whose outcome is expected next.

        It is an empty text if every document that was sent has an outcome.
        """
        try:
            return self._sent[0].label
        except IndexError:
            return ""

    def rate(self, amount: int) -> float:
        """Returns `amount` per second: `amount` divided by the time `seconds` of this ingest."""
        return amount / max(self.seconds, 1e-9)

    def send(self, label: str, size_bytes: int, *, may_be_skipped: bool = False) -> None:
        """Records that a document was read and will be sent next.

        The arguments are stored until the outcome of the document arrives. Outcomes arrive in the
        order in which the documents are sent.
        """
        self._sent.append(_SentDocument(label, size_bytes, may_be_skipped))

    def receive(self, answer: IngestResult | HragError) -> None:
        """Counts `answer` as the outcome of the document whose outcome is expected next."""
        sent = self._sent.popleft()
        if isinstance(answer, HragError):
            reason = ""
            if sent.may_be_skipped:
                reason = picture_skip_reason(type(answer).__name__, answer.field)
            self._add(DocumentOutcome(sent.label, answer, reason), sent.size_bytes)
            return
        self.outcomes[answer.outcome] += 1
        self.document_ids.append(answer.document_id)
        is_notable_result = answer.report is not None and is_notable(answer.report)
        if self._keeps_all or is_notable_result or len(self.document_ids) <= _REPORTS_SHOWN:
            self.reported.append((sent.label, answer))
        self.tokens += answer.token_count
        self.chunks_per_level = _add_per_level(self.chunks_per_level, answer.chunks_per_level)
        self._add(DocumentOutcome(sent.label, answer), sent.size_bytes)

    def fail(self, label: str, error: Unreadable, size_bytes: int = 0) -> None:
        """Counts a document that could not be read, and records the error as the reason."""
        self._add(DocumentOutcome(label, error), size_bytes)

    def _add(self, outcome: DocumentOutcome, size_bytes: int) -> None:
        with self._lock:
            self.completed_bytes += size_bytes
            result = outcome.result
            if outcome.skipped_because:
                skipped = skipped_picture(outcome.label, outcome.skipped_because, str(result))
                self.skipped.append(skipped)
            elif isinstance(result, Exception):
                hint = option_hint(type(result).__name__, getattr(result, "field", ""))
                self.failures.append((outcome.label, f"{result}{hint}"))
            self.on_outcome(outcome)

    def end(self) -> None:
        """Records that the ingest has ended, so that `seconds` does not grow any more."""
        self._ended = time.perf_counter()


def option_hint(error_type: str, field: str) -> str:
    """Returns the option that sets the field of a document which an error is about, for its end.

    The result is empty if there is no such option, or if the option does not help: the indexer
    knows the format of a file for which libraries are missing.
    """
    if field == "mime_type" and error_type != UnreadableDocument.__name__:
        return ""
    return _HINTS.get(field, "")


def picture_skip_reason(error_type: str, field: str) -> str:
    """Returns why a picture in a folder is skipped; an empty text for an error that is a failure.

    `error_type` is the name of the error's class, and `field` the field that the error is about. An
    indexer without text recognition refuses a picture like a format for which libraries are
    missing.
    """
    if error_type == BlankDocument.__name__:
        return _NO_TEXT
    needs_recognition = error_type == InvalidArgument.__name__ and field == "mime_type"
    return _NOT_RECOGNISED if needs_recognition else ""


def skipped_picture(label: str, reason: str, message: str) -> SkippedFile:
    """Returns a skipped picture, with the part of the indexer's message that says what helps."""
    return SkippedFile(Path(label), reason, message.partition("; ")[2])


def _add_per_level(counts: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(counts, more, strict=True))) if counts else more


def ingest_all(
    client: "Client",
    tenant_id: str,
    collection: str,
    documents: Iterable[InputDocument],
    progress: IngestProgress,
    *,
    validate_only: bool = False,
) -> None:
    """Sends every document in order, and counts the outcomes in `progress`.

    With `validate_only`, the documents are read and not stored. Never raises HragError: errors of
    documents and of the stream are recorded in `progress`.
    """
    try:
        for alone, group in groupby(documents, _label_if_alone):
            # `alone` is not empty if the stream sends only one large document. A thread of the
            # stream reads the documents of the stream. If this document is too large, the stream
            # fails, and the loop continues with the next group while that thread may still ask for
            # a further document. If the thread asked `group`, it would advance `groupby`, and the
            # loop would miss a document. So the thread gets a list.
            batch = list(group) if alone else group  # noqa: B031 - used once.
            stream = _read_all(batch, progress)
            try:
                outcomes = client.ingest_many(
                    tenant_id, stream, collection=collection, validate_only=validate_only
                )
                _count_outcomes(outcomes, progress)
            except TooLarge as error:
                if not alone:
                    raise
                progress.receive(error)
    except HragError as error:
        progress.error = error
    progress.end()


def _count_outcomes(answers: Iterator[IngestResult | HragError], progress: IngestProgress) -> None:
    for answer in answers:
        # If the collection does not exist, no document can be stored, so the ingest ends.
        if isinstance(answer, CollectionNotFound):
            raise answer
        progress.receive(answer)


def _label_if_alone(document: InputDocument) -> str:
    """Returns the document's label if the document needs a separate stream because of its size.

    Otherwise returns an empty text.
    """
    return document.label if document.size_bytes > _ALONE_BYTES else ""


def _read_all(documents: Iterable[InputDocument], progress: IngestProgress) -> Iterator[Document]:
    """Yields the documents that can be read, and counts the others as failed.

    The thread of the gRPC stream runs this generator.
    """
    for document in documents:
        try:
            read = document.read()
        except Unreadable as error:
            progress.fail(document.label, error, document.size_bytes)
            continue
        may_be_skipped = document.may_be_skipped
        progress.send(document.label, document.size_bytes, may_be_skipped=may_be_skipped)
        yield read


def ingest_with_progress(
    client: "Client",
    tenant: str,
    collection: str,
    documents: Sequence[InputDocument],
    console: Console,
    *,
    validate_only: bool = False,
    keeps_all: bool = False,
) -> IngestProgress:
    """Ingests documents, shows the progress, and returns the final progress with its counts.

    With `validate_only`, the documents are read and not stored. With `keeps_all`, the progress
    contains the results of all documents.
    """
    total_bytes = sum(document.size_bytes for document in documents)
    progress = IngestProgress(len(documents), total_bytes, keeps_all=keeps_all)
    with shown_progress(progress, console):
        ingest_all(client, tenant, collection, documents, progress, validate_only=validate_only)
    return progress


@contextmanager
def shown_progress(
    progress: IngestProgress, console: Console, interval_s: float = LINE_INTERVAL_S
) -> Iterator[None]:
    """Shows `progress` while the block runs.

    If `console` is not a terminal, writes a line without control characters to standard error
    every `interval_s` seconds.
    """
    if not console.is_terminal:
        with progress_lines(
            lambda: f"{_describe_progress(progress)}, {progress.seconds:,.0f} s", interval_s
        ):
            yield
        return
    text = _ProgressTextColumn(progress, console.width - _BAR_WIDTH - _TIME_WIDTH)
    columns = (BarColumn(_BAR_WIDTH), text, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=_completed_of_total(progress)[1] or None)
        progress.on_outcome = lambda _: bar.update(task, completed=_completed_of_total(progress)[0])
        yield


class _ProgressTextColumn(ProgressColumn):
    """A column of the progress bar with a text that describes the progress.

    The text is computed at each refresh of the display, not only when an outcome arrives. So the
    text names the current document as soon as that document is sent.
    """

    def __init__(self, progress: IngestProgress, width: int) -> None:
        super().__init__()
        self._progress = progress
        self._width = width

    def render(self, _task: Task) -> Text:
        text = Text(_describe_progress(self._progress))
        text.truncate(self._width, overflow="ellipsis")
        return text


def _completed_of_total(progress: IngestProgress) -> tuple[int, int]:
    """Returns two numbers: the completed part of the ingest, and the whole ingest.

    The unit is bytes or, if the sizes of the documents are not known, documents.
    """
    if progress.total_bytes:
        return progress.completed_bytes, progress.total_bytes
    return progress.completed, progress.total


def _describe_progress(progress: IngestProgress) -> str:
    """Returns a text for people that describes the progress.

    An example is `3 of 10 documents, 1.2 MB of 8.0 MB, 5,120 tokens, now at docs/guide.md`.
    """
    of_total = f" of {progress.total:,}" if progress.total else ""
    parts = [f"{progress.completed:,}{of_total} documents"]
    if progress.total_bytes:
        parts.append(f"{decimal(progress.completed_bytes)} of {decimal(progress.total_bytes)}")
    parts.append(f"{progress.tokens:,} tokens")
    if label := printable(progress.next_label):
        shown_label = label if len(label) <= _LABEL_CHARS else f"…{label[-_LABEL_CHARS:]}"
        parts.append(f"now at {shown_label}")
    return ", ".join(parts)


def show_outcomes(progress: IngestProgress) -> None:
    """Prints the result of an ingest for people.

    First comes a line for each document that failed, then the counts of outcomes, and the documents
    and tokens per second.
    """
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
        shown = f"{count:,} {_reason_text(reason, count)}"
        if reason == UNKNOWN_FORMAT:
            shown += f" ({_unknown_extensions(skipped)})"
        parts.append(shown)
    return f"skipped {len(skipped):,}: {', '.join(parts)}"


def _reason_text(reason: str, count: int) -> str:
    return _SINGULAR.get(reason, reason) if count == 1 else reason


def _unknown_extensions(skipped: Sequence[SkippedFile]) -> str:
    """Returns a text such as `.bin, .dat`, with the extensions of the files of unknown format.

    The most common extensions come first. If there are many, the rarest are only counted.
    """
    unknown = [file for file in skipped if file.reason == UNKNOWN_FORMAT]
    suffixes = (Path(readable_path(file.path)).suffix.lower() for file in unknown)
    counts = Counter(suffix or "no extension" for suffix in suffixes)
    commonest = sorted(counts, key=lambda name: (-counts[name], name))
    shown = ", ".join(commonest[:_EXTENSIONS_SHOWN])
    more = len(commonest) - _EXTENSIONS_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def show_skipped(skipped: Sequence[SkippedFile], *, is_verbose: bool = False) -> None:
    """Prints how many files were skipped, with examples of each kind.

    Files of unknown format are of one kind if they have the same extension. If `is_verbose` is
    True, prints every file.
    """
    if not skipped:
        return
    print_line(skipped_summary(skipped))
    if is_verbose:
        for file in skipped:
            reason = _reason_text(file.reason, 1)
            print_line(f"  {readable_path(file.path)}: {reason}{_advice_text(file)}")
        return
    kinds: dict[str, list[SkippedFile]] = {}
    for file in skipped:
        kinds.setdefault(_kind(file), []).append(file)
    for kind in sorted(kinds, key=lambda kind: (-len(kinds[kind]), kind))[:_KINDS_SHOWN]:
        files = kinds[kind]
        examples = ", ".join(readable_path(file.path) for file in files[:_EXAMPLES_SHOWN])
        more = ", …" if len(files) > _EXAMPLES_SHOWN else ""
        shown = f"{len(files):,} {_reason_text(kind, len(files))}: {examples}{more}"
        print_line(f"  {shown}{_advice_text(files[0])}")
    if len(kinds) > _KINDS_SHOWN:
        print_line(f"  and {len(kinds) - _KINDS_SHOWN:,} more kinds; --verbose lists all files")


def _advice_text(file: SkippedFile) -> str:
    """Returns what the user can do about a file that is skipped, after a semicolon, or nothing."""
    advice = file.advice
    if file.reason == OLD_FORMAT:
        is_presentation = file.path.suffix.lower() in _OLD_PRESENTATIONS
        advice = _CONVERSION.format("pptx" if is_presentation else "docx")
    return f"; {advice}" if advice else ""


def _kind(file: SkippedFile) -> str:
    if file.reason != UNKNOWN_FORMAT:
        return file.reason
    return Path(readable_path(file.path)).suffix.lower() or "without extension"


def show_reports(progress: IngestProgress, *, is_verbose: bool = False) -> None:
    """Prints what was read of each document in `progress`.

    If there are many documents and `is_verbose` is False, prints only the documents with something
    to note: an encoding that was guessed, for example, or pages that could not be read.
    """
    shows_all = is_verbose or progress.stored <= _REPORTS_SHOWN
    for label, result in progress.reported:
        if result.report is None:
            if is_verbose:
                print_line(f"{label}: {result.outcome}")
        elif shows_all or is_notable(result.report):
            show_report(label, result.report, is_verbose=is_verbose)


def show_report(label: str, report: ReadReport, *, is_verbose: bool) -> None:
    """Prints what was read of a document. If `is_verbose` is True, also shows what was left out."""
    print_line(f"{label}: {report_text(report)}")
    if is_verbose:
        for left_out in left_out_lines(report):
            print_line(f"  left out: {left_out}")


def print_outcome(outcome: DocumentOutcome) -> None:
    """Prints a line of JSON with the outcome of one document."""
    print_json_line(_outcome_fields(outcome))


def print_planned_outcome(outcome: DocumentOutcome) -> None:
    """Prints the outcome that a document would have as a line of JSON."""
    fields = _outcome_fields(outcome)
    if fields["outcome"] in (IngestOutcome.CREATED, IngestOutcome.UPDATED):
        fields |= {"outcome": "would store", "is_new": fields["outcome"] is IngestOutcome.CREATED}
        del fields["sequence"]
    print_json_line(fields)


def _outcome_fields(outcome: DocumentOutcome) -> dict[str, Any]:
    fields: dict[str, Any] = {"input": outcome.label}
    result = outcome.result
    if not isinstance(result, IngestResult):
        if reason := outcome.skipped_because:
            return {**fields, "outcome": "skipped", "reason": reason, "message": str(result)}
        error = {"type": type(result).__name__, "message": str(result)}
        if isinstance(result, HragError):
            error["field"] = result.field
        return {**fields, "outcome": "failed", "error": error}
    fields |= {
        "outcome": result.outcome,
        "document_id": result.document_id,
        "sequence": result.sequence,
        "token_count": result.token_count,
        "chunks_per_level": result.chunks_per_level,
    }
    if result.report is not None:
        fields["report"] = report_fields(result.report)
        if result.report.encoding not in ("", UTF_8):
            fields["encoding"] = result.report.encoding
    return fields


def print_summary(
    progress: IngestProgress, skipped: Sequence[SkippedFile], deleted: Sequence[str]
) -> None:
    """Prints a line of JSON with the counts of all outcomes, the tokens and the time.

    It is the last line of the output.
    """
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


def print_planned_summary(
    progress: IngestProgress, skipped: Sequence[SkippedFile], gone: Sequence[str]
) -> None:
    """Prints the summary that ends a dry run. `gone` are the ids that would be deleted."""
    unchanged = progress.outcomes[IngestOutcome.UNCHANGED]
    summary = {
        "documents": progress.completed,
        "would_store": progress.stored - unchanged,
        "unchanged": unchanged,
        "failed": len(progress.failures),
        "skipped": Counter(file.reason for file in skipped),
        "would_delete": len(gone),
        "token_count": progress.tokens,
        "seconds": round(progress.seconds, 3),
    }
    print_json_line({"summary": summary})


def print_skipped(skipped: Sequence[SkippedFile]) -> None:
    """Prints a line of JSON for each file that was skipped."""
    for file in skipped:
        path = readable_path(file.path)
        print_json_line({"input": path, "outcome": "skipped", "reason": file.reason})
