"""`hrag export` writes documents for other programs; `hrag import` stores exported documents."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from hrag.cli.export_format import (
    ExportReader,
    NotAnExport,
    document_line,
    header_line,
    parse_document,
    parse_header,
)
from hrag.cli.ingest_progress import (
    IngestProgress,
    ingest_all,
    print_outcome,
    print_summary,
    show_outcomes,
    shown_progress,
)
from hrag.cli.input_documents import (
    STANDARD_INPUT,
    InputDocument,
    Line,
    check_size,
    lines_of,
    sendable,
)
from hrag.cli.option_values import WHERE_OPTION, parse_filters
from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJsonLines,
    CollectionName,
    Credentials,
    Indexer,
    Retriever,
    Tenant,
    Where,
    all_documents,
    check_target,
    connect,
    connection_options,
)
from hrag.cli.terminal import ExitCode, Failure, output, show_note
from hrag.host import durable_files
from hrag.host.private_files import opener
from hrag.text.noun_counts import counted
from hrag.values.collections import SettingsRequest
from hrag.values.documents import Document, DocumentInfo
from hrag.values.errors import CollectionExists
from hrag.values.limits import DEFAULT_COLLECTION

# The maximum length of a line of an export. The longest text of a document has 256 MiB, and the
# escapes of JSON may double its length.
MAX_LINE_BYTES = 512 * 1024 * 1024

_Lines = Iterator[str]

OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        dir_okay=False,
        help="The file to write; it appears when it is complete. Default: standard output.",
    ),
]


def check_file_output(target: Path | None, content: str) -> None:
    """Refuses a terminal as the output of a file, and a target that cannot be written.

    `content` says what the file is, for example `an image`. Raises BadParameter or Failure.
    """
    if target is not None:
        check_target(target)
    elif sys.stdout.isatty():
        raise typer.BadParameter(
            f"standard output is a terminal, which cannot show {content}; give --output FILE",
            param_hint="--output",
        )


class ExportFormat(StrEnum):
    """The file formats of `hrag export`: JSON Lines, GraphML or Cypher."""

    JSONL = "jsonl"
    GRAPHML = "graphml"
    CYPHER = "cypher"


@connection_options
def export(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="jsonl writes documents, for hrag import. graphml and cypher write documents and "
            "chunks as a graph.",
        ),
    ] = ExportFormat.JSONL,
    target: OutputFile = None,
    where: Where = None,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Write a collection's documents, one at a time, in order of id.

    jsonl has one document in each line, with its metadata and its text or pages; hrag import
    reads it. The text is the text that was indexed, not the file that it was read from.

    graphml and cypher have (:Document)-[:HAS_CHUNK]->(:Chunk)-[:HAS_CHILD]->(:Chunk), with the
    content of every chunk. Cypher statements can be run again.

    Documents that are deleted during the export, or are replaced whenever they are read, are left
    out. The command reports how many these are.

    \b
    Examples:
      hrag export --collection guides -o guides.jsonl
      hrag export --where team=search | gzip > search.jsonl.gz
      hrag export --format graphml -o chunks.graphml
      hrag export --format cypher | cypher-shell
    """
    filter = parse_filters(where, WHERE_OPTION)
    if target is not None:
        check_target(target)
    with connect(credentials, indexer, retriever) as client:
        settings = client.get_collection(tenant, collection)
        reader = ExportReader(client, tenant, collection)
        infos = all_documents(client, tenant, collection, filter)
        counts = _ExportCounts()
        if form is ExportFormat.JSONL:
            lines = _json_lines(header_line(settings), reader, infos, counts)
        else:
            lines = _graph_lines(form, reader, infos, counts, (tenant, collection))
        with open_output(target) as file:
            for line in lines:
                file.write(line.encode())
    left_out = f"; left out because they changed during the export: {counts.left_out:,}"
    written = f"exported {counted(counts.written, 'document')}"
    show_note(written + (left_out if counts.left_out else ""))


class _ExportCounts:
    """The count of documents that were written, and the count of documents that were left out."""

    written = 0
    left_out = 0


def _json_lines(
    header: str, reader: ExportReader, infos: Iterator[DocumentInfo], counts: _ExportCounts
) -> _Lines:
    yield header
    for info in infos:
        document = reader.with_pages(info)
        if document is None:
            counts.left_out += 1
            continue
        yield document_line(document)
        counts.written += 1


