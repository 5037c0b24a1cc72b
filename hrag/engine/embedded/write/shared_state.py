"""State shared by the changes of a transaction: store numbers, collection counters, tenant usage.

Each value is read at most once, and written once at the end of the transaction.
"""

from hrag.engine.common.records import CollectionRecord, DocumentRecord, Usage
from hrag.engine.common.validation import check_quota, no_collection
from hrag.engine.embedded.store.change_log import append_change, note_commit, trimmed
from hrag.engine.embedded.store.lmdb_records import Change, Counters
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.engine_documents import CollectionHandle
from hrag.values.quotas import QuotaOf


class SharedState:
    """The state that all changes of one transaction share; `finish` writes it."""

    def __init__(self, txn: Txn, max_log_entries: int, quota_of: QuotaOf) -> None:
        self._txn = txn
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of
        self._numbers: dict[bytes, int] = {}
        self._collections: dict[int, CollectionRecord] = {}
        self._counters: dict[int, Counters] = {}
        self._usage: dict[str, Usage] = {}
        self.changed: set[int] = set()
        """The numbers of the collections that the transaction has changed."""
        self.is_whole = True
        """False if an error ended a change after its first write.

        Then the transaction must not be committed.
        """

    def finish(self) -> None:
        """Writes the shared state; call it after the last change."""
        txn = self._txn
        for name, number in self._numbers.items():
            txn.put_number(name, number)
        for number, changed in self._counters.items():
            counters = trimmed(txn, number, changed, self._max_log_entries)
            txn.counters.put(number, counters)
        for tenant_id, usage in self._usage.items():
            txn.tenants.put(tenant_id, usage)
        for number in self.changed:
            note_commit(txn, number)

    def _next_number(self, name: bytes) -> int:
        """Increments one of the store's numbers and returns it. Raises DataLoss."""
        number = self._last_number(name)
        self._numbers[name] = number + 1
        return number + 1

    def _last_number(self, name: bytes) -> int:
        """Returns the last value of one of the store's numbers. Raises DataLoss."""
        return self._numbers.get(name) or self._txn.number(name)

    def _next_sequence(self, tenant_id: str) -> int:
        usage = self._usage_of(tenant_id)
        self._usage[tenant_id] = usage._replace(sequence=usage.sequence + 1)
        return usage.sequence + 1

    def _read_collection(self, handle: CollectionHandle) -> CollectionRecord:
        """Returns the collection's record. Raises CollectionNotFound if it has been deleted."""
        record = self._collections.get(handle.collection_id)
        if record is None:
            record = existing_collection(self._txn, handle)
            self._collections[handle.collection_id] = record
        return record

    def _counters_of(self, handle: CollectionHandle) -> Counters:
        number = handle.collection_id
        counters = self._counters.get(number)
        return self._txn.counters.require(number) if counters is None else counters

    def _usage_of(self, tenant_id: str) -> Usage:
        usage = self._usage.get(tenant_id)
        return read_usage(self._txn, tenant_id) if usage is None else usage

    def _check_quota(self, tenant_id: str, added: Usage) -> None:
        """Raises StorageQuotaExceeded if the tenant's quota does not allow `added` as well."""
        used = self._usage_of(tenant_id).info(self._quota_of(tenant_id))
        check_quota(tenant_id, used, added.info())

    def _count(
        self, handle: CollectionHandle, document: DocumentRecord, ordinal: int, sign: int
    ) -> None:
        """Counts a document as added (`sign` 1) or removed (`sign` -1).

        Changes the counters of its collection and the usage of its tenant. The usage does not count
        summary documents, but it counts their bytes.
        """
        documents = 0 if self._read_collection(handle).summarises else sign
        added = Usage(documents=documents, stored_bytes=sign * document.stored_bytes)
        self._usage[handle.tenant_id] = self._usage_of(handle.tenant_id).plus(added)
        counters = self._counters_of(handle).plus(document, ordinal, sign)
        self._counters[handle.collection_id] = counters

    def _log(self, handle: CollectionHandle, change: Change, sequence: int) -> None:
        """Adds a change to the collection's change log."""
        number, counters = handle.collection_id, self._counters_of(handle)
        self._counters[number] = append_change(self._txn, number, counters, change, sequence)
        self.changed.add(number)


def existing_collection(txn: Txn, handle: CollectionHandle) -> CollectionRecord:
    """Returns the collection's record. Raises CollectionNotFound if it has been deleted."""
    if not txn.collections.has(handle.collection_id):
        raise no_collection(handle.tenant_id, handle.name)
    return txn.collections.require(handle.collection_id)
