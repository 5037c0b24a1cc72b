"""`hrag documents`: lists the documents of a collection."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.filters import WHERE_OPTION, parse_filters
from hrag.cli.options.pages import document_pages
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Indexer,
    Tenant,
    Where,
)
from hrag.cli.terminal.console import output, print_json
from hrag.cli.terminal.render import counted
from hrag.cli.terminal.tables import Column, Fit, show_table
from hrag.values.collections import Listing
from hrag.values.documents import DocumentInfo
from hrag.values.limits import DEFAULT_COLLECTION

DEFAULT_DOCUMENTS = 100

_COLUMNS = (
    Column("id"),
    Column("title", Fit.CUT_END),
    Column("source", Fit.CUT_START),
    Column("tokens", Fit.NEVER),
    Column("bytes", Fit.NEVER),
    Column("sequence", Fit.NEVER),
)


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
    sequence: the number of the tenant's change that stored this version. The newest version has
    the highest sequence. The last line, on standard error, shows the number of documents and the
    token of the next page. In a pipe the columns are separated by tabs and nothing is cut.

    \b
    Examples:
      hrag documents
      hrag documents --collection guides --limit 20
      hrag documents --where team=search --where 'year>=2026'
      hrag documents --all | cut -f 1
      hrag documents --all --json | jq -r .documents[].source
    """
    filter = parse_filters(where, WHERE_OPTION)
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
        show_table(output(), _COLUMNS, map(_row, listed))
    _show_count(listed.count, total, listed.token, Console(stderr=True, highlight=False))


class _ListedDocuments:
    """An iterator of the documents of pages.

    After it has ended, `count` is the number of documents and `token` the token of the next
    page; the token is empty if no documents follow.
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


def _row(info: DocumentInfo) -> tuple[object, ...]:
    return (
        info.document_id,
        info.title,
        info.source,
        info.token_count,
        info.text_bytes,
        info.sequence,
    )


def _show_count(shown: int, total: int, token: str, console: Console) -> None:
    line = counted(total, "document")
    if shown != total:
        line = f"{shown:,} of {line}"
    if token:
        line += f"; next page: --page-token {token}"
    console.print(line, markup=False, soft_wrap=True, style="dim")
