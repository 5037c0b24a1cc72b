"""Adds, replaces and removes versions of documents, inside a write transaction.

A version is a document as one `put` has stored it: its record, its text, tree and vectors, its
filter terms, and its entries in other LMDB databases. When a version is removed, its summaries are
removed, too. If a segment contains the version, a tombstone is also written. A damaged version is
removed without being read. Then filter terms and counters are computed again from the collection's
other documents.

The values of a version are stored under a slot, which is the first part of their keys. The next
version of the document reuses the slot, which saves LMDB from moving pages.
"""

from collections.abc import Sequence

from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.common.summary_documents import summary_handle
from hrag.engine.embedded.segments import manifest
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.codecs import DocumentEntry
from hrag.engine.embedded.store.damaged_documents import (
    find_damaged,
    is_intact,
    recounted,
    rewrite_terms,
)
from hrag.engine.embedded.store.lmdb_records import Change
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.queries import (
    address_of,
    erase_document,
    erase_entries,
    find_document,
)
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.shared_state import SharedState
from hrag.engine.embedded.write.unsummarised import PendingSummaries
from hrag.engine.engine_documents import CollectionHandle, PreparedDocument


class Slots:
    """Allocates slots. A slot is the first part of the keys under which a document is stored.

    All methods return a slot as the bytes that are in the keys.
    """

    def __init__(self, txn: Txn, shared: SharedState) -> None:
        self._txn = txn
        self._shared = shared

    def first_free(self) -> bytes | None:
        """Returns the free slot whose bytes sort first, or None if no slot is free.

        A slot, the first part of a document's keys, is free after its document was deleted.
        """
        return next(self._txn.free_slots.keys(), None)

    def allocate(self) -> tuple[bytes, bool]:
        """Returns a slot for a new document, and True if no document has used the slot before.

        Reuses the slot of a deleted document if such a slot is free. Otherwise returns a new slot,
        whose bytes sort after those of all other slots.
        """
        slot = self.first_free()
        if slot is None:
            return schema.u64(self._shared.next_number(schema.LAST_SLOT)), True
        self._txn.free_slots.delete(slot)
        return slot, False


