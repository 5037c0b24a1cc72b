"""Changes documents within one write transaction.

A document is written whole or not at all: what can be refused is refused before its first
byte. What all documents of a transaction share, such as the store's numbers and the
collections' counters, is read once and written once, at the end.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from hrag.embedding import Vectors
from hrag.engine import PreparedDocument, Summary
from hrag.engine.embedded.segments import manifest
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import append_change, note_commit, trimmed
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.metadata_terms import terms_of
from hrag.engine.embedded.store.queries import (
    collection_exists,
    erase_document,
    find_document,
    no_collection,
    read_counters,
    read_head,
    slot_of,
)
from hrag.engine.embedded.store.records import (
    Change,
    ChangeKind,
    Counters,
    DocumentHead,
    Summarised,
    Usage,
)
from hrag.engine.embedded.store.tenant_usage import (
    read_usage,
    require_room,
    stored_bytes,
    write_usage,
)
from hrag.engine.embedded.write.summaries import as_document, settings_beside
from hrag.errors import DocumentNotFound, InvalidArgument, TooLarge
from hrag.quota.quotas import QuotaOf
from hrag.types import CollectionSettings, IngestOutcome, IngestResult


@dataclass(frozen=True, slots=True)
class Opened:
    """A collection by its number; a new one of the same name has another number."""

    number: int
    tenant_id: str
    name: str
    settings: CollectionSettings
    summaries: int = 0
    holds_summaries: bool = False

    @property
    def beside(self) -> "Opened":
        """The collection that holds its summaries."""
        return replace(
            self,
            number=self.summaries,
            settings=settings_beside(self.settings),
            summaries=0,
            holds_summaries=True,
        )


class Commit:
    """The changes of one transaction; nothing counts before `finish`."""

    def __init__(self, store: Store, txn: Txn, max_log_entries: int, quota_of: QuotaOf) -> None:
        self._store = store
        self._txn = txn
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of
        self._numbers: dict[bytes, int] = {}
        self._counters: dict[int, Counters] = {}
        self._usage: dict[str, Usage] = {}
        self.changed: set[int] = set()
        """Collections that have a change."""

    def put(self, opened: Opened, document: PreparedDocument) -> IngestResult:
        """Creates or replaces a document, unless it is stored already.

        Raises StorageQuotaExceeded unless its tenant has room for it.
        """
        _check_shapes(document, opened.settings)
        counters = self._counters_of(opened)
        old, old_head = find_document(self._store, self._txn, opened.number, document.document_id)
        same = unchanged_result(old_head, document.content_hash)
        if same is not None:
            return same
        head = _head(opened.number, document, opened.settings)
        terms = terms_of(head)
        head = replace(head, stored_bytes=stored_bytes(head, terms, document.tree.size_bytes))
        self._require_room(opened, growth(old_head, head.stored_bytes))
        if old_head is not None:
            counters = self._remove(opened, old, old_head, counters)
        sequence, ordinal = self._next(schema.SEQUENCE), self._next(schema.LAST_ORDINAL)
        head = replace(head, sequence=sequence)
        self._add(ordinal, head, terms, document)
        counters = self._count(opened, counters, head, ordinal, 1)
        if opened.summaries:
            entry = schema.in_collection(opened.number, ordinal)
            self._txn.put(entry, b"", db=self._store.db["unsummarised"])
            counters = counters._replace(unsummarised=counters.unsummarised + 1)
        self._log(opened, counters, Change(ChangeKind.PUT, ordinal, old))
        return _result(head, IngestOutcome.CREATED if old_head is None else IngestOutcome.UPDATED)

    def put_summaries(
        self,
        opened: Opened,
        ordinal: int,
        summaries: Sequence[Summary],
        vectors: Vectors,
        tokens: int,
    ) -> bool:
        """Stores the summaries of a document; False if it waits for none any more.

        What they have cost counts in any case.
        """
        counters = self._counters_of(opened)
        waits = self._await_no_more(opened, ordinal)
        self._counters[opened.number] = counters._replace(
            unsummarised=counters.unsummarised - waits,
            summary_tokens=counters.summary_tokens + tokens,
        )
        if waits and summaries:
            slot = slot_of(self._store, self._txn, opened.number, ordinal)
            head = read_head(self._store, self._txn, slot)
            self.put(opened.beside, as_document(head, summaries, vectors))
            sections = tuple(summary.leaves for summary in summaries[1:])
            self._txn.put(
                schema.in_collection(opened.summaries, self._numbers[schema.LAST_ORDINAL]),
                Summarised(ordinal, sections).to_bytes(),
                db=self._store.db["summarised"],
            )
        return waits

    def delete(self, opened: Opened, document_id: str) -> int:
        """Returns the sequence of the deletion, or raises DocumentNotFound."""
        counters = self._counters_of(opened)
        ordinal, head = find_document(self._store, self._txn, opened.number, document_id)
        if head is None:
            raise no_document(opened, document_id)
        counters = self._remove(opened, ordinal, head, counters)
        sequence = self._next(schema.SEQUENCE)
        name = schema.document_id(opened.number, document_id)
        self._txn.delete(name, db=self._store.db["document_ids"])
        self._log(opened, counters, Change(ChangeKind.DELETE, removed=ordinal))
        return sequence

    def finish(self) -> None:
        """Writes what the changes share; call it last."""
        store, txn = self._store, self._txn
        for number, changed in self._counters.items():
            counters = trimmed(store, txn, number, changed, self._max_log_entries)
            txn.put(schema.u32(number), counters.to_bytes(), db=store.db["counters"])
        for tenant_id, usage in self._usage.items():
            write_usage(store, txn, tenant_id, usage)
        for number in self.changed:
            note_commit(store, txn, number, self._counters[number].sequence)
        for name, value in self._numbers.items():
            txn.put(name, schema.u64(value), db=store.db["meta"])

    def _next(self, name: bytes) -> int:
        """Counts one of the store's numbers up by one."""
        number = self._numbers.get(name) or self._store.number(self._txn, name)
        self._numbers[name] = number + 1
        return number + 1

    def _counters_of(self, opened: Opened) -> Counters:
        found = self._counters.get(opened.number)
        return living_counters(self._store, self._txn, opened) if found is None else found

    def _require_room(self, opened: Opened, more: Usage) -> None:
        """Summaries always have it: nobody would be there to be told that they had not."""
        if not opened.holds_summaries:
            tenant_id = opened.tenant_id
            require_room(tenant_id, self._quota_of(tenant_id), self._usage_of(tenant_id), more)

    def _usage_of(self, tenant_id: str) -> Usage:
        found = self._usage.get(tenant_id)
        return read_usage(self._store, self._txn, tenant_id) if found is None else found

    def _count(
        self, opened: Opened, counters: Counters, head: DocumentHead, ordinal: int, sign: int
    ) -> Counters:
        """With one document more (sign 1) or less (sign -1), for its tenant too."""
        more = Usage(0, 0 if opened.holds_summaries else sign, sign * head.stored_bytes)
        self._usage[opened.tenant_id] = self._usage_of(opened.tenant_id).plus(more)
        return counters.plus(head, ordinal, sign)

    def _log(self, opened: Opened, counters: Counters, change: Change) -> None:
        sequence = self._numbers[schema.SEQUENCE]
        self._counters[opened.number] = append_change(
            self._store, self._txn, opened.number, counters, change, sequence
        )
        self.changed.add(opened.number)

    def _add(
        self, ordinal: int, head: DocumentHead, terms: Sequence[bytes], document: PreparedDocument
    ) -> None:
        txn, db = self._txn, self._store.db
        name = schema.document_id(head.collection, head.document_id)
        entry = schema.in_collection(head.collection, ordinal)
        slot, is_new = self._take_slot()
        txn.put(name, schema.u64(ordinal), db=db["document_ids"])
        txn.put(entry, schema.document_place(head.leaf_count, slot), db=db["ordinals"])
        for each in terms:
            txn.put(each, schema.u64(ordinal), db=db["terms"])
        # Behind all others: LMDB then fills its pages.
        txn.put(slot, head.to_bytes(), db=db["heads"], append=is_new)
        txn.put(slot, document.parsed.text.encode(), db=db["texts"], append=is_new)
        txn.put(slot, document.tree.to_bytes(), db=db["trees"], append=is_new)
        vectors = document.vectors.astype("<f4", order="C", copy=False)
        txn.put(slot, vectors.data.cast("B"), db=db["vectors"], append=is_new)

    def _take_slot(self) -> tuple[bytes, bool]:
        """A packed slot, one that is free if any is; and whether it is a new one."""
        free = next(self._store.scan(self._txn, "free_slots", b""), None)
        if free is None:
            return schema.u64(self._next(schema.LAST_SLOT)), True
        slot = bytes(free[0])
        self._txn.delete(slot, db=self._store.db["free_slots"])
        return slot, False

    def _await_no_more(self, opened: Opened, ordinal: int) -> bool:
        """Takes a document from those that wait for their summaries, if it does."""
        entry = schema.in_collection(opened.number, ordinal)
        return bool(self._txn.delete(entry, db=self._store.db["unsummarised"]))

    def _remove(
        self, opened: Opened, ordinal: int, head: DocumentHead, counters: Counters
    ) -> Counters:
        """Erases a document, with its summaries."""
        if opened.summaries:
            if self._await_no_more(opened, ordinal):
                counters = counters._replace(unsummarised=counters.unsummarised - 1)
            else:
                with suppress(DocumentNotFound):  # It was not worth a summary.
                    self.delete(opened.beside, head.document_id)
        erase_document(self._store, self._txn, ordinal, head)
        if ordinal <= counters.sealed_ordinal:
            manifest.bury(self._store, self._txn, head.collection, ordinal, head.leaf_count)
        return self._count(opened, counters, head, ordinal, -1)


