"""The writer of the embedded engine, which commits one or several documents per LMDB transaction.

A document is visible completely or not at all. Its counters, its log entry and its sequence change
in the same transaction. Replacing a document gives it a new ordinal, so the labels of the old
version that an index still contains lead to no document. Knows nothing of segments except which
ordinals they cover.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from hrag.engine.common.document_results import growth, unchanged_result
from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.validation import check_quota, no_document
from hrag.engine.embedded.store.damaged_documents import is_intact
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.queries import (
    address_of,
    find_collection,
    find_document,
    handle_of,
    listed_segments,
)
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.collections import CollectionWriter
from hrag.engine.embedded.write.selection import matching_ordinals, ordinals_by_id
from hrag.engine.embedded.write.shared_state import existing_collection
from hrag.engine.embedded.write.transaction import WriteTransaction
from hrag.engine.embedded.write.unsummarised import next_unsummarised
from hrag.engine.engine_documents import (
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
from hrag.values import canonical_json
from hrag.values.collections import Listing
from hrag.values.deadline import NEVER, Deadline
from hrag.values.documents import (
    ByteRange,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    IngestResult,
)
from hrag.values.errors import CollectionNotFound, DataLoss, HragError, outcome_of
from hrag.values.filters import Filter
from hrag.values.reply_limit import UNLIMITED, ReplyLimit, field_bytes
from hrag.values.status import EmbeddedIndexStatus, IndexStatus, StoreTotals

# One transaction deletes at most this many documents. It takes a hundredth of a second, and other
# writers wait for it.
_DELETIONS_PER_COMMIT = 64


class EmbeddedWriter(CollectionWriter):
    """Implements `hrag.engine.Writer`.

    Without `maintenance`, no segments are built, and writes do not wait for capacity.
    """

    # Documents.

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> Admission:
        with self._store.read() as txn:
            number = find_collection(txn, tenant_id, collection)
            handle = handle_of(txn, number)
            try:
                _, stored = find_document(txn, number, document_id)
            except DataLoss:
                # Ingesting the document mends it, and `put` checks the quota.
                return Admission(handle, None)
            unchanged = unchanged_result(stored, content_hash)
            if unchanged is not None and not self._is_intact(txn, number, document_id):
                unchanged = None
            if unchanged is None:
                used = read_usage(txn, tenant_id).info(self._quota_of(tenant_id))
                check_quota(tenant_id, used, growth(stored, stored_bytes).info())
        return Admission(handle, unchanged)

    def _is_intact(self, txn: Txn, number: int, document_id: str) -> bool:
        """Returns True if no stored value of a document and its summaries is damaged."""
        summaries = txn.collections.require(number).summaries
        numbers = (number, summaries) if summaries else (number,)
        return all(is_intact(txn, checked, document_id) for checked in numbers)

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
        """Puts several documents in one commit; returns a result or an error for each.

        If damage ends a put after its first write, that commit is abandoned. Then each document is
        put in a separate commit, so that an error of one document does not affect the others.
        """
        try:
            return self._put_in_one_commit(documents)
        except DataLoss as error:
            if len(documents) == 1:
                return [error]
        return [outcome_of(self.put, collection, document) for collection, document in documents]

    def _put_in_one_commit(
        self, documents: Sequence[tuple[CollectionHandle, PreparedDocument]]
    ) -> list[IngestResult | HragError]:
        results: list[IngestResult | HragError] = []
        extra_bytes = sum(_max_bytes(document) for _, document in documents)
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
        with self._changes("put", _max_bytes(stored.document)) as changes:
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
            existing_collection(txn, collection)
            sequence = read_usage(txn, collection.tenant_id).sequence
            ordinals = matching_ordinals(txn, number, filter, deadline).tolist()
        if not ordinals:
            yield DocumentDeletion(0, sequence)
        for start in range(0, len(ordinals), _DELETIONS_PER_COMMIT):
            deadline.check("deleting documents")
            with self._changes("delete") as changes:
                batch = ordinals[start : start + _DELETIONS_PER_COMMIT]
                deletion = changes.delete_unchanged(collection, batch, sequence)
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
            address = address_of(txn, collection.collection_id, ordinal)
            text = txn.contents.text(address)
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
            existing_collection(txn, collection)
            matches = None if filter is None else matching_ordinals(txn, number, filter, deadline)
            all_ordinals = ordinals_by_id(txn, number, page_token, matches, deadline)
            ordinals = list(islice(all_ordinals, page_size + 1))
            addresses = (address_of(txn, number, ordinal) for ordinal in ordinals[:page_size])
            infos = (txn.documents.require(address).info() for address in addresses)
            items = tuple(fitting(infos, reply))
        token = items[-1].document_id if len(ordinals) > len(items) else ""
        return Listing(items, token)

    def count(
        self, collection: CollectionHandle, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        store, number = self._store, collection.collection_id
        with store.read() as txn:
            existing_collection(txn, collection)
            matching = total = txn.counters.require(number).documents
            if filter is not None:
                matching = len(matching_ordinals(txn, number, filter, deadline))
            return DocumentCount(matching, total, read_usage(txn, collection.tenant_id).sequence)

    def _find_document(
        self, txn: Txn, collection: CollectionHandle, document_id: str
    ) -> tuple[int, DocumentRecord]:
        existing_collection(txn, collection)
        number = collection.collection_id
        ordinal, document = find_document(txn, number, document_id)
        if document is None:
            raise no_document(collection, document_id)
        return ordinal, document

    # Status.

    def status(self, collection: CollectionHandle) -> IndexStatus:
        store, number, tenant_id = self._store, collection.collection_id, collection.tenant_id
        with store.read() as txn:
            record = existing_collection(txn, collection)
            counters = txn.counters.require(number)
            used = read_usage(txn, tenant_id)
            segments = listed_segments(txn, number)
            summaries = 0
            if record.summaries:
                summaries = txn.counters.require(record.summaries).leaves
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

    # Summaries.

    def next_unsummarised(
        self,
        embedder: str,
        after: CollectionHandle | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        with self._store.read() as txn:
            return next_unsummarised(txn, embedder, after, excluding)

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

    # Transactions.

    @contextmanager
    def _changes(
        self, failpoint: str, extra_bytes: int | None = None
    ) -> Iterator[WriteTransaction]:
        """Yields a transaction and commits it at the end of the block.

        On any exception nothing is changed. `extra_bytes` is an upper bound of the bytes that the
        changes add. Without it, the changes may only delete, which uses the disk reserve if the
        disk is full.
        """
        store = self._store
        with store.write() if extra_bytes is None else store.growing_write(extra_bytes) as txn:
            changes = WriteTransaction(txn, self._max_log_entries, self._quota_of)
            yield changes
            changes.finish()
            reach(f"{failpoint}.written")
        reach(f"{failpoint}.committed")
        self._notify_maintenance(*changes.changed)


def _max_bytes(document: PreparedDocument) -> int:
    """Returns an upper bound for the size of the document's values.

    UTF-8 needs at most 4 bytes per character.
    """
    values = len(document.metadata_json) + document.tree.size_bytes + document.vectors.nbytes
    return 4 * len(document.parsed.text) + values
