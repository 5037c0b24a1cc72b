"""Streams collections and whole documents as they are stored, to move them elsewhere.

One short read transaction for each document: a long one would keep LMDB from reusing pages,
and the file would grow. So each document is whole, but the collection may change meanwhile.
A damaged document is told, and those behind it follow.
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
    """Returns every tenant's collections, by tenant and name."""
    with store.read() as txn:
        return [
            describe_collection(store, txn, number) for number in collection_numbers(store, txn)
        ]


def aliases(store: Store, tenant_id: str) -> tuple[Alias, ...]:
    """Returns a tenant's aliases in order of name."""
    with store.read() as txn:
        return describe_aliases(store, txn, tenant_id)


def documents(store: Store, tenant_id: str, name: str) -> Iterator[Exported]:
    """Yields every document of a collection by id, until the collection is deleted.

    Raises CollectionNotFound at once.
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
                found: Exported = _stored(store, txn, number, collection, ordinal)
            except DataLoss as error:
                document_id = str(key[len(prefix) :], "utf-8", "replace")
                found = UnreadableDocument(document_id, error.message)
        yield found


def _stored(
    store: Store, txn: Txn, number: int, collection: CollectionRecord, ordinal: int
) -> StoredDocument:
    address = address_of(store, txn, number, ordinal)
    record = DocumentRecord.from_bytes(_read(store, txn, address, "documents"))
    document = document_of(
        record,
        record.parsed(_read(store, txn, address, "texts")),
        Tree(bytes(_read(store, txn, address, "trees"))),
        _vectors(store, txn, address, record.leaf_count, collection.settings.dimension),
    )
    return StoredDocument(document, _summaries(store, txn, number, collection, ordinal, record))


def _summaries(
    store: Store,
    txn: Txn,
    number: int,
    collection: CollectionRecord,
    ordinal: int,
    record: DocumentRecord,
) -> DocumentSummaries | None:
    """None where the collection has none, or they have not been written yet."""
    waiting = schema.in_collection(number, ordinal)
    if not collection.summaries or txn.get(waiting, db=store.db["unsummarised"]) is not None:
        return None
    own, summary_record = find_document(store, txn, collection.summaries, record.document_id)
    dimension = collection.settings.dimension
    if summary_record is None:  # The document was not worth any.
        return DocumentSummaries((), np.empty((0, dimension), np.float32))
    address = address_of(store, txn, collection.summaries, own)
    tree, text = Tree(_read(store, txn, address, "trees")), _read(store, txn, address, "texts")
    entry = schema.in_collection(collection.summaries, own)
    sections = Summarised.from_bytes(_read(store, txn, entry, "summarised")).sections
    summaries = summaries_in(tree, text, record.leaf_count, sections)
    return DocumentSummaries(summaries, _vectors(store, txn, address, len(summaries), dimension))


def _vectors(store: Store, txn: Txn, address: bytes, count: int, dimension: int) -> Vectors:
    """A copy: `float32[count, dimension]`."""
    return np.array(leaves.vectors_in_place(store, txn, address, count, dimension), np.float32)


def _read(store: Store, txn: Txn, key: bytes, database: str) -> memoryview:
    return required(txn.get(key, db=store.db[database]))
