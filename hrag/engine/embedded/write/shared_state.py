"""The state that all changes of a write transaction share: ids, counters and usage.

This state consists of the last ids that the store has allocated, the counters of collections, and
the usage of tenants. Each changed value is written once, at the end of the transaction.
"""

from hrag.engine.common import validation
from hrag.engine.common.records import CollectionRecord, DocumentRecord, Usage
from hrag.engine.embedded.store.change_log import append_change, note_commit, trimmed
from hrag.engine.embedded.store.damaged_documents import recounted
from hrag.engine.embedded.store.lmdb_records import Change, Counters
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.engine_documents import CollectionHandle
from hrag.values.quotas import QuotaOf


class SharedState:
    """The ids, counters and usage that all changes of one write transaction share.

    `finish` writes the changed ids, counters and usage to the store. It also trims the change log
    of each changed collection to the newest `max_log_entries` entries. `quota_of` returns the quota
    of a tenant.
    """

    def __init__(self, txn: Txn, max_log_entries: int, quota_of: QuotaOf) -> None:
        self._txn = txn
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of
        self._numbers: dict[bytes, int] = {}
        self._collections: dict[int, CollectionRecord] = {}
        self._counters: dict[int, Counters] = {}
        self._usage: dict[str, Usage] = {}
        self.changed: set[int] = set()
        """The ids of the collections that the transaction has changed."""

    def finish(self) -> None:
        """Writes the changed ids, counters and usage, and trims the change logs.

        It must be called after the last change of the transaction.
        """
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

    def next_number(self, name: bytes) -> int:
        """Allocates an id, for example an ordinal, and returns it.

        `name` is the key under which the store has the last id of this kind, for example
        `schema.LAST_ORDINAL`. Raises DataLoss if the last id is damaged.
        """
        number = self.last_number(name)
        self._numbers[name] = number + 1
        return number + 1

    def last_number(self, name: bytes) -> int:
        """Returns the id, for example the ordinal, that was allocated last.

        `name` is the key under which the store has the last id of this kind, for example
        `schema.LAST_ORDINAL`. Raises DataLoss if the last id is damaged.
        """
        return self._numbers.get(name) or self._txn.number(name)

    def next_sequence(self, tenant_id: str) -> int:
        """Increments the tenant's sequence number and returns its new value."""
        usage = self.usage_of(tenant_id)
        self._usage[tenant_id] = usage._replace(sequence=usage.sequence + 1)
        return usage.sequence + 1

    def collection(self, handle: CollectionHandle) -> CollectionRecord:
        """Returns the record of a collection.

        Raises CollectionNotFound if the collection has been deleted.
        """
        record = self._collections.get(handle.collection_id)
        if record is None:
            record = existing_collection(self._txn, handle)
            self._collections[handle.collection_id] = record
        return record

    def counters_of(self, handle: CollectionHandle) -> Counters:
        """Returns a collection's counters after the changes that this transaction has made so far.

        Raises DataLoss if the stored counters are damaged.
        """
        number = handle.collection_id
        counters = self._counters.get(number)
        return self._txn.counters.require(number) if counters is None else counters

    def add_to_counters(
        self, handle: CollectionHandle, *, unsummarised: int = 0, summary_tokens: int = 0
    ) -> None:
        """Adds to two counters of a collection: `unsummarised` and `summary_tokens`.

        `unsummarised` is added to the count of documents whose summaries are not written yet; it
        may be negative. `summary_tokens` is added to the count of tokens that a chat model has read
        and written for summaries.
        """
        counters = self.counters_of(handle)
        self._counters[handle.collection_id] = counters._replace(
            unsummarised=counters.unsummarised + unsummarised,
            summary_tokens=counters.summary_tokens + summary_tokens,
        )

    def usage_of(self, tenant_id: str) -> Usage:
        """Returns a tenant's usage after the changes that this transaction has made so far.

        Raises DataLoss if the stored usage is damaged.
        """
        usage = self._usage.get(tenant_id)
        return read_usage(self._txn, tenant_id) if usage is None else usage

    def check_quota(self, tenant_id: str, added: Usage) -> None:
        """Raises StorageQuotaExceeded if the tenant's usage plus `added` exceeds its quota."""
        used = self.usage_of(tenant_id).info(self._quota_of(tenant_id))
        validation.check_quota(tenant_id, used, added.info())

    def count(
        self, handle: CollectionHandle, document: DocumentRecord, ordinal: int, sign: int
    ) -> None:
        """Adds a document to the counters (`sign` 1), or removes it from them (`sign` -1).

        Changes the counters of the document's collection and the usage of its tenant. A summary
        document changes only the stored bytes of the usage, not its count of documents.
        """
        documents = 0 if self.collection(handle).summarises else sign
        added = Usage(documents=documents, stored_bytes=sign * document.stored_bytes)
        self._usage[handle.tenant_id] = self.usage_of(handle.tenant_id).plus(added)
        counters = self.counters_of(handle).plus(document, ordinal, sign)
        self._counters[handle.collection_id] = counters

    def recount(self, handle: CollectionHandle) -> None:
        """Computes a collection's counters again from its documents.

        Changes the tenant's usage by the difference between the new and the old counters.
        """
        before = self.counters_of(handle)
        after = recounted(self._txn, handle.collection_id, before)
        documents = after.documents - before.documents
        added = Usage(
            documents=0 if self.collection(handle).summarises else documents,
            stored_bytes=after.stored_bytes - before.stored_bytes,
        )
        self._usage[handle.tenant_id] = self.usage_of(handle.tenant_id).plus(added)
        self._counters[handle.collection_id] = after

    def log_change(self, handle: CollectionHandle, change: Change, sequence: int) -> None:
        """Adds a change to a collection's change log.

        `sequence` is the sequence number of the change.
        """
        number, counters = handle.collection_id, self.counters_of(handle)
        self._counters[number] = append_change(self._txn, number, counters, change, sequence)
        self.changed.add(number)


def existing_collection(txn: Txn, handle: CollectionHandle) -> CollectionRecord:
    """Returns the record of the collection to which `handle` refers.

    Raises CollectionNotFound if the collection has been deleted since `handle` was created.
    """
    if not txn.collections.has(handle.collection_id):
        raise validation.no_collection(handle.tenant_id, handle.name)
    return txn.collections.require(handle.collection_id)
