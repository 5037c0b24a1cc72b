"""Changes documents within one LMDB write transaction.

A document is written whole or not at all: everything that can be refused is refused before
its first byte is written. What the documents of a transaction share, such as the store's
numbers, the collections' counters and the tenants' usage, is read once and written once,
at the end.
"""

from collections.abc import Sequence
from dataclasses import replace

from hrag.engine.documents import CollectionHandle, DocumentSummaries, PreparedDocument
from hrag.engine.embedded.segments import manifest
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import append_change, note_commit, trimmed
from hrag.engine.embedded.store.damaged_documents import (
    find_damaged,
    is_intact,
    recounted,
    rewrite_terms,
)
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.metadata_terms import term_entry, terms_of
from hrag.engine.embedded.store.queries import (
    address_of,
    collection_exists,
    erase_document,
    erase_entries,
    find_document,
    no_collection,
    read_collection,
    read_counters,
    read_document,
)
from hrag.engine.embedded.store.records import (
    Change,
    CollectionRecord,
    Counters,
    DocumentRecord,
    Summarised,
    Usage,
)
from hrag.engine.embedded.store.tenant_usage import (
    check_quota,
    read_usage,
    stored_bytes,
    write_usage,
)
from hrag.engine.embedded.write.summaries import as_document, summary_handle
from hrag.engine.validation import check_shapes, check_summaries
from hrag.errors import DocumentNotFound, TooLarge
from hrag.quota.quotas import QuotaOf
from hrag.types import CollectionSettings, IngestOutcome, IngestResult


