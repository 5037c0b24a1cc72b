"""Lookups and deletions that several rooms need, inside a transaction of the caller."""

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
    """`value`, which another entry refers to, or DataLoss if it is missing."""
    if value is None:
        raise DataLoss("the store is damaged: an entry is missing; `hrag check` names it")
    return value


def find_collection(store: Store, txn: Txn, tenant_id: str, name: str) -> int:
    """Returns the number of the collection with this name or alias.

    The only place that resolves aliases. Raises CollectionNotFound.
    """
    value = txn.get(schema.collection_name(tenant_id, name), db=store.db["collection_names"])
    if value is None:
        raise no_collection(tenant_id, name)
    return schema.read_name(value)[0]


def collection_numbers(
    store: Store, txn: Txn, prefix: bytes = b"", start: bytes = b""
) -> Iterator[int]:
    """Yields the collections whose key in `collection_names` begins with `prefix`, by name.

    From the key `start` on; each once: aliases are left out.
    """
    for _, value in store.scan(txn, "collection_names", prefix, start):
        number, is_alias = schema.read_name(value)
        if not is_alias:
            yield number


def aliases_of(store: Store, txn: Txn, tenant_id: str) -> Iterator[tuple[str, int]]:
    """Yields a tenant's aliases with their collections, by name."""
    prefix = schema.collection_name(tenant_id, "")
    for key, value in store.scan(txn, "collection_names", prefix):
        number, is_alias = schema.read_name(value)
        if is_alias:
            yield str(key[len(prefix) :], "utf-8"), number


def describe_aliases(store: Store, txn: Txn, tenant_id: str) -> tuple[Alias, ...]:
    """What clients see of a tenant's aliases, by name."""
    return tuple(
        Alias(alias, read_collection(store, txn, number).name)
        for alias, number in aliases_of(store, txn, tenant_id)
    )


def collection_exists(store: Store, txn: Txn, number: int) -> bool:
    """Whether the collection has not been deleted."""
    return txn.has(schema.u32(number), db=store.db["collections"])


def read_collection(store: Store, txn: Txn, number: int) -> CollectionRecord:
    """The record of a collection that exists in this transaction."""
    value = txn.get(schema.u32(number), db=store.db["collections"])
    return _collection_record(bytes(required(value)))


@lru_cache(maxsize=1024)
def _collection_record(value: bytes) -> CollectionRecord:
    """Every document needs it, and it hardly ever changes."""
    return CollectionRecord.from_bytes(value)


def set_analyzer(store: Store, txn: Txn, number: int, analyzer: str) -> bool:
    """Changes the analyzer of a collection that exists; returns False if it was the same."""
    record = read_collection(store, txn, number)
    if record.settings.analyzer == analyzer:
        return False
    changed = replace(record, settings=replace(record.settings, analyzer=analyzer))
    txn.put(schema.u32(number), changed.to_bytes(), db=store.db["collections"])
    return True


def read_counters(store: Store, txn: Txn, number: int) -> Counters:
    """The counters of a collection that exists in this transaction."""
    return Counters.from_bytes(required(txn.get(schema.u32(number), db=store.db["counters"])))


def describe_collection(store: Store, txn: Txn, number: int) -> Collection:
    """What clients see of a collection that exists in this transaction."""
    record = read_collection(store, txn, number)
    documents = read_counters(store, txn, number).documents
    return Collection(record.tenant_id, record.name, record.settings, documents)


def handle_of(store: Store, txn: Txn, number: int) -> CollectionHandle:
    """A handle of a collection that exists in this transaction."""
    record = read_collection(store, txn, number)
    return CollectionHandle(record.tenant_id, record.name, number, record.settings)


def listed_segments(store: Store, txn: Txn, number: int) -> list[SegmentRecord]:
    """The collection's segments in order of ordinals: those of the oldest documents first."""
    entries = store.scan(txn, "segments", schema.u32(number))
    return [SegmentRecord.from_bytes(value) for _, value in entries]


def is_listed(store: Store, txn: Txn, number: int, record: SegmentRecord) -> bool:
    """Whether the collection has this segment, whatever became of its other records."""
    key = schema.in_collection(number, record.last_ordinal)
    value = txn.get_sound(key, db=store.db["segments"])
    return value is not None and SegmentRecord.from_bytes(value) == record


def all_segments(store: Store, txn: Txn) -> Iterator[tuple[int, SegmentRecord]]:
    """Every segment with its collection, deleted collections included until reclaimed.

    Leaves out damaged records: they are the matter of their own collection.
    """
    for key, value in txn.sound_entries(store.db["segments"]):
        yield schema.read_in_collection(key)[0], SegmentRecord.from_bytes(value)


def address_of(store: Store, txn: Txn, collection: int, ordinal: int) -> bytes:
    """The address of a document that exists in this transaction; see `schema.address`."""
    value = txn.get(schema.in_collection(collection, ordinal), db=store.db["ordinals"])
    slot = schema.read_document_entry(required(value))[1]
    return schema.address(slot, collection, ordinal)


def is_living(store: Store, txn: Txn, collection: int, ordinal: int) -> bool:
    """Whether the ordinal is that of a document that exists in this transaction."""
    key = schema.in_collection(collection, ordinal)
    return ordinal <= MAX_ORDINAL and txn.has(key, db=store.db["ordinals"])


def read_document(store: Store, txn: Txn, address: bytes) -> DocumentRecord:
    """The record of a document that exists in this transaction."""
    return DocumentRecord.from_bytes(required(txn.get(address, db=store.db["documents"])))


def find_document(
    store: Store, txn: Txn, collection: int, document_id: str
) -> tuple[int, DocumentRecord | None]:
    """A document's ordinal and record by its id; 0 and None if there is none."""
    value = txn.get(schema.document_id(collection, document_id), db=store.db["document_ids"])
    if value is None:
        return 0, None
    ordinal = schema.read_u64(value)
    return ordinal, read_document(store, txn, address_of(store, txn, collection, ordinal))


def erase_document(
    store: Store, txn: Txn, ordinal: int, document: DocumentRecord, *, keep_slot: bool = False
) -> int:
    """Deletes one version of a document, except its id, counters and log entry.

    With `keep_slot`, what its slot has stays, for the next version to take its place. Returns
    the number of its terms.
    """
    address = address_of(store, txn, document.collection, ordinal)
    terms = terms_of(document)
    for each in terms:
        txn.delete(each, term_entry(each, ordinal), db=store.db["terms"])
    erase_entries(store, txn, document.collection, ordinal, None if keep_slot else address)
    return len(terms)


def erase_entries(
    store: Store, txn: Txn, collection: int, ordinal: int, address: bytes | None
) -> None:
    """Deletes what is stored under a document's ordinal, and under its address if that is known."""
    entry = schema.in_collection(collection, ordinal)
    for database in ("ordinals", "unsummarised", "summarised"):
        txn.delete(entry, db=store.db[database])
    if address is not None:
        slot = address[: schema.SLOT_BYTES]
        txn.delete_content(slot, db=store.db[schema.CONTENTS])
        for database in schema.BY_SLOT:
            txn.delete(address, db=store.db[database])
        txn.put(slot, b"", db=store.db["free_slots"])
