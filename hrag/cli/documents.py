"""Commands for the documents of a collection: `documents`, `count`, `get`, `metadata`, `delete`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.option_values import VALUE_HELP, WHERE_OPTION, parse_filters, parse_metadata
from hrag.cli.options import (
    DEFAULT_INDEXER,
    DEFAULT_RETRIEVER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Credentials,
    DocumentId,
    Indexer,
    Retriever,
    Tenant,
    Where,
    Yes,
    confirm,
    connect,
    connection_options,
    document_pages,
    warn_of_unused,
)
from hrag.cli.terminal import (
    Column,
    ExitCode,
    Fit,
    output,
    print_json,
    print_line,
    show_error,
    show_table,
)
from hrag.text.noun_counts import counted
from hrag.text.plain_text import printable
from hrag.values.collections import Listing
from hrag.values.documents import DocumentInfo, MetadataUpdate
from hrag.values.errors import DocumentNotFound
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_COLLECTION
from hrag.values.read_report import PageUnit

# Only type checkers run this import: gRPC is slow to load, and not every command needs it.
if TYPE_CHECKING:
    from hrag.client import Client

DEFAULT_DOCUMENTS = 100

_DOCUMENT_COLUMNS = (
    Column("id"),
    Column("title", Fit.CUT_END),
    Column("source", Fit.CUT_START),
    Column("tokens", Fit.NEVER),
    Column("bytes", Fit.NEVER),
    Column("sequence", Fit.NEVER),
)
_FIELD_NAME_WIDTH = 10
_PAGE_LABELS = {PageUnit.PAGE: "pages", PageUnit.ROW: "rows", PageUnit.SECOND: "times"}
# The time limit of a call that deletes all documents which pass a filter. The limit is high,
# because the call takes long if the documents are many.
_DELETION_TIMEOUT_S = 600.0


@connection_options
def documents(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of documents.")
    ] = DEFAULT_DOCUMENTS,
    whole: Annotated[bool, typer.Option("--all", help="List every document.")] = False,
    page_token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            help="Continue a listing. TOKEN is the token that the listing ended with.",
            show_default=False,
        ),
    ] = "",
    where: Where = None,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """List the documents of a collection, in order of id.

    Each line shows the id, the title, the source, the length in tokens and in bytes, and the
    sequence number of the commit that stored this version of the document. The document that was
    stored last has the highest sequence number. The last line, on standard error, shows the number
    of documents and the token of the next page. In a pipe the columns are separated by tabs and
    nothing is cut.

    \b
    Examples:
      hrag documents
      hrag documents --collection guides --limit 20
      hrag documents --where team=search --where 'year>=2026'
      hrag documents --all | cut -f 1
      hrag documents --all --json | jq -r .documents[].source
    """
    filter = parse_filters(where, WHERE_OPTION)
    if whole:
        warn_of_unused("with --all", {"--limit": limit != DEFAULT_DOCUMENTS})
    with connect(credentials, indexer) as client:
        total = client.count_documents(tenant, collection=collection, filter=filter).documents
        maximum = None if whole else limit
        pages = document_pages(client, tenant, collection, filter, page_token, maximum)
        listed = _ListedDocuments(pages)
        if as_json:
            rows = [asdict(info) for info in listed]
            print_json(
                {"documents": rows, "next_page_token": listed.token, "document_count": total}
            )
            return
        show_table(output(), _DOCUMENT_COLUMNS, map(_document_row, listed))
    _show_document_count(listed.count, total, listed.token, Console(stderr=True, highlight=False))


class _ListedDocuments:
    """Iterates over the documents of several pages of a listing.

    After the iteration, `count` is the number of documents and `token` is the token of the next
    page. The token is empty if no documents follow.
    """

    def __init__(self, pages: Iterator[Listing[DocumentInfo]]) -> None:
        self._pages = pages
        self.count = 0
        self.token = ""

    def __iter__(self) -> Iterator[DocumentInfo]:
        for page in self._pages:
            self.count += len(page.items)
            self.token = page.next_page_token
            yield from page.items


def _document_row(info: DocumentInfo) -> tuple[object, ...]:
    return (
        info.document_id,
        info.title,
        info.source,
        info.token_count,
        info.text_bytes,
        info.sequence,
    )


def _show_document_count(shown: int, total: int, token: str, console: Console) -> None:
    line = counted(total, "document")
    if shown != total:
        line = f"{shown:,} of {line}"
    if token:
        line += f"; next page: --page-token {token}"
    console.print(line, markup=False, soft_wrap=True, style="dim")


@connection_options
def count(
    credentials: Credentials,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    where: Where = None,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Count the documents of a collection, or only the documents that match --where.

    The command prints a number and nothing else; --json adds the number of all documents.

    \b
    Examples:
      hrag count
      hrag count --where 'status!=draft' --where 'date>=2026-01-01'
    """
    filter = parse_filters(where, WHERE_OPTION)
    with connect(credentials, indexer) as client:
        counts = client.count_documents(tenant, collection=collection, filter=filter)
    if as_json:
        print_json(asdict(counts))
    else:
        print_line(str(counts.documents))


