"""`hrag demo`: the whole of hrag on this machine, from nothing, in half a minute.

Nothing is played: the services are the real programs, in processes of their own, on a
store in a temporary folder. At the end they are stopped and the folder is gone.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.console import Failure, output, printable
from hrag.cli.demo_corpus import QUESTIONS, Question, questions_from, topics
from hrag.cli.files import Source, find
from hrag.cli.ingest import ingest_shown, show_tally
from hrag.cli.ingest_progress import Tally
from hrag.cli.latency import compare
from hrag.cli.render import counted, duration
from hrag.errors import HragError
from hrag.types import DEFAULT_COLLECTION, SearchMode, SearchResult

if TYPE_CHECKING:  # gRPC is imported when the command runs.
    from hrag.cli.processes import Services
    from hrag.client import Client

TENANT = "demo"
QUESTION_COUNT = 6

_START_S = 90.0  # Two services that load the embedder, on a slow machine.
_STOP_S = 20.0
_SUMMARIES_S = 180.0
_POLL_S = 0.1
# Whatever the environment says: no chat model, for nobody is to pay for a demonstration, and
# no keys, certificates and quotas, for nobody else is asked in.
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
        typer.Argument(metavar="[PATH]...", help="Your own files and folders.", show_default=False),
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option("--ask", help="Ask this instead; may be repeated.", show_default=False),
    ] = None,
    searches: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many searches of each kind to time.")
    ] = 300,
) -> None:
    """See hrag work: store, ask, compare, measure, and leave nothing behind.

    Starts both services on free ports with an empty store in a temporary folder, stores
    Python's own help topics or the files you name, and asks questions. For each it shows
    the passages that come back and the leaf, the small chunk that was searched, which led
    there. Then it times searches that return larger passages beside searches that return
    the leaves themselves. Needs no key and no network.

    \b
    Examples:
      hrag demo
      hrag demo docs/ --ask "how do I install it?" --ask "what does it cost?"
    """
    from hrag.cli.processes import stop_on_signals  # noqa: PLC0415

    questions = [Question(text) for text in ask or []]
    if not paths:
        questions = questions or list(QUESTIONS)
    sources = find(paths) if paths else topics()
    if not sources:
        raise Failure(f"no files to store in {', '.join(map(str, paths or []))}")
    stop_on_signals()
    console = output()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hrag-demo-") as folder:
        _run_in(Path(folder), console, sources, questions, searches)
    console.print(
        f"Everything is stopped and removed again, after {time.perf_counter() - began:.0f} s. "
        "Next: hrag serve, hrag ingest, hrag search."
    )


def _run_in(
    folder: Path,
    console: Console,
    sources: Sequence[Source],
    questions: Sequence[Question],
    searches: int,
) -> None:
    """Tells the story with services whose store and logs lie in `folder`."""
    from hrag.cli import processes  # noqa: PLC0415

    indexer, retriever = processes.free_addresses(2)
    services = processes.Services(
        folder / "data", indexer, retriever, logs=folder, settings=_SETTINGS, stop_s=_STOP_S
    )
    try:
        with services:
            _tell(console, services, sources, questions, searches)
        services.check_stopped_cleanly()
    except (Failure, HragError):
        _show_logs(services)
        raise


def _tell(
    console: Console,
    services: "Services",
    sources: Sequence[Source],
    questions: Sequence[Question],
    searches: int,
) -> None:
    """The story, from the services' start to the closing words."""
    from hrag.cli import demo_show as show  # noqa: PLC0415
    from hrag.client import Client  # noqa: PLC0415

    with console.status("starting both services"):
        services.wait_until_serving(_START_S)
    for service, address in services.addresses.items():
        console.print(f"{service.name} serves at {address}")
    with Client(indexer=services.indexer, retriever=services.retriever) as client:
        show.show_heading(console, "Store")
        tally = _store(client, sources, console)
        questions = questions or _derived(client, tally)
        show.show_heading(console, "Ask: search small chunks, get back what is around them")
        answers = _ask(client, questions, console)
        show.show_heading(console, "The same question in every mode")
        _wait_for_summaries(client, console)
        modes = (
            SearchMode.STANDARD,
            SearchMode.SENTENCE_WINDOW,
            SearchMode.AUTO_MERGE,
            SearchMode.SMALL_TO_BIG,
            SearchMode.SUMMARY_FIRST,
        )
        show.show_modes(
            console,
            questions[0],
            [client.search(TENANT, questions[0].text, mode=mode) for mode in modes],
        )
        show.show_heading(console, f"Measure: {searches:,} searches of each kind, interleaved")
        samples = compare(client, TENANT, [each.text for each in questions], searches)
        added_us = show.show_measured(console, samples)
    show.show_heading(console, "In short")
    console.print(_closing(tally, questions, answers, added_us))


def _store(client: "Client", sources: Sequence[Source], console: Console) -> Tally:
    from hrag.cli.demo_show import show_stored  # noqa: PLC0415

    tally = ingest_shown(client, TENANT, DEFAULT_COLLECTION, sources, console)
    show_tally(tally, console)
    if tally.broken is not None:
        raise tally.broken
    if not tally.stored:
        raise Failure("none of the files could be stored")
    tree = client.get_collection(TENANT, DEFAULT_COLLECTION).settings.tree
    show_stored(console, tree.level_sizes, tally.chunks_per_level)
    return tally


def _wait_for_summaries(client: "Client", console: Console) -> None:
    """They are written while questions are asked; of many documents it may take long."""
    until = time.monotonic() + _SUMMARIES_S
    with console.status("writing summaries") as shown:
        while (index := client.index_status(TENANT)).unsummarised_documents:
            if time.monotonic() > until:
                break
            shown.update(f"writing summaries; waiting: {index.unsummarised_documents:,}")
            time.sleep(_POLL_S)
    left = index.unsummarised_documents
    waiting = f"; {counted(left, 'document')} still without" if left else ""
    console.print(f"{index.summary_count:,} summaries, made of the documents' sentences{waiting}")


def _derived(client: "Client", tally: Tally) -> list[Question]:
    """Questions from the beginnings of the first documents."""
    names = tally.document_ids[:QUESTION_COUNT]
    questions = questions_from([client.get_text(TENANT, name) for name in names], QUESTION_COUNT)
    if not questions:
        raise Failure("the files hold no sentence to ask about; ask yourself: --ask TEXT")
    return questions


def _ask(client: "Client", questions: Sequence[Question], console: Console) -> list[SearchResult]:
    from hrag.cli.demo_show import show_answer  # noqa: PLC0415

    answers = []
    for number, question in enumerate(questions, 1):
        answers.append(client.search(TENANT, question.text))
        show_answer(console, number, question, answers[-1])
    return answers


def _closing(
    tally: Tally, questions: Sequence[Question], answers: Sequence[SearchResult], added_us: float
) -> str:
    known = [pair for pair in zip(questions, answers, strict=True) if pair[0].right]
    found = sum(
        1
        for question, answer in known
        if answer.passages and answer.passages[0].chunk.document_id in question.right
    )
    first = f" {found} of {len(known)} questions found a right document first." if known else ""
    return (
        f"{tally.stored:,} documents, {tally.tokens:,} tokens, stored in {tally.seconds:.1f} s."
        f"{first} Returning larger passages added {duration(added_us)} at p99 in the service; "
        "the specification allows 100 ms."
    )


def _show_logs(services: "Services") -> None:
    stderr = Console(stderr=True)
    stderr.print(Text("the services' last log lines:", style="bold"))
    stderr.print(Text(printable(services.log_tail())), soft_wrap=True)