def living_counters(store: Store, txn: Txn, opened: Opened) -> Counters:
    """The collection's counters, or CollectionNotFound if it has been deleted."""
    if not collection_exists(store, txn, opened.number):
        raise no_collection(opened.tenant_id, opened.name)
    return read_counters(store, txn, opened.number)


def _check_shapes(document: PreparedDocument, settings: CollectionSettings) -> None:
    levels, wanted = len(document.tree.counts), len(settings.tree.level_sizes)
    if levels != wanted:
        raise InvalidArgument(
            f"tree has {levels} levels; the collection's have {wanted}", field="tree"
        )
    leaves = document.tree.counts[settings.tree.embedding_level]
    if leaves > schema.MAX_LEAVES:
        raise TooLarge(
            f"document has {leaves} leaves; at most {schema.MAX_LEAVES} are allowed, "
            "split it or use larger chunks",
            field="document",
        )
    if document.vectors.shape != (leaves, settings.dimension):
        raise InvalidArgument(
            f"vectors have shape {document.vectors.shape}; "
            f"the tree and the collection need {(leaves, settings.dimension)}",
            field="vectors",
        )


def growth(old: DocumentHead | None, stored_bytes: int) -> Usage:
    """What a document of so many bytes takes beyond the version it replaces, if any.

    Summaries of that one do not make room: they will be written anew.
    """
    if old is None:
        return Usage(documents=1, stored_bytes=stored_bytes)
    return Usage(stored_bytes=stored_bytes - old.stored_bytes)


