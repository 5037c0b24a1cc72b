"""Changes documents of one tenant in one transaction.

The transaction locks the tenant's row and reads everything that the changes depend on. Then the
changes are determined in memory, and all of them are written at the end of the transaction. This
takes two round trips after BEGIN, however many documents change. A document is written completely
or not at all: all checks that may reject a document run before its first change is recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from psycopg import Cursor

from hrag.engine.common import validation
from hrag.engine.common.document_results import growth, result_of, unchanged_result
from hrag.engine.common.filter_terms import terms_of
from hrag.engine.common.records import CollectionRecord, DocumentRecord, Summarised, Usage
from hrag.engine.common.summary_documents import sections_of, summary_handle
from hrag.engine.common.validation import no_collection, no_document
from hrag.engine.engine_documents import CollectionHandle, UncopiedDocument
from hrag.engine.postgres.store.arrays import bigints, texts
from hrag.engine.postgres.store.cluster import hold_placement
from hrag.engine.postgres.store.connection import Connection, Row
from hrag.engine.postgres.store.queries import collection_record, is_storable
from hrag.engine.postgres.write.changes import (
    CollectionChanges,
    Counts,
    DocumentVersion,
    write_changes,
)
from hrag.engine.postgres.write.document_drafts import DocumentDraft, with_size
from hrag.values.collections import SummaryUnit
from hrag.values.documents import DocumentDeletion, DocumentInfo, IngestOutcome, IngestResult
from hrag.values.quotas import QuotaOf

# Each transaction reads the OID of the type halfvec, because the OID is different in a restored
# database. It is the OID on the server of the connection; the nodes of a Citus cluster have others.
_HALFVEC_OID = "SELECT to_regtype('halfvec')::oid"
_LOCK = """
SELECT collections, documents, stored_bytes, sequence FROM hrag.tenants
WHERE tenant_id = %s FOR UPDATE
"""
_COLLECTIONS = """
SELECT collection_id, home, record::text FROM hrag.collections
WHERE tenant_id = %s AND collection_id = ANY(%s)
"""
_SELECT_VERSION = (
    "SELECT collection_id, ordinal, term_count, is_unsummarised, record FROM hrag.documents"
)
_BY_ID = f"""
{_SELECT_VERSION} WHERE tenant_id = %s AND collection_id = ANY(%s) AND document_id = ANY(%s)
FOR UPDATE
"""
_BY_ORDINAL = f"""
{_SELECT_VERSION} WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s) FOR UPDATE
"""
_SUMMARIES_BY_ORDINAL = f"""
{_SELECT_VERSION} WHERE tenant_id = %s AND collection_id = %s AND document_id IN (
  SELECT document_id FROM hrag.documents
  WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
) FOR UPDATE
"""


class _LockedTenant(NamedTuple):
    """The results of the statements that lock a tenant and read its state."""

    usage: Cursor[Row]
    collections: Cursor[Row]
    halfvec_oid: Cursor[Row]


class TenantTransaction:
    """The changes of one tenant in the current transaction of `connection`.

    A caller first locks the documents, then changes them, then calls `finish`, which commits. The
    methods that change documents treat a document that was not locked as if it did not exist.
    """

    def __init__(self, connection: Connection, tenant_id: str, quota_of: QuotaOf) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._quota_of = quota_of
        self._usage = Usage()
        self._halfvec_oid = 0
        self._changes: dict[int, CollectionChanges] = {}
        self._records: dict[int, CollectionRecord] = {}
        self._living: dict[tuple[int, str], DocumentVersion] = {}

    # The following methods lock rows and read them.

    def lock(self, documents: Sequence[tuple[CollectionHandle, str]]) -> None:
        """Locks the tenant's row, the documents with these ids, and the documents' summaries.

        `documents` has pairs of a collection and a document id.
        """
        cursors: list[Cursor[Row]] = []
        by_number = groupby(
            sorted(((ids_with_summaries(handle), name) for handle, name in documents)),
            lambda pair: pair[0],
        )
        with self._connection.pipeline():
            locked = self._lock_tenant({handle.collection_id for handle, _ in documents})
            for numbers, pairs in by_number:
                names = sorted({name for _, name in pairs if is_storable(name)})
                parameters = (self._tenant_id, bigints(numbers), texts(names))
                cursors.append(self._connection.execute(_BY_ID, parameters))
        self._read_state(locked, cursors)
        self._lock_copies(documents)

    def lock_ordinals(self, handle: CollectionHandle, ordinals: Sequence[int]) -> None:
        """Locks the tenant's row, the documents with these ordinals, and their summaries."""
        tenant_id, number, *summaries = (self._tenant_id, *ids_with_summaries(handle))
        document_parameters = (tenant_id, number, bigints(ordinals))
        with self._connection.pipeline():
            locked = self._lock_tenant({number})
            cursors = [self._connection.execute(_BY_ORDINAL, document_parameters)]
            for summary_number in summaries:
                parameters = (tenant_id, summary_number, *document_parameters)
                cursors.append(self._connection.execute(_SUMMARIES_BY_ORDINAL, parameters))
        self._read_state(locked, cursors)
        self._lock_copies([(handle, name) for (id_, name) in self._living if id_ == number])

    def _lock_copies(self, documents: Sequence[tuple[CollectionHandle, str]]) -> None:
        """Locks the copies of documents whose collections are being embedded again.

        `documents` has pairs of a collection and a document id. Without such a collection, sends
        nothing to the server.
        """
        names: dict[int, set[str]] = {}
        for handle, name in documents:
            copy = self._copy_of(handle)
            if copy is not None and is_storable(name):
                names.setdefault(copy.collection_id, set()).add(name)
        if not names:
            return
        with self._connection.pipeline():
            numbers = bigints(sorted({n for first in names for n in (first, summary_id_of(first))}))
            collections = self._connection.execute(_COLLECTIONS, (self._tenant_id, numbers))
            cursors = []
            for number, ids in names.items():
                both = bigints([number, summary_id_of(number)])
                parameters = (self._tenant_id, both, texts(sorted(ids)))
                cursors.append(self._connection.execute(_BY_ID, parameters))
        self._read_collections(collections)
        self._read_documents(cursors)

    def _copy_of(self, handle: CollectionHandle) -> CollectionHandle | None:
        """Returns the copy of a collection that is embedded again; None if there is none.

        The settings in the returned handle are those of the collection.
        """
        record = self._records.get(handle.collection_id)
        if record is None or not record.copied_to:
            return None
        return replace(handle, collection_id=record.copied_to)

    def _lock_tenant(self, numbers: set[int]) -> _LockedTenant:
        all_numbers = sorted({n for number in numbers for n in (number, summary_id_of(number))})
        hold_placement(self._connection, self._tenant_id)
        return _LockedTenant(
            self._connection.execute(_LOCK, (self._tenant_id,)),
            self._connection.execute(_COLLECTIONS, (self._tenant_id, bigints(all_numbers))),
            self._connection.execute(_HALFVEC_OID),
        )

    def _read_state(self, locked: _LockedTenant, cursors: Sequence[Cursor[Row]]) -> None:
        usage_rows, collection_rows, oid_rows = locked
        for usage in usage_rows:
            self._usage = Usage(*usage)
        for (oid,) in oid_rows:
            self._halfvec_oid = oid
        self._read_collections(collection_rows)
        self._read_documents(cursors)

    def _read_collections(self, rows: Cursor[Row]) -> None:
        for number, home, encoded in rows:
            record = self._records[number] = collection_record(encoded)
            self._changes[number] = CollectionChanges(home, record.settings.analyzer)

    def _read_documents(self, cursors: Sequence[Cursor[Row]]) -> None:
        for cursor in cursors:
            for number, ordinal, term_count, is_unsummarised, record in cursor:
                document = DocumentRecord.from_bytes(record)
                version = DocumentVersion(ordinal, document, term_count, is_unsummarised)
                self._living[number, document.document_id] = version

    # The following methods change documents.

    def put(self, draft: DocumentDraft) -> IngestResult:
        """Stores the document in `draft`, or replaces the stored document with the same id.

        `draft` also has all values that are stored with the document, for example its filter terms.
        If the stored document has the same content hash, nothing is changed, and the outcome is
        UNCHANGED. Raises CollectionNotFound, CopyInProgress or StorageQuotaExceeded.
        """
        self.require(draft.handle)
        validation.check_is_no_copy(self._records[draft.handle.collection_id])
        return self._put(draft)

    def _put(self, draft: DocumentDraft) -> IngestResult:
        """Does what `put` does, also in the copy of a collection."""
        handle, document = draft.handle, draft.document
        draft = draft.analysed_by(self._changes[handle.collection_id].analyzer)
        old = self._living.get((handle.collection_id, document.document_id))
        stored = None if old is None else old.record
        unchanged = unchanged_result(stored, document.content_hash)
        if unchanged is not None:
            return unchanged
        self._check_quota(growth(stored, draft.record.stored_bytes))
        self._forget_copy(handle, document.document_id)
        sequence = self._next_sequence()
        if old is not None:
            self._remove(handle, old, sequence)
        has_summaries = handle.settings.summaries is not SummaryUnit.NONE
        new = self._add(handle.collection_id, draft, has_summaries)
        return result_of(new.record, IngestOutcome.UPDATED if old else IngestOutcome.CREATED)

    def ordinal_of(self, handle: CollectionHandle, document_id: str) -> int:
        """Returns the ordinal of a document.

        Raises CollectionNotFound or DocumentNotFound.
        """
        return self._require_version(handle, document_id).ordinal

    def put_summaries(
        self,
        handle: CollectionHandle,
        ordinal: int,
        draft: DocumentDraft | None,
        sections: tuple[range, ...],
        tokens: int = 0,
    ) -> bool:
        """Stores the summaries of a document.

        Returns False if the document no longer waits for summaries. `draft` has the summaries,
        prepared for storing; None if there are no summaries. `sections` has, for each summary of a
        section, the range of the document's leaves in this section. Adds `tokens` to the
        collection's total of summary tokens, even if the result is False. Raises
        CollectionNotFound.
        """
        self.require(handle)
        number = handle.collection_id
        self._add_counts(number, Counts(summary_tokens=tokens))
        matches = [v for (n, _), v in self._living.items() if (n, v.ordinal) == (number, ordinal)]
        waiting = [version for version in matches if version.is_unsummarised]
        for version in waiting:
            self._forget_copy(handle, version.record.document_id)
            self._mark_summarised(number, version)
            if draft is not None:
                self._next_sequence()
                summarised = Summarised.of(ordinal, sections).to_bytes()
                summaries_id = summary_id_of(number)
                current = draft.analysed_by(self._changes[summaries_id].analyzer)
                described = current.described_as(version.record)
                self._add(summaries_id, described, False, summarised)
        return bool(waiting)

    def put_metadata(
        self,
        handle: CollectionHandle,
        document_id: str,
        expected_sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        """Replaces the metadata and the source of a document and of its summaries.

        The ordinals stay the same. Raises CollectionNotFound, DocumentNotFound, or
        StorageQuotaExceeded. Raises DocumentChanged if the sequence number of the document is not
        `expected_sequence`. If the copy of the collection has the document, its metadata is
        replaced there too. Raises CopyInProgress if the collection is itself a copy.
        """
        self.require(handle)
        validation.check_is_no_copy(self._records[handle.collection_id])
        info = self._put_metadata(handle, document_id, expected_sequence, metadata, source)
        copy = self._copy_of(handle)
        if copy is not None and (copied := self._living.get((copy.collection_id, document_id))):
            self._put_metadata(copy, document_id, copied.record.sequence, metadata, source)
        return info

    def _put_metadata(
        self,
        handle: CollectionHandle,
        document_id: str,
        expected_sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        old = self._require_version(handle, document_id)
        if old.record.sequence != expected_sequence:
            raise validation.document_changed(document_id, expected_sequence, old.record.sequence)
        new = _revise_record(old.record, metadata, source)
        self._check_quota(growth(old.record, new.stored_bytes))
        sequence = self._next_sequence()
        for number in ids_with_summaries(handle):
            version = self._living.get((number, document_id))
            if version is not None:
                revised = _revise_record(version.record, metadata, source)
                self._revise(number, version, replace(revised, sequence=sequence))
        return replace(new, sequence=sequence).info()

    def delete(self, handle: CollectionHandle, document_id: str) -> int:
        """Deletes a document and its summaries; returns the sequence number of the deletion.

        Raises CollectionNotFound or DocumentNotFound.
        """
        version = self._require_version(handle, document_id)
        self._forget_copy(handle, document_id)
        sequence = self._next_sequence()
        self._remove(handle, version, sequence)
        return sequence

    def _forget_copy(self, handle: CollectionHandle, document_id: str) -> None:
        """Deletes a document from the copy of its collection, because it is about to change.

        Does nothing if the collection has no copy, or the copy does not have the document.
        """
        copy = self._copy_of(handle)
        if copy is not None and (copied := self._living.get((copy.collection_id, document_id))):
            self._remove(copy, copied, self._next_sequence())

    def put_copy(
        self, document: UncopiedDocument, draft: DocumentDraft, summaries: DocumentDraft | None
    ) -> bool:
        """Puts a document into the copy of its collection.

        `draft` and `summaries` are the drafts of the document and of its summaries in the copy.
        Returns False, and puts nothing, if the document was changed or deleted since it was read.
        Raises CollectionNotFound if the copy was deleted. Raises the errors of `put`.
        """
        copy, stored = draft.handle, document.stored
        self.require(copy)
        source = self._records[copy.collection_id].copy_of
        current = self._living.get((source, stored.document_id))
        if current is None or current.record.sequence != document.sequence:
            return False
        is_summarised = copy.settings.summaries is not SummaryUnit.NONE
        is_unsummarised = is_summarised and stored.summaries is None
        if current.is_unsummarised != is_unsummarised:
            return False  # The summaries were written since the document was read.
        self._put(draft)
        if stored.summaries is not None:
            sections = sections_of(stored.summaries)
            ordinal = self.ordinal_of(copy, stored.document_id)
            self.put_summaries(copy, ordinal, summaries, sections)
        return True

    def delete_unchanged(self, handle: CollectionHandle, last_sequence: int) -> DocumentDeletion:
        """Deletes the locked documents of the collection, except documents with newer changes.

        A document is deleted if the sequence number of its last change is at most `last_sequence`.
        The locked documents are those that `lock` or `lock_ordinals` has locked. Raises
        CollectionNotFound.
        """
        self.require(handle)
        versions = [v for (number, _), v in self._living.items() if number == handle.collection_id]
        versions = [version for version in versions if version.record.sequence <= last_sequence]
        for version in sorted(versions, key=attrgetter("ordinal")):
            self.delete(handle, version.record.document_id)
        return DocumentDeletion(len(versions), self._usage.sequence)

    def require(self, handle: CollectionHandle) -> None:
        """Raises CollectionNotFound if the collection of `handle` was deleted."""
        if handle.collection_id not in self._changes:
            raise no_collection(handle.tenant_id, handle.name)

    def finish(self) -> list[int]:
        """Writes the changes and commits them.

        Returns the ids of the changed collections.
        """
        changed = {
            number: changes
            for number, changes in self._changes.items()
            if changes.sequence or any(changes.counts)
        }
        if changed:
            oid = self._halfvec_oid
            write_changes(self._connection, self._tenant_id, changed, self._usage, oid)
        return list(changed)

    # The methods that change documents call the following methods.

    def _require_version(self, handle: CollectionHandle, document_id: str) -> DocumentVersion:
        self.require(handle)
        version = self._living.get((handle.collection_id, document_id))
        if version is None:
            raise no_document(handle, document_id)
        return version

    def _next_sequence(self) -> int:
        self._usage = self._usage._replace(sequence=self._usage.sequence + 1)
        return self._usage.sequence

    def _check_quota(self, increase: Usage) -> None:
        usage = self._usage.info(self._quota_of(self._tenant_id))
        validation.check_quota(self._tenant_id, usage, increase.info())

    def _add(
        self, number: int, draft: DocumentDraft, has_summaries: bool, summarised: bytes = b""
    ) -> DocumentVersion:
        """Adds a new version of a document.

        The ordinal of the version is the tenant's last sequence number, which the caller has just
        assigned to this change.
        """
        ordinal = self._usage.sequence
        record = replace(draft.record, sequence=ordinal)
        version = DocumentVersion(ordinal, record, draft.term_count, has_summaries)
        changes = self._changes[number]
        changes.new[ordinal] = (version, draft, summarised)
        changes.sequence = ordinal
        self._living[number, record.document_id] = version
        self._add_counts(number, Counts.of(version)._replace(unsummarised=int(has_summaries)))
        self._update_usage(record, 1)
        return version

    def _remove(self, handle: CollectionHandle, version: DocumentVersion, sequence: int) -> None:
        """Deletes a document and its summaries; `sequence` is the deletion's sequence number."""
        document_id = version.record.document_id
        for number in ids_with_summaries(handle):
            deleted = self._living.pop((number, document_id), None)
            if deleted is None:
                continue  # The summary collection has no entry for the document.
            changes = self._changes[number]
            if changes.new.pop(deleted.ordinal, None) is None:
                changes.deleted.append(deleted)
            changes.revised.pop(deleted.ordinal, None)
            changes.sequence = sequence
            unsummarised = int(deleted.is_unsummarised)
            self._subtract_counts(number, Counts.of(deleted)._replace(unsummarised=unsummarised))
            self._update_usage(deleted.record, -1)

    def _revise(self, number: int, old: DocumentVersion, record: DocumentRecord) -> None:
        new = replace(old, record=record)
        changes = self._changes[number]
        changes.revised[old.ordinal] = (old.record, new)
        changes.sequence = record.sequence
        self._living[number, record.document_id] = new
        self._subtract_counts(number, Counts.of(old))
        self._add_counts(number, Counts.of(new))
        self._update_usage(old.record, -1)
        self._update_usage(record, 1)

    def _mark_summarised(self, number: int, version: DocumentVersion) -> None:
        changes, marked = self._changes[number], replace(version, is_unsummarised=False)
        self._living[number, version.record.document_id] = marked
        self._add_counts(number, Counts(unsummarised=-1))
        if version.ordinal in changes.new:
            _, draft, summarised = changes.new[version.ordinal]
            changes.new[version.ordinal] = (marked, draft, summarised)
        else:
            changes.summarised.append(version.ordinal)

    def _add_counts(self, number: int, counts: Counts) -> None:
        changes = self._changes[number]
        changes.counts = changes.counts.plus(counts)

    def _subtract_counts(self, number: int, counts: Counts) -> None:
        changes = self._changes[number]
        changes.counts = changes.counts.minus(counts)

    def _update_usage(self, record: DocumentRecord, sign: int) -> None:
        """Adds a document to the tenant's usage (`sign` is 1) or removes it (`sign` is -1).

        A document of a summary collection changes only the stored bytes of the usage, not the count
        of documents.
        """
        is_summary = record.collection % 2 == 0
        change = Usage(documents=0 if is_summary else sign, stored_bytes=sign * record.stored_bytes)
        self._usage = self._usage.plus(change)


def ids_with_summaries(handle: CollectionHandle) -> tuple[int, ...]:
    """Returns the id of a collection and, if it has summaries, the id of its summary collection."""
    number = handle.collection_id
    if handle.settings.summaries is SummaryUnit.NONE:
        return (number,)
    return (number, summary_id_of(number))


def summary_id_of(number: int) -> int:
    """Returns the id of the summary collection of the collection with the id `number`.

    The ids of summary collections are even. The ids of other collections are odd.
    """
    return number + 1


def summary_collection(handle: CollectionHandle) -> CollectionHandle:
    """Returns the handle (tenant, name, id and settings) of a collection's summary collection."""
    return summary_handle(handle, summary_id_of(handle.collection_id))


def _revise_record(old: DocumentRecord, metadata: Mapping[str, Any], source: str) -> DocumentRecord:
    """Returns the record with new metadata and a new source.

    The content hash of the returned record is empty. So the document is stored again when it is
    ingested the next time, even with the same content, and then has the ingested metadata.
    """
    new = replace(old.described_by(metadata, b"", source), content_hash="")
    return with_size(new, tuple(terms_of(new)))
