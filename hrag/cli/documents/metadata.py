"""`hrag metadata`: changes a document's metadata without embedding it again."""

from dataclasses import asdict
from typing import Annotated

import typer

from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.metadata import VALUE_HELP, parse_metadata
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    DocumentId,
    Indexer,
    Tenant,
)
from hrag.cli.terminal.console import print_json, print_line
from hrag.values.documents import MetadataUpdate
from hrag.values.limits import DEFAULT_COLLECTION


@connection_options
def set_values(
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

    Other keys stay. The document is not chunked or embedded again. A later ingest of the same
    document replaces all of its metadata.

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
    _show(update, as_json=as_json)


@connection_options
def remove(
    credentials: Credentials,
    document_id: DocumentId,
    keys: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="Keys of the metadata.", show_default=False),
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
    _show(update, as_json=as_json)


def _show(update: MetadataUpdate, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(update))
    else:
        print_line(f"{update.outcome} {update.document.document_id}")


metadata = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
