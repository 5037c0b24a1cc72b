"""Commits whole documents, one or several to an LMDB transaction.

A document is visible whole or not at all, and its counters, log entry and sequence
change with it. Replacing one gives it a new ordinal, so whatever an index still holds of
the old version names nothing. Knows nothing of segments but which ordinals they cover.
"""

from collections.abc import Container, Sequence
from itertools import islice
from typing import Protocol

from hrag.deadline import Deadline
from hrag.embedding import Vectors
from hrag.engine import (
    OpenCollection,
    PreparedDocument,
    Summary,
    Unsummarised,
)
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import MAX_LOG_ENTRIES, note_commit
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.queries import (
    collection_exists,
    find_collection,
    find_document,
    listed_segments,
    read_collection,
    read_counters,
    read_head,
    required,
    slot_of,
)
from hrag.engine.embedded.store.records import (
    CollectionRecord,
    Counters,
    DocumentHead,
    Usage,
)
from hrag.engine.embedded.store.tenant_usage import read_usage, require_room, write_usage
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.write.summaries import settings_beside
from hrag.engine.embedded.write.transaction import (
    Commit,
    Opened,
    growth,
    living_counters,
    no_document,
    unchanged_result,
)
from hrag.errors import (
    CollectionExists,
    CollectionNotFound,
    HragError,
)
from hrag.quota.quotas import QuotaOf, TenantUsage, unlimited
from hrag.tree import ParsedText, Tree
from hrag.types import (
    Collection,
    CollectionSettings,
    DocumentInfo,
    IndexStatus,
    IngestResult,
    Listing,
    StoreTotals,
    SummaryUnit,
)


class Upkeep(Protocol):
    """Who keeps the index in order, in the background."""

    def changed(self, collection: int) -> None:
        """Called after each commit."""

    def wait_for_room(self, collection: int, deadline: Deadline) -> None:
        """Waits while the collection has too much that is not indexed."""


