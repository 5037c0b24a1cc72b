"""One call's snapshot of a collection: a read transaction and a view of the same change.

A search runs in steps, a module each: eligible rows (a filter's, a summary routing's, those
with what the query requires) -> ranking (candidates of each source, fused) -> groups -> enough
passages? -> fetch. Only the passages that are returned are read from LMDB, in the snapshot's
transaction.
"""

import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.routed_sections import chosen_sections
from hrag.engine.common.search import P, search
from hrag.engine.common.snapshot import FetchOf, SearchableSnapshot
from hrag.engine.embedded.search.document_reader import CitationCache, DocumentReader
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.required_terms import with_required
from hrag.engine.embedded.search.selected_rows import SelectionCache, evaluate
from hrag.engine.embedded.search.summary_router import (
    SummaryRouter,
    rows_in,
)
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import read_collection
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.find import FindRequest, Found
from hrag.observe.tracing import Stage
from hrag.passages.cited_place import TermLocator
from hrag.passages.tree_text import TreeText
from hrag.text.analysis import analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter, filter_digest
from hrag.values.search import ChosenSection, SearchMode

_MAX_SHOWN_SECTIONS = 100  # As many as passages.
_NO_TERMS = TermLocator(None, np.empty(0, np.uint64), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class SnapshotCaches:
    """What all snapshots of a reader share; safe to use from several threads."""

    citations: CitationCache
    selections: SelectionCache


class EmbeddedSnapshot(SearchableSnapshot):
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
        usage = self._txn.cache.once(
            ("usage", self._tenant_id),
            lambda: read_usage(self._store, self._txn, self._tenant_id),
        )
        return usage.sequence

    def _find(self, request: FindRequest, read: FetchOf[P]) -> Found[P]:
        stages: list[Stage] = []
        eligible, sections = self._eligible(request, stages)
        began = time.perf_counter()
        ranker = Ranker(self._view, request)
        stages.append(("search", began, time.perf_counter()))
        fetch = Fetch(self._documents, request, self._locator(ranker), self._deadline)
        found = search(
            request,
            partial(ranker.best, eligible),
            partial(read, fetch),
            self._documents.tree,
            eligible.count,
            self._deadline,
        )
        return replace(found, stages=(*stages, *found.stages), sections=sections)

    def _locator(self, ranker: Ranker) -> TermLocator:
        """Finds the query's terms in passages; rare ones count more, if that is known."""
        if not ranker.terms:
            return _NO_TERMS
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
        selections = self._caches.selections
        select = partial(
            evaluate, self._store, self._txn, self._view, given, selections, self._deadline
        )
        return selections.get(self._view, ("rows", filter_digest(given)), select)

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

    def _document(self, document_id: str) -> TreeText | None:
        key = schema.document_id(self._view.collection, document_id)
        ordinal = self._txn.get(key, db=self._store.db["document_ids"])
        return None if ordinal is None else self._documents.tree_text(schema.read_u64(ordinal))

    def _reader_of(self, view: View) -> DocumentReader:
        return DocumentReader(
            self._store,
            self._txn,
            view.collection,
            view.metadata_sequence,
            self._caches.citations,
        )
