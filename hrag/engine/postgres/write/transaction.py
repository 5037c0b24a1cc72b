"""Decides what one transaction changes of one tenant's documents.

It locks the tenant's row, reads all that the changes depend on, decides in memory and writes
everything at its end: two round trips after that of BEGIN, however many documents there are. A
document is written whole or not at all; what can be refused is refused before anything of it is
decided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from psycopg import Cursor

from hrag.engine.common import validation
from hrag.engine.common.document_results import growth, result_of, unchanged_result
from hrag.engine.common.filter_terms import terms_of
from hrag.engine.common.records import DocumentRecord, Summarised, Usage
from hrag.engine.common.summary_documents import summary_handle
from hrag.engine.common.validation import no_collection, no_document
from hrag.engine.engine_documents import CollectionHandle
from hrag.engine.postgres.store.arrays import bigints, texts
from hrag.engine.postgres.store.connection import Connection, Row
from hrag.engine.postgres.store.queries import is_storable
from hrag.engine.postgres.write.changes import CollectionChanges, Counts, Version, write_changes
from hrag.engine.postgres.write.document_drafts import Draft, with_size
from hrag.values.collections import SummaryUnit
from hrag.values.documents import DocumentDeletion, DocumentInfo, IngestOutcome, IngestResult
from hrag.values.quotas import QuotaOf

# The type's number is asked anew each time: a database that was restored has another one.
_LOCK = """
SELECT collections, documents, stored_bytes, sequence, to_regtype('halfvec')::oid
FROM hrag.tenants WHERE tenant_id = %s FOR UPDATE
"""
_COLLECTIONS = """
SELECT collection_id, home, record->'settings'->>'analyzer' <> '' FROM hrag.collections
WHERE tenant_id = %s AND collection_id = ANY(%s)
"""
_VERSION = "SELECT collection_id, ordinal, term_count, is_unsummarised, record FROM hrag.documents"
_BY_ID = f"""
{_VERSION} WHERE tenant_id = %s AND collection_id = ANY(%s) AND document_id = ANY(%s) FOR UPDATE
"""
_BY_ORDINAL = f"""
{_VERSION} WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s) FOR UPDATE
"""
_SUMMARIES_BY_ORDINAL = f"""
{_VERSION} WHERE tenant_id = %s AND collection_id = %s AND document_id IN (
  SELECT document_id FROM hrag.documents
  WHERE tenant_id = %s AND collection_id = %s AND ordinal = ANY(%s)
) FOR UPDATE
"""


class TenantTransaction:
    """The changes of one tenant in one transaction of `connection`; `finish` commits them.

    Knows the documents that it was told to lock, and no others.
    """

    def __init__(self, connection: Connection, tenant_id: str, quota_of: QuotaOf) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._quota_of = quota_of
        self._usage = Usage()
        self._halfvec_oid = 0
        self._changes: dict[int, CollectionChanges] = {}
        self._living: dict[tuple[int, str], Version] = {}

    # Reads

    def lock(self, documents: Sequence[tuple[CollectionHandle, str]]) -> None:
        """Locks the tenant and the documents with these ids, and their summaries."""
        cursors: list[Cursor[Row]] = []
        by_number = groupby(
            sorted(((numbers_of(handle), name) for handle, name in documents)), lambda each: each[0]
        )
        with self._connection.pipeline():
            locked = self._lock_tenant({each.collection_id for each, _ in documents})
            for numbers, some in by_number:
                names = sorted({name for _, name in some if is_storable(name)})
                wanted = (self._tenant_id, bigints(numbers), texts(names))
                cursors.append(self._connection.execute(_BY_ID, wanted))
        self._know(locked, cursors)

    def lock_ordinals(self, handle: CollectionHandle, ordinals: Sequence[int]) -> None:
        """Locks the tenant and the documents with these ordinals, and their summaries."""
        tenant_id, number, *summaries = (self._tenant_id, *numbers_of(handle))
        wanted = (tenant_id, number, bigints(ordinals))
        with self._connection.pipeline():
            locked = self._lock_tenant({number})
            cursors = [self._connection.execute(_BY_ORDINAL, wanted)]
            for each in summaries:
                own = (tenant_id, each, *wanted)
                cursors.append(self._connection.execute(_SUMMARIES_BY_ORDINAL, own))
        self._know(locked, cursors)

    def _lock_tenant(self, numbers: set[int]) -> tuple[Cursor[Row], Cursor[Row]]:
        every = sorted({each for number in numbers for each in (number, summaries_of(number))})
        usage = self._connection.execute(_LOCK, (self._tenant_id,))
        collections = self._connection.execute(_COLLECTIONS, (self._tenant_id, bigints(every)))
        return usage, collections

    def _know(
        self, locked: tuple[Cursor[Row], Cursor[Row]], cursors: Sequence[Cursor[Row]]
    ) -> None:
        usage, collections = locked
        for *used, oid in usage:
            self._usage, self._halfvec_oid = Usage(*used), oid
        self._changes = {
            number: CollectionChanges(home, is_lexical) for number, home, is_lexical in collections
        }
        for cursor in cursors:
            for number, ordinal, term_count, is_unsummarised, record in cursor:
                document = DocumentRecord.from_bytes(record)
                version = Version(ordinal, document, term_count, is_unsummarised)
                self._living[number, document.document_id] = version

    # Changes

    def put(self, draft: Draft) -> IngestResult:
        """Creates or replaces a document, unless it is stored already.

        Raises CollectionNotFound, or StorageQuotaExceeded.
        """
        handle, document = draft.handle, draft.document
        self.require(handle)
        old = self._living.get((handle.collection_id, document.document_id))
        stored = None if old is None else old.record
        unchanged = unchanged_result(stored, document.content_hash)
        if unchanged is not None:
            return unchanged
        self._check_quota(growth(stored, draft.record.stored_bytes))
        sequence = self._next_sequence()
        if old is not None:
            self._remove(handle, old, sequence)
        has_summaries = handle.settings.summaries is not SummaryUnit.NONE
        new = self._add(handle.collection_id, draft, has_summaries)
        return result_of(new.record, IngestOutcome.UPDATED if old else IngestOutcome.CREATED)

    def ordinal_of(self, handle: CollectionHandle, document_id: str) -> int:
        """The ordinal of a document; raises CollectionNotFound or DocumentNotFound."""
        return self._found(handle, document_id).ordinal

    def put_summaries(
        self,
        handle: CollectionHandle,
        ordinal: int,
        draft: Draft | None,
        sections: tuple[range, ...],
        tokens: int = 0,
    ) -> bool:
        """Stores the summaries of a document; False if they are no longer pending.

        `draft` is that of the summaries, None if there are none. Raises CollectionNotFound.
        """
        self.require(handle)
        number = handle.collection_id
        self._count(number, Counts(summary_tokens=tokens))
        found = [v for (of, _), v in self._living.items() if (of, v.ordinal) == (number, ordinal)]
        waiting = [version for version in found if version.is_unsummarised]
        for version in waiting:
            self._mark_summarised(number, version)
            if draft is not None:
                self._next_sequence()
                summarised = Summarised(ordinal, sections).to_bytes()
                described = draft.described_as(version.record)
                self._add(summaries_of(number), described, False, summarised)
        return bool(waiting)

    def put_metadata(
        self,
        handle: CollectionHandle,
        document_id: str,
        until: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        """Replaces metadata and source of the document that is as of the sequence `until`.

        Its ordinal stays. Raises CollectionNotFound, DocumentNotFound, DocumentChanged or
        StorageQuotaExceeded.
        """
        old = self._found(handle, document_id)
        if old.record.sequence != until:
            raise validation.document_changed(document_id, until, old.record.sequence)
        new = _revised(old.record, metadata, source)
        self._check_quota(growth(old.record, new.stored_bytes))
        sequence = self._next_sequence()
        for number in numbers_of(handle):
            version = self._living.get((number, document_id))
            if version is not None:
                revised = _revised(version.record, metadata, source)
                self._revise(number, version, replace(revised, sequence=sequence))
        return replace(new, sequence=sequence).info()

    def delete(self, handle: CollectionHandle, document_id: str) -> int:
        """Returns the sequence of the deletion; raises CollectionNotFound or DocumentNotFound."""
        version = self._found(handle, document_id)
        sequence = self._next_sequence()
        self._remove(handle, version, sequence)
        return sequence

    def delete_unchanged(self, handle: CollectionHandle, until: int) -> DocumentDeletion:
        """Deletes those of the locked documents that are as they were at the sequence `until`.

        Raises CollectionNotFound.
        """
        self.require(handle)
        own = [v for (number, _), v in self._living.items() if number == handle.collection_id]
        own = [version for version in own if version.record.sequence <= until]
        for version in sorted(own, key=attrgetter("ordinal")):
            self.delete(handle, version.record.document_id)
        return DocumentDeletion(len(own), self._usage.sequence)

    def require(self, handle: CollectionHandle) -> None:
        """Raises CollectionNotFound if the collection has been deleted."""
        if handle.collection_id not in self._changes:
            raise no_collection(handle.tenant_id, handle.name)

    def finish(self) -> list[int]:
        """Writes the changes and commits; returns the numbers of the changed collections."""
        changed = {
            number: each
            for number, each in self._changes.items()
            if each.sequence or any(each.counts)
        }
        if changed:
            oid = self._halfvec_oid
            write_changes(self._connection, self._tenant_id, changed, self._usage, oid)
        return list(changed)

    # Their parts

    def _found(self, handle: CollectionHandle, document_id: str) -> Version:
        self.require(handle)
        version = self._living.get((handle.collection_id, document_id))
        if version is None:
            raise no_document(handle, document_id)
        return version

    def _next_sequence(self) -> int:
        self._usage = self._usage._replace(sequence=self._usage.sequence + 1)
        return self._usage.sequence

    def _check_quota(self, more: Usage) -> None:
        used = self._usage.info(self._quota_of(self._tenant_id))
        validation.check_quota(self._tenant_id, used, more.info())

    def _add(
        self, number: int, draft: Draft, has_summaries: bool, summarised: bytes = b""
    ) -> Version:
        """Adds a new version as the last change."""
        ordinal = self._usage.sequence
        record = replace(draft.record, sequence=ordinal)
        version = Version(ordinal, record, draft.term_count, has_summaries)
        changes = self._changes[number]
        changes.new[ordinal] = (version, draft, summarised)
        changes.sequence = ordinal
        self._living[number, record.document_id] = version
        self._count(number, Counts.of(version)._replace(unsummarised=int(has_summaries)))
        self._use(record, 1)
        return version

    def _remove(self, handle: CollectionHandle, version: Version, sequence: int) -> None:
        """Deletes a version with its summaries, as the change `sequence`."""
        document_id = version.record.document_id
        for number in numbers_of(handle):
            found = self._living.pop((number, document_id), None)
            if found is None:
                continue  # Some documents are not worth a summary.
            changes = self._changes[number]
            if changes.new.pop(found.ordinal, None) is None:
                changes.deleted.append(found)
            changes.revised.pop(found.ordinal, None)
            changes.sequence = sequence
            waiting = int(found.is_unsummarised)
            self._uncount(number, Counts.of(found)._replace(unsummarised=waiting))
            self._use(found.record, -1)

    def _revise(self, number: int, old: Version, record: DocumentRecord) -> None:
        new = replace(old, record=record)
        changes = self._changes[number]
        changes.revised[old.ordinal] = (old.record, new)
        changes.sequence = record.sequence
        self._living[number, record.document_id] = new
        self._uncount(number, Counts.of(old))
        self._count(number, Counts.of(new))
        self._use(old.record, -1)
        self._use(record, 1)

    def _mark_summarised(self, number: int, version: Version) -> None:
        changes, now = self._changes[number], replace(version, is_unsummarised=False)
        self._living[number, version.record.document_id] = now
        self._count(number, Counts(unsummarised=-1))
        if version.ordinal in changes.new:
            _, draft, summarised = changes.new[version.ordinal]
            changes.new[version.ordinal] = (now, draft, summarised)
        else:
            changes.summarised.append(version.ordinal)

    def _count(self, number: int, more: Counts) -> None:
        changes = self._changes[number]
        changes.counts = changes.counts.plus(more)

    def _uncount(self, number: int, less: Counts) -> None:
        changes = self._changes[number]
        changes.counts = changes.counts.minus(less)

    def _use(self, record: DocumentRecord, sign: int) -> None:
        """Of summaries only the bytes count."""
        is_summary = record.collection % 2 == 0
        more = Usage(documents=0 if is_summary else sign, stored_bytes=sign * record.stored_bytes)
        self._usage = self._usage.plus(more)


def numbers_of(handle: CollectionHandle) -> tuple[int, ...]:
    """The number of a collection and, if it has summaries, that of their collection."""
    number = handle.collection_id
    if handle.settings.summaries is SummaryUnit.NONE:
        return (number,)
    return (number, summaries_of(number))


def summaries_of(number: int) -> int:
    """The number of a collection's summary collection: even, as collections' are odd."""
    return number + 1


def summary_collection(handle: CollectionHandle) -> CollectionHandle:
    """The summary collection of a collection with summaries."""
    return summary_handle(handle, summaries_of(handle.collection_id))


def _revised(old: DocumentRecord, metadata: Mapping[str, Any], source: str) -> DocumentRecord:
    """The record with other metadata; its empty hash equals that of no document."""
    new = replace(old, metadata=metadata, metadata_json=b"", source=source, content_hash="")
    return with_size(new, tuple(terms_of(new)))
