"""Look-ups and deletions that several packages share, inside a transaction of the caller."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from hrag.engine.common.labels import MAX_ORDINAL
from hrag.engine.common.records import CollectionRecord, DocumentRecord
from hrag.engine.common.validation import no_collection
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import Counters, SegmentRecord
from hrag.engine.embedded.store.metadata_terms import term_entry, terms_of
from hrag.engine.engine_documents import CollectionHandle
from hrag.values.collections import Alias, Collection
from hrag.values.errors import DataLoss

Value = TypeVar("Value")


def required(value: Value | None) -> Value:
    """Returns `value`, which another entry refers to. Raises DataLoss if it is None."""
    if value is None:
        raise DataLoss("the store is damaged: an entry is missing; `hrag check` names it")
    return value


def find_collection(store: Store, txn: Txn, tenant_id: str, name: str) -> int:
    """Returns the number of the collection with this name or alias.

    Only this function resolves aliases. Raises CollectionNotFound.
    """
    value = txn.get(schema.collection_name(tenant_id, name), db=store.db["collection_names"])
    if value is None:
        raise no_collection(tenant_id, name)
    return schema.read_name(value)[0]


def collection_numbers(
    store: Store, txn: Txn, prefix: bytes = b"", start: bytes = b""
) -> Iterator[int]:
    """Yields the numbers of the collections whose key in `collection_names` begins with `prefix`.

    They come in order of key, from the key `start` on. Aliases are skipped, so each collection
    comes once.
    """
    for _, value in store.scan(txn, "collection_names", prefix, start):
        number, is_alias = schema.read_name(value)
        if not is_alias:
            yield number


def aliases_of(store: Store, txn: Txn, tenant_id: str) -> Iterator[tuple[str, int]]:
    """Yields a tenant's aliases with their collections' numbers, in order of alias."""
    prefix = schema.collection_name(tenant_id, "")
    for key, value in store.scan(txn, "collection_names", prefix):
        number, is_alias = schema.read_name(value)
        if is_alias:
            yield str(key[len(prefix) :], "utf-8"), number


def describe_aliases(store: Store, txn: Txn, tenant_id: str) -> tuple[Alias, ...]:
    """Returns a tenant's aliases as clients see them, in order of alias."""
    return tuple(
        Alias(alias, read_collection(store, txn, number).name)
        for alias, number in aliases_of(store, txn, tenant_id)
    )


def collection_exists(store: Store, txn: Txn, number: int) -> bool:
    """Returns True if the collection exists, which means that it was not deleted."""
    return txn.has(schema.u32(number), db=store.db["collections"])


def read_collection(store: Store, txn: Txn, number: int) -> CollectionRecord:
    """Returns the record of a collection that exists in this transaction."""
    value = txn.get(schema.u32(number), db=store.db["collections"])
    return _collection_record(bytes(required(value)))


@lru_cache(maxsize=1024)
def _collection_record(value: bytes) -> CollectionRecord:
    """Decodes a collection's record.

    The result is cached, because every document needs the record and it rarely changes.
    """
    return CollectionRecord.from_bytes(value)


def set_analyzer(store: Store, txn: Txn, number: int, analyzer: str) -> bool:
    """Changes the analyzer of a collection that exists.

    Returns False, and writes nothing, if the collection already has this analyzer.
    """
    record = read_collection(store, txn, number)
    if record.settings.analyzer == analyzer:
        return False
    changed = replace(record, settings=replace(record.settings, analyzer=analyzer))
    txn.put(schema.u32(number), changed.to_bytes(), db=store.db["collections"])
    return True


def read_counters(store: Store, txn: Txn, number: int) -> Counters:
    """Returns the counters of a collection that exists in this transaction."""
    return Counters.from_bytes(required(txn.get(schema.u32(number), db=store.db["counters"])))


def describe_collection(store: Store, txn: Txn, number: int) -> Collection:
    """Returns a collection that exists in this transaction as clients see it."""
    record = read_collection(store, txn, number)
    documents = read_counters(store, txn, number).documents
    return Collection(record.tenant_id, record.name, record.settings, documents)