class WriteTransaction:
    """The changes of one transaction; `finish` writes what they share."""

    def __init__(self, store: Store, txn: Txn, max_log_entries: int, quota_of: QuotaOf) -> None:
        self._store = store
        self._txn = txn
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of
        self._numbers: dict[bytes, int] = {}
        self._collections: dict[int, CollectionRecord] = {}
        self._counters: dict[int, Counters] = {}
        self._usage: dict[str, Usage] = {}
        self.changed: set[int] = set()
        """Numbers of the collections that have a change."""

    def put(self, handle: CollectionHandle, document: PreparedDocument) -> IngestResult:
        """Creates or replaces a document, unless it is stored already.

        Raises CollectionNotFound, InvalidArgument or TooLarge for a document that does not
        fit the collection, StorageQuotaExceeded if its tenant may not have so much.
        """
        collection = self._existing(handle)
        _check_shapes(document, handle.settings)
        found = self._find_sound(handle, document.document_id)
        old_ordinal, old = found or (0, None)
        unchanged = unchanged_result(old, document.content_hash)
        if unchanged is not None and self._has_sound_summaries(handle, document.document_id):
            return unchanged
        new = _record_of(handle, document)
        terms = terms_of(new)
        new = replace(new, stored_bytes=stored_bytes(new, terms, document.tree.size_bytes))
        if not collection.summarises:  # Nobody waits for the error if summaries are refused.
            self._check_quota(handle.tenant_id, growth(old, new.stored_bytes))
        sequence, ordinal = self._next_sequence(handle.tenant_id), self._next(schema.LAST_ORDINAL)
        if found is None:
            old_ordinal = self._remove_damaged(handle, document.document_id, sequence)
        elif old is not None:
            self._remove(handle, old_ordinal, old, sequence)
        new = replace(new, sequence=sequence)
        self._add(ordinal, new, terms, document)
        self._count(handle, new, ordinal, 1)
        if collection.summaries:
            self._mark_unsummarised(handle, ordinal)
        self._log(handle, Change(ordinal, old_ordinal), sequence)
        return _result(new, IngestOutcome.UPDATED if old_ordinal else IngestOutcome.CREATED)

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
            collection = summary_handle(handle, self._existing(handle))
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

    def finish(self) -> None:
        """Writes what the changes share; call it last."""
        store, txn = self._store, self._txn
        for name, value in self._numbers.items():
            txn.put(name, schema.u64(value), db=store.db["meta"])
        for number, changed in self._counters.items():
            counters = trimmed(store, txn, number, changed, self._max_log_entries)
            txn.put(schema.u32(number), counters.to_bytes(), db=store.db["counters"])
        for tenant_id, usage in self._usage.items():
            write_usage(store, txn, tenant_id, usage)
        for number in self.changed:
            note_commit(store, txn, number)

    # What the changes share

    def _next(self, name: bytes) -> int:
        """Increments one of the store's numbers and returns it."""
        number = self._numbers.get(name) or self._store.number(self._txn, name)
        self._numbers[name] = number + 1
        return number + 1

    def _next_sequence(self, tenant_id: str) -> int:
        usage = self._usage_of(tenant_id)
        self._usage[tenant_id] = usage._replace(sequence=usage.sequence + 1)
        return usage.sequence + 1

    def _existing(self, handle: CollectionHandle) -> CollectionRecord:
        """The collection's record, or CollectionNotFound if it has been deleted."""
        found = self._collections.get(handle.collection_id)
        if found is None:
            found = existing_collection(self._store, self._txn, handle)
            self._collections[handle.collection_id] = found
        return found

    def _counters_of(self, handle: CollectionHandle) -> Counters:
        number = handle.collection_id
        found = self._counters.get(number)
        return read_counters(self._store, self._txn, number) if found is None else found

    def _usage_of(self, tenant_id: str) -> Usage:
        found = self._usage.get(tenant_id)
        return read_usage(self._store, self._txn, tenant_id) if found is None else found

    def _check_quota(self, tenant_id: str, more: Usage) -> None:
        check_quota(tenant_id, self._quota_of(tenant_id), self._usage_of(tenant_id), more)

    def _count(
        self, handle: CollectionHandle, document: DocumentRecord, ordinal: int, sign: int
    ) -> None:
        """Counts a document as added (`sign` 1) or removed (-1), for its tenant too."""
        documents = 0 if self._existing(handle).summarises else sign
        more = Usage(documents=documents, stored_bytes=sign * document.stored_bytes)
        self._usage[handle.tenant_id] = self._usage_of(handle.tenant_id).plus(more)
        counters = self._counters_of(handle).plus(document, ordinal, sign)
        self._counters[handle.collection_id] = counters

    def _log(self, handle: CollectionHandle, change: Change, sequence: int) -> None:
        number, counters = handle.collection_id, self._counters_of(handle)
        self._counters[number] = append_change(
            self._store, self._txn, number, counters, change, sequence
        )
        self.changed.add(number)

    # Documents

    def _find(
        self, handle: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord | None]:
        return find_document(self._store, self._txn, handle.collection_id, document_id)

    def _add(
        self,
        ordinal: int,
        record: DocumentRecord,
        terms: Sequence[bytes],
        document: PreparedDocument,
    ) -> None:
        txn, db = self._txn, self._store.db
        name = schema.document_id(record.collection, record.document_id)
        entry = schema.in_collection(record.collection, ordinal)
        slot, is_new = self._take_slot()
        txn.put(name, schema.u64(ordinal), db=db["document_ids"])
        txn.put(entry, schema.document_entry(record.leaf_count, slot), db=db["ordinals"])
        for each in terms:
            txn.put(each, term_entry(each, ordinal), db=db["terms"])
        address = schema.address(slot, record.collection, ordinal)
        # Appended where the slot is past all others: LMDB then fills its pages.
        txn.put(address, record.to_bytes(), db=db["documents"], append=is_new)
        txn.put(address, document.parsed.text.encode(), db=db["texts"], append=is_new)
        txn.put(address, document.tree.to_bytes(), db=db["trees"], append=is_new)
        vectors = document.vectors.astype("<f4", order="C", copy=False)
        packed = vectors.data.cast("B") if vectors.size else b""
        txn.put(address, packed, db=db["vectors"], append=is_new)

    def _take_slot(self) -> tuple[bytes, bool]:
        """A packed slot, a free one if there is any, and whether it is past all others."""
        free = next(self._store.scan(self._txn, "free_slots", b""), None)
        if free is None:
            return schema.u64(self._next(schema.LAST_SLOT)), True
        slot = bytes(free[0])
        self._txn.delete(slot, db=self._store.db["free_slots"])
        return slot, False

    def _delete(
        self, handle: CollectionHandle, ordinal: int, document: DocumentRecord, sequence: int
    ) -> None:
        """Deletes a document and its id, as the change `sequence`."""
        self._remove(handle, ordinal, document, sequence)
        name = schema.document_id(handle.collection_id, document.document_id)
        self._txn.delete(name, db=self._store.db["document_ids"])
        self._log(handle, Change(removed=ordinal), sequence)

    def _remove(
        self, handle: CollectionHandle, ordinal: int, document: DocumentRecord, sequence: int
    ) -> None:
        """Deletes one version of a document with its summaries, as the change `sequence`."""
        if self._existing(handle).summaries:
            self._remove_summaries(handle, ordinal, document.document_id, sequence)
        erase_document(self._store, self._txn, ordinal, document)
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
        collection = summary_handle(handle, self._existing(handle))
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


