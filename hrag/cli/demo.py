"""`hrag demo`: stores and searches documents on this machine, without any setup.

Nothing is simulated: the services run as separate processes on a store in a temporary folder.
At the end they are stopped and the folder is removed.

The demo also compares the latency of small-to-big search with the latency of standard search. The
difference is the cost of returning larger passages. Each measured question is searched in one mode,
and directly afterwards in the other mode. The mode that is first alternates from question to
question, so that other load on the machine affects both modes alike. The retriever has cached the
questions' vectors, so no measured time includes embedding.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hrag.cli.demo_corpus import QUESTIONS, DemoQuestion, StoredText, questions_from, topics
from hrag.cli.ingest_files import find, require_readable
from hrag.cli.ingest_progress import (
    IngestProgress,
)
from hrag.cli.input_documents import InputDocument
from hrag.cli.render import (
    chunk_suffix,
    citation,
    cited_place,
    duration,
    emphasised,
    excerpt,
    range_in_chunk,
)
from hrag.cli.temporary_services import (
    TENANT,
    store_documents,
    temporary_services,
    wait_for_summaries,
)
from hrag.cli.terminal import ExitCode, Failure, interrupt_on_signals, output
from hrag.cli.tree import hierarchies, nodes
from hrag.text.plain_text import printable
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.search import Passage, Retrieval, SearchMode, SearchResult

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

QUESTION_COUNT = 6

_BUDGET_TOKENS = 1000
_MODES = (
    SearchMode.STANDARD,
    SearchMode.SENTENCE_WINDOW,
    SearchMode.AUTO_MERGE,
    SearchMode.SMALL_TO_BIG,
    SearchMode.SUMMARY_FIRST,
    SearchMode.CONTEXT,
)

# These settings of the demo's services override the environment, so that the demo shows the same on
# every machine.
_SETTINGS = {
    "HRAG_EMBEDDER": "builtin",
    "HRAG_SUMMARIES": "chunk",
    "HRAG_KEEP_ORIGINALS": "true",
}

_TIMED_MODES = (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)
# The target: returning larger passages adds at most 100 ms to the latency of a search.
_TARGET_US = 100_000

_PASSAGES_SHOWN = 2
_LINES_SHOWN = 5
_MARGIN = 4
_MAX_WIDTH = 96
_PASSAGES_COMPARED = 5
_MODE_TITLES = {
    SearchMode.STANDARD: "standard: the leaves (smallest chunks) that matched",
    SearchMode.SENTENCE_WINDOW: "sentence window: the best sentences with three on each side",
    SearchMode.AUTO_MERGE: "auto merge: larger chunks where enough of their children matched",
    SearchMode.SMALL_TO_BIG: "small to big: the larger chunks around the leaves",
    SearchMode.SUMMARY_FIRST: "summary first: small to big in the best sections",
    SearchMode.CONTEXT: "context: the best leaves, joined, until a token budget is full",
}
_SOURCE_TITLES = {
    Retrieval.LEXICAL: "by words (BM25)",
    Retrieval.DENSE: "by vectors (cosine)",
    Retrieval.HYBRID: "by both",
}


def demo(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files and folders to use.", show_default=False),
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option("--ask", help="Ask this question; repeat it for several.", show_default=False),
    ] = None,
    searches: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of searches to time in each mode.")
    ] = 300,
) -> None:
    """Try hrag: store documents, ask questions, compare the modes, measure the latency.

    The demo starts both services on free ports, with an empty store in a temporary folder. It
    stores Python's help topics, or the files you give, and asks questions about them. For
    each question it shows the best passages and, inside each, the small chunk that matched.
    It shows what a search by words, by vectors and by both finds, and the text that fills a
    token budget. Then it compares the latency of searches that return larger passages with the
    latency of searches that return the small chunks themselves. Finally it stops the services
    and removes the folder. It needs no API key and no network.

    \b
    Examples:
      hrag demo
      hrag demo docs/ --ask "how do I install it?" --ask "what does it cost?"
    """
    questions = [DemoQuestion(text) for text in ask or []]
    if not paths:
        questions = questions or list(QUESTIONS)
    if not all(question.text.strip() for question in questions):
        raise typer.BadParameter("the question is empty", param_hint="--ask")
    require_readable(paths or ())
    documents = find(paths).documents if paths else topics()
    if not documents:
        raise Failure(f"no files to store in {', '.join(map(str, paths or []))}", ExitCode.USAGE)
    interrupt_on_signals()
    console = output()
    started = time.perf_counter()
    with temporary_services("demo", console, _SETTINGS) as client:
        _present(console, client, documents, questions, searches)
    console.print(
        "The services are stopped and the temporary folder is removed, after "
        f"{time.perf_counter() - started:.0f} s. Next: hrag serve, hrag ingest, hrag search."
    )


def _present(
    console: Console,
    client: "Client",
    documents: Sequence[InputDocument],
    questions: Sequence[DemoQuestion],
    searches: int,
) -> None:
    """Runs all parts of the demo and prints their results.

    The last part prints an overview of the demo's results.
    """
    _show_heading(console, "Store")
    progress = _store(client, documents, console)
    questions = questions or _generated_questions(client, progress)
    _show_heading(console, "Search: small chunks match, larger passages are returned")
    results = _ask(client, questions, console)
    _show_heading(console, "One question by words, by vectors, by both, and to fill a budget")
    _show_sources(console, questions[0], _search_by_source(client, questions[0]))
    _show_heading(console, "One question in every mode")
    wait_for_summaries(client, console)
    by_mode = [client.search(TENANT, questions[0].text, mode=mode) for mode in _MODES]
    _show_modes(console, questions[0], by_mode)
    _show_heading(console, f"Latency: {searches:,} searches in each mode, interleaved")
    samples = compare_modes(client, TENANT, [question.text for question in questions], searches)
    added_us = _show_latency(console, samples)
    _show_heading(console, "Summary")
    console.print(_summary(progress, questions, results, added_us))


def _store(
    client: "Client", documents: Sequence[InputDocument], console: Console
) -> IngestProgress:
    progress = store_documents(client, DEFAULT_COLLECTION, documents, console)
    if not progress.stored:
        raise Failure("none of the files could be stored")
    tree = client.get_collection(TENANT, DEFAULT_COLLECTION).settings.tree
    _show_levels(console, tree.level_sizes, progress.chunks_per_level)
    return progress


def _search_by_source(client: "Client", question: DemoQuestion) -> list[SearchResult]:
    """Returns the results of four searches for the question.

    The first three return leaves: one searches by words, one by vectors and one by both. The last
    returns the text for a language model, up to a token budget.
    """
    leaves = [
        client.search(TENANT, question.text, mode=SearchMode.STANDARD, retrieval=retrieval)
        for retrieval in (Retrieval.LEXICAL, Retrieval.DENSE, Retrieval.HYBRID)
    ]
    budget = client.search(
        TENANT, question.text, mode=SearchMode.CONTEXT, token_budget=_BUDGET_TOKENS
    )
    return [*leaves, budget]


def _generated_questions(client: "Client", progress: IngestProgress) -> list[DemoQuestion]:
    """Returns questions made from headings and sentences of the first stored documents."""
    ids = progress.document_ids[:QUESTION_COUNT]
    documents = [StoredText(_headings(client, id_), client.get_text(TENANT, id_)) for id_ in ids]
    questions = questions_from(documents, QUESTION_COUNT)
    if not questions:
        raise Failure("no sentence in the files can serve as a question; use --ask TEXT")
    return questions


def _headings(client: "Client", document_id: str) -> tuple[str, ...]:
    """Returns the headings inside a document's first chunk of the top level, in order."""
    info = client.get_document(TENANT, document_id)
    top = next(hierarchies(client, TENANT, DEFAULT_COLLECTION, info))
    chunks = [node.chunk for node in nodes(top)]
    chunks.sort(key=lambda chunk: chunk.span.char_start)
    return tuple(dict.fromkeys(heading for chunk in chunks for heading in chunk.section_path))