def _graph_lines(
    form: ExportFormat,
    reader: ExportReader,
    infos: Iterator[DocumentInfo],
    counts: _ExportCounts,
    scope: tuple[str, str],
) -> _Lines:
    # Python's XML package loads an HTTP client, so it is imported only when it is needed.
    from hrag.cli.graph_formats import Cypher, GraphFormat, GraphMl, graph_of  # noqa: PLC0415

    graph: GraphFormat = GraphMl() if form is ExportFormat.GRAPHML else Cypher()
    yield graph.header()
    for info in infos:
        document = reader.with_tree(info)
        if document is None:
            counts.left_out += 1
            continue
        nodes, edges = graph_of(*scope, document)
        yield from map(graph.node, nodes)
        yield from map(graph.edge, edges)
        counts.written += 1
    yield graph.footer()


@contextmanager
def open_output(target: Path | None) -> Iterator[BinaryIO]:
    """Yields a file object that writes to `target`, or to standard output if `target` is None.

    Raises Failure if the output cannot be written.
    """
    try:
        if target is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif target.exists() and not target.is_file():
            # If the target is a pipe or a device, the output is written to it directly. Only a
            # regular file is replaced by a new file.
            with target.open("wb") as file:
                yield file
        else:
            with _replacing(target) as file:
                yield file
    except BrokenPipeError:
        # The program that reads the output has closed the pipe. That is not an error.
        raise
    except OSError as error:
        raise Failure(f"{target or 'standard output'}: {error.strerror or error}") from error


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """Yields a new file, which replaces the file at `target` when the `with` block ends.

    If the block raises an error, or if the power fails, the file at `target` stays as it is. Raises
    OSError if the new file cannot be written.
    """
    incomplete = target.with_name(f"{target.name}.partial")
    with open(incomplete, "wb", opener=opener) as file:
        try:
            yield file
            file.flush()
            durable_files.sync(incomplete)
            incomplete.replace(target)
            durable_files.sync(target.parent)
        except BaseException:
            incomplete.unlink(missing_ok=True)
            raise


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

    If a line cannot be read, the command reports the line's number and the reason, stores the
    documents of the other lines, and ends with exit code 1. If an import was interrupted, run it
    again: documents that are stored already are neither embedded nor written again.

    \b
    Examples:
      hrag import guides.jsonl --collection guides --create
      gunzip < search.jsonl.gz | hrag import - --tenant acme
      hrag export | hrag import - --indexer other:50051
    """
    with (
        _open_export(source) as (settings, lines),
        connect(credentials, indexer=indexer) as client,
    ):
        if create:
            with suppress(CollectionExists):
                client.create_collection(tenant, collection, settings)
        documents = documents_of_lines(lines)
        if as_json:
            progress = IngestProgress(on_outcome=print_outcome)
            ingest_all(client, tenant, collection, documents, progress)
            print_summary(progress, [], [])
        else:
            progress = IngestProgress(total_bytes=_input_size(source))
            with shown_progress(progress, output()):
                ingest_all(client, tenant, collection, documents, progress)
            show_outcomes(progress)
        if progress.error is not None:
            raise progress.error
    if progress.failures:
        raise typer.Exit(1)


@contextmanager
def _open_export(source: Path) -> Iterator[tuple[SettingsRequest, Iterator[Line]]]:
    """Yields the settings of the exported collection, and the lines after the first.

    Raises Failure if the file cannot be read or is no export.
    """
    with _open_input(source) as file:
        lines = lines_of(file, MAX_LINE_BYTES)
        first = next(lines, None)
        try:
            settings = parse_header(first.content if first else b"")
        except NotAnExport as error:
            raise Failure(f"{source}: {error}", ExitCode.USAGE) from None
        yield settings, lines


@contextmanager
def _open_input(source: Path) -> Iterator[BinaryIO]:
    if source == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise Failure(f"{source}: {error.strerror or error}", ExitCode.USAGE) from None
    with file:
        yield file


def _input_size(source: Path) -> int:
    return 0 if source == STANDARD_INPUT else source.stat().st_size


def documents_of_lines(lines: Iterable[Line]) -> Iterator[InputDocument]:
    """Yields a document for each line of an export after the first; skips blank lines.

    A line is parsed when its document is sent.
    """
    for line in lines:
        if line.content.strip():
            yield InputDocument(f"line {line.number}", partial(_read_line, line), line.size)


def _read_line(line: Line) -> Document:
    check_size(line.size, MAX_LINE_BYTES)
    return sendable(parse_document(line.content))
