"""Detects damage to a stored document, and finds what is needed to remove that document.

Ingesting a document again replaces the stored version, so nothing of a damaged version is needed.
But counters, the tenant's usage and filter terms are shared with other documents. They are
computed again from the collection's other documents, which reads the records of all of these.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.metadata_terms import term_entry, terms_of
from hrag.engine.embedded.store.queries import (
    address_of,
    find_document,
    read_collection,
    read_document,
)
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree

# The counters that are sums over the living documents.
OF_DOCUMENTS = (
    "documents",
    "chunks",
    "leaves",
    "tail_leaves",
    "tokens",
    "text_bytes",
    "vector_bytes",
    "stored_bytes",
)


class DamagedDocument(NamedTuple):
    """The known facts about a damaged document: its ordinal, address and number of leaves.

    `address` is None if it is unknown. `leaf_count` is 0 if the number of leaves is unknown.
    """

    ordinal: int
    address: bytes | None
    leaf_count: int


def is_intact(store: Store, txn: Txn, collection: int, document_id: str) -> bool:
    """Returns True if no stored value of a document is damaged; its terms are checked too.

    Returns True if the document does not exist. In a summary collection, the document's entry in
    `summarised` is checked too. Raises DataLoss if the collection's record is damaged.
    """
    holds_summaries = bool(read_collection(store, txn, collection).summarises)
    try:
        ordinal, document = find_document(store, txn, collection, document_id)
        if document is None:
            return True
        address = address_of(store, txn, collection, ordinal)
        values = [txn.get(address, db=store.db[name]) for name in schema.BY_SLOT]
        if holds_summaries:
            entry = schema.in_collection(collection, ordinal)
            values.append(txn.get(entry, db=store.db["summarised"]))
    except DataLoss:
        return False
    with txn.cursor(store.db["terms"]) as cursor:
        has_terms = all(
            cursor.set_key_dup(term, term_entry(term, ordinal)) for term in terms_of(document)
        )
    return has_terms and None not in values


def find_damaged(
    store: Store, txn: Txn, collection: int, document_id: str
) -> DamagedDocument | None:
    """Returns what is known about a document that may be damaged; None if it is not found.

    Searches by the document's id, or if the entry of the id is damaged, through all records.
    """
    ordinal = _ordinal_of(store, txn, collection, document_id)
    return None if ordinal is None else damaged_at(store, txn, collection, ordinal)


def damaged_at(store: Store, txn: Txn, collection: int, ordinal: int) -> DamagedDocument:
    """Returns what is known about the document with this ordinal."""
    try:
        address: bytes | None = address_of(store, txn, collection, ordinal)
    except DataLoss:
        address = _address_by_content(store, txn, collection, ordinal)
    return DamagedDocument(ordinal, address, _leaf_count(store, txn, address))


def _ordinal_of(store: Store, txn: Txn, collection: int, document_id: str) -> int | None:
    key = schema.document_id(collection, document_id)
    try:
        value = txn.get(key, db=store.db["document_ids"])
        return None if value is None else schema.read_u64(value)
    except DataLoss:
        pass
    for ordinal, record in readable_documents(store, txn, collection):
        if record.document_id == document_id:
            return ordinal
    return None


def _address_by_content(store: Store, txn: Txn, collection: int, ordinal: int) -> bytes | None:
    """Returns the address of a document whose slot is unknown, or None.

    Tries every slot: the seed of a checksum depends on the document, so a checksum matches only
    for the document to which the value belongs.
    """
    for name in schema.BY_SLOT:
        db = store.db[name]
        for slot in {bytes(key[: schema.SLOT_BYTES]) for key, _ in txn.entries(db)}:
            address = schema.address(slot, collection, ordinal)
            if txn.get_sound(address, db) is not None:
                return address
    return None


def _leaf_count(store: Store, txn: Txn, address: bytes | None) -> int:
    """Returns the document's number of leaves.

    Reads it from the entry in `ordinals`, from the record or from the tree. Returns 0 if all three
    are missing or damaged.
    """
    if address is None:
        return 0
    collection, ordinal = schema.read_in_collection(address[schema.SLOT_BYTES :])
    value = txn.get_sound(schema.in_collection(collection, ordinal), db=store.db["ordinals"])
    if value is not None:
        return schema.read_document_entry(value)[0]
    try:
        return read_document(store, txn, address).leaf_count
    except DataLoss:
        pass
    try:
        tree = txn.get(address, db=store.db["trees"])
        return 0 if tree is None else max(Tree(tree).counts)
    except DataLoss:
        return 0


def readable_documents(
    store: Store, txn: Txn, collection: int
) -> Iterator[tuple[int, DocumentRecord]]:
    """Yields the ordinal and record of each document whose record is not damaged."""
    for key, value in txn.sound_entries(store.db["ordinals"], schema.u32(collection)):
        ordinal = schema.read_in_collection(key)[1]
        slot = schema.read_document_entry(value)[1]
        try:
            yield ordinal, read_document(store, txn, schema.address(slot, collection, ordinal))
        except DataLoss:
            continue


def recounted(
    store: Store, txn: Txn, collection: int, counters: Counters, without: int = 0
) -> Counters:
    """Returns `counters` with the fields in `OF_DOCUMENTS` computed again from all records.

    The document with the ordinal `without` is not counted.
    """
    counted = counters._replace(**dict.fromkeys(OF_DOCUMENTS, 0))
    for ordinal, document in readable_documents(store, txn, collection):
        if ordinal != without:
            counted = counted.plus(document, ordinal, 1)
    return counted


def rewrite_terms(store: Store, txn: Txn, collection: int) -> None:
    """Deletes all terms of a collection and writes those of its readable documents again."""
    terms = store.db["terms"]
    for key in {bytes(key) for key, _ in txn.entries(terms, schema.u32(collection))}:
        txn.delete(key, db=terms)
    for ordinal, document in readable_documents(store, txn, collection):
        for term in terms_of(document):
            txn.put(term, term_entry(term, ordinal), db=terms)
