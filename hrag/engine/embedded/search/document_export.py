"""Exports collections and whole documents as they are stored, to move them to another store.

Each document is read in a separate, short read transaction, because during a long read transaction
LMDB cannot reuse pages, and its file grows. So each exported document is consistent, but other
documents may be added, changed or deleted during the export. A damaged document is yielded as a
`DamagedDocument`, and the export continues with the next document.
"""

from collections.abc import Iterator

import numpy as np

from hrag.engine.common.document_results import document_of
from hrag.engine.common.records import CollectionRecord, DocumentRecord
from hrag.engine.common.summary_documents import summaries_in
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import (
    address_of,
    collection_ids,
    describe_aliases,
    describe_collection,
    find_collection,
    find_document,
)
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.engine_documents import (
    DamagedDocument,
    DocumentSummaries,
    ExportedDocument,
    StoredDocument,
)
from hrag.models.embedding import Vectors
from hrag.values.collections import Alias, Collection
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree


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
                exported: ExportedDocument = _read_document(txn, number, collection, ordinal)
            except DataLoss as error:
                exported = DamagedDocument(schema.printable(document_id), error.message)
        yield exported


def _read_document(
    txn: Txn, number: int, collection: CollectionRecord, ordinal: int
) -> StoredDocument:
    address = address_of(txn, number, ordinal)
    record = txn.documents.require(address)
    document = document_of(
        record,
        record.parsed(txn.contents.text(address)),
        Tree(bytes(txn.contents.tree(address))),
        _read_vectors(txn, address, record.leaf_count, collection.settings.dimension),
    )
    return StoredDocument(document, _read_summaries(txn, number, collection, ordinal, record))


def _read_summaries(
    txn: Txn,
    number: int,
    collection: CollectionRecord,
    ordinal: int,
    record: DocumentRecord,
) -> DocumentSummaries | None:
    """Returns the summaries of a document.

    If the document is too short for summaries, returns a `DocumentSummaries` with 0 summaries.
    Returns None if the collection was created without summaries, or if the document's summaries are
    not written yet.
    """
    if not collection.summaries or txn.unsummarised.has((number, ordinal)):
        return None
    summary_ordinal, summary_record = find_document(txn, collection.summaries, record.document_id)
    dimension = collection.settings.dimension
    if summary_record is None:  # The document is too short for summaries.
        return DocumentSummaries((), np.empty((0, dimension), np.float32))
    address = address_of(txn, collection.summaries, summary_ordinal)
    tree, text = Tree(txn.contents.tree(address)), txn.contents.text(address)
    sections = txn.summarised.require((collection.summaries, summary_ordinal)).sections
    summaries = summaries_in(tree, text, record.leaf_count, sections)
    return DocumentSummaries(summaries, _read_vectors(txn, address, len(summaries), dimension))


def _read_vectors(txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """Returns a copy of the vectors of a document: `float32[count, dimension]`."""
    return np.array(leaves.vectors_in_place(txn, address, count, dimension), np.float32)
