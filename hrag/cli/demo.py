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

from hrag.cli.console import Failure, output
from hrag.errors import HragError
from hrag.types import DEFAULT_COLLECTION, SearchMode, SearchResult

if TYPE_CHECKING:
    from hrag.cli.demo_corpus import Question
    from hrag.cli.files import Source
    from hrag.cli.ingesting import Tally
    from hrag.client import Client

TENANT = "demo"
QUESTION_COUNT = 6

_START_S = 90.0  # Two services that load the embedder, on a slow machine.
_STOP_S = 20.0
_SETTINGS = {"HRAG_EMBEDDER": "builtin"}


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
    from hrag.cli import running  # noqa: PLC0415

    sources = _sources(paths or [])
    running.stop_on_signals()
    console = output()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hrag-demo-") as folder:
        indexer, retriever = running.free_addresses(2)
        services = running.Services(
            Path(folder, "data"),
            indexer,
            retriever,
            logs=Path(folder),
            settings=_SETTINGS,
            stop_s=_STOP_S,
        )
        try:
            with services:
                _tell(console, services, sources, ask or [], searches)
            services.check_stopped_cleanly()
        except (Failure, HragError):
            _show_logs(services)
            raise
    console.print(
        f"Everything is stopped and removed again, after {time.perf_counter() - began:.0f} s. "
        "Next: hrag serve, hrag ingest, hrag search."
    )


def _sources(paths: Sequence[Path]) -> "list[Source]":
    from hrag.cli.demo_corpus import topics  # noqa: PLC0415
    from hrag.cli.files import find  # noqa: PLC0415

    if not paths:
        return topics()
    sources = find(paths)
    if not sources:
        raise Failure(f"no files to store in {', '.join(map(str, paths))}")
    return sources


def _show_logs(services: "running.Services") -> None:
    stderr = Console(stderr=True)
    stderr.print(Text("the services' last log lines:", style="bold"))
    stderr.print(Text(printable(services.log_tail())), soft_wrap=True)
