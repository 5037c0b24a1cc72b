"""`hrag demo`: stores and searches documents on this machine, without any setup.

Nothing is simulated: the services run as separate processes on a store in a temporary folder.
At the end they are stopped and the folder is removed.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.demo.corpus import QUESTIONS, Question, StoredText, questions_from, topics
from hrag.cli.demo.latency import compare_modes
from hrag.cli.documents.chunk_tree import hierarchies, nodes
from hrag.cli.ingest.files import find
from hrag.cli.ingest.ingest import ingest_with_progress
from hrag.cli.ingest.ingest_progress import IngestProgress
from hrag.cli.ingest.input_document import InputDocument
from hrag.cli.ingest.outcomes import show_outcomes
from hrag.cli.terminal.console import Failure, output
from hrag.cli.terminal.render import counted, duration
from hrag.cli.terminal.signals import interrupt_on_signals
from hrag.text.plain_text import printable
from hrag.values.errors import HragError
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.search import Retrieval, SearchMode, SearchResult

if TYPE_CHECKING:  # The command imports gRPC only when it runs.
    from hrag.cli.services.processes import Services
    from hrag.client import Client

TENANT = "demo"
QUESTION_COUNT = 6

_START_S = 90.0  # Two services load the embedder, perhaps on a slow machine.
_STOP_S = 20.0
_SUMMARIES_S = 180.0
_POLL_S = 0.1
_BUDGET_TOKENS = 1000
_MODES = (
    SearchMode.STANDARD,
    SearchMode.SENTENCE_WINDOW,
    SearchMode.AUTO_MERGE,
    SearchMode.SMALL_TO_BIG,
    SearchMode.SUMMARY_FIRST,
    SearchMode.CONTEXT,
)
# These settings override the environment. A chat model would cost money. Authentication, TLS and
# quotas are useless here, because nobody else calls these services.
_SETTINGS = {
    "HRAG_EMBEDDER": "builtin",
    "HRAG_SUMMARIES": "chunk",
    "HRAG_CHAT_MODEL": "",
    "HRAG_AUTH": "none",
    "HRAG_TLS_CERT_FILE": "",
    "HRAG_TLS_KEY_FILE": "",
    "HRAG_TLS_CLIENT_CA_FILE": "",
    "HRAG_TENANT_CALLS_PER_S": "",
    "HRAG_TENANT_MAX_BYTES": "",
    "HRAG_TENANT_MAX_DOCUMENTS": "",
    "HRAG_TENANT_MAX_COLLECTIONS": "",
    "HRAG_TENANT_QUOTAS_FILE": "",
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

    questions = [Question(text) for text in ask or []]
    if not paths:
        questions = questions or list(QUESTIONS)
    documents = find(paths).documents if paths else topics()
    if not documents:
        raise Failure(f"no files to store in {', '.join(map(str, paths or []))}")
    interrupt_on_signals()
    console = output()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hrag-demo-") as folder:
        _run_in(Path(folder), console, documents, questions, searches)
    console.print(
        "The services are stopped and the temporary folder is removed, after "
        f"{time.perf_counter() - started:.0f} s. Next: hrag serve, hrag ingest, hrag search."
    )


def _run_in(
    folder: Path,
    console: Console,
    documents: Sequence[InputDocument],
    questions: Sequence[Question],
    searches: int,
) -> None:
    """Runs the demo with services whose store and logs are in `folder`."""
    from hrag.cli.services import processes  # noqa: PLC0415
    from hrag.client import Client  # noqa: PLC0415

    indexer, retriever = processes.free_addresses(2)
    services = processes.Services(
        folder / "data", indexer, retriever, logs=folder, settings=_SETTINGS, stop_s=_STOP_S
    )
    try:
        with services:
            _wait_until_serving(console, services)
            with Client(indexer=indexer, retriever=retriever) as client:
                _present(console, client, documents, questions, searches)
        services.check_stopped_cleanly()
    except (Failure, HragError):
        _show_logs(services)
        raise


def _wait_until_serving(console: Console, services: "Services") -> None:
    with console.status("starting both services"):
        services.wait_until_serving(_START_S)
    for service, address in services.addresses.items():
        console.print(f"{service.name} serves at {address}")


def _present(
    console: Console,
    client: "Client",
    documents: Sequence[InputDocument],
    questions: Sequence[Question],
    searches: int,
) -> None:
    """Runs all parts of the demo, from storing the documents to the summary."""
    from hrag.cli.demo import show  # noqa: PLC0415

    show.show_heading(console, "Store")
    progress = _store(client, documents, console)
    questions = questions or _generated_questions(client, progress)
    show.show_heading(console, "Search: small chunks match, larger passages are returned")
    results = _ask(client, questions, console)
    show.show_heading(console, "One question by words, by vectors, by both, and as a full budget")
    show.show_sources(console, questions[0], _by_source(client, questions[0]))
    show.show_heading(console, "One question in every mode")
    _wait_for_summaries(client, console)
    by_mode = [client.search(TENANT, questions[0].text, mode=mode) for mode in _MODES]
    show.show_modes(console, questions[0], by_mode)
    show.show_heading(console, f"Latency: {searches:,} searches in each mode, interleaved")
    samples = compare_modes(client, TENANT, [question.text for question in questions], searches)
    added_us = show.show_latency(console, samples)
    show.show_heading(console, "Summary")
    console.print(_summary(progress, questions, results, added_us))


def _store(
    client: "Client", documents: Sequence[InputDocument], console: Console
) -> IngestProgress:
    from hrag.cli.demo.show import show_levels  # noqa: PLC0415

    progress = ingest_with_progress(client, TENANT, DEFAULT_COLLECTION, documents, console)
    show_outcomes(progress)
    if progress.error is not None:
        raise progress.error
    if not progress.stored:
        raise Failure("none of the files could be stored")
    tree = client.get_collection(TENANT, DEFAULT_COLLECTION).settings.tree
    show_levels(console, tree.level_sizes, progress.chunks_per_level)
    return progress


def _by_source(client: "Client", question: Question) -> list[SearchResult]:
    """Returns the results of four searches for the question.

    The first three return leaves, found by words, by vectors and by both. The last returns the
    text for a language model, up to a token budget.
    """
    leaves = [
        client.search(TENANT, question.text, mode=SearchMode.STANDARD, retrieval=retrieval)
        for retrieval in (Retrieval.LEXICAL, Retrieval.DENSE, Retrieval.HYBRID)
    ]
    budget = client.search(
        TENANT, question.text, mode=SearchMode.CONTEXT, token_budget=_BUDGET_TOKENS
    )
    return [*leaves, budget]


def _wait_for_summaries(client: "Client", console: Console) -> None:
    """Waits until the indexer has written all summaries, at most `_SUMMARIES_S` seconds.

    The indexer writes summaries in the background.
    """
    deadline = time.monotonic() + _SUMMARIES_S
    with console.status("writing summaries") as spinner:
        while (index := client.index_status(TENANT)).unsummarised_documents:
            if time.monotonic() > deadline:
                break
            spinner.update(f"writing summaries; waiting: {index.unsummarised_documents:,}")
            time.sleep(_POLL_S)
    unfinished = index.unsummarised_documents
    waiting = f"; {counted(unfinished, 'document')} still waiting" if unfinished else ""
    console.print(f"{index.summary_count:,} summaries, made of the documents' sentences{waiting}")


def _generated_questions(client: "Client", progress: IngestProgress) -> list[Question]:
    """Returns questions made from headings and sentences of the first documents."""
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


def _ask(client: "Client", questions: Sequence[Question], console: Console) -> list[SearchResult]:
    from hrag.cli.demo.show import show_result  # noqa: PLC0415

    results = []
    for number, question in enumerate(questions, 1):
        results.append(client.search(TENANT, question.text))
        show_result(console, number, question, results[-1])
    return results


def _summary(
    progress: IngestProgress,
    questions: Sequence[Question],
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


def _show_logs(services: "Services") -> None:
    stderr = Console(stderr=True)
    stderr.print(Text("last log lines of the services:", style="bold"))
    stderr.print(Text(printable(services.log_tail())), soft_wrap=True)
