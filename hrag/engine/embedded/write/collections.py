"""Creates, deletes and lists collections and their aliases.

A tenant's names and aliases are entries of one database. So no name is used twice, and one look-up
finds a collection by its name or by an alias.
"""

from itertools import islice
from typing import Protocol

from hrag.engine.common.records import CollectionRecord, Usage
from hrag.engine.common.summary_documents import summary_settings
from hrag.engine.common.validation import (
    check_alias_count,
    check_no_aliases,
    check_quota,
    name_taken,
    no_alias,
)
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import MAX_LOG_ENTRIES, note_commit
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.queries import (
    aliases_of,
    collection_numbers,
    describe_aliases,
    describe_collection,
    find_collection,
    handle_of,
    read_collection,
    read_counters,
)
from hrag.engine.embedded.store.tenant_usage import read_usage, write_usage
from hrag.engine.engine_documents import CollectionHandle
from hrag.values.collections import (
    Alias,
    AliasChange,
    Collection,
    CollectionSettings,
    Listing,
    SummaryUnit,
)
from hrag.values.deadline import Deadline
from hrag.values.quotas import QuotaOf, unlimited


class IndexMaintenance(Protocol):
    """Builds and maintains the index in the background."""

    def changed(self, collection: int) -> None:
        """Notes that a commit has changed the collection; the writer calls it after the commit."""

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Applies backpressure: waits while too many leaves of the collection are not indexed.

        Raises DeadlineExceeded.
        """


class CollectionWriter:
    """Implements the methods of `hrag.engine.Writer` that concern collections and aliases."""

    def __init__(
        self,
        store: Store,
        maintenance: IndexMaintenance | None = None,
        max_log_entries: int = MAX_LOG_ENTRIES,
        quota_of: QuotaOf = unlimited,
    ) -> None:
        self._store = store
        self._maintenance = maintenance
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of

    @property
    def store(self) -> Store:
        """The store to which this writer writes."""
        return self._store

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        store, key = self._store, schema.collection_name(tenant_id, name)
        with store.growing_write(0) as txn:
            existing = txn.get(key, db=store.db["collection_names"])
            if existing is not None:
                _, is_alias = schema.read_name(existing)
                raise name_taken(tenant_id, name, "name", is_alias=is_alias)
            used, added = read_usage(store, txn, tenant_id), Usage(collections=1, sequence=1)
            check_quota(tenant_id, used.info(self._quota_of(tenant_id)), added.info())
            used = used.plus(added)
            write_usage(store, txn, tenant_id, used)
            number = store.next_number(txn, schema.LAST_COLLECTION)
            txn.put(key, schema.u32(number), db=store.db["collection_names"])
            self._add_collection(txn, number, CollectionRecord(tenant_id, name, settings), used)
        return Collection(tenant_id, name, settings), used.sequence

    def _add_collection(self, txn: Txn, number: int, record: CollectionRecord, used: Usage) -> None:
        """Adds a collection, and its summary collection if it has summaries."""
        tenant_id, name, settings = record.tenant_id, record.name, record.settings
        if settings.summaries is not SummaryUnit.NONE:
            summary_number = self._store.next_number(txn, schema.LAST_COLLECTION)
            summaries = CollectionRecord(
                tenant_id, name, summary_settings(settings), summarises=number
            )
            self._add_collection(txn, summary_number, summaries, used)
            record = CollectionRecord(tenant_id, name, settings, summaries=summary_number)
        sequence = used.sequence
        counters = Counters(sequence=sequence, sealed_sequence=sequence, log_start=sequence)
        txn.put(schema.u32(number), record.to_bytes(), db=self._store.db["collections"])
        txn.put(schema.u32(number), counters.to_bytes(), db=self._store.db["counters"])
        note_commit(self._store, txn, number)

    def delete_collection(self, tenant_id: str, name: str) -> int:
        store = self._store
        with store.write() as txn:
            number = find_collection(store, txn, tenant_id, name)
            record = read_collection(store, txn, number)
            tenant_aliases = aliases_of(store, txn, tenant_id)
            aliases = [alias for alias, target in tenant_aliases if target == number]
            check_no_aliases(tenant_id, record.name, aliases)
            numbers = [number, record.summaries] if record.summaries else [number]
            counters = [read_counters(store, txn, counted) for counted in numbers]
            freed_bytes = sum(counter.stored_bytes for counter in counters)
            freed = Usage(-1, -counters[0].documents, -freed_bytes)
            used = read_usage(store, txn, tenant_id).plus(freed).plus(Usage(sequence=1))
            write_usage(store, txn, tenant_id, used)
            txn.delete(schema.collection_name(tenant_id, name), db=store.db["collection_names"])
            for deleted in numbers:
                txn.delete(schema.u32(deleted), db=store.db["collections"])
                txn.delete(schema.u32(deleted), db=store.db["counters"])
                txn.put(schema.u32(deleted), b"", db=store.db["deleted_collections"])
                note_commit(store, txn, deleted)
        self._notify_maintenance(*numbers)
        return used.sequence

    def collection(self, tenant_id: str, name: str) -> Collection:
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, name)
            return describe_collection(self._store, txn, number)

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        prefix = schema.collection_name(tenant_id, "")
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            all_numbers = collection_numbers(self._store, txn, prefix, after)
            numbers = list(islice(all_numbers, page_size + 1))
            page = [describe_collection(self._store, txn, number) for number in numbers[:page_size]]
        return Listing(tuple(page), page[-1].name if len(numbers) > page_size else "")

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, name)
            return handle_of(self._store, txn, number)

    def set_alias(self, tenant_id: str, alias: str, collection: str) -> AliasChange:
        store, key = self._store, schema.collection_name(tenant_id, alias)
        with store.growing_write(0) as txn:
            number = find_collection(store, txn, tenant_id, collection)
            used, previous = read_usage(store, txn, tenant_id), ""
            existing = txn.get(key, db=store.db["collection_names"])
            if existing is None:
                check_alias_count(tenant_id, sum(1 for _ in aliases_of(store, txn, tenant_id)))
            else:
                previous_number, is_alias = schema.read_name(existing)
                if not is_alias:
                    raise name_taken(tenant_id, alias, "alias", is_alias=False)
                previous = read_collection(store, txn, previous_number).name
            new_alias = Alias(alias, read_collection(store, txn, number).name)
            if previous != new_alias.collection:
                used = used.plus(Usage(sequence=1))
                write_usage(store, txn, tenant_id, used)
                txn.put(key, schema.alias(number), db=store.db["collection_names"])
                note_commit(store, txn, number)
        return AliasChange(new_alias, previous, used.sequence)

    def delete_alias(self, tenant_id: str, alias: str) -> int:
        store, key = self._store, schema.collection_name(tenant_id, alias)
        with store.write() as txn:
            value = txn.get(key, db=store.db["collection_names"])
            number, is_alias = (0, False) if value is None else schema.read_name(value)
            if not is_alias:
                raise no_alias(tenant_id, alias)
            used = read_usage(store, txn, tenant_id).plus(Usage(sequence=1))
            write_usage(store, txn, tenant_id, used)
            txn.delete(key, db=store.db["collection_names"])
            note_commit(store, txn, number)
        return used.sequence

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        with self._store.read() as txn:
            return describe_aliases(self._store, txn, tenant_id)

    def _notify_maintenance(self, *collections: int) -> None:
        """Reports collections that a commit has changed, by number."""
        if self._maintenance is not None:
            for number in collections:
                self._maintenance.changed(number)