def _ask(
    client: "Client", questions: Sequence[DemoQuestion], console: Console
) -> list[SearchResult]:
    results = []
    for number, question in enumerate(questions, 1):
        results.append(client.search(TENANT, question.text))
        _show_result(console, number, question, results[-1])
    return results


def _summary(
    progress: IngestProgress,
    questions: Sequence[DemoQuestion],
    results: Sequence[SearchResult],
    added_us: float,
) -> str:
    answerable = [pair for pair in zip(questions, results, strict=True) if pair[0].right]
    right_count = sum(
        1
        for question, result in answerable
        if result.passages and result.passages[0].chunk.document_id in question.right
    )
    first_right = (
        f" For {right_count} of {len(answerable)} questions the first passage is right."
        if answerable
        else ""
    )
    return (
        f"{progress.stored:,} documents, {progress.tokens:,} tokens, stored in "
        f"{progress.seconds:.1f} s.{first_right} Returning larger passages added "
        f"{duration(added_us)} to the p99 latency in the service; the target is at most 100 ms."
    )


@dataclass(frozen=True, slots=True)
class LatencySample:
    """The latency of one search, in microseconds.

    `service_us` is the time of the search, climb and fetch stages in the service;
    `round_trip_us` is the time that the client measured.
    """

    service_us: float
    round_trip_us: float