def handle_of(store: Store, txn: Txn, number: int) -> CollectionHandle:
    """Returns a handle of a collection that exists in this transaction."""
    record = read_collection(store, txn, number)
    return CollectionHandle(record.tenant_id, record.name, number, record.settings)


def listed_segments(store: Store, txn: Txn, number: int) -> list[SegmentRecord]:
    """Returns the collection's segments in order of ordinals: the oldest documents first."""
    entries = store.scan(txn, "segments", schema.u32(number))
    return [SegmentRecord.from_bytes(value) for _, value in entries]


def is_listed(store: Store, txn: Txn, number: int, record: SegmentRecord) -> bool:
    """Returns True if the manifest lists exactly this segment.

    Reads only the entry of this segment, so damage to other entries does not matter.
    """
    key = schema.in_collection(number, record.last_ordinal)
    value = txn.get_sound(key, db=store.db["segments"])
    return value is not None and SegmentRecord.from_bytes(value) == record


def all_segments(store: Store, txn: Txn) -> Iterator[tuple[int, SegmentRecord]]:
    """Yields every segment with the number of its collection.

    Segments of a deleted collection are included until they are reclaimed. Damaged records are
    skipped: reads of their collection report them.
    """
    for key, value in txn.sound_entries(store.db["segments"]):
        yield schema.read_in_collection(key)[0], SegmentRecord.from_bytes(value)


def address_of(store: Store, txn: Txn, collection: int, ordinal: int) -> bytes:
    """Returns the address of a document that exists in this transaction; see `schema.address`."""
    value = txn.get(schema.in_collection(collection, ordinal), db=store.db["ordinals"])
    slot = schema.read_document_entry(required(value))[1]
    return schema.address(slot, collection, ordinal)


def is_living(store: Store, txn: Txn, collection: int, ordinal: int) -> bool:
    """Returns True if a document with this ordinal exists in this transaction."""
    key = schema.in_collection(collection, ordinal)
    return ordinal <= MAX_ORDINAL and txn.has(key, db=store.db["ordinals"])


def read_document(store: Store, txn: Txn, address: bytes) -> DocumentRecord:
    """Returns the record of a document that exists in this transaction."""
    return DocumentRecord.from_bytes(required(txn.get(address, db=store.db["documents"])))


def find_document(
    store: Store, txn: Txn, collection: int, document_id: str
) -> tuple[int, DocumentRecord | None]:
    """Returns the ordinal and record of the document with this id; 0 and None if there is none."""
    value = txn.get(schema.document_id(collection, document_id), db=store.db["document_ids"])
    if value is None:
        return 0, None
    ordinal = schema.read_u64(value)
    return ordinal, read_document(store, txn, address_of(store, txn, collection, ordinal))


def erase_document(
    store: Store, txn: Txn, ordinal: int, document: DocumentRecord, *, keep_slot: bool = False
) -> int:
    """Deletes one version of a document, except its id, counters and log entry.

    With `keep_slot`, the values under its slot stay, and the next version overwrites them. Returns
    the number of the document's terms.
    """
    address = address_of(store, txn, document.collection, ordinal)
    terms = terms_of(document)
    for term in terms:
        txn.delete(term, term_entry(term, ordinal), db=store.db["terms"])
    erase_entries(store, txn, document.collection, ordinal, None if keep_slot else address)
    return len(terms)


def erase_entries(
    store: Store, txn: Txn, collection: int, ordinal: int, address: bytes | None
) -> None:
    """Deletes the entries under a document's ordinal, and frees its slot.

    If `address` is None, the values under the slot stay and the slot is not freed.
    """
    entry = schema.in_collection(collection, ordinal)
    for database in ("ordinals", "unsummarised", "summarised"):
        txn.delete(entry, db=store.db[database])
    if address is not None:
        slot = address[: schema.SLOT_BYTES]
        txn.delete_content(slot, db=store.db[schema.CONTENTS])
        txn.delete(address, db=store.db["documents"])
        txn.put(slot, b"", db=store.db["free_slots"])