def _head(
    collection: int, document: PreparedDocument, settings: CollectionSettings
) -> DocumentHead:
    """Of a document whose sequence and size are not known yet."""
    tree = document.tree
    last = tree.record(tree.top_level, tree.counts[-1] - 1)
    return DocumentHead(
        collection=collection,
        document_id=document.document_id,
        title=document.title,
        source=document.source,
        mime_type=document.mime_type,
        metadata=document.metadata,
        content_hash=document.content_hash,
        sections=document.parsed.sections,
        pages=document.parsed.pages,
        chunks_per_level=tree.counts,
        leaf_count=tree.counts[settings.tree.embedding_level],
        token_count=last.token_start + last.token_count,
        text_bytes=last.byte_end,
        vector_bytes=document.vectors.nbytes,
        stored_bytes=0,
        sequence=0,
    )


def unchanged_result(head: DocumentHead | None, content_hash: str) -> IngestResult | None:
    """The stored document's result if it has this hash."""
    if head is None or head.content_hash != content_hash:
        return None
    return _result(head, IngestOutcome.UNCHANGED)


def _result(head: DocumentHead, outcome: IngestOutcome) -> IngestResult:
    return IngestResult(
        head.document_id, outcome, head.sequence, head.chunks_per_level, head.token_count
    )


def no_document(opened: Opened, document_id: str) -> DocumentNotFound:
    """The error for an id the collection does not have."""
    return DocumentNotFound(
        f"collection {opened.name!r} of tenant {opened.tenant_id!r} "
        f"has no document {document_id!r}",
        field="document_id",
    )
