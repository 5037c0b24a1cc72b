"""Exports collections and whole documents as they are stored, to move them to another store.

Each document is read in a separate, short read transaction, because during a long read transaction
LMDB cannot reuse pages, and its file grows. So each exported document is consistent, but other
documents may be added, changed or deleted during the export. A damaged document is yielded as a
`DamagedDocument`, and the export continues with the next document.
"""

from collections.abc import Iterator

from hrag.engine.common.records import CollectionRecord
from hrag.engine.embedded.segments.stored_documents import read_stored
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import (
    collection_ids,
    describe_aliases,
    describe_collection,
    find_collection,
)
from hrag.engine.engine_documents import DamagedDocument, ExportedDocument
from hrag.values.collections import Alias, Collection
from hrag.values.errors import DataLoss


def collections(store: Store) -> list[Collection]:
    """Returns the collections of all tenants, in order of tenant and name."""
    with store.read() as txn:
        return [describe_collection(txn, number) for number in collection_ids(txn)]


def aliases(store: Store, tenant_id: str) -> tuple[Alias, ...]:
    """Returns a tenant's aliases, in order of name."""
    with store.read() as txn:
        return describe_aliases(txn, tenant_id)


def documents(store: Store, tenant_id: str, name: str) -> Iterator[ExportedDocument]:
    """Yields all documents of a collection, in order of document id.

    Ends early if the collection is deleted during the iteration. If the collection does not exist,
    raises CollectionNotFound immediately in the call, not when the iteration begins.
    """
    with store.read() as txn:
        number = find_collection(txn, tenant_id, name)
        record = txn.collections.require(number)
    return _documents(store, number, record)


def _documents(
    store: Store, number: int, collection: CollectionRecord
) -> Iterator[ExportedDocument]:
    start: tuple[int, str] | None = None
    while True:
        with store.read() as txn:
            if not txn.collections.has(number):
                return
            key = next(txn.document_ids.keys(number, start=start), None)
            if key is None:
                return
            _, document_id = key
            start = number, f"{document_id}\0"
            try:
                ordinal = txn.document_ids.require(key)
                exported: ExportedDocument = read_stored(txn, number, collection, ordinal)
            except DataLoss as error:
                exported = DamagedDocument(schema.printable(document_id), error.message)
        yield exported