Samples = dict[SearchMode, list[LatencySample]]


def compare_modes(
    client: "Client", tenant_id: str, queries: Sequence[str], searches: int
) -> Samples:
    """Returns `searches` samples of the latency of a search for each mode in `_TIMED_MODES`.

    Before the measured searches, each query is searched once in each mode. These searches fill the
    cache of query vectors and are not measured.
    """
    samples: Samples = {mode: [] for mode in _TIMED_MODES}
    for query in queries:
        for mode in _TIMED_MODES:
            _timed_search(client, tenant_id, query, mode)
    for number in range(searches):
        query = queries[number % len(queries)]
        for mode in _TIMED_MODES if number % 2 else reversed(_TIMED_MODES):
            samples[mode].append(_timed_search(client, tenant_id, query, mode))
    return samples


def _timed_search(client: "Client", tenant_id: str, query: str, mode: SearchMode) -> LatencySample:
    started = time.perf_counter()
    timings = client.search(tenant_id, query, mode=mode).timings
    round_trip_us = (time.perf_counter() - started) * 1e6
    service_us = timings.search_us + timings.climb_us + timings.fetch_us
    return LatencySample(service_us, round_trip_us)


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the percentile `percent` of `values`, by the nearest-rank method.

    For example, `percent` is 99 for the 99th percentile. `values` must not be empty.
    """
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(rank, 1) - 1]


def _show_heading(console: Console, text: str) -> None:
    """Prints a blank line, then `text` as the heading of a part of the demo."""
    console.print()
    console.rule(Text(text, style="bold"), align="left", style="dim")


def _show_levels(console: Console, sizes: Sequence[int], chunks: Sequence[int]) -> None:
    """Prints the number of chunks at each level, the level with the largest chunks first."""
    table = Table(box=None, padding=(0, 3, 0, 2), header_style="dim")
    table.add_column("level")
    table.add_column("chunk size", justify="right")
    table.add_column("chunks", justify="right")
    for level in reversed(range(len(sizes))):
        table.add_row(str(level), f"{sizes[level]:,} tokens", f"{chunks[level]:,}")
    console.print(table)


def _show_result(
    console: Console, number: int, question: DemoQuestion, result: SearchResult
) -> None:
    """Prints a question and the best passages for it, each with an excerpt of its best leaf."""
    console.print()
    console.print(Text(f"{number}. {question.text}", style="bold"))
    for passage in result.passages[:_PASSAGES_SHOWN]:
        _show_passage(console, question, passage)
    if not result.passages:
        console.print("  nothing found", style="dim")
    console.print(Text(f"  {duration(result.timings.total_us)} in the service", style="dim"))


def _show_passage(console: Console, question: DemoQuestion, passage: Passage) -> None:
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
    for line in excerpt(chunk.content[start:end], question.text, _LINES_SHOWN, width):
        shown = Text(" " * _MARGIN).append("│ ", style="green")
        console.print(shown.append_text(emphasised(line, question.text)), soft_wrap=True)


def _show_sources(
    console: Console, question: DemoQuestion, results: Sequence[SearchResult]
) -> None:
    """Prints the results of four searches for a question: one line for each passage.

    The first three searches return leaves: one searches by words, one by vectors and one by both.
    The last search fills a token budget.
    """
    console.print(Text(question.text, style="bold"))
    for result in results:
        is_budget = result.mode is SearchMode.CONTEXT
        title = (
            "to fill a token budget (context)" if is_budget else _SOURCE_TITLES[result.retrieval]
        )
        console.print(Text(title, style="bold"))
        for passage in result.passages[:_PASSAGES_COMPARED]:
            console.print(Text(f"  {_brief(passage)}{_source_scores(passage)}"), soft_wrap=True)
        console.print(Text(f"  {_context_size(result)}", style="dim"))


def _source_scores(passage: Passage) -> str:
    """Returns the two scores of a passage, by words and by vectors, as text.

    Returns an empty text if the passage lacks one of these scores.
    """
    if passage.lexical_score is None or passage.dense_score is None:
        return ""
    return f"  (words {passage.lexical_score:.2f}, vectors {passage.dense_score:.2f})"


def _show_modes(console: Console, question: DemoQuestion, results: Sequence[SearchResult]) -> None:
    """Prints the results of one question in several modes."""
    console.print(Text(question.text, style="bold"))
    for result in results:
        console.print(Text(_MODE_TITLES[result.mode], style="bold"))
        for passage in result.passages[:_PASSAGES_COMPARED]:
            console.print(Text(f"  {_brief(passage)}"), soft_wrap=True)
        console.print(Text(f"  {_context_size(result)}", style="dim"))


def _brief(passage: Passage) -> str:
    name = printable(passage.chunk.chunk_id)
    return f"{passage.score:.2f}  {name}  {passage.chunk.token_count:,} tokens"


def _context_size(result: SearchResult) -> str:
    tokens = sum(passage.chunk.token_count for passage in result.passages)
    return f"{tokens:,} tokens of context"


def _show_latency(console: Console, samples: Samples) -> float:
    """Prints the latencies of the modes STANDARD and SMALL_TO_BIG.

    Returns the difference of their 99th percentiles, SMALL_TO_BIG minus STANDARD, in microseconds.
    The percentiles are of the times inside the service.
    """
    console.print(
        "The questions' vectors are cached by now, so the times do not include embedding."
    )
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    for name in ("service p50", "service p99", "round trip p50", "round trip p99"):
        table.add_column(name, justify="right", no_wrap=True)
    standard, big = (
        _latency_row(samples, mode) for mode in (SearchMode.STANDARD, SearchMode.SMALL_TO_BIG)
    )
    added = [more - less for more, less in zip(big, standard, strict=True)]
    table.add_row("standard", *map(duration, standard))
    table.add_row("small to big", *map(duration, big))
    table.add_row("difference", *(f"{value / 1000:+.2f} ms" for value in added), style="bold green")
    table.add_row("target", *[f"≤ {_TARGET_US / 1000:.0f} ms"] * len(added), style="dim")
    console.print(table)
    return added[1]


def _latency_row(samples: Samples, mode: SearchMode) -> list[float]:
    service = [sample.service_us for sample in samples[mode]]
    round_trip = [sample.round_trip_us for sample in samples[mode]]
    return [percentile(values, percent) for values in (service, round_trip) for percent in (50, 99)]
