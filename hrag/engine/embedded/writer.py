"""Commits whole documents, one LMDB transaction each.

A document is visible whole or not at all, and its counters, log entry and sequence
change with it. Replacing one gives it a new ordinal, so whatever an index still holds of
the old version names nothing. Knows nothing of segments but which ordinals they cover.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from hrag.engine import OpenCollection, PreparedDocument
from hrag.engine.embedded import keys
from hrag.engine.embedded.lookups import (
    collection_exists,
    erase_document,
    find_collection,
    listed_segments,
    no_collection,
    read_collection,
    read_counters,
    read_head,
    required,
)
from hrag.engine.embedded.records import (
    Change,
    ChangeKind,
    CollectionRecord,
    Counters,
    DocumentHead,
)
from hrag.engine.embedded.store import Store, Txn
from hrag.errors import (
    CollectionExists,
    DocumentNotFound,
    InvalidArgument,
    TooLarge,
)
from hrag.types import (
    Collection,
    CollectionSettings,
    DocumentInfo,
    IndexStatus,
    IngestOutcome,
    IngestResult,
    Listing,
)

# A reader that has fallen further behind loads the collection anew.
MAX_LOG_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class Opened:
    """A collection by its number; a new one of the same name has another number."""

    number: int
    tenant_id: str
    name: str
    settings: CollectionSettings


class EmbeddedWriter:
    """The writer over one store. `on_commit` is called after each commit with a collection."""

    def __init__(
        self,
        store: Store,
        on_commit: Callable[[int], None] | None = None,
        max_log_entries: int = MAX_LOG_ENTRIES,
    ) -> None:
        self._store = store
        self._on_commit = on_commit
        self._max_log_entries = max_log_entries

    # Collections

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        store, key = self._store, keys.collection_name(tenant_id, name)
        with store.write() as txn:
            if txn.get(key, db=store.db["collection_names"]) is not None:
                raise CollectionExists(
                    f"tenant {tenant_id!r} has a collection {name!r} already", field="name"
                )
            number = store.next_number(txn, keys.LAST_COLLECTION)
            sequence = store.next_number(txn, keys.SEQUENCE)
            record = CollectionRecord(tenant_id, name, settings)
            counters = Counters(sequence=sequence, sealed_sequence=sequence, log_start=sequence)
            txn.put(key, keys.u32(number), db=store.db["collection_names"])
            txn.put(keys.u32(number), record.to_bytes(), db=store.db["collections"])
            txn.put(keys.u32(number), counters.to_bytes(), db=store.db["counters"])
        return Collection(tenant_id, name, settings), sequence

    def delete_collection(self, tenant_id: str, name: str) -> int:
        store = self._store
        with store.write() as txn:
            number = find_collection(store, txn, tenant_id, name)
            txn.delete(keys.collection_name(tenant_id, name), db=store.db["collection_names"])
            txn.delete(keys.u32(number), db=store.db["collections"])
            txn.delete(keys.u32(number), db=store.db["counters"])
            txn.put(keys.u32(number), b"", db=store.db["dropped"])
            sequence = store.next_number(txn, keys.SEQUENCE)
        self._committed(number)
        return sequence

    def collection(self, tenant_id: str, name: str) -> Collection:
        with self._store.read() as txn:
            return self._describe(txn, find_collection(self._store, txn, tenant_id, name))

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        prefix = keys.collection_name(tenant_id, "")
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            entries = self._store.scan(txn, "collection_names", prefix, after)
            numbers = [keys.read_u32(value) for _, value in islice(entries, page_size + 1)]
            found = [self._describe(txn, number) for number in numbers[:page_size]]
        return Listing(tuple(found), found[-1].name if len(numbers) > page_size else "")

    def _describe(self, txn: Txn, number: int) -> Collection:
        record = read_collection(self._store, txn, number)
        documents = read_counters(self._store, txn, number).documents
        return Collection(record.tenant_id, record.name, record.settings, documents)

    def open(self, tenant_id: str, name: str) -> Opened:
        """Finds a collection, or raises CollectionNotFound."""
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, name)
            return Opened(
                number, tenant_id, name, read_collection(self._store, txn, number).settings
            )

    # Documents

    def unchanged(
        self, collection: OpenCollection, document_id: str, content_hash: str
    ) -> IngestResult | None:
        opened = _opened(collection)
        with self._store.read() as txn:
            _, head = self._find(txn, opened, document_id)
        return _same(head, content_hash)

    def put(self, collection: OpenCollection, document: PreparedDocument) -> IngestResult:
        opened = _opened(collection)
        _check_shapes(document, opened.settings)
        with self._store.write() as txn:
            counters = self._living_counters(txn, opened)
            old, old_head = self._find(txn, opened, document.document_id)
            same = _same(old_head, document.content_hash)
            if same is not None:
                return same
            sequence = self._store.next_number(txn, keys.SEQUENCE)
            ordinal = self._store.next_number(txn, keys.LAST_ORDINAL)
            head = _head(opened.number, document, opened.settings, sequence)
            if old_head is not None:
                counters = self._remove(txn, old, old_head, counters)
            self._add(txn, ordinal, head, document)
            self._log(
                txn,
                opened.number,
                counters.plus(head, ordinal, 1),
                Change(ChangeKind.PUT, ordinal, old),
                sequence,
            )
        self._committed(opened.number)
        outcome = IngestOutcome.CREATED if old_head is None else IngestOutcome.UPDATED
        return _result(head, outcome)

    def delete(self, collection: OpenCollection, document_id: str) -> int:
        opened = _opened(collection)
        with self._store.write() as txn:
            counters = self._living_counters(txn, opened)
            ordinal, head = self._find(txn, opened, document_id)
            if head is None:
                raise _no_document(opened, document_id)
            sequence = self._store.next_number(txn, keys.SEQUENCE)
            counters = self._remove(txn, ordinal, head, counters)
            key = keys.document_id(opened.number, document_id)
            txn.delete(key, db=self._store.db["document_ids"])
            change = Change(ChangeKind.DELETE, removed=ordinal)
            self._log(txn, opened.number, counters, change, sequence)
        self._committed(opened.number)
        return sequence

    def document(self, collection: OpenCollection, document_id: str) -> DocumentInfo:
        opened = _opened(collection)
        with self._store.read() as txn:
            return self._existing(txn, opened, document_id)[1].info()

    def document_with_text(
        self, collection: OpenCollection, document_id: str
    ) -> tuple[DocumentInfo, str]:
        opened = _opened(collection)
        with self._store.read() as txn:
            ordinal, head = self._existing(txn, opened, document_id)
            text = required(txn.get(keys.u64(ordinal), db=self._store.db["texts"]))
            return head.info(), str(text, "utf-8")

    def documents(
        self, collection: OpenCollection, page_size: int, page_token: str
    ) -> Listing[DocumentInfo]:
        opened = _opened(collection)
        prefix = keys.u32(opened.number)
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            entries = self._store.scan(txn, "document_ids", prefix, after)
            ordinals = [bytes(value) for _, value in islice(entries, page_size + 1)]
            heads = [read_head(self._store, txn, ordinal) for ordinal in ordinals[:page_size]]
        token = heads[-1].document_id if len(ordinals) > page_size else ""
        return Listing(tuple(head.info() for head in heads), token)

    def status(self, collection: OpenCollection) -> IndexStatus:
        opened = _opened(collection)
        with self._store.read() as txn:
            counters = self._living_counters(txn, opened)
            listed = listed_segments(self._store, txn, opened.number)
        return IndexStatus(
            committed_sequence=counters.sequence,
            sealed_sequence=counters.sealed_sequence,
            document_count=counters.documents,
            chunk_count=counters.chunks,
            leaf_count=counters.leaves,
            tail_leaf_count=counters.tail_leaves,
            token_count=counters.tokens,
            text_bytes=counters.text_bytes,
            vector_bytes=counters.vector_bytes,
            segments=tuple(record.info() for record in listed),
        )

    def _committed(self, collection: int) -> None:
        if self._on_commit is not None:
            self._on_commit(collection)

    # Pieces of a transaction

    def _living_counters(self, txn: Txn, opened: Opened) -> Counters:
        if not collection_exists(self._store, txn, opened.number):
            raise no_collection(opened.tenant_id, opened.name)
        return read_counters(self._store, txn, opened.number)

    def _find(self, txn: Txn, opened: Opened, document_id: str) -> tuple[int, DocumentHead | None]:
        key = keys.document_id(opened.number, document_id)
        ordinal = txn.get(key, db=self._store.db["document_ids"])
        if ordinal is None:
            return 0, None
        return keys.read_u64(ordinal), read_head(self._store, txn, ordinal)

    def _existing(self, txn: Txn, opened: Opened, document_id: str) -> tuple[int, DocumentHead]:
        ordinal, head = self._find(txn, opened, document_id)
        if head is None:
            raise _no_document(opened, document_id)
        return ordinal, head

    def _add(self, txn: Txn, ordinal: int, head: DocumentHead, document: PreparedDocument) -> None:
        key, db = keys.u64(ordinal), self._store.db
        txn.put(keys.document_id(head.collection, head.document_id), key, db=db["document_ids"])
        txn.put(
            keys.in_collection(head.collection, ordinal),
            keys.u32(head.leaf_count),
            db=db["ordinals"],
        )
        txn.put(key, head.to_bytes(), db=db["heads"], append=True)
        txn.put(key, document.parsed.text.encode(), db=db["texts"], append=True)
        txn.put(key, document.tree.to_bytes(), db=db["trees"], append=True)
        vectors = document.vectors.astype("<f4", order="C", copy=False)
        txn.put(key, vectors.data.cast("B"), db=db["vectors"], append=True)

    def _remove(self, txn: Txn, ordinal: int, head: DocumentHead, counters: Counters) -> Counters:
        erase_document(self._store, txn, ordinal, head)
        return counters.plus(head, ordinal, -1)

    def _log(
        self, txn: Txn, collection: int, counters: Counters, change: Change, sequence: int
    ) -> None:
        log_change(self._store, txn, collection, counters, change, sequence, self._max_log_entries)


def log_change(
    store: Store,
    txn: Txn,
    collection: int,
    counters: Counters,
    change: Change,
    sequence: int,
    max_entries: int = MAX_LOG_ENTRIES,
) -> None:
    """Appends to the collection's log, trims it, and stores its counters."""
    key = keys.in_collection(collection, sequence)
    txn.put(key, change.to_bytes(), db=store.db["changes"])
    counters = counters._replace(sequence=sequence, log_entries=counters.log_entries + 1)
    if counters.log_entries > max_entries:
        oldest, _ = next(store.scan(txn, "changes", keys.u32(collection)))
        trimmed = bytes(oldest)
        txn.delete(trimmed, db=store.db["changes"])
        counters = counters._replace(
            log_entries=counters.log_entries - 1,
            log_start=keys.read_in_collection(trimmed)[1],
        )
    txn.put(keys.u32(collection), counters.to_bytes(), db=store.db["counters"])


