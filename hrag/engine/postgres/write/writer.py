"""Commits whole documents to PostgreSQL.

Documents of one tenant that are written together are committed in one transaction. A document is
visible completely or not at all. The same commit changes the counters of the collection and the
sequence number of the tenant. A document that is replaced gets a new ordinal. Each writer locks
the row of its tenant, so writers of the same tenant wait for each other, and writers of different
tenants do not.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import sql

from hrag.engine.common.document_results import growth, unchanged_result
from hrag.engine.common.records import DocumentRecord, Usage
from hrag.engine.common.summary_documents import sections_of
from hrag.engine.common.validation import check_quota, check_summaries, no_collection
from hrag.engine.engine_documents import (
    CollectionHandle,
    DocumentSummaries,
    IngestDecision,
    PreparedDocument,
    StoredDocument,
    UncopiedDocument,
    Unsummarised,
    fitting,
)
from hrag.engine.postgres.store.cluster import rows_of_all_nodes
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.filter_sql import FilterQuery, filter_query, matching_ordinals
from hrag.engine.postgres.store.queries import (
    as_text,
    collection_state,
    find_document,
    handle_of,
    is_storable,
    one_value,
    record_of_ordinal,
    state_of,
    usage_of,
)
from hrag.engine.postgres.store.stored_text import read_original, read_text
from hrag.engine.postgres.write.collections import CollectionWriter
from hrag.engine.postgres.write.copies import copy_of, drafts_of_copy, uncopied
from hrag.engine.postgres.write.document_drafts import DocumentDraft, draft_of, draft_of_summaries
from hrag.engine.postgres.write.transaction import (
    TenantTransaction,
    summary_collection,
    summary_id_of,
)
from hrag.engine.postgres.write.unsummarised import next_unsummarised, ordinal_of
from hrag.values.collections import Listing, SummaryUnit
from hrag.values.deadline import NEVER, Deadline
from hrag.values.documents import (
    ByteRange,
    DocumentCount,
    DocumentDeletion,
    DocumentInfo,
    IngestResult,
)
from hrag.values.errors import CollectionNotFound, HragError, outcome_of
from hrag.values.filters import Filter
from hrag.values.quotas import Tenant
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.status import IndexStatus, StoreTotals
from hrag.values.tree import ParsedText

# One transaction deletes at most this many documents, because other writers of the tenant wait
# until the transaction ends.
_DELETED_TOGETHER = 64

_ADMIT = """
SELECT c.collection_id, c.record::text, d.record, t.collections, t.documents, t.stored_bytes,
  t.sequence
FROM hrag.names n JOIN hrag.collections c USING (tenant_id, collection_id)
JOIN hrag.tenants t USING (tenant_id)
LEFT JOIN hrag.documents d ON d.tenant_id = n.tenant_id AND d.collection_id = n.collection_id
  AND d.document_id = %s
WHERE n.tenant_id = %s AND n.name = %s
"""
_LIST = sql.SQL("""
SELECT record FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
  AND document_id > %(after)s {} ORDER BY document_id LIMIT %(count)s
""")
_FILTER_CLAUSE = sql.SQL("AND ordinal IN ({})")
_COUNT = sql.SQL("SELECT count(DISTINCT ordinal) FROM ({}) AS matching")
_TENANTS = """
SELECT tenant_id, collections, documents, stored_bytes, sequence FROM hrag.tenants
WHERE collections > 0 AND tenant_id > %s ORDER BY tenant_id LIMIT %s
"""
_LEAVES_OF_TENANTS = """
SELECT tenant_id, sum(leaves)::bigint FROM hrag.collections
WHERE tenant_id = ANY(%s) AND record->>'summarises' = '0' GROUP BY tenant_id
"""
# On a cluster, each shard has a row, and the totals of a node that is down are missing.
_TOTALS = sql.SQL("""
SELECT count(*) FILTER (WHERE named) AS collections,
  coalesce(sum(documents) FILTER (WHERE named), 0)::bigint AS documents,
  coalesce(sum(leaves) FILTER (WHERE named), 0)::bigint AS leaves,
  coalesce(sum(leaves) FILTER (WHERE NOT named), 0)::bigint AS summaries,
  coalesce(sum(unsummarised), 0)::bigint AS unsummarised,
  coalesce(sum(text_bytes) FILTER (WHERE named), 0)::bigint AS text_bytes,
  coalesce(sum(vector_bytes), 0)::bigint AS vector_bytes
