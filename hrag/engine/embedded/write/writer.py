"""Commits whole documents, one or several to an LMDB transaction.

A document is visible whole or not at all, and its counters, log entry and sequence change
with it. Replacing a document gives it a new ordinal, so whatever an index still holds of
the old version names nothing. Knows nothing of segments except which ordinals they cover.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

from hrag.deadline import Deadline
from hrag.engine.documents import (
    Admission,
    CollectionHandle,
    DocumentSummaries,
    PreparedDocument,
    StoredDocument,
    Unsummarised,
    fitting,
    info_bytes,
    read_part,
)
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import MAX_LOG_ENTRIES, note_commit
from hrag.engine.embedded.store.damaged_documents import is_intact
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.queries import (
    address_of,
    collection_exists,
    describe_collection,
    find_collection,
    find_document,
    listed_segments,
    read_collection,
    read_counters,
    read_document,
    required,
)
from hrag.engine.embedded.store.records import CollectionRecord, Counters, DocumentRecord, Usage
from hrag.engine.embedded.store.tenant_usage import (
    check_quota,
    read_usage,
    tenant_usage,
    write_usage,
)
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.write.summaries import summary_settings
from hrag.engine.embedded.write.transaction import (
    WriteTransaction,
    existing_collection,
    growth,
    no_document,
    unchanged_result,
)
from hrag.errors import CollectionExists, CollectionNotFound, DataLoss, HragError
from hrag.quota.quotas import QuotaOf, unlimited
from hrag.reply_limit import UNLIMITED, ReplyLimit, field_bytes
from hrag.tree import ParsedText, Tree
from hrag.types import (
    ByteRange,
    Collection,
    CollectionSettings,
    DocumentInfo,
    EmbeddedIndexStatus,
    IndexStatus,
    IngestResult,
    Listing,
    StoreTotals,
    SummaryUnit,
)


class IndexMaintenance(Protocol):
    """Keeps the index in order in the background."""

    def changed(self, collection: int) -> None:
        """Called after each commit, with the number of a collection that it changed."""

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Waits while too much of the collection is not indexed; raises DeadlineExceeded."""