@connection_options
def get(
    credentials: Credentials,
    document_id: DocumentId,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    text: Annotated[
        bool,
        typer.Option("--text", help="Print the document's text; without --json, nothing else."),
    ] = False,
    retriever: Retriever = DEFAULT_RETRIEVER,
    as_json: AsJson = False,
) -> None:
    """Show a document: where it comes from, its size, its metadata and its chunks per level.

    --text prints the text that was indexed. For a PDF, it is the text that was read from the file.
    In a pipe the text is exact; on a terminal, control characters are replaced.

    \b
    Examples:
      hrag get guide.md
      hrag get guide.md --text > guide.txt
      hrag get guide.md --json | jq .metadata
    """
    with connect(credentials, retriever=retriever) as client:
        info = client.get_document(tenant, document_id, collection=collection)
        content = client.get_text(tenant, document_id, collection=collection) if text else ""
    if as_json:
        print_json(asdict(info) | ({"text": content} if text else {}))
    elif text:
        _print_text(content)
    else:
        _show_document(info, output())


def _print_text(content: str) -> None:
    if sys.stdout.isatty():
        typer.echo(printable(content))
    else:
        typer.echo(content.encode(), nl=False)


def _show_document(info: DocumentInfo, console: Console) -> None:
    for name, value in _document_fields(info):
        line = Text(f"{name:<{_FIELD_NAME_WIDTH}}  ", style="bold")
        line.append(" ".join(printable(value).splitlines()), style="not bold")
        console.print(line, soft_wrap=True)


def _document_fields(info: DocumentInfo) -> Iterator[tuple[str, str]]:
    yield "id", info.document_id
    yield "title", info.title or "none"
    yield "source", info.source or "none"
    yield "type", info.mime_type
    yield "tokens", f"{info.token_count:,}"
    yield "bytes", f"{info.text_bytes:,}"
    if info.page_count:
        recognised = info.recognised_page_count
        note = f", {recognised:,} recognised in pictures" if recognised else ""
        yield _PAGE_LABELS[info.page_unit], f"{info.page_count:,}{note}"
    if info.original_bytes:
        yield "original", f"{info.original_bytes:,} bytes"
    if info.section_count:
        yield "sections", f"{info.section_count:,}"
    counts = enumerate(info.chunks_per_level)
    yield "chunks", ", ".join(f"{count:,} of level {level}" for level, count in counts)
    yield "sequence", f"{info.sequence:,}"
    for key, value in sorted(info.metadata.items()):
        yield "metadata", f"{key}: {json.dumps(value, ensure_ascii=False)}"


