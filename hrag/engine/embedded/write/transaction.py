"""Changes documents within one LMDB write transaction.

A document is written completely or not at all. Everything that can be refused is refused before
the first byte of the document is written. The state that it shares with other documents is also
read, and so verified, before that. An error after the first byte leaves `is_whole` False.
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
from hrag.engine.embedded.store.codecs import DocumentEntry
from hrag.engine.embedded.store.damaged_documents import (
    find_damaged,
    is_intact,
    recounted,
    rewrite_terms,
)
from hrag.engine.embedded.store.lmdb_records import Change
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.owners import document_name
from hrag.engine.embedded.store.queries import (
    address_of,
    erase_document,
    erase_entries,
    find_document,
    is_living,
)
from hrag.engine.embedded.store.tenant_usage import stored_bytes
from hrag.engine.embedded.write.shared_state import SharedState
from hrag.engine.engine_documents import CollectionHandle, DocumentSummaries, PreparedDocument
from hrag.values.documents import DocumentDeletion, DocumentInfo, IngestOutcome, IngestResult
from hrag.values.errors import DataLoss


class WriteTransaction(SharedState):
    """The changes of one transaction; `finish` writes the state that they share."""

    def put(self, handle: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Creates or replaces a document, unless it is already stored with the same content hash.

        Raises CollectionNotFound, InvalidArgument or TooLarge for a document that does not fit the
        collection, StorageQuotaExceeded if the tenant would exceed its quota, or DataLoss if the
        state that the document shares with others is damaged.
        """
        collection = self._read_collection(handle)
        check_shapes(document, handle.settings)
        intact = self._find_intact(handle, document.document_id)
        old_ordinal, old = intact or (0, None)
        unchanged = unchanged_result(old, document.content_hash)
        if unchanged is not None and self._has_intact_summaries(handle, document.document_id):
            return unchanged
        new = record_of(handle, document)
        terms = terms_of(new)
        new_bytes = stored_bytes(new, terms, document.tree.size_bytes)
        # Summaries are usually written in the background, where no caller receives a quota error.
        if not collection.summarises:
            added = (
                growth(old, new_bytes)
                if intact
                else self._growth_over_damaged(handle, document, new_bytes)
            )
            self._check_quota(handle.tenant_id, added)
        slot = None if old is None else self._slot_to_keep(handle, old_ordinal)
        self._check_shared(handle, document.document_id, slot)
        self.is_whole = False
        sequence = self._next_sequence(handle.tenant_id)
        ordinal = self._next_number(schema.LAST_ORDINAL)
        if intact is None:
            old_ordinal = self._remove_damaged(handle, document.document_id, sequence)
        elif old is not None:
            self._remove(handle, old_ordinal, old, sequence, keep_slot=slot is not None)
        new = replace(new, stored_bytes=new_bytes, sequence=sequence)
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
        """Stores the summaries of a document; returns False if it does not wait for them any more.

        The `tokens` that the summaries cost are counted in either case. Raises CollectionNotFound.
        """
        self._read_collection(handle)
        is_waiting = self._unmark_unsummarised(handle, ordinal)
        counters = self._counters_of(handle)
        self._counters[handle.collection_id] = counters._replace(
            summary_tokens=counters.summary_tokens + tokens
        )
        if is_waiting and summaries.summaries:
            address = address_of(self._txn, handle.collection_id, ordinal)
            document = self._txn.documents.require(address)
            collection = summary_handle(handle, self._read_collection(handle).summaries)
            self.put(collection, as_document(document, summaries))
            sections = tuple(summary.leaves for summary in summaries.summaries[1:])
            key = collection.collection_id, self._numbers[schema.LAST_ORDINAL]
            self._txn.summarised.put(key, Summarised(ordinal, sections))
        return is_waiting

    def put_stored(
        self, handle: CollectionHandle, document: PreparedDocument, summaries: DocumentSummaries
    ) -> IngestResult:
        """Puts a document together with its summaries.

        Raises the errors of `put`, and InvalidArgument if the collection has no summaries.
        """
        self._read_collection(handle)
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
        """Replaces the metadata and the source of a document whose sequence is `until`.

        The document keeps its ordinal, so its leaves in segments stay valid. Raises
        CollectionNotFound, DocumentNotFound, StorageQuotaExceeded, or DocumentChanged if the
        document has another sequence.
        """
        collection = self._read_collection(handle)
        ordinal, old = self._find(handle, document_id)
        if old is None:
            raise no_document(handle, document_id)
        if old.sequence != until:
            raise document_changed(document_id, until, old.sequence)
        new = self._with_metadata(ordinal, old, metadata, source)
        self._check_quota(handle.tenant_id, growth(old, new.stored_bytes))
        sequence = self._next_sequence(handle.tenant_id)
        self._replace_record(handle, ordinal, old, replace(new, sequence=sequence))
        if collection.summaries:
            summaries = summary_handle(handle, collection.summaries)
            number, old_summary = self._find(summaries, document_id)
            if old_summary is not None:
                new_summary = replace(
                    self._with_metadata(number, old_summary, metadata, source), sequence=sequence
                )
                self._replace_record(summaries, number, old_summary, new_summary)
        return replace(new, sequence=sequence).info()

    def _with_metadata(
        self, ordinal: int, old: DocumentRecord, metadata: Mapping[str, Any], source: str
    ) -> DocumentRecord:
        """Returns the record with other metadata and another source.

        Its content hash is empty, so that it equals that of no document that is put later.
        """
        new = replace(old, metadata=metadata, source=source, content_hash="")
        address = address_of(self._txn, old.collection, ordinal)
        tree = self._txn.contents.tree(address)
        return replace(new, stored_bytes=stored_bytes(new, terms_of(new), len(tree)))

    def _replace_record(
        self, handle: CollectionHandle, ordinal: int, old: DocumentRecord, new: DocumentRecord
    ) -> None:
        """Replaces the record of a version of a document, and its terms; logs the change."""
        txn = self._txn
        before, after = set(terms_of(old)), set(terms_of(new))
        for term in before - after:
            txn.terms.remove(term, ordinal)
        for term in after - before:
            txn.terms.add(term, ordinal)
        address = address_of(txn, handle.collection_id, ordinal)
        txn.documents.put(address, new)
        self._count(handle, old, ordinal, -1)
        self._count(handle, new, ordinal, 1)
        self._log(handle, Change(), new.sequence)

    def delete(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document and returns the sequence of the deletion.

        Raises CollectionNotFound or DocumentNotFound.
        """
        self._read_collection(handle)
        intact = self._find_intact(handle, document_id)
        if intact is None:
            return self._delete_damaged(handle, document_id)
        ordinal, document = intact
        if document is None:
            raise no_document(handle, document_id)
        sequence = self._next_sequence(handle.tenant_id)
        self._delete(handle, ordinal, document, sequence)
        return sequence

    def delete_unchanged(
        self, handle: CollectionHandle, ordinals: Sequence[int], until: int
    ) -> DocumentDeletion:
        """Deletes the documents with these ordinals, except those changed after sequence `until`.

        Ordinals of documents that no longer exist are skipped. Raises CollectionNotFound.
        """
        self._read_collection(handle)
        deleted, number = 0, handle.collection_id
        for ordinal in ordinals:
            if not is_living(self._txn, number, ordinal):
                continue
            try:
                address = address_of(self._txn, number, ordinal)
                document = self._txn.documents.require(address)
            except DataLoss:
                document_id = document_name(self._txn, number, ordinal)
            else:
                if document.sequence > until:
                    continue
                document_id = document.document_id
            self.delete(handle, document_id)
            deleted += 1
        return DocumentDeletion(deleted, self._usage_of(handle.tenant_id).sequence)

    # Documents.

    def _find(
        self, handle: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord | None]:
        return find_document(self._txn, handle.collection_id, document_id)

    def _check_shared(self, handle: CollectionHandle, document_id: str, slot: bytes | None) -> None:
        """Reads the shared state that putting a document changes. Raises DataLoss if it is damaged.

        The new version will be stored in `slot`, or in any slot if that is None.
        """
        self._usage_of(handle.tenant_id)
        self._last_number(schema.LAST_ORDINAL)
        if slot is None and self._free_slot() is None:
            self._last_number(schema.LAST_SLOT)
        self._check_tombstone(handle, document_id)
        number = self._read_collection(handle).summaries
        if number:
            self._check_tombstone(summary_handle(handle, number), document_id)

    def _check_tombstone(self, handle: CollectionHandle, document_id: str) -> None:
        """Reads the state of the collection that removing the document would change.

        Raises DataLoss if it is damaged.
        """
        txn, number = self._txn, handle.collection_id
        self._read_collection(handle)
        sealed_ordinal = self._counters_of(handle).sealed_ordinal
        stored = find_damaged(txn, number, document_id)
        if stored is not None and stored.ordinal <= sealed_ordinal:
            manifest.read_deleted_leaves(txn, number, stored.ordinal)

    def _add(
        self,
        ordinal: int,
        record: DocumentRecord,
        terms: Sequence[bytes],
        document: PreparedDocument,
        slot: bytes | None,
    ) -> None:
        """Stores a version of a document.

        It overwrites the version in `slot`, or if that is None, it gets another slot.
        """
        txn, collection = self._txn, record.collection
        slot, is_new = self._allocate_slot() if slot is None else (slot, False)
        txn.document_ids.put((collection, record.document_id), ordinal)
        txn.ordinals.put((collection, ordinal), DocumentEntry(record.leaf_count, slot))
        for term in terms:
            txn.terms.add(term, ordinal)
        address = schema.address(slot, collection, ordinal)
        # A new slot comes after all other slots. Appending its values makes LMDB fill the pages.
        txn.documents.put(address, record, append=is_new)
        vectors = document.vectors.astype("<f4", order="C", copy=False)
        txn.contents.put(
            address,
            document.tree.to_bytes(),
            document.parsed.text.encode(),
            vectors.data.cast("B") if vectors.size else b"",
            append=is_new,
        )

    def _slot_to_keep(self, handle: CollectionHandle, ordinal: int) -> bytes:
        """Returns the packed slot whose values the next version overwrites.

        Deleting the values instead would make LMDB merge pages, which writing the new values would
        split again.
        """
        address = address_of(self._txn, handle.collection_id, ordinal)
        return address[: schema.SLOT_BYTES]

    def _allocate_slot(self) -> tuple[bytes, bool]:
        """Returns a packed slot, and True if it is a new one.

        A free slot is reused if there is any. A new slot comes after all others.
        """
        slot = self._free_slot()
        if slot is None:
            return schema.u64(self._next_number(schema.LAST_SLOT)), True
        self._txn.free_slots.delete(slot)
        return slot, False

    def _free_slot(self) -> bytes | None:
        return next(self._txn.free_slots.keys(), None)

    def _delete(
        self, handle: CollectionHandle, ordinal: int, document: DocumentRecord, sequence: int
    ) -> None:
        """Deletes a document and its id, in the change with this sequence; logs the change."""
        self._remove(handle, ordinal, document, sequence)
        self._txn.document_ids.delete((handle.collection_id, document.document_id))
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
        """Deletes one version of a document and its summaries, in the change with this sequence.

        With `keep_slot`, the values under its slot stay for the next version to overwrite.
        """
        if self._read_collection(handle).summaries:
            self._remove_summaries(handle, ordinal, document.document_id, sequence)
        erase_document(self._txn, ordinal, document, keep_slot=keep_slot)
        if ordinal <= self._counters_of(handle).sealed_ordinal:
            number, leaf_count = handle.collection_id, document.leaf_count
            manifest.add_tombstone(self._txn, number, ordinal, leaf_count)
        self._count(handle, document, ordinal, -1)

    # Damaged documents.

    def _find_intact(
        self, handle: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord | None] | None:
        """Returns the result of `_find`, or None if any stored value of the document is damaged."""
        if is_intact(self._txn, handle.collection_id, document_id):
            return self._find(handle, document_id)
        return None

    def _has_intact_summaries(self, handle: CollectionHandle, document_id: str) -> bool:
        """Returns True if the document's summaries are not damaged, or if it has none."""
        number = self._read_collection(handle).summaries
        return not number or is_intact(self._txn, number, document_id)

    def _delete_damaged(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document that cannot be read; returns the sequence of the deletion."""
        sequence = self._next_sequence(handle.tenant_id)
        ordinal = self._remove_damaged(handle, document_id, sequence)
        self._txn.document_ids.delete((handle.collection_id, document_id))
        self._log(handle, Change(removed=ordinal), sequence)
        return sequence

    def _remove_damaged(self, handle: CollectionHandle, document_id: str, sequence: int) -> int:
        """Removes a damaged version of a document and its summaries; returns its ordinal.

        Returns 0 if no entry leads to an ordinal any more. Terms and counters are computed again
        from the collection's other documents.
        """
        txn, number = self._txn, handle.collection_id
        damaged = find_damaged(txn, number, document_id)
        if damaged is not None:
            if self._read_collection(handle).summaries:
                self._remove_summaries(handle, damaged.ordinal, document_id, sequence)
            erase_entries(txn, number, damaged.ordinal, damaged.address)
            if damaged.ordinal <= self._counters_of(handle).sealed_ordinal:
                manifest.add_tombstone(txn, number, damaged.ordinal, damaged.leaf_count)
        rewrite_terms(txn, number)
        self._recount(handle)
        return 0 if damaged is None else damaged.ordinal

    def _growth_over_damaged(
        self, handle: CollectionHandle, document: PreparedDocument, new_bytes: int
    ) -> Usage:
        """Returns the growth of the tenant's usage if a document replaces a damaged one.

        `new_bytes` are the stored bytes of the new document. The usage still includes the damaged
        document, unless the collection has been counted again since the damage. So the collection
        is counted here without it.
        """
        txn, number = self._txn, handle.collection_id
        damaged = find_damaged(txn, number, document.document_id)
        before = self._counters_of(handle)
        after = recounted(txn, number, before, without=damaged.ordinal if damaged else 0)
        return Usage(
            documents=after.documents + 1 - before.documents,
            stored_bytes=after.stored_bytes + new_bytes - before.stored_bytes,
        )

    def _recount(self, handle: CollectionHandle) -> None:
        """Counts the collection's documents again, and corrects the tenant's usage accordingly."""
        before = self._counters_of(handle)
        after = recounted(self._txn, handle.collection_id, before)
        documents = after.documents - before.documents
        added = Usage(
            documents=0 if self._read_collection(handle).summarises else documents,
            stored_bytes=after.stored_bytes - before.stored_bytes,
        )
        self._usage[handle.tenant_id] = self._usage_of(handle.tenant_id).plus(added)
        self._counters[handle.collection_id] = after

    # Summaries.

    def _remove_summaries(
        self, handle: CollectionHandle, ordinal: int, document_id: str, sequence: int
    ) -> None:
        """Removes the summaries of a document, or the entry that says that it waits for them."""
        if self._unmark_unsummarised(handle, ordinal):
            return
        collection = summary_handle(handle, self._read_collection(handle).summaries)
        intact = self._find_intact(collection, document_id)
        if intact is None:
            self._delete_damaged(collection, document_id)
            return
        number, summaries = intact
        if summaries is not None:  # A document that is too short has no summaries.
            self._delete(collection, number, summaries, sequence)

    def _mark_unsummarised(self, handle: CollectionHandle, ordinal: int) -> None:
        self._txn.unsummarised.add((handle.collection_id, ordinal))
        self._count_unsummarised(handle, 1)

    def _unmark_unsummarised(self, handle: CollectionHandle, ordinal: int) -> bool:
        """Deletes the entry of a document that waits for summaries; returns True if it existed."""
        is_waiting = self._txn.unsummarised.delete((handle.collection_id, ordinal))
        self._count_unsummarised(handle, -is_waiting)
        return is_waiting

    def _count_unsummarised(self, handle: CollectionHandle, added: int) -> None:
        counters = self._counters_of(handle)
        counters = counters._replace(unsummarised=counters.unsummarised + added)
        self._counters[handle.collection_id] = counters
