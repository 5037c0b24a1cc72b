"""Streams collections and whole documents as they are stored, to move them elsewhere.

Each document is read in a short read transaction: a long one would keep LMDB from reusing
pages, and the file would grow. So each document is consistent, but the collection may change
during the export. A damaged document is yielded as an `UnreadableDocument`, and the export
continues with the next document.
"""

from collections.abc import Iterator

import numpy as np

from hrag.engine.common.document_results import document_of
from hrag.engine.common.records import CollectionRecord, DocumentRecord, Summarised
from hrag.engine.common.summary_documents import summaries_in
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import (
    address_of,
    collection_exists,
    collection_numbers,
    describe_aliases,
    describe_collection,
    find_collection,
    find_document,
    read_collection,
    required,
)
from hrag.engine.engine_documents import (
    DocumentSummaries,
    Exported,
    StoredDocument,
    UnreadableDocument,
)
from hrag.models.embedding import Vectors
from hrag.values.collections import Alias, Collection
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree


def collections(store: Store) -> list[Collection]:
    """Returns the collections of all tenants, in order of tenant and name."""
    with store.read() as txn:
        return [
            describe_collection(store, txn, number) for number in collection_numbers(store, txn)
        ]


def aliases(store: Store, tenant_id: str) -> tuple[Alias, ...]:
    """Returns a tenant's aliases, in order of name."""
    with store.read() as txn:
        return describe_aliases(store, txn, tenant_id)


def documents(store: Store, tenant_id: str, name: str) -> Iterator[Exported]:
    """Yields all documents of a collection, in order of id.

    Ends early if the collection is deleted meanwhile. The call itself, not the iteration,
    raises CollectionNotFound.
    """
    with store.read() as txn:
        number = find_collection(store, txn, tenant_id, name)
        record = read_collection(store, txn, number)
    return _documents(store, number, record)


def _documents(store: Store, number: int, collection: CollectionRecord) -> Iterator[Exported]:
    prefix = after = schema.u32(number)
    while True:
        with store.read() as txn:
            if not collection_exists(store, txn, number):
                return
            entry = next(txn.entries(store.db["document_ids"], prefix, after), None)
            if entry is None:
                return
            key, value = bytes(entry[0]), entry[1]
            after = key + b"\0"
            try:
                ordinal = schema.read_u64(txn.checked(key, value, store.db["document_ids"]))
                exported: Exported = _read_document(store, txn, number, collection, ordinal)
            except DataLoss as error:
                document_id = str(key[len(prefix) :], "utf-8", "replace")
                exported = UnreadableDocument(document_id, error.message)
        yield exported


def _read_document(
    store: Store, txn: Txn, number: int, collection: CollectionRecord, ordinal: int
) -> StoredDocument:
    address = address_of(store, txn, number, ordinal)
    record = DocumentRecord.from_bytes(_read(store, txn, address, "documents"))
    document = document_of(
        record,
        record.parsed(_read(store, txn, address, "texts")),
        Tree(bytes(_read(store, txn, address, "trees"))),
        _read_vectors(store, txn, address, record.leaf_count, collection.settings.dimension),
    )
    return StoredDocument(
        document, _read_summaries(store, txn, number, collection, ordinal, record)
    )


def _read_summaries(
    store: Store,
    txn: Txn,
    number: int,
    collection: CollectionRecord,
    ordinal: int,
    record: DocumentRecord,
) -> DocumentSummaries | None:
    """Returns a document's summaries.

    Returns None if the collection has no summaries or those of the document are still pending.
    """
    pending = schema.in_collection(number, ordinal)
    if not collection.summaries or txn.get(pending, db=store.db["unsummarised"]) is not None:
        return None
    summary_ordinal, summary_record = find_document(
        store, txn, collection.summaries, record.document_id
    )
    dimension = collection.settings.dimension
    if summary_record is None:  # The document has been handled and needs no summaries.
        return DocumentSummaries((), np.empty((0, dimension), np.float32))
    address = address_of(store, txn, collection.summaries, summary_ordinal)
    tree, text = Tree(_read(store, txn, address, "trees")), _read(store, txn, address, "texts")
    entry = schema.in_collection(collection.summaries, summary_ordinal)
    sections = Summarised.from_bytes(_read(store, txn, entry, "summarised")).sections
    summaries = summaries_in(tree, text, record.leaf_count, sections)
    return DocumentSummaries(
        summaries, _read_vectors(store, txn, address, len(summaries), dimension)
    )


def _read_vectors(store: Store, txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """Returns a copy of the vectors of a document: `float32[count, dimension]`."""
    return np.array(leaves.vectors_in_place(store, txn, address, count, dimension), np.float32)


def _read(store: Store, txn: Txn, key: bytes, database: str) -> memoryview:
    return required(txn.get(key, db=store.db[database]))
