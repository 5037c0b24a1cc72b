"""`hrag delete`: deletes documents of a collection."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hrag.cli.options.confirmation import Yes, confirm
from hrag.cli.options.connection import Credentials, connect, connection_options
from hrag.cli.options.filters import WHERE_OPTION, parse_filters
from hrag.cli.options.shared import (
    DEFAULT_INDEXER,
    DEFAULT_TENANT,
    AsJson,
    CollectionName,
    Indexer,
    Tenant,
    Where,
)
from hrag.cli.terminal.console import print_json, print_line, show_error
from hrag.cli.terminal.exit_codes import ExitCode
from hrag.cli.terminal.render import counted
from hrag.values.errors import DocumentNotFound
from hrag.values.filters import Filter
from hrag.values.limits import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from hrag.client import Client

_TIMEOUT_S = 600.0  # Deletion by a filter is slow if it matches many documents.


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
    """A run of the command."""

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
            self._tenant, filter, collection=collection, timeout_s=_TIMEOUT_S
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
            # An error that ends the run does not undo earlier deletions, so they are reported.
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