def existing_collection(store: Store, txn: Txn, handle: CollectionHandle) -> CollectionRecord:
    """The collection's record, or CollectionNotFound if it has been deleted."""
    if not collection_exists(store, txn, handle.collection_id):
        raise no_collection(handle.tenant_id, handle.name)
    return read_collection(store, txn, handle.collection_id)


def _check_shapes(document: PreparedDocument, settings: CollectionSettings) -> None:
    check_shapes(document, settings)
    leaves = len(document.vectors)
    if leaves > schema.MAX_LEAVES:
        raise TooLarge(
            f"document has {leaves} leaves; at most {schema.MAX_LEAVES} are allowed, "
            "split it or use larger chunks",
            field="document",
        )


def growth(old: DocumentRecord | None, stored_bytes: int) -> Usage:
    """What a document of `stored_bytes` adds to its tenant's usage.

    The version that it replaces, if any, is subtracted, its summaries are not: the new
    version will have its own.
    """
    if old is None:
        return Usage(documents=1, stored_bytes=stored_bytes)
    return Usage(stored_bytes=stored_bytes - old.stored_bytes)


def _record_of(handle: CollectionHandle, document: PreparedDocument) -> DocumentRecord:
    """The document's record, whose `sequence` and `stored_bytes` are still to be set."""
    tree = document.tree
    last = tree.record(tree.top_level, tree.counts[-1] - 1)
    return DocumentRecord(
        collection=handle.collection_id,
        document_id=document.document_id,
        title=document.title,
        source=document.source,
        mime_type=document.mime_type,
        metadata=document.metadata,
        content_hash=document.content_hash,
        sections=document.parsed.sections,
        pages=document.parsed.pages,
        chunks_per_level=tree.counts,
        leaf_count=tree.counts[handle.settings.tree.embedding_level],
        token_count=last.token_start + last.token_count,
        text_bytes=last.byte_end,
        vector_bytes=document.vectors.nbytes,
        stored_bytes=0,
        sequence=0,
        metadata_json=document.metadata_json,
    )


def unchanged_result(document: DocumentRecord | None, content_hash: str) -> IngestResult | None:
    """The stored document's result if it has this hash, else None; "" equals no hash."""
    if document is None or not content_hash or document.content_hash != content_hash:
        return None
    return _result(document, IngestOutcome.UNCHANGED)


def _result(document: DocumentRecord, outcome: IngestOutcome) -> IngestResult:
    return IngestResult(
        document_id=document.document_id,
        outcome=outcome,
        sequence=document.sequence,
        chunks_per_level=document.chunks_per_level,
        token_count=document.token_count,
    )


def no_document(handle: CollectionHandle, document_id: str) -> DocumentNotFound:
    """The error for an id that the collection does not have."""
    return DocumentNotFound(
        f"collection {handle.name!r} of tenant {handle.tenant_id!r} "
        f"has no document {document_id!r}",
        field="document_id",
    )
