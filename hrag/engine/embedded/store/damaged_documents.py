"""Detects damage to a stored document, and finds what is needed to delete that document.

Ingesting a document again replaces the stored version, so nothing of a damaged version is needed.
But a deletion must also change data that the document shares with other documents: the counters of
the collection, the usage of the tenant and the filter terms. How much a damaged document has
contributed to these is unknown. So all three are computed again from the records of the other
documents of the collection.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hrag.engine.common.records import DocumentRecord
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.content import ContentPart
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.queries import address_of, find_document
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.errors import DataLoss
from hrag.values.tree import Tree

# These fields of `Counters` are sums over the documents of a collection.
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


class DamageRecord(NamedTuple):
    """The known facts about a damaged document: its ordinal, address and leaf count.

    `address` (slot, collection id and ordinal, encoded as bytes) is None if it could not be found.
    `leaf_count` is 0 if it could not be found.
    """

    ordinal: int
    address: bytes | None
    leaf_count: int


def is_intact(txn: Txn, collection: int, document_id: str) -> bool:
    """Returns True if all stored values and filter terms of a document exist and are undamaged.

    Also returns True if the document does not exist. In a summary collection, the document's entry
    in the database `summarised` is checked too. Raises DataLoss if the collection's record is
    damaged.
    """
    holds_summaries = bool(txn.collections.require(collection).summarises)
    try:
        ordinal, document = find_document(txn, collection, document_id)
        if document is None:
            return True
        address = address_of(txn, collection, ordinal)
        is_complete = all(txn.contents.get(address, part) is not None for part in ContentPart)
        if holds_summaries:
            txn.summarised.require((collection, ordinal))
    except DataLoss:
        return False
    if not is_complete or txn.originals.problem(address, document.original):
        return False
    return txn.terms.has_all(terms_of(document), ordinal)


def find_damaged(txn: Txn, collection: int, document_id: str) -> DamageRecord | None:
    """Returns the ordinal, address and leaf count of a document that may be damaged.

    Looks up the id in the database `document_ids`. If the entry there is damaged, searches for the
    id in the records of all documents of the collection. Returns None if no document with this id
    is found.
    """
    ordinal = _ordinal_of(txn, collection, document_id)
    return None if ordinal is None else damaged_at(txn, collection, ordinal)


def damaged_at(txn: Txn, collection: int, ordinal: int) -> DamageRecord:
    """Returns the address and the leaf count of a damaged document, as far as they can be found."""
    try:
        address: bytes | None = address_of(txn, collection, ordinal)
    except DataLoss:
        address = _address_by_content(txn, collection, ordinal)
    return DamageRecord(ordinal, address, _leaf_count(txn, address))


def _ordinal_of(txn: Txn, collection: int, document_id: str) -> int | None:
    try:
        return txn.document_ids.get((collection, document_id))
    except DataLoss:
        pass
    for ordinal, record in readable_documents(txn, collection):
        if record.document_id == document_id:
            return ordinal
    return None


def _address_by_content(txn: Txn, collection: int, ordinal: int) -> bytes | None:
    """Returns the address of a document whose entry in `ordinals` is damaged; None if not found.

    Only the entry in `ordinals` contains the document's slot, the key under which the document is
    stored. So this function tries every slot: it verifies the data in the slot as if the data
    belonged to this document. The seed of a checksum depends on the document, so the checksum
    matches only if the data really belongs to this document.
    """
    for slot in {bytes(key) for key, _ in txn.documents.stored()}:
        address = schema.address(slot, collection, ordinal)
        if txn.documents.get_sound(address) is not None:
            return address
    for slot in {bytes(key[: schema.SLOT_BYTES]) for key, _ in txn.contents.stored()}:
        address = schema.address(slot, collection, ordinal)
        if any(txn.contents.get_sound(address, part) is not None for part in ContentPart):
            return address
    return None


def _leaf_count(txn: Txn, address: bytes | None) -> int:
    """Returns the leaf count of the document at `address`.

    `address` has the slot, collection id and ordinal of the document. Reads the leaf count from the
    entry in `ordinals`, else from the record, else from the tree. Returns 0 if all three are
    missing or damaged. Also returns 0 if `address` is None, which means that the document's address
    could not be found.
    """
    if address is None:
        return 0
    collection, ordinal = schema.read_in_collection(address[schema.SLOT_BYTES :])
    entry = txn.ordinals.get_sound((collection, ordinal))
    if entry is not None:
        return entry.leaf_count
    try:
        return txn.documents.require(address).leaf_count
    except DataLoss:
        pass
    try:
        tree = txn.contents.get(address, ContentPart.TREE)
        return 0 if tree is None else max(Tree(tree).counts)
    except DataLoss:
        return 0


def readable_documents(txn: Txn, collection: int) -> Iterator[tuple[int, DocumentRecord]]:
    """Yields the ordinal and the record of each readable document of a collection.

    A document is readable if its record and its entry in the database `ordinals` are undamaged.
    """
    for (_, ordinal), entry in txn.ordinals.sound_entries(collection):
        address = schema.address(entry.slot, collection, ordinal)
        try:
            yield ordinal, txn.documents.require(address)
        except DataLoss:
            continue


def recounted(txn: Txn, collection: int, counters: Counters, without: int = 0) -> Counters:
    """Returns a copy of `counters`, in which the fields in `OF_DOCUMENTS` are computed again.

    The fields are computed from the records of the collection's documents. The document with the
    ordinal `without` and documents with damaged records are not counted.
    """
    counted = counters._replace(**dict.fromkeys(OF_DOCUMENTS, 0))
    for ordinal, document in readable_documents(txn, collection):
        if ordinal != without:
            counted = counted.plus(document, ordinal, 1)
    return counted


def rewrite_terms(txn: Txn, collection: int) -> None:
    """Deletes all terms of a collection, then writes the terms of its documents again.

    Writes no terms for documents with damaged records.
    """
    txn.terms.clear(collection)
    for ordinal, document in readable_documents(txn, collection):
        for term in terms_of(document):
            txn.terms.add(term, ordinal)
