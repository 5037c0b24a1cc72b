"""The methods of the writer that only read.

They decide whether a document has to be ingested, and return documents, counts and status. Each
call reads one consistent state, which contains everything that was committed before the call.
"""

from itertools import islice

from hrag.engine.common.document_results import growth, unchanged_result
from hrag.engine.common.records import Usage
from hrag.engine.common.validation import check_quota, no_original
from hrag.engine.embedded.store.damaged_documents import is_intact
from hrag.engine.embedded.store.queries import (
    address_of,
    collection_ids,
    document_with_text,
    existing_document,
    find_collection,
    find_document,
    handle_of,
    listed_segments,
)
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.totals import measure
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.embedded.write.commits import WriterPart
from hrag.engine.embedded.write.selection import matching_ordinals, ordinals_by_id
from hrag.engine.embedded.write.shared_state import existing_collection
from hrag.engine.engine_documents import (
    CollectionHandle,
    IngestDecision,
    fitting,
)
from hrag.values.collections import Listing
from hrag.values.deadline import NEVER, Deadline
from hrag.values.documents import ByteRange, DocumentCount, DocumentInfo
from hrag.values.errors import DataLoss
from hrag.values.filters import Filter
from hrag.values.quotas import Tenant
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.status import EmbeddedIndexStatus, IndexStatus, StoreTotals
from hrag.values.tree import ParsedText


class WriterQueries(WriterPart):
    """Implements the methods of `hrag.engine.Writer` that only read documents and counts."""

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> IngestDecision:
        with self.commits.store.read() as txn:
            number = find_collection(txn, tenant_id, collection)
            handle = handle_of(txn, number)
            try:
                _, stored = find_document(txn, number, document_id)
            except DataLoss:
                # The stored document is damaged. If it is ingested again, `put` checks the quota
                # and replaces the damaged version.
                return IngestDecision(handle, None)
            unchanged = unchanged_result(stored, content_hash)
            if unchanged is not None and not self._is_intact(txn, number, document_id):
                unchanged = None
            if unchanged is None:
                used = read_usage(txn, tenant_id).info(self.commits.quota_of(tenant_id))
                check_quota(tenant_id, used, growth(stored, stored_bytes).info())
        return IngestDecision(handle, unchanged)

    def _is_intact(self, txn: Txn, number: int, document_id: str) -> bool:
        """Returns True if no stored value of a document or of its summaries is damaged."""
        summaries = txn.collections.require(number).summaries
        numbers = (number, summaries) if summaries else (number,)
        return all(is_intact(txn, checked, document_id) for checked in numbers)

    def document(self, collection: CollectionHandle, document_id: str) -> DocumentInfo:
        with self.commits.store.read() as txn:
            existing_collection(txn, collection)
            return existing_document(txn, collection, document_id)[1].info()

    def document_with_text(
        self,
        collection: CollectionHandle,
        document_id: str,
        part: ByteRange | None = None,
        reply: ReplyLimit = UNLIMITED,
    ) -> tuple[DocumentInfo, str, int]:
        with self.commits.store.read() as txn:
            existing_collection(txn, collection)
            return document_with_text(txn, collection, document_id, part, reply)

    def document_with_original(
        self, collection: CollectionHandle, document_id: str
    ) -> tuple[DocumentInfo, ParsedText, bytes]:
        with self.commits.store.read() as txn:
            ordinal, document = existing_document(txn, collection, document_id)
            address = address_of(txn, collection.collection_id, ordinal)
            content = txn.originals.read_whole(address, document.original)
            if content is None:
                raise no_original(document_id)
            return document.info(), document.parsed(txn.contents.text(address)), content

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
        with self.commits.store.read() as txn:
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
        store, number = self.commits.store, collection.collection_id
        with store.read() as txn:
            existing_collection(txn, collection)
            matching = total = txn.counters.require(number).documents
            if filter is not None:
                matching = len(matching_ordinals(txn, number, filter, deadline))
            return DocumentCount(matching, total, read_usage(txn, collection.tenant_id).sequence)

    def status(self, collection: CollectionHandle) -> IndexStatus:
        store, number, tenant_id = (
            self.commits.store,
            collection.collection_id,
            collection.tenant_id,
        )
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
            tenant=used.info(self.commits.quota_of(tenant_id)),
            embedded=EmbeddedIndexStatus(
                sealed_sequence=counters.sealed_sequence,
                tail_leaf_count=counters.tail_leaves,
                segments=tuple(segment.info() for segment in segments),
            ),
        )

    def tenants(
        self, page_size: int, page_token: str, deadline: Deadline = NEVER
    ) -> Listing[Tenant]:
        start = f"{page_token}\0" if page_token else None
        with self.commits.store.read() as txn:
            entries = txn.tenants.entries(start=start)
            page = list(islice((entry for entry in entries if entry[1].collections), page_size + 1))
            items = tuple(
                self._tenant(txn, tenant_id, usage, deadline)
                for tenant_id, usage in page[:page_size]
            )
        return Listing(items, items[-1].tenant_id if len(page) > page_size else "")

    def _tenant(self, txn: Txn, tenant_id: str, usage: Usage, deadline: Deadline) -> Tenant:
        deadline.check("listing tenants")
        numbers = collection_ids(txn, tenant_id)
        leaves = sum(txn.counters.require(number).leaves for number in numbers)
        quota = self.commits.quota_of(tenant_id)
        return Tenant(tenant_id, usage.info(quota), leaves, usage.sequence)

    def totals(self) -> StoreTotals:
        return measure(self.commits.store)
