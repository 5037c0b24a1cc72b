"""Changes documents within one LMDB write transaction.

A document is written completely or not at all. If a document must be refused, it is refused before
anything is written. The state that the document shares with other documents (ids, counters and
usage) is also read, and thereby verified, before anything is written. While a document is being
written, `WriteTransaction.is_whole` is False. If an error occurs meanwhile, `is_whole` stays False,
and the transaction must not be committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hrag.engine.common.document_results import growth, record_of, result_of, unchanged_result
from hrag.engine.common.records import DocumentRecord, Summarised
from hrag.engine.common.summary_documents import as_document, summary_handle
from hrag.engine.common.validation import (
    check_is_no_copy,
    check_shapes,
    check_summaries,
    document_changed,
    no_copy,
    no_document,
)
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.lmdb_records import Change
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.owners import document_name
from hrag.engine.embedded.store.queries import (
    address_of,
    handle_of,
    is_living,
)
from hrag.engine.embedded.store.tenant_usage import stored_bytes
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.document_versions import DocumentVersions
from hrag.engine.embedded.write.shared_state import SharedState
from hrag.engine.embedded.write.unsummarised import PendingSummaries
from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    PreparedDocument,
    UncopiedDocument,
)
from hrag.values.documents import DocumentDeletion, DocumentInfo, IngestOutcome, IngestResult
from hrag.values.errors import DataLoss
from hrag.values.quotas import QuotaOf


class WriteTransaction:
    """Changes documents within one LMDB write transaction.

    The caller must call `finish` after the last change, and then commit. The change log of a
    collection is trimmed to the newest `max_log_entries` entries. `quota_of` returns the quota of a
    tenant.
    """

    def __init__(self, txn: Txn, max_log_entries: int, quota_of: QuotaOf) -> None:
        self._txn = txn
        self._shared = SharedState(txn, max_log_entries, quota_of)
        self._pending = PendingSummaries(txn, self._shared)
        self._versions = DocumentVersions(txn, self._shared, self._pending)
        self.is_whole = True
        """False if an error ended a change after its first write.

        Then the transaction must not be committed.
        """

    @property
    def changed(self) -> set[int]:
        """The ids of the collections that the transaction has changed."""
        return self._shared.changed

    def finish(self) -> None:
        """Writes the counters, usage and ids that the transaction has changed.

        It must be called after the last change.
        """
        self._shared.finish()

    def put(self, handle: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Stores a document, or replaces the stored document with the same id.

        If the stored document has the same content hash and is intact, nothing is changed, and the
        outcome is UNCHANGED.

        Raises CollectionNotFound if the collection was deleted. Raises InvalidArgument or TooLarge
        if the document does not match the collection's settings. Raises StorageQuotaExceeded if the
        tenant would exceed its quota. Raises DataLoss if the state that the document shares with
        other documents (ids, counters or usage) is damaged. Raises CopyInProgress if the collection
        is the copy of another one.
        """
        check_is_no_copy(self._shared.collection(handle))
        return self._put(handle, document)

    def _put(self, handle: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Does what `put` does, also in the copy of a collection and in a summary collection."""
        collection = self._shared.collection(handle)
        check_shapes(document, handle.settings)
        intact = self._versions.find_intact(handle, document.document_id)
        old_ordinal, old = intact or (0, None)
        unchanged = unchanged_result(old, document.content_hash)
        if unchanged is not None and self._versions.has_intact_summaries(
            handle, document.document_id
        ):
            return unchanged
        new = record_of(handle, document)
        terms = terms_of(new)
        new_bytes = stored_bytes(new, terms, document.tree.size_bytes)
        # The quota is not checked for summary documents. They are usually written in the
        # background, where no caller would receive the error.
        if not collection.summarises:
            added = (
                growth(old, new_bytes)
                if intact
                else self._versions.growth_over_damaged(handle, document, new_bytes)
            )
            self._shared.check_quota(handle.tenant_id, added)
        slot = None if old is None else self._versions.slot_of(handle, old_ordinal)
        self._versions.check_shared(handle, document.document_id, slot)
        self.is_whole = False
        self._forget_copy(handle, document.document_id)
        sequence = self._shared.next_sequence(handle.tenant_id)
        ordinal = self._shared.next_number(schema.LAST_ORDINAL)
        if intact is None:
            old_ordinal = self._versions.remove_damaged(handle, document.document_id, sequence)
        elif old is not None:
            self._versions.remove(handle, old_ordinal, old, sequence, keep_slot=slot is not None)
        new = replace(new, stored_bytes=new_bytes, sequence=sequence)
        self._versions.add(ordinal, new, terms, document, slot)
        self._shared.count(handle, new, ordinal, 1)
        if collection.summaries:
            self._pending.add(handle, ordinal)
        self._shared.log_change(handle, Change(ordinal, old_ordinal), sequence)
        self.is_whole = True
        return result_of(new, IngestOutcome.UPDATED if old_ordinal else IngestOutcome.CREATED)

    def put_summaries(
        self, handle: CollectionHandle, ordinal: int, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        """Stores the summaries of the document with this ordinal.

        If the document does not wait for summaries any more, for example because it was deleted,
        stores no summaries and returns False. In any case, adds `tokens` to the count of tokens
        that a chat model has read and written for the collection's summaries. Raises
        CollectionNotFound.
        """
        self._shared.collection(handle)
        is_waiting = self._pending.remove(handle, ordinal)
        self._shared.add_to_counters(handle, summary_tokens=tokens)
        if is_waiting and self._shared.collection(handle).copied_to:
            address = address_of(self._txn, handle.collection_id, ordinal)
            self._forget_copy(handle, self._txn.documents.require(address).document_id)
        if is_waiting and summaries.summaries:
            address = address_of(self._txn, handle.collection_id, ordinal)
            document = self._txn.documents.require(address)
            collection = summary_handle(handle, self._shared.collection(handle).summaries)
            self._put(collection, as_document(document, summaries))
            sections = tuple(summary.leaves for summary in summaries.summaries[1:])
            key = collection.collection_id, self._shared.last_number(schema.LAST_ORDINAL)
            self._txn.summarised.put(key, Summarised.of(ordinal, sections))
        return is_waiting

    def put_stored(
        self, handle: CollectionHandle, document: PreparedDocument, summaries: DocumentSummaries
    ) -> IngestResult:
        """Stores a document together with its summaries.

        Raises the errors of `put`. Also raises InvalidArgument if the collection was created
        without summaries.
        """
        check_is_no_copy(self._shared.collection(handle))
        return self._put_stored(handle, document, summaries)

    def _put_stored(
        self, handle: CollectionHandle, document: PreparedDocument, summaries: DocumentSummaries
    ) -> IngestResult:
        check_summaries(document, handle)
        result = self._put(handle, document)
        ordinal, _ = self._versions.find(handle, document.document_id)
        self.put_summaries(handle, ordinal, summaries)
        return result

    def put_metadata(
        self,
        handle: CollectionHandle,
        document_id: str,
        expected_sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        """Replaces the metadata and the source of a document, and returns its new state.

        Raises DocumentChanged if the sequence number of the document's last change is not
        `expected_sequence`. Also raises CollectionNotFound, DocumentNotFound or
        StorageQuotaExceeded. The ordinal of the document does not change, so its leaves in segments
        stay valid. If the copy of the collection has the document, its metadata is replaced there
        too. Raises CopyInProgress if the collection is itself a copy.
        """
        collection = self._shared.collection(handle)
        check_is_no_copy(collection)
        info = self._put_metadata(handle, document_id, expected_sequence, metadata, source)
        if collection.copied_to:
            copy = handle_of(self._txn, collection.copied_to)
            _, copied = self._versions.find(copy, document_id)
            if copied is not None:
                self._put_metadata(copy, document_id, copied.sequence, metadata, source)
        return info

    def _put_metadata(
        self,
        handle: CollectionHandle,
        document_id: str,
        expected_sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        collection = self._shared.collection(handle)
        ordinal, old = self._versions.find(handle, document_id)
        if old is None:
            raise no_document(handle, document_id)
        if old.sequence != expected_sequence:
            raise document_changed(document_id, expected_sequence, old.sequence)
        new = self._with_metadata(ordinal, old, metadata, source)
        self._shared.check_quota(handle.tenant_id, growth(old, new.stored_bytes))
        sequence = self._shared.next_sequence(handle.tenant_id)
        self._versions.replace_record(handle, ordinal, old, replace(new, sequence=sequence))
        if collection.summaries:
            summaries = summary_handle(handle, collection.summaries)
            number, old_summary = self._versions.find(summaries, document_id)
            if old_summary is not None:
                new_summary = replace(
                    self._with_metadata(number, old_summary, metadata, source), sequence=sequence
                )
                self._versions.replace_record(summaries, number, old_summary, new_summary)
        return replace(new, sequence=sequence).info()

    def _with_metadata(
        self, ordinal: int, old: DocumentRecord, metadata: Mapping[str, Any], source: str
    ) -> DocumentRecord:
        """Returns a copy of the record `old` with the new metadata and the new source.

        The content hash of the new record is empty, so it differs from the content hash of every
        document that is put later.
        """
        new = replace(old.described_by(metadata, b"", source), content_hash="")
        address = address_of(self._txn, old.collection, ordinal)
        tree = self._txn.contents.tree(address)
        return replace(new, stored_bytes=stored_bytes(new, terms_of(new), len(tree)))

    def delete(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document and returns the sequence number of the deletion.

        Raises CollectionNotFound or DocumentNotFound.
        """
        self._shared.collection(handle)
        self._forget_copy(handle, document_id)
        return self._delete(handle, document_id)

    def _delete(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document, but not from the copy of its collection. Raises DocumentNotFound."""
        intact = self._versions.find_intact(handle, document_id)
        if intact is None:
            return self._versions.delete_damaged(handle, document_id)
        ordinal, document = intact
        if document is None:
            raise no_document(handle, document_id)
        sequence = self._shared.next_sequence(handle.tenant_id)
        self._versions.delete(handle, ordinal, document, sequence)
        return sequence

    def _forget_copy(self, handle: CollectionHandle, document_id: str) -> None:
        """Deletes a document from the copy of its collection, because it is about to change.

        Does nothing if the collection has no copy, or the copy does not have the document.
        """
        number = self._shared.collection(handle).copied_to
        if number and self._txn.document_ids.has((number, document_id)):
            self._delete(handle_of(self._txn, number), document_id)

    def put_copy(self, source: CollectionHandle, document: UncopiedDocument) -> bool:
        """Puts a document into the copy of its collection `source`.

        Returns False, and puts nothing, if the document was changed or deleted since it was read.
        Raises CollectionNotFound if `source` has no copy. Raises the errors of `put`.
        """
        number, stored = self._shared.collection(source).copied_to, document.stored
        if not number:
            raise no_copy(source)
        ordinal, current = self._versions.find(source, stored.document_id)
        if current is None or current.sequence != document.sequence:
            return False
        copy = handle_of(self._txn, number)
        if stored.summaries is not None:
            self._put_stored(copy, stored.document, stored.summaries)
            return True
        if self._shared.collection(source).summaries and not self._txn.unsummarised.has(
            (source.collection_id, ordinal)
        ):
            return False  # The summaries were written since the document was read.
        self._put(copy, stored.document)
        return True

    def delete_unchanged(
        self, handle: CollectionHandle, ordinals: Sequence[int], last_sequence: int
    ) -> DocumentDeletion:
        """Deletes the documents whose last change has at most the sequence number `last_sequence`.

        `ordinals` are the ordinals of the documents. Skips documents that were changed later and
        documents that no longer exist. If the record of a document is damaged, the sequence number
        of its last change is unknown; such a document is deleted. Raises CollectionNotFound.
        """
        self._shared.collection(handle)
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
                if document.sequence > last_sequence:
                    continue
                document_id = document.document_id
            self.delete(handle, document_id)
            deleted += 1
        return DocumentDeletion(deleted, self._shared.usage_of(handle.tenant_id).sequence)