@connection_options
def set_metadata(
    credentials: Credentials,
    document_id: DocumentId,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help=VALUE_HELP, show_default=False),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove all keys that are not given.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(help="Where the document comes from, such as a URL.", show_default=False),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Set keys of a document's metadata, or its source.

    Other keys stay, unless --replace is given. The document is not chunked or embedded again. A
    later ingest of the same document replaces all of its metadata.

    \b
    Examples:
      hrag metadata set guide.md team=search year=2026 'tags=["a","b"]'
      hrag metadata set guide.md --source https://example.com/guide
    """
    metadata = parse_metadata(values, "KEY=VALUE")
    if not metadata and not replace and source is None:
        raise typer.BadParameter("give KEY=VALUE, --source or --replace")
    with connect(credentials, indexer) as client:
        update = client.update_metadata(
            tenant, document_id, metadata, replace=replace, source=source, collection=collection
        )
    _show_metadata_update(update, as_json=as_json)


@connection_options
def remove_metadata(
    credentials: Credentials,
    document_id: DocumentId,
    keys: Annotated[
        list[str],
        typer.Argument(metavar="KEY", help="Keys of the metadata.", show_default=False),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Remove keys from a document's metadata.

    Keys that the document does not have are ignored.

    \b
    Example:
      hrag metadata remove guide.md draft owner
    """
    with connect(credentials, indexer) as client:
        update = client.update_metadata(
            tenant, document_id, remove_keys=keys, collection=collection
        )
    _show_metadata_update(update, as_json=as_json)


def _show_metadata_update(update: MetadataUpdate, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(update))
    else:
        print_line(f"{update.outcome} {update.document.document_id}")


@connection_options
def delete(
    credentials: Credentials,
    document_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOCUMENT_ID...", help="Ids as shown by hrag documents.", show_default=False
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    collection: CollectionName = DEFAULT_COLLECTION,
    where: Where = None,
    yes: Yes = False,
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Delete documents. No search that begins afterwards finds them.

    Give the documents' ids, or --where. With --where the command counts the documents and asks
    for confirmation, unless --yes is given. Without a terminal and without --yes it deletes
    nothing.

    If the collection lacks some of the ids, the command names them, deletes the other
    documents, and ends with exit code 3.

    \b
    Examples:
      hrag delete guide.md
      hrag delete old.md older.md --collection guides
      hrag delete --where 'date<2020-01-01' --yes
    """
    filter = parse_filters(where, WHERE_OPTION)
    if bool(document_ids) == (filter is not None):
        raise typer.BadParameter("give either document ids or --where")
    with connect(credentials, indexer) as client:
        run = _Deletion(client, tenant, collection, as_json)
        if filter is not None:
            run.delete_matching(filter, yes=yes)
        else:
            run.delete_each(document_ids or [])


class _Deletion:
    """A run of `hrag delete`: deletes documents by a filter or by ids, and prints the results."""

    def __init__(self, client: "Client", tenant: str, collection: str, as_json: bool) -> None:
        self._client = client
        self._tenant = tenant
        self._collection = collection
        self._as_json = as_json
        self._deleted: list[dict[str, object]] = []
        self._not_found: list[str] = []

    def delete_matching(self, filter: Filter, *, yes: bool) -> None:
        """Deletes the documents that pass `filter`. Asks for confirmation first, unless `yes`."""
        collection = self._collection
        counts = self._client.count_documents(self._tenant, collection=collection, filter=filter)
        share = f"{counts.documents:,} of {counted(counts.total_documents, 'document')}"
        if counts.documents:
            confirm(f"Delete {share} of collection {collection} of tenant {self._tenant}?", yes=yes)
        deletion = self._client.delete_documents(
            self._tenant, filter, collection=collection, timeout_s=_DELETION_TIMEOUT_S
        )
        if self._as_json:
            print_json(asdict(deletion))
        else:
            print_line(f"deleted {counted(deletion.documents, 'document')}")

    def delete_each(self, document_ids: list[str]) -> None:
        """Deletes documents by their ids. Exits with NOT_FOUND if one of them does not exist."""
        try:
            for document_id in dict.fromkeys(document_ids):
                self._delete(document_id)
        finally:
            # If an error ends the run, the documents that were already deleted stay deleted. So
            # their ids are reported also in this case.
            if self._as_json:
                print_json({"deleted": self._deleted, "not_found": self._not_found})
        if self._not_found:
            raise typer.Exit(ExitCode.NOT_FOUND)

    def _delete(self, document_id: str) -> None:
        try:
            sequence = self._client.delete_document(
                self._tenant, document_id, collection=self._collection
            )
        except DocumentNotFound as error:
            self._not_found.append(document_id)
            if not self._as_json:
                show_error(str(error))
            return
        self._deleted.append({"document_id": document_id, "sequence": sequence})
        if not self._as_json:
            print_line(f"deleted {document_id}")
