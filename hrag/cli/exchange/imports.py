"""`hrag import`: stores documents that `hrag export` wrote."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from hrag.cli.exchange.json_lines import NotAnExport, parse_document, parse_header
from hrag.cli.ingest.ingest_progress import IngestProgress, ingest_all
from hrag.cli.ingest.input_document import InputDocument, ReadDocument, Unreadable, sendable
from hrag.cli.ingest.lines import Line, lines_of
from hrag.cli.ingest.outcomes import print_outcome, print_summary, show_outcomes
from hrag.cli.ingest.progress_display import shown_progress
from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJsonLines,
    CollectionName,
    Indexer,
    Tenant,
)
from hrag.cli.terminal.console import Failure, output
from hrag.values.errors import CollectionExists
from hrag.values.limits import DEFAULT_COLLECTION

# The longest text has 256 MiB, and escaping may double its length.
MAX_LINE_BYTES = 512 * 1024 * 1024
_STANDARD_INPUT = Path("-")


@connection_options
def import_documents(
    credentials: Credentials,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The file that hrag export wrote; - means standard input.",
            show_default=False,
        ),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create the collection if it does not exist, with the settings of the exported "
            "collection.",
        ),
    ] = False,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJsonLines = False,
) -> None:
    """Store the documents of an export, under their ids, with their metadata and pages.

    If a line cannot be read, the command reports its number and the reason, stores the other
    lines, and ends with exit code 1. If an import was interrupted, run it again: documents that
    are stored already are neither embedded nor written again.

    \b
    Examples:
      hrag import guides.jsonl --collection guides --create
      gunzip < search.jsonl.gz | hrag import - --tenant acme
      hrag export | hrag import - --indexer other:50051
    """
    with _open(source) as file, connect(credentials, indexer=indexer) as client:
        lines = lines_of(file, MAX_LINE_BYTES)
        first = next(lines, None)
        try:
            settings = parse_header(first.content if first else b"")
        except NotAnExport as error:
            raise Failure(f"{source}: {error}") from None
        if create:
            with suppress(CollectionExists):
                client.create_collection(tenant, collection, settings)
        documents = _documents(lines)
        if as_json:
            progress = IngestProgress(on_outcome=print_outcome)
            ingest_all(client, tenant, collection, documents, progress)
            print_summary(progress, [], [])
        else:
            progress = IngestProgress(total_bytes=_size(source))
            with shown_progress(progress, output()):
                ingest_all(client, tenant, collection, documents, progress)
            show_outcomes(progress)
        if progress.error is not None:
            raise progress.error
    if progress.failures:
        raise typer.Exit(1)


@contextmanager
def _open(source: Path) -> Iterator[BinaryIO]:
    if source == _STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise Failure(f"{source}: {error.strerror or error}") from None
    with file:
        yield file


def _size(source: Path) -> int:
    return 0 if source == _STANDARD_INPUT else source.stat().st_size


def _documents(lines: Iterable[Line]) -> Iterator[InputDocument]:
    """Yields the document of each line; blank lines are skipped."""
    for line in lines:
        if line.content.strip():
            yield InputDocument(f"line {line.number}", partial(_read, line), line.size)


def _read(line: Line) -> ReadDocument:
    if line.size > MAX_LINE_BYTES:
        raise Unreadable(f"it has {line.size:,} bytes; at most {MAX_LINE_BYTES:,} are allowed")
    return ReadDocument(sendable(parse_document(line.content)))