class DocumentVersions:
    """Adds, replaces and removes versions of documents within one write transaction.

    A version is a document as one `put` has stored it. `shared` is the state that all changes of
    the transaction share: ids, counters and usage. `pending` are the documents that wait for
    summaries.
    """

    def __init__(self, txn: Txn, shared: SharedState, pending: PendingSummaries) -> None:
        self._txn = txn
        self._shared = shared
        self._pending = pending
        self._slots = Slots(txn, shared)

    def find(self, handle: CollectionHandle, document_id: str) -> tuple[int, DocumentRecord | None]:
        """Returns the ordinal and the record of a document.

        Returns 0 and None if the document does not exist. Raises DataLoss if an entry of the
        document is damaged.
        """
        return find_document(self._txn, handle.collection_id, document_id)

    def find_intact(
        self, handle: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord | None] | None:
        """Returns the ordinal and the record of a document, or None if the document is damaged.

        A document is damaged if any of its stored values is damaged or missing. If the document
        does not exist, returns 0 as ordinal and None as record.
        """
        if is_intact(self._txn, handle.collection_id, document_id):
            return self.find(handle, document_id)
        return None

    def has_intact_summaries(self, handle: CollectionHandle, document_id: str) -> bool:
        """Returns True if no stored value of the document's summaries is damaged.

        Also returns True if the document has no summaries.
        """
        number = self._shared.collection(handle).summaries
        return not number or is_intact(self._txn, number, document_id)

    def growth_over_damaged(
        self, handle: CollectionHandle, document: PreparedDocument, new_bytes: int
    ) -> Usage:
        """Returns by how much the tenant's usage grows if `document` replaces a damaged version.

        `new_bytes` is the count of bytes that the new version will take. The tenant's usage may
        still include the damaged version, or it may not, if the documents of the collection have
        been counted again since the damage. So this method counts all other documents of the
        collection, adds the new version, and returns the difference to the collection's counters.
        """
        txn, number = self._txn, handle.collection_id
        damaged = find_damaged(txn, number, document.document_id)
        before = self._shared.counters_of(handle)
        after = recounted(txn, number, before, without=damaged.ordinal if damaged else 0)
        return Usage(
            documents=after.documents + 1 - before.documents,
            stored_bytes=after.stored_bytes + new_bytes - before.stored_bytes,
        )

    def add(
        self,
        ordinal: int,
        record: DocumentRecord,
        terms: Sequence[bytes],
        document: PreparedDocument,
        slot: bytes | None,
    ) -> None:
        """Stores a version of a document under a slot, the first part of the version's keys.

        `record` and `terms` are the document's record and filter terms. If `slot` is not None, it
        is the slot of the document's previous version, whose values are overwritten. If `slot` is
        None, a slot is allocated.
        """
        txn, collection = self._txn, record.collection
        slot, is_new = self._slots.allocate() if slot is None else (slot, False)
        txn.document_ids.put((collection, record.document_id), ordinal)
        txn.ordinals.put((collection, ordinal), DocumentEntry(record.leaf_count, slot))
        for term in terms:
            txn.terms.add(term, ordinal)
        address = schema.address(slot, collection, ordinal)
        # The keys of a version in a new slot sort after all other keys. So LMDB can append them: it
        # then fills each page before it begins the next page.
        txn.documents.put(address, record, append=is_new)
        vectors = document.vectors.astype("<f4", order="C", copy=False)
        txn.contents.put(
            address,
            document.tree.to_bytes(),
            document.parsed.text.encode(),
            vectors.data.cast("B") if vectors.size else b"",
            append=is_new,
        )
        txn.originals.put(address, document.original or b"", append=is_new)

    def slot_of(self, handle: CollectionHandle, ordinal: int) -> bytes:
        """Returns the slot of a version, the first part of the keys under which it is stored.

        The caller stores the document's next version in the same slot, which overwrites the old
        values. If the old values were deleted first, LMDB would merge pages, and would split the
        pages again when the new values are written.
        """
        address = address_of(self._txn, handle.collection_id, ordinal)
        return address[: schema.SLOT_BYTES]

    def replace_record(
        self, handle: CollectionHandle, ordinal: int, old: DocumentRecord, new: DocumentRecord
    ) -> None:
        """Replaces a version's record and filter terms, and adds the change to the change log.

        `ordinal` is the ordinal of the version. `old` is its stored record, and `new` is the record
        that replaces it.
        """
        txn = self._txn
        before, after = set(terms_of(old)), set(terms_of(new))
        for term in before - after:
            txn.terms.remove(term, ordinal)
        for term in after - before:
            txn.terms.add(term, ordinal)
        address = address_of(txn, handle.collection_id, ordinal)
        txn.documents.put(address, new)
        self._shared.count(handle, old, ordinal, -1)
        self._shared.count(handle, new, ordinal, 1)
        self._shared.log_change(handle, Change(), new.sequence)

    def delete(
        self, handle: CollectionHandle, ordinal: int, document: DocumentRecord, sequence: int
    ) -> None:
        """Deletes a document, and adds the change to the collection's change log.

        `document` is the document's record. `sequence` is the sequence number of the change.
        """
        self.remove(handle, ordinal, document, sequence)
        self._txn.document_ids.delete((handle.collection_id, document.document_id))
        self._shared.log_change(handle, Change(removed=ordinal), sequence)

    def remove(
        self,
        handle: CollectionHandle,
        ordinal: int,
        document: DocumentRecord,
        sequence: int,
        *,
        keep_slot: bool = False,
    ) -> None:
        """Removes one version of a document and its summaries.

        `ordinal` is the ordinal of the version, and `document` is its record. `sequence` is the
        sequence number of the change. If `keep_slot` is True, the record and the content of the
        version are not deleted, because the next version will overwrite them.
        """
        if self._shared.collection(handle).summaries:
            self.remove_summaries(handle, ordinal, document.document_id, sequence)
        erase_document(self._txn, ordinal, document, keep_slot=keep_slot)
        if ordinal <= self._shared.counters_of(handle).sealed_ordinal:
            number, leaf_count = handle.collection_id, document.leaf_count
            manifest.add_tombstone(self._txn, number, ordinal, leaf_count)
        self._shared.count(handle, document, ordinal, -1)

    def delete_damaged(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document that cannot be read; returns the sequence number of the deletion."""
        sequence = self._shared.next_sequence(handle.tenant_id)
        ordinal = self.remove_damaged(handle, document_id, sequence)
        self._txn.document_ids.delete((handle.collection_id, document_id))
        self._shared.log_change(handle, Change(removed=ordinal), sequence)
        return sequence

    def remove_damaged(self, handle: CollectionHandle, document_id: str, sequence: int) -> int:
        """Removes a damaged version of a document and its summaries.

        Returns the ordinal of the version, or 0 if its ordinal cannot be found because of the
        damage. Filter terms and counters are computed again from the collection's other documents.
        """
        txn, number = self._txn, handle.collection_id
        damaged = find_damaged(txn, number, document_id)
        if damaged is not None:
            if self._shared.collection(handle).summaries:
                self.remove_summaries(handle, damaged.ordinal, document_id, sequence)
            erase_entries(txn, number, damaged.ordinal, damaged.address)
            if damaged.ordinal <= self._shared.counters_of(handle).sealed_ordinal:
                manifest.add_tombstone(txn, number, damaged.ordinal, damaged.leaf_count)
        rewrite_terms(txn, number)
        self._shared.recount(handle)
        return 0 if damaged is None else damaged.ordinal

    def remove_summaries(
        self, handle: CollectionHandle, ordinal: int, document_id: str, sequence: int
    ) -> None:
        """Removes the summaries of a document.

        If the document has no summaries yet, removes it from the documents that wait for summaries.
        """
        if self._pending.remove(handle, ordinal):
            return
        collection = summary_handle(handle, self._shared.collection(handle).summaries)
        intact = self.find_intact(collection, document_id)
        if intact is None:
            self.delete_damaged(collection, document_id)
            return
        number, summaries = intact
        # A document that is too short for summaries has no summary document.
        if summaries is not None:
            self.delete(collection, number, summaries, sequence)

    def check_shared(self, handle: CollectionHandle, document_id: str, slot: bytes | None) -> None:
        """Reads the ids, counters and usage that the `put` of a document will change.

        Raises DataLoss if one of these values is damaged, so that `put` fails before it writes
        anything. The new version of the document will be stored under `slot`, the first part of its
        keys. If `slot` is None, `put` will allocate a slot.
        """
        self._shared.usage_of(handle.tenant_id)
        self._shared.last_number(schema.LAST_ORDINAL)
        if slot is None and self._slots.first_free() is None:
            self._shared.last_number(schema.LAST_SLOT)
        self._check_tombstone(handle, document_id)
        number = self._shared.collection(handle).summaries
        if number:
            self._check_tombstone(summary_handle(handle, number), document_id)

    def _check_tombstone(self, handle: CollectionHandle, document_id: str) -> None:
        """Reads the counts that change when the document with this id gets a tombstone.

        A tombstone is written only if a segment contains the document. Raises DataLoss if a count
        is damaged.
        """
        txn, number = self._txn, handle.collection_id
        self._shared.collection(handle)
        sealed_ordinal = self._shared.counters_of(handle).sealed_ordinal
        stored = find_damaged(txn, number, document_id)
        if stored is not None and stored.ordinal <= sealed_ordinal:
            manifest.read_deleted_leaves(txn, number, stored.ordinal)
