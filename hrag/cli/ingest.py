"""`hrag ingest`: stores files and folders in a collection."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hrag.cli.connection import Credentials, connect, connection_options
from hrag.cli.console import Failure, output
from hrag.cli.files import EXTENSIONS, InputDocument, find
from hrag.cli.ingest_progress import IngestProgress, ingest_all
from hrag.cli.options import DEFAULT_INDEXER, DEFAULT_TENANT, CollectionName, Indexer, Tenant
from hrag.errors import CollectionExists
from hrag.plain_text import printable
from hrag.types import (
    DEFAULT_COLLECTION,
    NO_EMBEDDER,
    IngestOutcome,
    SettingsRequest,
    SummaryUnit,
)

if TYPE_CHECKING:
    from hrag.client import Client


@connection_options
def ingest(
    credentials: Credentials,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files and folders.", show_default=False)
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    create: Annotated[
        bool, typer.Option("--create", help="Create the collection if it does not exist.")
    ] = False,
    summaries: Annotated[
        SummaryUnit | None,
        typer.Option(
            help="With --create: the part of a document that gets one summary, for searches "
            "with --mode summary_first. Default: the indexer's HRAG_SUMMARIES.",
            show_default=False,
        ),
    ] = None,
    analyzer: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="With --create: the language of the texts, for searches by words: english, german "
            "and so on, or simple for no stemming. Default: the indexer's HRAG_ANALYZER.",
            show_default=False,
        ),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help=f"With --create: {NO_EMBEDDER} makes a collection without vectors, which is "
            "searched by words alone. Default: the indexer's HRAG_EMBEDDER.",
            show_default=False,
        ),
    ] = None,
    indexer: Indexer = DEFAULT_INDEXER,
) -> None:
    """Store files and folders. They can be searched as soon as the command ends.

    From a folder, the files with the extensions .txt .text .md .markdown .rst and .pdf are
    stored, in sorted order; hidden files and folders are skipped. A file given by name is
    stored whatever its extension. The document id of a file is its path inside the folder,
    with ":" in place of "/".

    Citations show the title that a document itself gives (front matter, first heading of
    level 1 or PDF metadata), or else its file, with sections of Markdown and pages of PDFs.

    Running the command again is cheap: unchanged documents are neither embedded nor written.
    The exit code is 1 if any file failed.

    \b
    Examples:
      hrag ingest docs/
      hrag ingest handbook.pdf notes.md --tenant acme --collection guides --create
      hrag ingest books/ --collection books --create --summaries section
      hrag ingest logs/ --collection logs --create --embedder none --analyzer simple
    """
    wanted = {"summaries": summaries, "analyzer": analyzer, "embedder": embedder}
    _check_create(create, wanted)
    documents = find(paths)
    if not documents:
        raise Failure(
            f"no files to ingest in {', '.join(map(str, paths))}; "
            f"folders are searched for {' '.join(EXTENSIONS)}"
        )
    console = output()
    with connect(credentials, indexer=indexer) as client:
        if create:
            _create(client, tenant, collection, wanted)
        progress = ingest_with_progress(client, tenant, collection, documents, console)
        show_outcomes(progress, console)
        if progress.error is not None:
            raise progress.error
    if progress.failures:
        raise typer.Exit(1)


def _check_create(create: bool, wanted: Mapping[str, str | None]) -> None:
    """Raises BadParameter for a setting of new collections without --create."""
    for setting, value in wanted.items():
        if value is not None and not create:
            raise typer.BadParameter(
                "it applies to new collections only: add --create", param_hint=f"--{setting}"
            )


def _create(client: "Client", tenant: str, collection: str, wanted: Mapping[str, Any]) -> None:
    """Creates the collection unless it exists with the same settings."""
    try:
        client.create_collection(tenant, collection, SettingsRequest(**wanted))
    except CollectionExists:
        settings = client.get_collection(tenant, collection).settings
        language = settings.analyzer.partition("/")[0]
        existing = {
            "summaries": settings.summaries,
            "analyzer": language or "none",
            "embedder": settings.embedder,
        }
        for setting, value in wanted.items():
            if value not in (None, existing[setting]):
                raise Failure(
                    f"collection {collection} exists already, with {setting} "
                    f"{existing[setting]}, not {value}; a collection's {setting} cannot be "
                    "changed after its creation"
                ) from None


def ingest_with_progress(
    client: "Client",
    tenant: str,
    collection: str,
    documents: Sequence[InputDocument],
    console: Console,
) -> IngestProgress:
    """Ingests documents and shows a progress bar if `console` is a terminal."""
    with _progress_bar(len(documents), console) as show:
        return ingest_all(client, tenant, collection, documents, show)


@contextmanager
def _progress_bar(total: int, console: Console) -> Iterator[Callable[[IngestProgress], None]]:
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} documents  {task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=total)

        def show(progress: IngestProgress) -> None:
            text = f"{progress.tokens:,} tokens  {_rates(progress)}"
            bar.update(task, completed=progress.completed, description=text)

        yield show


def _rates(progress: IngestProgress) -> str:
    documents_per_s = progress.rate(progress.stored)
    return f"{documents_per_s:,.1f} documents/s, {progress.rate(progress.tokens):,.0f} tokens/s"


def show_outcomes(progress: IngestProgress, console: Console) -> None:
    """Prints each failure on a line of its own, then the counts and the rates."""
    for label, reason in progress.failures:
        line = printable(f"{label}: {reason}").replace("\n", " ")
        console.print(line, style="red", markup=False, soft_wrap=True)
    counts = ", ".join(f"{progress.outcomes[outcome]:,} {outcome}" for outcome in IngestOutcome)
    console.print(
        f"{progress.completed:,} of {progress.total:,} documents: {counts}, "
        f"{len(progress.failures):,} failed",
        soft_wrap=True,
    )
    console.print(
        f"{progress.tokens:,} tokens in {progress.seconds:.1f} s ({_rates(progress)})",
        soft_wrap=True,
    )