FROM (SELECT *, record->>'summarises' = '0' AS named FROM {table}) AS stored
""")


class PostgresWriter(CollectionWriter):
    """Writes collections and documents to PostgreSQL.

    Implements `hrag.engine.Writer`. If the argument `maintenance` is None, no HNSW index and no
    part of the lexical index is built, and `wait_for_capacity` returns at once.
    """

    # The following methods read and change documents.

    def admit(
        self,
        tenant_id: str,
        collection: str,
        document_id: str,
        content_hash: str,
        stored_bytes: int = 1,
    ) -> IngestDecision:
        row = None
        if is_storable(document_id, tenant_id, collection):
            with self._database.read() as connection:
                row = connection.execute(_ADMIT, (document_id, tenant_id, collection)).fetchone()
        if row is None:
            raise no_collection(tenant_id, collection)
        number, record, document, *usage = row
        stored = None if document is None else DocumentRecord.from_bytes(document)
        unchanged = unchanged_result(stored, content_hash)
        if unchanged is None:
            usage_info = Usage(*usage).info(self._quota_of(tenant_id))
            check_quota(tenant_id, usage_info, growth(stored, stored_bytes).info())
        return IngestDecision(handle_of(number, record), unchanged)

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
        """Puts several documents; one commit stores all documents of a tenant.

        Returns each document's result or error. If the commit for the first tenant fails, raises
        its error. If the commit for a later tenant fails, its error becomes the result of each
        document of this tenant, because the commits for earlier tenants cannot be undone.

        Implements `Writer.put_many`.
        """
        drafts = [outcome_of(draft_of, *document) for document in documents]
        results: list[IngestResult | HragError] = [
            draft if isinstance(draft, HragError) else CollectionNotFound("") for draft in drafts
        ]
        by_tenant: dict[str, list[tuple[int, DocumentDraft]]] = {}
        for index, draft in enumerate(drafts):
            if isinstance(draft, DocumentDraft):
                by_tenant.setdefault(draft.handle.tenant_id, []).append((index, draft))
        for number, (tenant_id, numbered_drafts) in enumerate(by_tenant.items()):
            tenant_drafts = [draft for _, draft in numbered_drafts]
            outcome = outcome_of(self._put_in_one_commit, tenant_id, tenant_drafts)
            if isinstance(outcome, HragError):
                if number == 0:
                    raise outcome
                outcome = [outcome] * len(tenant_drafts)
            for (index, _), result in zip(numbered_drafts, outcome, strict=True):
                results[index] = result
        return results

    def _put_in_one_commit(
        self, tenant_id: str, drafts: Sequence[DocumentDraft]
    ) -> list[IngestResult | HragError]:
        with self._database.write() as connection:
            changes = TenantTransaction(connection, tenant_id, self._quota_of)
            changes.lock([(draft.handle, draft.document.document_id) for draft in drafts])
            results = [outcome_of(changes.put, draft) for draft in drafts]
            changed = changes.finish()
        self._report_changes(tenant_id, *changed)
        return results

    def put_stored(self, collection: CollectionHandle, stored: StoredDocument) -> IngestResult:
        if stored.summaries is None:
            return self.put(collection, stored.document)
        check_summaries(stored.document, collection)
        draft = draft_of(collection, stored.document)
        summaries_handle = summary_collection(collection)
        summaries = draft_of_summaries(summaries_handle, draft.record, stored.summaries)
        sections = sections_of(stored.summaries)
        with self._database.write() as connection:
            changes = TenantTransaction(connection, collection.tenant_id, self._quota_of)
            changes.lock([(collection, stored.document.document_id)])
            result = changes.put(draft)
            ordinal = changes.ordinal_of(collection, stored.document.document_id)
            changes.put_summaries(collection, ordinal, summaries, sections)
            changed = changes.finish()
        self._report_changes(collection.tenant_id, *changed)
        return result

    def uncopied(
        self, source: CollectionHandle, after: str, max_documents: int, max_bytes: int
    ) -> list[UncopiedDocument]:
        with self._database.read() as connection:
            return uncopied(connection, source, after, max_documents, max_bytes)

    def put_copies(self, source: CollectionHandle, documents: Sequence[UncopiedDocument]) -> int:
        tenant_id = source.tenant_id
        with self._database.read() as connection:
            copy = copy_of(connection, source)
        drafts = [drafts_of_copy(copy, document) for document in documents]
        with self._database.write() as connection:
            changes = TenantTransaction(connection, tenant_id, self._quota_of)
            changes.lock(
                [
                    (handle, document.stored.document_id)
                    for document in documents
                    for handle in (source, copy)
                ]
            )
            changes.require(source)
            stored = sum(
                changes.put_copy(document, *both)
                for document, both in zip(documents, drafts, strict=True)
            )
            changed = changes.finish()
        self._report_changes(tenant_id, *changed)
        return stored

    def put_metadata(
        self,
        collection: CollectionHandle,
        document_id: str,
        sequence: int,
        metadata: Mapping[str, Any],
        source: str,
    ) -> DocumentInfo:
        with self._database.write() as connection:
            changes = TenantTransaction(connection, collection.tenant_id, self._quota_of)
            changes.lock([(collection, document_id)])
            info = changes.put_metadata(collection, document_id, sequence, metadata, source)
            changed = changes.finish()
        self._report_changes(collection.tenant_id, *changed)
        return info

    def delete(self, collection: CollectionHandle, document_id: str) -> int:
        with self._database.write() as connection:
            changes = TenantTransaction(connection, collection.tenant_id, self._quota_of)
            changes.lock([(collection, document_id)])
            sequence = changes.delete(collection, document_id)
            changed = changes.finish()
        self._report_changes(collection.tenant_id, *changed)
        return sequence

    def delete_matching(
        self, collection: CollectionHandle, filter: Filter, deadline: Deadline = NEVER
    ) -> Iterator[DocumentDeletion]:
        tenant_id, number = collection.tenant_id, collection.collection_id
        with self._reading(deadline) as connection:
            collection_state(connection, collection)
            sequence = usage_of(connection, tenant_id).sequence
            ordinals = matching_ordinals(connection, tenant_id, number, filter, deadline).tolist()
        if not ordinals:
            yield DocumentDeletion(0, sequence)
        for start in range(0, len(ordinals), _DELETED_TOGETHER):
            deadline.check("deleting documents")
            batch = ordinals[start : start + _DELETED_TOGETHER]
            yield self._delete_unchanged(collection, batch, sequence)

    def _delete_unchanged(
        self, collection: CollectionHandle, ordinals: Sequence[int], last_sequence: int
    ) -> DocumentDeletion:
        with self._database.write() as connection:
            changes = TenantTransaction(connection, collection.tenant_id, self._quota_of)
            changes.lock_ordinals(collection, ordinals)
            deletion = changes.delete_unchanged(collection, last_sequence)
            changed = changes.finish()
        self._report_changes(collection.tenant_id, *changed)
        return deletion

    def document(self, collection: CollectionHandle, document_id: str) -> DocumentInfo:
        with self._database.read() as connection:
            return find_document(connection, collection, document_id)[1].info()

    def document_with_text(
        self,
        collection: CollectionHandle,
        document_id: str,
        part: ByteRange | None = None,
        reply: ReplyLimit = UNLIMITED,
    ) -> tuple[DocumentInfo, str, int]:
        with self._database.read() as connection:
            return read_text(connection, collection, document_id, part, reply)

    def document_with_original(
        self, collection: CollectionHandle, document_id: str
    ) -> tuple[DocumentInfo, ParsedText, bytes]:
        with self._database.read() as connection:
            return read_original(connection, collection, document_id)

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
        with self._reading(deadline) as connection:
            collection_state(connection, collection)
            query = _filter_query(connection, collection, filter, deadline)
            page = {"after": as_text(page_token), "count": page_size + 1}
            clause = sql.SQL("") if filter is None else _FILTER_CLAUSE.format(query.statement)
            rows = connection.execute(_LIST.format(clause), query.parameters | page).fetchall()
        infos = (DocumentRecord.from_bytes(record).info() for (record,) in rows[:page_size])
        items = tuple(fitting(infos, reply))
        return Listing(items, items[-1].document_id if len(rows) > len(items) else "")

    def count(
        self, collection: CollectionHandle, filter: Filter | None, deadline: Deadline = NEVER
    ) -> DocumentCount:
        with self._reading(deadline) as connection:
            matching = total = collection_state(connection, collection).documents
            if filter is not None:
                query = _filter_query(connection, collection, filter, deadline)
                statement = _COUNT.format(query.statement)
                matching = one_value(connection, statement, query.parameters)
            return DocumentCount(
                matching, total, usage_of(connection, collection.tenant_id).sequence
            )

    @contextmanager
    def _reading(self, deadline: Deadline) -> Iterator[Connection]:
        deadline.check("filtering")
        with self._database.read(deadline) as connection:
            yield connection

    # The following methods return counts.

    def status(self, collection: CollectionHandle) -> IndexStatus:
        tenant_id, number = collection.tenant_id, collection.collection_id
        with self._database.read() as connection:
            state = collection_state(connection, collection)
            usage = usage_of(connection, tenant_id)
            summaries = None
            if collection.settings.summaries is not SummaryUnit.NONE:
                summaries = state_of(connection, tenant_id, summary_id_of(number))
        return IndexStatus(
            committed_sequence=state.sequence,
            document_count=state.documents,
            chunk_count=state.chunks,
            leaf_count=state.leaves,
            token_count=state.tokens,
            text_bytes=state.text_bytes,
            vector_bytes=state.vector_bytes,
            summary_count=0 if summaries is None else summaries.leaves,
            unsummarised_documents=state.unsummarised,
            summary_tokens=state.summary_tokens,
            tenant=usage.info(self._quota_of(tenant_id)),
        )

    def tenants(
        self, page_size: int, page_token: str, deadline: Deadline = NEVER
    ) -> Listing[Tenant]:
        deadline.check("listing tenants")
        with self._database.read(deadline) as connection:
            selected = (as_text(page_token), page_size + 1)
            rows = connection.execute(_TENANTS, selected).fetchall()
            names = [row[0] for row in rows[:page_size]]
            leaves: dict[str, int] = dict(
                connection.execute(_LEAVES_OF_TENANTS, (names,)).fetchall()
            )
        items = tuple(
            self._tenant(tenant_id, Usage(*usage), leaves[tenant_id])
            for tenant_id, *usage in rows[:page_size]
        )
        return Listing(items, names[-1] if len(rows) > page_size else "")

    def _tenant(self, tenant_id: str, usage: Usage, leaf_count: int) -> Tenant:
        quota = self._quota_of(tenant_id)
        return Tenant(tenant_id, usage.info(quota), leaf_count, usage.sequence)

    def totals(self) -> StoreTotals:
        with self._database.read() as connection:
            rows = rows_of_all_nodes(connection, "collections", _TOTALS)
        totals: Counter[str] = Counter()
        for row in rows:
            totals.update(row)
        return StoreTotals(
            collections=totals["collections"],
            documents=totals["documents"],
            leaves=totals["leaves"],
            summaries=totals["summaries"],
            unsummarised_documents=totals["unsummarised"],
            text_bytes=totals["text_bytes"],
            vector_bytes=totals["vector_bytes"],
        )

    # The following methods read documents without summaries, and store summaries.

    def next_unsummarised(
        self,
        embedder: str,
        after: CollectionHandle | None = None,
        excluding: Container[int] = (),
    ) -> Unsummarised | None:
        with self._database.read() as connection:
            return next_unsummarised(connection, embedder, after, excluding)

    def put_summaries(
        self, document: Unsummarised, summaries: DocumentSummaries, tokens: int = 0
    ) -> bool:
        collection, ordinal = document.collection, ordinal_of(document.version)
        with self._database.read() as connection:
            record = record_of_ordinal(connection, collection, ordinal)
        draft = None
        if record is not None:
            draft = draft_of_summaries(summary_collection(collection), record, summaries)
        try:
            with self._database.write() as connection:
                changes = TenantTransaction(connection, collection.tenant_id, self._quota_of)
                changes.lock_ordinals(collection, [ordinal])
                sections = sections_of(summaries)
                stored = changes.put_summaries(collection, ordinal, draft, sections, tokens)
                changed = changes.finish()
        except CollectionNotFound:
            return False
        self._report_changes(collection.tenant_id, *changed)
        return stored


def _filter_query(
    connection: Connection, collection: CollectionHandle, filter: Filter | None, deadline: Deadline
) -> FilterQuery:
    tenant_id, number = collection.tenant_id, collection.collection_id
    if filter is None:
        return FilterQuery(sql.Composed([]), {"tenant_id": tenant_id, "collection_id": number})
    return filter_query(connection, tenant_id, number, filter, deadline)
