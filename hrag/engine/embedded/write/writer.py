"""Commits whole documents, one or several to an LMDB transaction.

A document is visible whole or not at all, and its counters, log entry and sequence change
with it. Replacing a document gives it a new ordinal, so whatever an index still holds of
the old version names nothing. Knows nothing of segments except which ordinals they cover.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from hrag import canonical_json
from hrag.deadline import NEVER, Deadline
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
from hrag.engine.embedded.store.damaged_documents import is_intact
from hrag.engine.embedded.store.environment import Txn
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.queries import (
    address_of,
    find_collection,
    find_document,
    handle_of,
    listed_segments,
    read_collection,
    read_counters,
    read_document,
    required,
)
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.write.collections import CollectionWriter
from hrag.engine.embedded.write.selection import ordinals_by_id, selected
from hrag.engine.embedded.write.shared_state import existing_collection
from hrag.engine.embedded.write.transaction import WriteTransaction
from hrag.engine.embedded.write.unsummarised import next_unsummarised
from hrag.engine.stored.document_results import growth, unchanged_result
from hrag.engine.stored.records import DocumentRecord
from hrag.engine.validation import check_quota, no_document
from hrag.errors import CollectionNotFound, DataLoss, HragError, outcome_of
from hrag.filters import Filter
from hrag.reply_limit import UNLIMITED, ReplyLimit, field_bytes
from hrag.types import (
    ByteRange,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    EmbeddedIndexStatus,
    IndexStatus,
    IngestResult,
    Listing,
    StoreTotals,
)

# Documents of one transaction: their deletion takes a hundredth of a second, and other writers
# wait for it.
_DELETED_TOGETHER = 64


class EmbeddedWriter(CollectionWriter):
    """See `hrag.engine.Writer`. Without `maintenance`, nothing is indexed and nothing waits."""

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
            handle = handle_of(self._store, txn, number)
            try:
                _, stored = find_document(self._store, txn, number, document_id)
            except DataLoss:
                return Admission(handle, None)  # Ingesting it mends it; `put` checks the quota.
            unchanged = unchanged_result(stored, content_hash)
            if unchanged is not None and not self._is_intact(txn, number, document_id):
                unchanged = None
            if unchanged is None:
                used = read_usage(self._store, txn, tenant_id).info(self._quota_of(tenant_id))
                check_quota(tenant_id, used, growth(stored, stored_bytes).info())
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
        """As the protocol says, in one commit, but for damage that is met halfway.

        Then nothing is committed, and each document is put in a commit of its own: its error
        is its own result, whatever others share the commit.
        """
        try:
            return self._put_together(documents)
        except DataLoss as error:
            if len(documents) == 1:
                return [error]
        return [outcome_of(self.put, *each) for each in documents]

    def _put_together(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        results: list[IngestResult | HragError] = []
        extra_bytes = sum(_most_bytes(document) for _, document in documents)
        with self._changes("put", extra_bytes) as changes:
            for collection, document in documents:
                result = outcome_of(changes.put, collection, document)
                if isinstance(result, HragError) and not changes.is_whole:
                    raise result
                results.append(result)
        return results

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        if stored.summaries is None:
            return self.put(collection, stored.document)
        with self._changes("put", _most_bytes(stored.document)) as changes:
            return changes.put_stored(collection, stored.document, stored.summaries)

    def put_metadata(
        self,
        collection: CollectionHandle,
        document_id: str,
        sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        extra_bytes = len(canonical_json.encode(metadata)) + len(source.encode())
        with self._changes("metadata", extra_bytes) as changes:
            return changes.put_metadata(collection, document_id, sequence, metadata, source)

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        with self._changes("delete") as changes:
            return changes.delete(collection, document_id)

    def delete_matching(
        self, collection: CollectionHandle, filter: Filter, deadline: Deadline = NEVER
    ) -> Iterator[DocumentDeletion]:
        store, number = self._store, collection.collection_id
        with store.read() as txn:
            existing_collection(store, txn, collection)
            sequence = read_usage(store, txn, collection.tenant_id).sequence
            ordinals = selected(store, txn, number, filter, deadline).tolist()
        if not ordinals:
            yield DocumentDeletion(0, sequence)
        for start in range(0, len(ordinals), _DELETED_TOGETHER):
            deadline.check("deleting documents")
            with self._changes("delete") as changes:
                some = ordinals[start : start + _DELETED_TOGETHER]
                deletion = changes.delete_unchanged(collection, some, sequence)
            yield deletion

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
        *,
        filter: Filter | None = None,
        deadline: Deadline = NEVER,
    ) -> Listing[DocumentInfo]:
        number = collection.collection_id
        with self._store.read() as txn:
            existing_collection(self._store, txn, collection)
            among = None if filter is None else selected(self._store, txn, number, filter, deadline)
            found = ordinals_by_id(self._store, txn, number, page_token, among, deadline)
            ordinals = list(islice(found, page_size + 1))
            addresses = (
                address_of(self._store, txn, number, each) for each in ordinals[:page_size]
            )
            infos = (read_document(self._store, txn, address).info() for address in addresses)
            items = tuple(fitting(infos, reply))
        token = items[-1].document_id if len(ordinals) > len(items) else ""
        return Listing(items, token)

    def count(
        self, collection: CollectionHandle, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        store, number = self._store, collection.collection_id
        with store.read() as txn:
            existing_collection(store, txn, collection)
            found = total = read_counters(store, txn, number).documents
            if filter is not None:
                found = len(selected(store, txn, number, filter, deadline))
            return DocumentCount(
                found, total, read_usage(store, txn, collection.tenant_id).sequence
            )

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
            tenant=used.info(self._quota_of(tenant_id)),
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
        with self._store.read() as txn:
            return next_unsummarised(self._store, txn, embedder, after, excluding)

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


def _most_bytes(document: PreparedDocument) -> int:
    """At least what the document's own values take; a character is 4 bytes at most."""
    values = len(document.metadata_json) + document.tree.size_bytes + document.vectors.nbytes
    return 4 * len(document.parsed.text) + values