class EmbeddedWriter:
    """The writer over one store. Without `upkeep` nothing is sealed, and nothing waits."""

    def __init__(
        self,
        store: Store,
        upkeep: Upkeep | None = None,
        max_log_entries: int = MAX_LOG_ENTRIES,
        quota_of: QuotaOf = unlimited,
    ) -> None:
        self._store = store
        self._upkeep = upkeep
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of

    # Collections

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        store, key = self._store, schema.collection_name(tenant_id, name)
        with store.write() as txn:
            if txn.get(key, db=store.db["collection_names"]) is not None:
                raise CollectionExists(
                    f"tenant {tenant_id!r} has a collection {name!r} already", field="name"
                )
            used, more = read_usage(store, txn, tenant_id), Usage(collections=1)
            require_room(tenant_id, self._quota_of(tenant_id), used, more)
            write_usage(store, txn, tenant_id, used.plus(more))
            number = store.next_number(txn, schema.LAST_COLLECTION)
            beside = 0
            if settings.summaries is not SummaryUnit.NONE:
                beside = store.next_number(txn, schema.LAST_COLLECTION)
            sequence = store.next_number(txn, schema.SEQUENCE)
            txn.put(key, schema.u32(number), db=store.db["collection_names"])
            record = CollectionRecord(tenant_id, name, settings, summaries=beside)
            self._add(txn, number, record, sequence)
            if beside:
                own = settings_beside(settings)
                record = CollectionRecord(tenant_id, name, own, summarises=number)
                self._add(txn, beside, record, sequence)
        return Collection(tenant_id, name, settings), sequence

    def _add(self, txn: Txn, number: int, record: CollectionRecord, sequence: int) -> None:
        counters = Counters(sequence=sequence, sealed_sequence=sequence, log_start=sequence)
        txn.put(schema.u32(number), record.to_bytes(), db=self._store.db["collections"])
        txn.put(schema.u32(number), counters.to_bytes(), db=self._store.db["counters"])

    def delete_collection(self, tenant_id: str, name: str) -> int:
        store = self._store
        with store.write() as txn:
            number = find_collection(store, txn, tenant_id, name)
            beside = read_collection(store, txn, number).summaries
            txn.delete(schema.collection_name(tenant_id, name), db=store.db["collection_names"])
            dropped = [number, beside] if beside else [number]
            counted = [read_counters(store, txn, each) for each in dropped]
            less = Usage(-1, -counted[0].documents, -sum(each.stored_bytes for each in counted))
            write_usage(store, txn, tenant_id, read_usage(store, txn, tenant_id).plus(less))
            for each in dropped:
                txn.delete(schema.u32(each), db=store.db["collections"])
                txn.delete(schema.u32(each), db=store.db["counters"])
                txn.put(schema.u32(each), b"", db=store.db["dropped"])
                sequence = store.next_number(txn, schema.SEQUENCE)
                note_commit(store, txn, each, sequence)
        self._committed(*dropped)
        return sequence

    def collection(self, tenant_id: str, name: str) -> Collection:
        with self._store.read() as txn:
            return self._describe(txn, find_collection(self._store, txn, tenant_id, name))

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        prefix = schema.collection_name(tenant_id, "")
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            entries = self._store.scan(txn, "collection_names", prefix, after)
            numbers = [schema.read_u32(value) for _, value in islice(entries, page_size + 1)]
            found = [self._describe(txn, number) for number in numbers[:page_size]]
        return Listing(tuple(found), found[-1].name if len(numbers) > page_size else "")

    def _describe(self, txn: Txn, number: int) -> Collection:
        record = read_collection(self._store, txn, number)
        documents = read_counters(self._store, txn, number).documents
        return Collection(record.tenant_id, record.name, record.settings, documents)

    def open(self, tenant_id: str, name: str) -> Opened:
        """Finds a collection, or raises CollectionNotFound."""
        with self._store.read() as txn:
            return self._open(txn, find_collection(self._store, txn, tenant_id, name))

    def _open(self, txn: Txn, number: int) -> Opened:
        record = read_collection(self._store, txn, number)
        return Opened(number, record.tenant_id, record.name, record.settings, record.summaries)

    # Documents

    def unchanged(
        self, collection: OpenCollection, document_id: str, content_hash: str
    ) -> IngestResult | None:
        opened = _opened(collection)
        with self._store.read() as txn:
            _, head = find_document(self._store, txn, opened.number, document_id)
        return unchanged_result(head, content_hash)

    def require_room(self, collection: OpenCollection, document_id: str, stored_bytes: int) -> None:
        opened = _opened(collection)
        quota = self._quota_of(opened.tenant_id)
        if quota.max_bytes is None and quota.max_documents is None:
            return
        with self._store.read() as txn:
            _, old = find_document(self._store, txn, opened.number, document_id)
            used = read_usage(self._store, txn, opened.tenant_id)
        require_room(opened.tenant_id, quota, used, growth(old, stored_bytes))

    def wait_for_room(self, collection: OpenCollection, deadline: Deadline) -> None:
        if self._upkeep is not None:
            self._upkeep.wait_for_room(_opened(collection).number, deadline)

    def put(self, collection: OpenCollection, document: PreparedDocument) -> IngestResult:
        (result,) = self.put_many([(collection, document)])
        if isinstance(result, HragError):
            raise result
        return result

    def put_many(
        self, documents: Sequence[tuple[OpenCollection, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        self._store.require_space()
        results: list[IngestResult | HragError] = []
        with self._store.write() as txn:
            commit = self._commit(txn)
            for collection, document in documents:
                try:
                    results.append(commit.put(_opened(collection), document))
                except HragError as error:  # Raised before anything of the document is written.
                    results.append(error)
            commit.finish()
            reach("put.written")
        reach("put.committed")
        self._committed(*commit.changed)
        return results

    def delete(self, collection: OpenCollection, document_id: str) -> int:
        with self._store.write() as txn:
            commit = self._commit(txn)
            sequence = commit.delete(_opened(collection), document_id)
            commit.finish()
            reach("delete.written")
        reach("delete.committed")
        self._committed(*commit.changed)
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
            slot = slot_of(self._store, txn, opened.number, ordinal)
            text = required(txn.get(slot, db=self._store.db["texts"]))
            return head.info(), str(text, "utf-8")

    def documents(
        self, collection: OpenCollection, page_size: int, page_token: str
    ) -> Listing[DocumentInfo]:
        opened = _opened(collection)
        prefix = schema.u32(opened.number)
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            entries = self._store.scan(txn, "document_ids", prefix, after)
            ordinals = [schema.read_u64(value) for _, value in islice(entries, page_size + 1)]
            slots = [
                slot_of(self._store, txn, opened.number, ordinal)
                for ordinal in ordinals[:page_size]
            ]
            heads = [read_head(self._store, txn, slot) for slot in slots]
        token = heads[-1].document_id if len(ordinals) > page_size else ""
        return Listing(tuple(head.info() for head in heads), token)

    def status(self, collection: OpenCollection) -> IndexStatus:
        opened = _opened(collection)
        with self._store.read() as txn:
            counters = living_counters(self._store, txn, opened)
            used = read_usage(self._store, txn, opened.tenant_id)
            listed = listed_segments(self._store, txn, opened.number)
            summaries = 0
            if opened.summaries:
                summaries = living_counters(self._store, txn, opened.beside).leaves
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
            summary_count=summaries,
            unsummarised_documents=counters.unsummarised,
            summary_tokens=counters.summary_tokens,
            tenant=TenantUsage(*used, self._quota_of(opened.tenant_id)),
        )

    def totals(self) -> StoreTotals:
        return measure(self._store)

    # Summaries

    def next_unsummarised(
        self,
        embedder: str,
        after: OpenCollection | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        behind = 0 if after is None else _opened(after).number
        with self._store.read() as txn:
            numbers = self._with_unsummarised(txn)
            for number in sorted(numbers, key=lambda number: (number <= behind, number)):
                opened = self._open(txn, number)
                if opened.settings.embedder != embedder:
                    continue
                for key, _ in self._store.scan(txn, "unsummarised", schema.u32(number)):
                    ordinal = schema.read_in_collection(key)[1]
                    if ordinal not in excluding:
                        return self._unsummarised(txn, opened, ordinal)
        return None

    def _with_unsummarised(self, txn: Txn) -> list[int]:
        """Numbers of collections that have documents waiting for summaries."""
        numbers, start = [], b""
        while entry := next(self._store.scan(txn, "unsummarised", b"", start), None):
            number = schema.read_in_collection(entry[0])[0]
            start = schema.u32(number + 1)
            if collection_exists(self._store, txn, number):
                numbers.append(number)
        return numbers

    def _unsummarised(self, txn: Txn, opened: Opened, ordinal: int) -> Unsummarised:
        store = self._store
        slot = slot_of(store, txn, opened.number, ordinal)
        head = read_head(store, txn, slot)
        text, tree = (required(txn.get(slot, db=store.db[name])) for name in ("texts", "trees"))
        return Unsummarised(
            collection=opened,
            version=ordinal,
            document_id=head.document_id,
            title=head.title,
            parsed=ParsedText(str(text, "utf-8"), head.sections, head.pages),
            tree=Tree(bytes(tree)),
            spent_tokens=read_counters(store, txn, opened.number).summary_tokens,
        )

    def put_summaries(
        self,
        document: Unsummarised,
        summaries: Sequence[Summary],
        vectors: Vectors,
        tokens: int = 0,
    ) -> bool:
        opened = _opened(document.collection)
        self._store.require_space()
        try:
            with self._store.write() as txn:
                commit = self._commit(txn)
                found = commit.put_summaries(opened, document.version, summaries, vectors, tokens)
                commit.finish()
                reach("summaries.written")
        except CollectionNotFound:
            return False
        reach("summaries.committed")
        self._committed(*commit.changed)
        return found

    def _commit(self, txn: Txn) -> Commit:
        return Commit(self._store, txn, self._max_log_entries, self._quota_of)

    def _committed(self, *collections: int) -> None:
        if self._upkeep is not None:
            for number in collections:
                self._upkeep.changed(number)

    def _existing(self, txn: Txn, opened: Opened, document_id: str) -> tuple[int, DocumentHead]:
        ordinal, head = find_document(self._store, txn, opened.number, document_id)
        if head is None:
            raise no_document(opened, document_id)
        return ordinal, head


def _opened(collection: OpenCollection) -> Opened:
    if not isinstance(collection, Opened):
        raise TypeError(f"{collection!r} was not opened by this writer")
    return collection
