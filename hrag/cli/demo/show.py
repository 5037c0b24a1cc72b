"""Prints the output of `hrag demo`: search results, one question in every mode, latencies."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hrag.cli.demo.corpus import Question
from hrag.cli.demo.latency import Samples, percentile
from hrag.cli.terminal.render import (
    chunk_suffix,
    citation,
    cited_place,
    duration,
    emphasised,
    excerpt,
    range_in_chunk,
)
from hrag.text.plain_text import printable
from hrag.values.search import Passage, Retrieval, SearchMode, SearchResult

# The specification limits the latency that larger passages add to 100 ms.
TARGET_US = 100_000

_PASSAGES = 2
_LINES = 5
_MARGIN = 4
_MAX_WIDTH = 96
_COMPARED = 5
_MODE_TITLES = {
    SearchMode.STANDARD: "standard: the leaves (smallest chunks) that matched",
    SearchMode.SENTENCE_WINDOW: "sentence window: the best sentences with three on each side",
    SearchMode.AUTO_MERGE: "auto merge: larger chunks where enough of their children matched",
    SearchMode.SMALL_TO_BIG: "small to big: the larger chunks around the leaves",
    SearchMode.SUMMARY_FIRST: "summary first: small to big in the sections with the best summaries",
    SearchMode.CONTEXT: "context: the best leaves, joined, until a token budget is full",
}
_SOURCE_TITLES = {
    Retrieval.LEXICAL: "by words (BM25)",
    Retrieval.DENSE: "by vectors (cosine)",
    Retrieval.HYBRID: "by both",
}


def show_heading(console: Console, text: str) -> None:
    """Prints the heading of a part of the demo."""
    console.print()
    console.rule(Text(text, style="bold"), align="left", style="dim")


def show_levels(console: Console, sizes: Sequence[int], chunks: Sequence[int]) -> None:
    """Prints the number of chunks at each level, the largest first."""
    table = Table(box=None, padding=(0, 3, 0, 2), header_style="dim")
    table.add_column("level")
    table.add_column("chunk size", justify="right")
    table.add_column("chunks", justify="right")
    for level in reversed(range(len(sizes))):
        table.add_row(str(level), f"{sizes[level]:,} tokens", f"{chunks[level]:,}")
    console.print(table)


def show_result(console: Console, number: int, question: Question, result: SearchResult) -> None:
    """Prints a question and its best passages, each with an excerpt of its best leaf."""
    console.print()
    console.print(Text(f"{number}. {question.text}", style="bold"))
    for passage in result.passages[:_PASSAGES]:
        _show_passage(console, question, passage)
    if not result.passages:
        console.print("  nothing found", style="dim")
    console.print(Text(f"  {duration(result.timings.total_us)} in the service", style="dim"))


def _show_passage(console: Console, question: Question, passage: Passage) -> None:
    chunk, best = passage.chunk, passage.matched_children[0]
    heading = Text("  ").append(f"{passage.score:.2f}", style="bold").append("  ")
    heading.append(citation(cited_place(passage)), style="cyan")
    console.print(heading, no_wrap=True, overflow="ellipsis")
    leaves = len(passage.matched_children)
    console.print(
        Text(
            f"    {chunk.token_count:,} tokens around {leaves} matched "
            f"{'leaf' if leaves == 1 else 'leaves'}; the best is {chunk_suffix(best.chunk_id)}:",
            style="dim",
        )
    )
    start, end = range_in_chunk(chunk, best.span)
    width = min(console.width, _MAX_WIDTH) - _MARGIN - 2
    for line in excerpt(chunk.content[start:end], question.text, _LINES, width):
        shown = Text(" " * _MARGIN).append("│ ", style="green")
        console.print(shown.append_text(emphasised(line, question.text)), soft_wrap=True)


def show_sources(console: Console, question: Question, results: Sequence[SearchResult]) -> None:
    """Prints the leaves that each source finds for a question, and the text for a budget."""
    console.print(Text(question.text, style="bold"))
    for result in results:
        is_budget = result.mode is SearchMode.CONTEXT
        title = "a full budget (context)" if is_budget else _SOURCE_TITLES[result.retrieval]
        console.print(Text(title, style="bold"))
        for passage in result.passages[:_COMPARED]:
            console.print(Text(f"  {_brief(passage)}{_by_source(passage)}"), soft_wrap=True)
        console.print(Text(f"  {_size(result)}", style="dim"))


def _by_source(passage: Passage) -> str:
    """Returns both sources' scores of a passage; an empty text unless both have scored it."""
    if passage.lexical_score is None or passage.dense_score is None:
        return ""
    return f"  (words {passage.lexical_score:.2f}, vectors {passage.dense_score:.2f})"


def show_modes(console: Console, question: Question, results: Sequence[SearchResult]) -> None:
    """Prints the results of one question in several modes."""
    console.print(Text(question.text, style="bold"))
    for result in results:
        console.print(Text(_MODE_TITLES[result.mode], style="bold"))
        for passage in result.passages[:_COMPARED]:
            console.print(Text(f"  {_brief(passage)}"), soft_wrap=True)
        console.print(Text(f"  {_size(result)}", style="dim"))


def _brief(passage: Passage) -> str:
    name = printable(passage.chunk.chunk_id)
    return f"{passage.score:.2f}  {name}  {passage.chunk.token_count:,} tokens"


def _size(result: SearchResult) -> str:
    tokens = sum(passage.chunk.token_count for passage in result.passages)
    return f"{tokens:,} tokens of context"


def show_latency(console: Console, samples: Samples) -> float:
    """Prints both modes' latencies; returns the p99 added in the service, in microseconds."""
    console.print(
        "The questions' vectors are cached by now, so the times do not include embedding."
    )
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    for name in ("service p50", "service p99", "round trip p50", "round trip p99"):
        table.add_column(name, justify="right", no_wrap=True)
    standard, big = (_row(samples, mode) for mode in (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG))
    added = [more - less for more, less in zip(big, standard, strict=True)]
    table.add_row("standard", *map(duration, standard))
    table.add_row("small to big", *map(duration, big))
    table.add_row("difference", *(f"{value / 1000:+.2f} ms" for value in added), style="bold green")
    table.add_row("target", *[f"≤ {TARGET_US / 1000:.0f} ms"] * len(added), style="dim")
    console.print(table)
    return added[1]


def _row(samples: Samples, mode: SearchMode) -> list[float]:
    service = [sample.service_us for sample in samples[mode]]
    round_trip = [sample.round_trip_us for sample in samples[mode]]
    return [percentile(values, percent) for values in (service, round_trip) for percent in (50, 99)]
