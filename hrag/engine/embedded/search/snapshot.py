"""One call's snapshot of a collection: a read transaction and a view of the same change.

A search runs in steps, a module each: eligible rows (a filter's, a summary routing's, those
with what the query requires) -> ranking (candidates of each source, fused) -> groups -> enough
passages? -> fetch. Only the passages that are returned are read from LMDB, in the snapshot's
transaction.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from hrag.analysis import analyzer
from hrag.deadline import Deadline
from hrag.engine.embedded.search.ancestor_groups import AncestorGroups, deepened, grouped
from hrag.engine.embedded.search.candidates import RowNumbers
from hrag.engine.embedded.search.documents import CitationCache, DocumentReader
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.fetch import Fetch
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.required_terms import with_required
from hrag.engine.embedded.search.selected_rows import SelectedRowsCache, evaluate
from hrag.engine.embedded.search.summary_routing import (
    SummaryRouter,
    chosen_sections,
    rows_in,
)
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import read_collection
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.find import FindRequest, Found, PassageFields
from hrag.engine.rounds import FACTOR, Round, Selection
from hrag.errors import ChunkNotFound, DocumentNotFound
from hrag.filters import Filter, filter_digest
from hrag.ids import ChunkId
from hrag.passages.cited_place import TermLocator
from hrag.passages.tree_text import TreeText
from hrag.reply_limit import UNLIMITED, ReplyLimit
from hrag.tracing import Stage
from hrag.types import (
    ChosenSection,
    ChunkNode,
    CollectionSettings,
    Hierarchy,
    Passage,
    SearchMode,
)

P = TypeVar("P")  # A passage as a value or encoded, or a sentence context.
Read: TypeAlias = Callable[[Fetch, AncestorGroups], tuple[tuple[P, ...], Selection]]

_MAX_SHOWN_SECTIONS = 100  # As many as passages.


@dataclass(frozen=True, slots=True)
class SnapshotCaches:
    """What all snapshots of a reader share; safe to use from several threads."""

    citations: CitationCache
    selections: SelectedRowsCache


class EmbeddedSnapshot:
    """See `hrag.engine.EncodingSnapshot`. Lives as long as its transaction."""

    def __init__(
        self,
        store: Store,
        txn: Txn,
        tenant_id: str,
        caches: SnapshotCaches,
        deadline: Deadline,
        view: View,
        summaries: View | None = None,
    ) -> None:
        """`summaries` is the view of the collection's summaries, of the same change."""
        self._store = store
        self._txn = txn
        self._tenant_id = tenant_id
        self._caches = caches
        self._view = view
        self._summaries = summaries
        self._deadline = deadline
        self._documents = self._reader_of(view)

    @property
    def name(self) -> str:
        """The collection's own name."""
        return read_collection(self._store, self._txn, self._view.collection).name

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""
        return self._view.settings

    @property
    def sequence(self) -> int:
        """The tenant's last change that the snapshot holds."""
        return read_usage(self._store, self._txn, self._tenant_id).sequence

    def find(self, request: FindRequest) -> Found[Passage]:
        """See `hrag.engine.Snapshot.find`."""
        if request.mode is SearchMode.SENTENCE_WINDOW:
            return self._find_contexts(request)
        return self._find(request, Fetch.passages)

    def find_encoded(self, request: FindRequest, fields: PassageFields) -> Found[bytes]:
        """See `hrag.engine.EncodingSnapshot.find_encoded`."""
        if request.mode is SearchMode.SENTENCE_WINDOW:
            return self._find_contexts(request)

        def read(fetch: Fetch, groups: AncestorGroups) -> tuple[tuple[bytes, ...], Selection]:
            return fetch.encoded_passages(fields, groups)

        return self._find(request, read)

    def _find_contexts(self, request: FindRequest) -> Found[Any]:
        """Finds leaves with their sentences, for SENTENCE_WINDOW."""
        found: Found[Any] = self._find(request, Fetch.sentence_contexts)
        return replace(found, passages=(), contexts=found.passages)

    def _find(self, request: FindRequest, read: Read[P]) -> Found[P]:
        """Looks at more and more leaves until enough passages come out or no leaf is left."""
        stages: list[Stage] = []
        eligible, sections = self._eligible(request, stages)
        began = time.perf_counter()
        ranker = Ranker(self._view, request)
        stages.append(("search", began, time.perf_counter()))
        fetch = Fetch(self._documents, request, self._locator(ranker), self._deadline)
        count, groups = request.candidates, None
        while True:
            self._deadline.check("searching")
            began = time.perf_counter()
            found = ranker.best(eligible, count)
            searched = time.perf_counter()
            tree_of = self._documents.tree
            if groups is None:
                groups, considered = grouped(self._view, found, request, tree_of), found.rows
            else:
                groups = deepened(groups, considered, found, request, tree_of)
                considered = np.union1d(considered, found.rows)
            reaching = groups if request.min_score is None else groups.reaching(request.min_score)
            stages += [("search", began, searched), ("climb", searched, time.perf_counter())]
            round_ = Round(request, len(groups), len(reaching), found.complete)
            if round_.has_enough_groups:
                began = time.perf_counter()
                passages, selection = read(fetch, reaching)
                stages.append(("fetch", began, time.perf_counter()))
                if round_.is_final(selection):
                    return Found(
                        passages=passages,
                        considered=len(considered),
                        eligible_leaves=eligible.count,
                        exact=found.exact,
                        exhausted=round_.is_exhausted(selection),
                        stages=tuple(stages),
                        sections=sections,
                    )
            count *= FACTOR

    def _locator(self, ranker: Ranker) -> TermLocator:
        """Finds the query's terms in passages; rare ones count more, if that is known."""
        name = self.settings.analyzer
        ids = np.sort(np.array([term.id for term in ranker.terms], np.uint64))
        weights = np.ones(len(ids), np.float32)
        if ranker.lexical is not None:
            weights = ranker.lexical.weights
        return TermLocator(analyzer(name) if name else None, ids, weights)

    def _eligible(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleRows, tuple[ChosenSection, ...]]:
        """The rows that the request may find, and the sections that summaries led to."""
        eligible, sections = self._selected(request, stages)
        if request.required:
            began = time.perf_counter()
            eligible = with_required(
                self._store, self._txn, eligible, request.required, self._deadline
            )
            stages.append(("filter", began, time.perf_counter()))
        return eligible, sections

    def _selected(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleRows, tuple[ChosenSection, ...]]:
        """The rows that filter and summaries leave, and the sections that these led to."""
        if request.mode is SearchMode.SUMMARY_FIRST:
            return self._routed(request, stages)
        if request.filter is None:
            return EligibleRows(self._view), ()
        began = time.perf_counter()
        rows = self._filtered(request.filter)
        stages.append(("filter", began, time.perf_counter()))
        return EligibleRows(self._view, rows), ()

    def _filtered(self, given: Filter) -> RowNumbers:
        def select() -> RowNumbers:
            rows = evaluate(self._store, self._txn, self._view, given, self._deadline)
            return rows.astype(np.uint32)

        return self._caches.selections.get(self._view, filter_digest(given), select)

    def _routed(
        self, request: FindRequest, stages: list[Stage]
    ) -> tuple[EligibleRows, tuple[ChosenSection, ...]]:
        """The rows of the best sections, and the first of these sections as values.

        The filter selects summaries, which have the metadata of their documents.
        """
        if self._summaries is None:
            raise TypeError("the snapshot was opened without summaries")
        router = SummaryRouter(
            self._store, self._txn, self._summaries, self._caches.selections, self._deadline
        )
        began = time.perf_counter()
        summaries = router.eligible(request)
        if request.filter is not None:
            stages.append(("filter", began, time.perf_counter()))
            began = time.perf_counter()
        routed = router.route(request, summaries)
        sections = chosen_sections(
            routed[:_MAX_SHOWN_SECTIONS],
            self._reader_of(self._summaries),
            self._documents,
            self.settings.tree.embedding_level,
        )
        stages.append(("search", began, time.perf_counter()))
        return EligibleRows(self._view, rows_in(self._view, routed), exact=True), sections

    def chunk(self, chunk_id: ChunkId, reply: ReplyLimit = UNLIMITED) -> ChunkNode:
        """See `hrag.engine.Snapshot.chunk`."""
        document = self._document_with(chunk_id)
        return document.node((chunk_id.level, chunk_id.index), reply=reply)

    def hierarchy(
        self, chunk_id: ChunkId, depth: int, *, content: bool, reply: ReplyLimit = UNLIMITED
    ) -> Hierarchy:
        """See `hrag.engine.Snapshot.hierarchy`."""
        document = self._document_with(chunk_id)
        position = (chunk_id.level, chunk_id.index)
        return document.hierarchy(position, depth, content=content, reply=reply)

    def _document_with(self, chunk_id: ChunkId) -> TreeText:
        """The chunk's document, which has the chunk."""
        key = schema.document_id(self._view.collection, chunk_id.document_id)
        ordinal = self._txn.get(key, db=self._store.db["document_ids"])
        if ordinal is None:
            raise DocumentNotFound(
                f"the collection has no document {chunk_id.document_id!r}", field="chunk_id"
            )
        document = self._documents.tree_text(schema.read_u64(ordinal))
        if not document.has_chunk((chunk_id.level, chunk_id.index)):
            raise ChunkNotFound(
                f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}; "
                f"its levels hold {document.tree.counts} chunks",
                field="chunk_id",
            )
        return document

    def _reader_of(self, view: View) -> DocumentReader:
        return DocumentReader(
            self._store,
            self._txn,
            view.collection,
            view.metadata_sequence,
            self._caches.citations,
        )
