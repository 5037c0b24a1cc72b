"""`hrag ingest`: files and folders into a collection."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hrag.cli.connection import Credentials, connected, connecting
from hrag.cli.console import Failure, output, printable
from hrag.cli.files import EXTENSIONS, Source, find
from hrag.cli.ingest_progress import Tally, ingest_all
from hrag.cli.options import DEFAULT_INDEXER, DEFAULT_TENANT, CollectionName, Indexer, Tenant
from hrag.errors import CollectionExists
from hrag.types import DEFAULT_COLLECTION, IngestOutcome, SettingsRequest, SummaryUnit

if TYPE_CHECKING:
    from hrag.client import Client


@connecting
def ingest(
    credentials: Credentials,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files and folders.", show_default=False)
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    create: Annotated[
        bool, typer.Option("--create", help="Create the collection if there is none.")
    ] = False,
    summaries: Annotated[
        SummaryUnit | None,
        typer.Option(
            help="With --create: what of a document gets a summary each, for searches in "
            "summary_first. Default: the indexer's HRAG_SUMMARIES.",
            show_default=False,
        ),
    ] = None,
    indexer: Indexer = DEFAULT_INDEXER,
) -> None:
    """Store files and folders: cut into chunks, embedded, searchable at once.

    Folders are walked in order for .txt .text .md .markdown .rst and .pdf; hidden files
    and folders are left out. A file that is named itself is tried whatever its extension.
    Headings of Markdown and pages of PDFs come back in citations. A file's document id is
    its path inside the folder given, with ":" for "/".

    Running it again is cheap: what has not changed is neither embedded nor written. Exit
    code 1 if any file failed.

    \b
    Examples:
      hrag ingest docs/
      hrag ingest handbook.pdf notes.md --tenant acme --collection guides --create
      hrag ingest books/ --collection books --create --summaries section
    """
    if summaries is not None and not create:
        raise typer.BadParameter(
            "only a new collection takes it: add --create", param_hint="--summaries"
        )
    sources = find(paths)
    if not sources:
        raise Failure(
            f"no files to ingest in {', '.join(map(str, paths))}; "
            f"folders are searched for {' '.join(EXTENSIONS)}"
        )
    console = output()
    with connected(credentials, indexer=indexer) as client:
        if create:
            _create(client, tenant, collection, summaries)
        tally = ingest_shown(client, tenant, collection, sources, console)
        show_tally(tally, console)
        if tally.broken is not None:
            raise tally.broken
    if tally.failures:
        raise typer.Exit(1)


def _create(client: "Client", tenant: str, collection: str, summaries: SummaryUnit | None) -> None:
    """Makes sure that there is such a collection."""
    try:
        client.create_collection(tenant, collection, SettingsRequest(summaries=summaries))
    except CollectionExists:
        has = client.get_collection(tenant, collection).settings.summaries
        if summaries not in (None, has):
            raise Failure(
                f"collection {collection} is there already, with summaries {has}, not "
                f"{summaries}; what a collection has is settled when it is created"
            ) from None


def ingest_shown(
    client: "Client", tenant: str, collection: str, sources: Sequence[Source], console: Console
) -> Tally:
    """Ingests with a progress bar, where there is a terminal to draw one on."""
    with _progress(len(sources), console) as show:
        return ingest_all(client, tenant, collection, sources, show)


@contextmanager
def _progress(total: int, console: Console) -> Iterator[Callable[[Tally], None]]:
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} documents  {task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=total)

        def show(tally: Tally) -> None:
            rates = (
                f"{tally.tokens:,} tokens  {tally.rate(tally.stored):,.1f} documents/s  "
                f"{tally.rate(tally.tokens):,.0f} tokens/s"
            )
            progress.update(task, completed=tally.answered, description=rates)

        yield show


def show_tally(tally: Tally, console: Console) -> None:
    """Each failure on a line of its own, then what was done and how fast."""
    for label, reason in tally.failures:
        line = printable(f"{label}: {reason}").replace("\n", " ")
        console.print(line, style="red", markup=False, soft_wrap=True)
    counts = ", ".join(f"{tally.outcomes[outcome]:,} {outcome}" for outcome in IngestOutcome)
    console.print(
        f"{tally.answered:,} of {tally.total:,} documents: {counts}, "
        f"{len(tally.failures):,} failed",
        soft_wrap=True,
    )
    console.print(
        f"{tally.tokens:,} tokens in {tally.seconds:.1f} s "
        f"({tally.rate(tally.stored):,.1f} documents/s, {tally.rate(tally.tokens):,.0f} tokens/s)",
        soft_wrap=True,
    )