class EmbeddedWriter:
    """See `hrag.engine.Writer`. Without `maintenance`, nothing is indexed and nothing waits."""

    def __init__(
        self,
        store: Store,
        maintenance: IndexMaintenance | None = None,
        max_log_entries: int = MAX_LOG_ENTRIES,
        quota_of: QuotaOf = unlimited,
    ) -> None:
        self._store = store
        self._maintenance = maintenance
        self._max_log_entries = max_log_entries
        self._quota_of = quota_of

    # Collections

    def create_collection(
        self, tenant_id: str, name: str, settings: CollectionSettings
    ) -> tuple[Collection, int]:
        store, key = self._store, schema.collection_name(tenant_id, name)
        with store.growing_write(0) as txn:
            if txn.get(key, db=store.db["collection_names"]) is not None:
                raise CollectionExists(
                    f"tenant {tenant_id!r} has a collection {name!r} already", field="name"
                )
            used, more = read_usage(store, txn, tenant_id), Usage(collections=1, sequence=1)
            check_quota(tenant_id, self._quota_of(tenant_id), used, more)
            used = used.plus(more)
            write_usage(store, txn, tenant_id, used)
            number = store.next_number(txn, schema.LAST_COLLECTION)
            txn.put(key, schema.u32(number), db=store.db["collection_names"])
            self._add_collection(txn, number, CollectionRecord(tenant_id, name, settings), used)
        return Collection(tenant_id, name, settings), used.sequence

    def _add_collection(self, txn: Txn, number: int, record: CollectionRecord, used: Usage) -> None:
        """Adds a collection, and its summary collection if it has summaries."""
        tenant_id, name, settings = record.tenant_id, record.name, record.settings
        if settings.summaries is not SummaryUnit.NONE:
            second = self._store.next_number(txn, schema.LAST_COLLECTION)
            own = summary_settings(settings)
            summaries = CollectionRecord(tenant_id, name, own, summarises=number)
            self._add_collection(txn, second, summaries, used)
            record = CollectionRecord(tenant_id, name, settings, summaries=second)
        sequence = used.sequence
        counters = Counters(sequence=sequence, sealed_sequence=sequence, log_start=sequence)
        txn.put(schema.u32(number), record.to_bytes(), db=self._store.db["collections"])
        txn.put(schema.u32(number), counters.to_bytes(), db=self._store.db["counters"])
        note_commit(self._store, txn, number)

    def delete_collection(self, tenant_id: str, name: str) -> int:
        store = self._store
        with store.write() as txn:
            number = find_collection(store, txn, tenant_id, name)
            second = read_collection(store, txn, number).summaries
            numbers = [number, second] if second else [number]
            counters = [read_counters(store, txn, each) for each in numbers]
            freed = Usage(-1, -counters[0].documents, -sum(each.stored_bytes for each in counters))
            used = read_usage(store, txn, tenant_id).plus(freed).plus(Usage(sequence=1))
            write_usage(store, txn, tenant_id, used)
            txn.delete(schema.collection_name(tenant_id, name), db=store.db["collection_names"])
            for each in numbers:
                txn.delete(schema.u32(each), db=store.db["collections"])
                txn.delete(schema.u32(each), db=store.db["counters"])
                txn.put(schema.u32(each), b"", db=store.db["deleted_collections"])
                note_commit(store, txn, each)
        self._committed(*numbers)
        return used.sequence

    def collection(self, tenant_id: str, name: str) -> Collection:
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, name)
            return describe_collection(self._store, txn, number)

    def collections(self, tenant_id: str, page_size: int, page_token: str) -> Listing[Collection]:
        prefix = schema.collection_name(tenant_id, "")
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            entries = self._store.scan(txn, "collection_names", prefix, after)
            numbers = [schema.read_u32(value) for _, value in islice(entries, page_size + 1)]
            found = [
                describe_collection(self._store, txn, number) for number in numbers[:page_size]
            ]
        return Listing(tuple(found), found[-1].name if len(numbers) > page_size else "")

    def open(self, tenant_id: str, name: str) -> CollectionHandle:
        with self._store.read() as txn:
            return self._handle(txn, find_collection(self._store, txn, tenant_id, name))

    def _handle(self, txn: Txn, number: int) -> CollectionHandle:
        record = read_collection(self._store, txn, number)
        return CollectionHandle(record.tenant_id, record.name, number, record.settings)

    # Documents

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> Admission:
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, collection)
            handle = self._handle(txn, number)
            try:
                _, stored = find_document(self._store, txn, number, document_id)
            except DataLoss:  # Ingesting it mends it.
                stored = None
            unchanged = unchanged_result(stored, content_hash)
            if unchanged is not None and not self._is_intact(txn, number, document_id):
                unchanged = None
            if unchanged is None:
                used = read_usage(self._store, txn, tenant_id)
                check_quota(
                    tenant_id, self._quota_of(tenant_id), used, growth(stored, stored_bytes)
                )
        return Admission(handle, unchanged)

    def _is_intact(self, txn: Txn, number: int, document_id: str) -> bool:
        """Whether a document and its summaries are stored as they were written."""
        summaries = read_collection(self._store, txn, number).summaries
        numbers = (number, summaries) if summaries else (number,)
        return all(is_intact(self._store, txn, each, document_id) for each in numbers)

    def wait_for_capacity(self, collection: CollectionHandle, deadline: Deadline) -> None:
        if self._maintenance is not None:
            self._maintenance.wait_for_capacity(collection.collection_id, deadline)

    def put(self, collection: CollectionHandle, document: PreparedDocument) -> IngestResult:
        (result,) = self.put_many([(collection, document)])
        if isinstance(result, HragError):
            raise result
        return result

    def put_many(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        results: list[IngestResult | HragError] = []
        extra_bytes = sum(_most_bytes(document) for _, document in documents)
        with self._changes("put", extra_bytes) as changes:
            for collection, document in documents:
                try:
                    results.append(changes.put(collection, document))
                except HragError as error:  # Raised before anything of the document is written.
                    results.append(error)
        return results

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        if stored.summaries is None:
            return self.put(collection, stored.document)
        with self._changes("put", _most_bytes(stored.document)) as changes:
            return changes.put_stored(collection, stored.document, stored.summaries)

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        with self._changes("delete") as changes:
            return changes.delete(collection, document_id)

    def document(self, collection: CollectionHandle, document_id: str) -> DocumentInfo:
        with self._store.read() as txn:
            return self._find_document(txn, collection, document_id)[1].info()

    def document_with_text(
        self,
        collection: CollectionHandle,
        document_id: str,
        part: ByteRange | None = None,
        reply: ReplyLimit = UNLIMITED,
    ) -> tuple[DocumentInfo, str, int]:
        with self._store.read() as txn:
            ordinal, document = self._find_document(txn, collection, document_id)
            address = address_of(self._store, txn, collection.collection_id, ordinal)
            text = required(txn.get(address, db=self._store.db["texts"]))
            info = document.info()
            return info, *read_part(text, part, reply.after(field_bytes(info_bytes(info))))

    def documents(
        self,
        collection: CollectionHandle,
        page_size: int,
        page_token: str,
        reply: ReplyLimit = UNLIMITED,
    ) -> Listing[DocumentInfo]:
        number = collection.collection_id
        prefix = schema.u32(number)
        after = prefix + page_token.encode() + b"\0" if page_token else b""
        with self._store.read() as txn:
            existing_collection(self._store, txn, collection)
            entries = self._store.scan(txn, "document_ids", prefix, after)
            ordinals = [schema.read_u64(value) for _, value in islice(entries, page_size + 1)]
            addresses = (
                address_of(self._store, txn, number, each) for each in ordinals[:page_size]
            )
            infos = (read_document(self._store, txn, address).info() for address in addresses)
            found = tuple(fitting(infos, reply))
        token = found[-1].document_id if len(ordinals) > len(found) else ""
        return Listing(found, token)

    def _find_document(
        self, txn: Txn, collection: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord]:
        existing_collection(self._store, txn, collection)
        number = collection.collection_id
        ordinal, document = find_document(self._store, txn, number, document_id)
        if document is None:
            raise no_document(collection, document_id)
        return ordinal, document

    # Status

    def status(self, collection: CollectionHandle) -> IndexStatus:
        store, number, tenant_id = self._store, collection.collection_id, collection.tenant_id
        with store.read() as txn:
            record = existing_collection(store, txn, collection)
            counters = read_counters(store, txn, number)
            used = read_usage(store, txn, tenant_id)
            segments = listed_segments(store, txn, number)
            summaries = 0
            if record.summaries:
                summaries = read_counters(store, txn, record.summaries).leaves
        return IndexStatus(
            committed_sequence=counters.sequence,
            document_count=counters.documents,
            chunk_count=counters.chunks,
            leaf_count=counters.leaves,
            token_count=counters.tokens,
            text_bytes=counters.text_bytes,
            vector_bytes=counters.vector_bytes,
            summary_count=summaries,
            unsummarised_documents=counters.unsummarised,
            summary_tokens=counters.summary_tokens,
            tenant=tenant_usage(used, self._quota_of(tenant_id)),
            embedded=EmbeddedIndexStatus(
                sealed_sequence=counters.sealed_sequence,
                tail_leaf_count=counters.tail_leaves,
                segments=tuple(segment.info() for segment in segments),
            ),
        )

    def totals(self) -> StoreTotals:
        return measure(self._store)

    # Summaries

    def next_unsummarised(
        self,
        embedder: str,
        after: CollectionHandle | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        last = 0 if after is None else after.collection_id
        with self._store.read() as txn:
            numbers = self._with_unsummarised(txn)
            for number in sorted(numbers, key=lambda number: (number <= last, number)):
                collection = self._handle(txn, number)
                if collection.settings.embedder != embedder:
                    continue
                for key, _ in self._store.scan(txn, "unsummarised", schema.u32(number)):
                    ordinal = schema.read_in_collection(key)[1]
                    if ordinal not in excluding:
                        return self._unsummarised(txn, collection, ordinal)
        return None

    def _with_unsummarised(self, txn: Txn) -> list[int]:
        """Numbers of collections that have documents without their summaries."""
        numbers, start = [], b""
        while entry := next(self._store.scan(txn, "unsummarised", b"", start), None):
            number = schema.read_in_collection(entry[0])[0]
            start = schema.u32(number + 1)
            if collection_exists(self._store, txn, number):
                numbers.append(number)
        return numbers

    def _unsummarised(self, txn: Txn, collection: CollectionHandle, ordinal: int) -> Unsummarised:
        store, number = self._store, collection.collection_id
        address = address_of(store, txn, number, ordinal)
        document = read_document(store, txn, address)
        text, tree = (required(txn.get(address, db=store.db[name])) for name in ("texts", "trees"))
        return Unsummarised(
            collection=collection,
            version=ordinal,
            document_id=document.document_id,
            title=document.title,
            parsed=ParsedText(str(text, "utf-8"), document.sections, document.pages),
            tree=Tree(bytes(tree)),
            spent_tokens=read_counters(store, txn, number).summary_tokens,
        )

    def put_summaries(
        self, document: Unsummarised, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        try:
            with self._changes("summaries", summaries.vectors.nbytes) as changes:
                return changes.put_summaries(
                    document.collection, document.version, summaries, tokens
                )
        except CollectionNotFound:
            return False

    # Transactions

    @contextmanager
    def _changes(
        self, failpoint: str, extra_bytes: int | None = None
    ) -> Iterator[WriteTransaction]:
        """Commits what is done within, or, on any exception, changes nothing.

        Changes that add something say how much; without `extra_bytes` they only delete, for
        which a full disk has a reserve.
        """
        store = self._store
        with store.write() if extra_bytes is None else store.growing_write(extra_bytes) as txn:
            changes = WriteTransaction(self._store, txn, self._max_log_entries, self._quota_of)
            yield changes
            changes.finish()
            reach(f"{failpoint}.written")
        reach(f"{failpoint}.committed")
        self._committed(*changes.changed)

    def _committed(self, *collections: int) -> None:
        if self._maintenance is not None:
            for number in collections:
                self._maintenance.changed(number)


def _most_bytes(document: PreparedDocument) -> int:
    """At least what the document's text, tree and vectors take; a character is 4 bytes at most."""
    return 4 * len(document.parsed.text) + document.tree.size_bytes + document.vectors.nbytes
