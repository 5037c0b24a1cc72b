"""`hrag get`: shows one document as it is stored."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    DocumentId,
    Indexer,
    Tenant,
)
from hrag.cli.terminal.console import output, print_json
from hrag.text.plain_text import printable
from hrag.values.documents import DocumentInfo
from hrag.values.limits import DEFAULT_COLLECTION

_NAME_WIDTH = 10


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
    indexer: Indexer = DEFAULT_INDEXER,
    as_json: AsJson = False,
) -> None:
    """Show a document: where it comes from, its size, its metadata and its tree.

    The text is the text that was indexed. For a PDF, it is the text that was read from the file.
    In a pipe the text is exact; on a terminal, control characters are replaced.

    \b
    Examples:
      hrag get guide.md
      hrag get guide.md --text > guide.txt
      hrag get guide.md --json | jq .metadata
    """
    with connect(credentials, indexer) as client:
        info = client.get_document(tenant, document_id, collection=collection)
        content = client.get_text(tenant, document_id, collection=collection) if text else ""
    if as_json:
        print_json(asdict(info) | ({"text": content} if text else {}))
    elif text:
        _print_text(content)
    else:
        _show(info, output())


def _print_text(content: str) -> None:
    if sys.stdout.isatty():
        typer.echo(printable(content))
    else:
        typer.echo(content.encode(), nl=False)


def _show(info: DocumentInfo, console: Console) -> None:
    for name, value in _fields(info):
        line = Text(f"{name:<{_NAME_WIDTH}}  ", style="bold")
        line.append(" ".join(printable(value).splitlines()), style="not bold")
        console.print(line, soft_wrap=True)


def _fields(info: DocumentInfo) -> Iterator[tuple[str, str]]:
    yield "id", info.document_id
    yield "title", info.title or "none"
    yield "source", info.source or "none"
    yield "type", info.mime_type
    yield "tokens", f"{info.token_count:,}"
    yield "bytes", f"{info.text_bytes:,}"
    if info.page_count:
        yield "pages", f"{info.page_count:,}"
    if info.section_count:
        yield "sections", f"{info.section_count:,}"
    counts = enumerate(info.chunks_per_level)
    yield "chunks", ", ".join(f"{count:,} of level {level}" for level, count in counts)
    yield "sequence", f"{info.sequence:,}"
    for key, value in sorted(info.metadata.items()):
        yield "metadata", f"{key}: {json.dumps(value, ensure_ascii=False)}"