def _opened(collection: OpenCollection) -> Opened:
    if not isinstance(collection, Opened):
        raise TypeError(f"{collection!r} was not opened by this writer")
    return collection


def _check_shapes(document: PreparedDocument, settings: CollectionSettings) -> None:
    levels, wanted = len(document.tree.counts), len(settings.tree.level_sizes)
    if levels != wanted:
        raise InvalidArgument(
            f"tree has {levels} levels; the collection's have {wanted}", field="tree"
        )
    leaves = document.tree.counts[settings.tree.embedding_level]
    if leaves > keys.MAX_LEAVES:
        raise TooLarge(
            f"document has {leaves} leaves; at most {keys.MAX_LEAVES} are allowed, "
            "split it or use larger chunks",
            field="document",
        )
    if document.vectors.shape != (leaves, settings.dimension):
        raise InvalidArgument(
            f"vectors have shape {document.vectors.shape}; "
            f"the tree and the collection need {(leaves, settings.dimension)}",
            field="vectors",
        )


def _head(
    collection: int, document: PreparedDocument, settings: CollectionSettings, sequence: int
) -> DocumentHead:
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
        sequence=sequence,
    )


def _same(head: DocumentHead | None, content_hash: str) -> IngestResult | None:
    if head is None or head.content_hash != content_hash:
        return None
    return _result(head, IngestOutcome.UNCHANGED)


def _result(head: DocumentHead, outcome: IngestOutcome) -> IngestResult:
    return IngestResult(
        head.document_id, outcome, head.sequence, head.chunks_per_level, head.token_count
    )


def _no_document(opened: Opened, document_id: str) -> DocumentNotFound:
    return DocumentNotFound(
        f"collection {opened.name!r} of tenant {opened.tenant_id!r} "
        f"has no document {document_id!r}",
        field="document_id",
    )
