"""`hrag export`: writes documents, or their chunks as a graph, for other programs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from hrag.cli.exchange.graph import GraphFormat, graph_of
from hrag.cli.exchange.json_lines import document_line, header_line
from hrag.cli.exchange.stored_documents import DocumentReader
from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.filters import WHERE_OPTION, parse_filters
from hrag.cli.options.pages import all_documents
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    CollectionName,
    Indexer,
    Retriever,
    Tenant,
    Where,
)
from hrag.cli.terminal.console import Failure, show_note
from hrag.cli.terminal.render import counted
from hrag.host.private_files import opener
from hrag.values.documents import DocumentInfo
from hrag.values.limits import DEFAULT_COLLECTION

_Lines = Iterator[str]


class ExportFormat(StrEnum):
    """The format of an export."""

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
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            dir_okay=False,
            help="The file to write; it appears when it is complete. Default: standard output.",
        ),
    ] = None,
    where: Where = None,
    indexer: Indexer = DEFAULT_INDEXER,
    retriever: Retriever = DEFAULT_RETRIEVER,
) -> None:
    """Write a collection's documents, one at a time, in order of id.

    jsonl has one document in each line, with its metadata and its text or pages; hrag import
    reads it. The text is the text that was indexed, not the file that it was read from.

    graphml and cypher have (:Document)-[:HAS_CHUNK]->(:Chunk)-[:HAS_CHILD]->(:Chunk), with the
    content of every chunk. Cypher statements can be run again.

    Documents that are deleted, or change again and again, during the export are left out and
    counted.

    \b
    Examples:
      hrag export --collection guides -o guides.jsonl
      hrag export --where team=search | gzip > search.jsonl.gz
      hrag export --format graphml -o chunks.graphml
      hrag export --format cypher | cypher-shell
    """
    filter = parse_filters(where, WHERE_OPTION)
    with connect(credentials, indexer, retriever) as client:
        settings = client.get_collection(tenant, collection)
        reader = DocumentReader(client, tenant, collection)
        infos = all_documents(client, tenant, collection, filter)
        counts = _Counts()
        if form is ExportFormat.JSONL:
            lines = _json_lines(header_line(settings), reader, infos, counts)
        else:
            lines = _graph(_graph_format(form), reader, infos, counts, (tenant, collection))
        with _open(target) as file:
            for line in lines:
                file.write(line.encode())
    left_out = f"; left out because they changed during the export: {counts.left_out:,}"
    written = f"exported {counted(counts.written, 'document')}"
    show_note(written + (left_out if counts.left_out else ""))


def _graph_format(form: ExportFormat) -> GraphFormat:
    # Python's XML package loads an HTTP client, so it is imported only when it is needed.
    from hrag.cli.exchange.cypher import Cypher  # noqa: PLC0415
    from hrag.cli.exchange.graphml import GraphMl  # noqa: PLC0415

    return GraphMl() if form is ExportFormat.GRAPHML else Cypher()


class _Counts:
    """The number of documents that were written, and of those that were left out."""

    written = 0
    left_out = 0


def _json_lines(
    header: str, reader: DocumentReader, infos: Iterator[DocumentInfo], counts: _Counts
) -> _Lines:
    yield header
    for info in infos:
        document = reader.with_pages(info)
        if document is None:
            counts.left_out += 1
            continue
        yield document_line(document)
        counts.written += 1


def _graph(
    form: GraphFormat,
    reader: DocumentReader,
    infos: Iterator[DocumentInfo],
    counts: _Counts,
    scope: tuple[str, str],
) -> _Lines:
    yield form.header()
    for info in infos:
        document = reader.with_tree(info)
        if document is None:
            counts.left_out += 1
            continue
        nodes, edges = graph_of(*scope, document)
        yield from map(form.node, nodes)
        yield from map(form.edge, edges)
        counts.written += 1
    yield form.footer()


@contextmanager
def _open(target: Path | None) -> Iterator[BinaryIO]:
    """Yields a file that writes to `target`, or to standard output. Raises Failure."""
    try:
        if target is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif target.exists() and not target.is_file():
            # A pipe or a device is written to; it is not replaced.
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
    """Yields a file that replaces `target` when the block ends. Raises OSError.

    If the block raises an error, `target` stays as it is.
    """
    partial = target.with_name(f"{target.name}.partial")
    with open(partial, "wb", opener=opener) as file:
        try:
            yield file
            file.flush()
            partial.replace(target)
        except BaseException:
            partial.unlink()
            raise
