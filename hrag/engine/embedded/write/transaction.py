"""Changes documents within one LMDB write transaction.

A document is written whole or not at all: everything that can be refused is refused before
its first byte is written, and what it shares with others is read, and so verified, before. An
error after the first byte leaves `is_whole` False.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hrag.engine.common.document_results import growth, record_of, result_of, unchanged_result
from hrag.engine.common.records import DocumentRecord, Summarised, Usage
from hrag.engine.common.summary_documents import as_document, summary_handle
from hrag.engine.common.validation import (
    check_shapes,
    check_summaries,
    document_changed,
    no_document,
)
from hrag.engine.embedded.segments import manifest
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.damaged_documents import (
    find_damaged,
    is_intact,
    recounted,
    rewrite_terms,
)
from hrag.engine.embedded.store.lmdb_records import Change, packed_document
from hrag.engine.embedded.store.metadata_terms import term_entry, terms_of
from hrag.engine.embedded.store.owners import document_name
from hrag.engine.embedded.store.queries import (
    address_of,
    erase_document,
    erase_entries,
    find_document,
    is_living,
    read_document,
    required,
)
from hrag.engine.embedded.store.tenant_usage import stored_bytes
from hrag.engine.embedded.write.shared_state import SharedState
from hrag.engine.engine_documents import CollectionHandle, DocumentSummaries, PreparedDocument
from hrag.values.documents import DocumentDeletion, DocumentInfo, IngestOutcome, IngestResult
from hrag.values.errors import DataLoss


class WriteTransaction(SharedState):
    """The changes of one transaction; `finish` writes what they share."""

    def put(self, handle: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Creates or replaces a document, unless it is stored already.

        Raises CollectionNotFound, InvalidArgument or TooLarge for a document that does not
        fit the collection, StorageQuotaExceeded if its tenant may not have so much, DataLoss
        if what it shares with other documents is damaged.
        """
        collection = self._existing(handle)
        check_shapes(document, handle.settings)
        found = self._find_sound(handle, document.document_id)
        old_ordinal, old = found or (0, None)
        unchanged = unchanged_result(old, document.content_hash)
        if unchanged is not None and self._has_sound_summaries(handle, document.document_id):
            return unchanged
        new = record_of(handle, document)
        terms = terms_of(new)
        takes = stored_bytes(new, terms, document.tree.size_bytes)
        if not collection.summarises:  # Nobody waits for the error if summaries are refused.
            more = growth(old, takes) if found else self._growth_by_mending(handle, document, takes)
            self._check_quota(handle.tenant_id, more)
        slot = None if old is None else self._slot_to_keep(handle, old_ordinal)
        self._check_shared(handle, document.document_id, slot)
        self.is_whole = False
        sequence, ordinal = self._next_sequence(handle.tenant_id), self._next(schema.LAST_ORDINAL)
        if found is None:
            old_ordinal = self._remove_damaged(handle, document.document_id, sequence)
        elif old is not None:
            self._remove(handle, old_ordinal, old, sequence, keep_slot=slot is not None)
        new = replace(new, stored_bytes=takes, sequence=sequence)
        self._add(ordinal, new, terms, document, slot)
        self._count(handle, new, ordinal, 1)
        if collection.summaries:
            self._mark_unsummarised(handle, ordinal)
        self._log(handle, Change(ordinal, old_ordinal), sequence)
        self.is_whole = True
        return result_of(new, IngestOutcome.UPDATED if old_ordinal else IngestOutcome.CREATED)

    def put_summaries(
        self, handle: CollectionHandle, ordinal: int, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        """Stores the summaries of a document; False if they are no longer pending.

        The `tokens` that they cost count in either case. Raises CollectionNotFound.
        """
        self._existing(handle)
        waiting = self._unmark_unsummarised(handle, ordinal)
        counters = self._counters_of(handle)
        self._counters[handle.collection_id] = counters._replace(
            summary_tokens=counters.summary_tokens + tokens
        )
        if waiting and summaries.summaries:
            address = address_of(self._store, self._txn, handle.collection_id, ordinal)
            document = read_document(self._store, self._txn, address)
            collection = summary_handle(handle, self._existing(handle).summaries)
            self.put(collection, as_document(document, summaries))
            sections = tuple(summary.leaves for summary in summaries.summaries[1:])
            self._txn.put(
                schema.in_collection(collection.collection_id, self._numbers[schema.LAST_ORDINAL]),
                Summarised(ordinal, sections).to_bytes(),
                db=self._store.db["summarised"],
            )
        return waiting

    def put_stored(
        self, handle: CollectionHandle, document: PreparedDocument, summaries: DocumentSummaries
    ) -> IngestResult:
        """Puts a document together with its summaries; raises as `put` does.

        Raises InvalidArgument if the collection has no summaries.
        """
        self._existing(handle)
        check_summaries(document, handle)
        result = self.put(handle, document)
        ordinal, _ = self._find(handle, document.document_id)
        self.put_summaries(handle, ordinal, summaries)
        return result

    def put_metadata(
        self,
        handle: CollectionHandle,
        document_id: str,
        until: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        """Replaces metadata and source of the document that is as of the sequence `until`.

        Its ordinal stays, and with it what segments hold. Raises CollectionNotFound,
        DocumentNotFound, DocumentChanged or StorageQuotaExceeded.
        """
        collection = self._existing(handle)
        ordinal, old = self._find(handle, document_id)
        if old is None:
            raise no_document(handle, document_id)
        if old.sequence != until:
            raise document_changed(document_id, until, old.sequence)
        new = self._revised(ordinal, old, metadata, source)
        self._check_quota(handle.tenant_id, growth(old, new.stored_bytes))
        sequence = self._next_sequence(handle.tenant_id)
        self._revise(handle, ordinal, old, replace(new, sequence=sequence))
        if collection.summaries:
            summaries = summary_handle(handle, collection.summaries)
            number, found = self._find(summaries, document_id)
            if found is not None:
                same = self._revised(number, found, metadata, source)
                self._revise(summaries, number, found, replace(same, sequence=sequence))
        return replace(new, sequence=sequence).info()

    def _revised(
        self, ordinal: int, old: DocumentRecord, metadata: Mapping[str, Any], source: str
    ) -> DocumentRecord:
        """The record with other metadata; its empty hash equals that of no document."""
        new = replace(old, metadata=metadata, source=source, content_hash="")
        address = address_of(self._store, self._txn, old.collection, ordinal)
        tree = required(self._txn.get(address, db=self._store.db["trees"]))
        has_content = self._has_content(address)
        takes = stored_bytes(new, terms_of(new), len(tree), has_content=has_content)
        return replace(new, stored_bytes=takes)

    def _has_content(self, address: bytes) -> bool:
        """Whether the document was stored by the newest schema: it stays as it was stored."""
        return self._txn.has_content(address, db=self._store.db[schema.CONTENTS])

    def _revise(
        self, handle: CollectionHandle, ordinal: int, old: DocumentRecord, new: DocumentRecord
    ) -> None:
        """Stores another record of the same version of a document, with its terms."""
        txn, db = self._txn, self._store.db
        before, after = set(terms_of(old)), set(terms_of(new))
        for each in before - after:
            txn.delete(each, term_entry(each, ordinal), db=db["terms"])
        for each in after - before:
            txn.put(each, term_entry(each, ordinal), db=db["terms"])
        address = address_of(self._store, txn, handle.collection_id, ordinal)
        record = packed_document(new, has_content=self._has_content(address))
        txn.put(address, record, db=db["documents"])
        self._count(handle, old, ordinal, -1)
        self._count(handle, new, ordinal, 1)
        self._log(handle, Change(), new.sequence)

    def delete(self, handle: CollectionHandle, document_id: str) -> int:
        """Returns the sequence of the deletion.

        Raises CollectionNotFound or DocumentNotFound.
        """
        self._existing(handle)
        found = self._find_sound(handle, document_id)
        if found is None:
            return self._delete_damaged(handle, document_id)
        ordinal, document = found
        if document is None:
            raise no_document(handle, document_id)
        sequence = self._next_sequence(handle.tenant_id)
        self._delete(handle, ordinal, document, sequence)
        return sequence

    def delete_unchanged(
        self, handle: CollectionHandle, ordinals: Sequence[int], until: int
    ) -> DocumentDeletion:
        """Deletes those of the documents that still exist as they were at the sequence `until`.

        Raises CollectionNotFound.
        """
        self._existing(handle)
        deleted, number = 0, handle.collection_id
        for ordinal in ordinals:
            if not is_living(self._store, self._txn, number, ordinal):
                continue
            try:
                address = address_of(self._store, self._txn, number, ordinal)
                document = read_document(self._store, self._txn, address)
            except DataLoss:
                document_id = document_name(self._txn, self._store.db, number, ordinal)
            else:
                if document.sequence > until:
                    continue
                document_id = document.document_id
            self.delete(handle, document_id)
            deleted += 1
        return DocumentDeletion(deleted, self._usage_of(handle.tenant_id).sequence)

    # Documents

    def _find(
        self, handle: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord | None]:
        return find_document(self._store, self._txn, handle.collection_id, document_id)

    def _check_shared(self, handle: CollectionHandle, document_id: str, slot: bytes | None) -> None:
        """Reads all that putting a document changes and that is not its own.

        A new version is to take `slot`, or any if that is None. Raises DataLoss.
        """
        self._usage_of(handle.tenant_id)
        self._last(schema.LAST_ORDINAL)
        if slot is None and self._free_slot() is None:
            self._last(schema.LAST_SLOT)
        self._check_tombstone(handle, document_id)
        number = self._existing(handle).summaries
        if number:
            self._check_tombstone(summary_handle(handle, number), document_id)

    def _check_tombstone(self, handle: CollectionHandle, document_id: str) -> None:
        """Reads what removing the document, if it is stored, changes of its collection.

        Raises DataLoss.
        """
        store, txn, number = self._store, self._txn, handle.collection_id
        self._existing(handle)
        sealed_ordinal = self._counters_of(handle).sealed_ordinal
        found = find_damaged(store, txn, number, document_id)
        if found is not None and found.ordinal <= sealed_ordinal:
            manifest.read_deleted_leaves(store, txn, number, found.ordinal)

    def _add(
        self,
        ordinal: int,
        record: DocumentRecord,
        terms: Sequence[bytes],
        document: PreparedDocument,
        slot: bytes | None,
    ) -> None:
        """Stores a version of a document, in the place of the one before if that has a slot."""
        txn, db = self._txn, self._store.db
        name = schema.document_id(record.collection, record.document_id)
        entry = schema.in_collection(record.collection, ordinal)
        slot, is_new = self._take_slot() if slot is None else (slot, False)
        txn.put(name, schema.u64(ordinal), db=db["document_ids"])
        txn.put(entry, schema.document_entry(record.leaf_count, slot), db=db["ordinals"])
        for each in terms:
            txn.put(each, term_entry(each, ordinal), db=db["terms"])
        address = schema.address(slot, record.collection, ordinal)
        # Appended where the slot is past all others: LMDB then fills its pages.
        txn.put(address, packed_document(record), db=db["documents"], append=is_new)
        vectors = document.vectors.astype("<f4", order="C", copy=False)
        parts = (
            (db["trees"], document.tree.to_bytes()),
            (db["texts"], document.parsed.text.encode()),
            (db["vectors"], vectors.data.cast("B") if vectors.size else b""),
        )
        txn.put_content(address, parts, append=is_new)

    def _slot_to_keep(self, handle: CollectionHandle, ordinal: int) -> bytes | None:
        """The packed slot whose values the next version overwrites; None for an older schema's.

        Deleted values would make LMDB merge pages, and those written then split them again.
        """
        address = address_of(self._store, self._txn, handle.collection_id, ordinal)
        return address[: schema.SLOT_BYTES] if self._has_content(address) else None

    def _take_slot(self) -> tuple[bytes, bool]:
        """A packed slot, a free one if there is any, and whether it is past all others."""
        slot = self._free_slot()
        if slot is None:
            return schema.u64(self._next(schema.LAST_SLOT)), True
        self._txn.delete(slot, db=self._store.db["free_slots"])
        return slot, False

    def _free_slot(self) -> bytes | None:
        free = next(self._store.scan(self._txn, "free_slots", b""), None)
        return None if free is None else bytes(free[0])

    def _delete(
        self, handle: CollectionHandle, ordinal: int, document: DocumentRecord, sequence: int
    ) -> None:
        """Deletes a document and its id, as the change `sequence`."""
        self._remove(handle, ordinal, document, sequence)
        name = schema.document_id(handle.collection_id, document.document_id)
        self._txn.delete(name, db=self._store.db["document_ids"])
        self._log(handle, Change(removed=ordinal), sequence)

    def _remove(
        self,
        handle: CollectionHandle,
        ordinal: int,
        document: DocumentRecord,
        sequence: int,
        *,
        keep_slot: bool = False,
    ) -> None:
        """Deletes one version of a document with its summaries, as the change `sequence`."""
        if self._existing(handle).summaries:
            self._remove_summaries(handle, ordinal, document.document_id, sequence)
        erase_document(self._store, self._txn, ordinal, document, keep_slot=keep_slot)
        if ordinal <= self._counters_of(handle).sealed_ordinal:
            number, leaf_count = handle.collection_id, document.leaf_count
            manifest.add_tombstone(self._store, self._txn, number, ordinal, leaf_count)
        self._count(handle, document, ordinal, -1)

    # Damaged documents

    def _find_sound(
        self, handle: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord | None] | None:
        """As `_find`; None if anything that is stored of the document is damaged."""
        if is_intact(self._store, self._txn, handle.collection_id, document_id):
            return self._find(handle, document_id)
        return None

    def _has_sound_summaries(self, handle: CollectionHandle, document_id: str) -> bool:
        """Whether the document's summaries, if it has any, are what was stored."""
        number = self._existing(handle).summaries
        return not number or is_intact(self._store, self._txn, number, document_id)

    def _delete_damaged(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document that cannot be read; returns the sequence of the deletion."""
        sequence = self._next_sequence(handle.tenant_id)
        ordinal = self._remove_damaged(handle, document_id, sequence)
        name = schema.document_id(handle.collection_id, document_id)
        self._txn.delete(name, db=self._store.db["document_ids"])
        self._log(handle, Change(removed=ordinal), sequence)
        return sequence

    def _remove_damaged(self, handle: CollectionHandle, document_id: str, sequence: int) -> int:
        """Removes a damaged version with its summaries; returns its ordinal, 0 if none is left.

        Terms and counters are made again from the collection's other documents.
        """
        store, txn, number = self._store, self._txn, handle.collection_id
        found = find_damaged(store, txn, number, document_id)
        if found is not None:
            if self._existing(handle).summaries:
                self._remove_summaries(handle, found.ordinal, document_id, sequence)
            erase_entries(store, txn, number, found.ordinal, found.address)
            if found.ordinal <= self._counters_of(handle).sealed_ordinal:
                manifest.add_tombstone(store, txn, number, found.ordinal, found.leaf_count)
        rewrite_terms(store, txn, number)
        self._recount(handle)
        return 0 if found is None else found.ordinal

    def _growth_by_mending(
        self, handle: CollectionHandle, document: PreparedDocument, takes: int
    ) -> Usage:
        """What a document of `takes` bytes in place of a damaged one adds to its tenant's usage.

        That counts what was damaged, unless it has been counted again since.
        """
        store, txn, number = self._store, self._txn, handle.collection_id
        found = find_damaged(store, txn, number, document.document_id)
        before = self._counters_of(handle)
        after = recounted(store, txn, number, before, without=found.ordinal if found else 0)
        return Usage(
            documents=after.documents + 1 - before.documents,
            stored_bytes=after.stored_bytes + takes - before.stored_bytes,
        )

    def _recount(self, handle: CollectionHandle) -> None:
        """Counts the collection's documents again, and corrects its tenant's usage by as much."""
        before = self._counters_of(handle)
        after = recounted(self._store, self._txn, handle.collection_id, before)
        documents = after.documents - before.documents
        more = Usage(
            documents=0 if self._existing(handle).summarises else documents,
            stored_bytes=after.stored_bytes - before.stored_bytes,
        )
        self._usage[handle.tenant_id] = self._usage_of(handle.tenant_id).plus(more)
        self._counters[handle.collection_id] = after

    # Summaries

    def _remove_summaries(
        self, handle: CollectionHandle, ordinal: int, document_id: str, sequence: int
    ) -> None:
        if self._unmark_unsummarised(handle, ordinal):
            return
        collection = summary_handle(handle, self._existing(handle).summaries)
        found = self._find_sound(collection, document_id)
        if found is None:
            self._delete_damaged(collection, document_id)
            return
        number, summaries = found
        if summaries is not None:  # Some documents are not worth a summary.
            self._delete(collection, number, summaries, sequence)

    def _mark_unsummarised(self, handle: CollectionHandle, ordinal: int) -> None:
        entry = schema.in_collection(handle.collection_id, ordinal)
        self._txn.put(entry, b"", db=self._store.db["unsummarised"])
        self._count_unsummarised(handle, 1)

    def _unmark_unsummarised(self, handle: CollectionHandle, ordinal: int) -> bool:
        """True if the document was waiting for its summaries."""
        entry = schema.in_collection(handle.collection_id, ordinal)
        waiting = bool(self._txn.delete(entry, db=self._store.db["unsummarised"]))
        self._count_unsummarised(handle, -waiting)
        return waiting

    def _count_unsummarised(self, handle: CollectionHandle, more: int) -> None:
        counters = self._counters_of(handle)
        counters = counters._replace(unsummarised=counters.unsummarised + more)
        self._counters[handle.collection_id] = counters
