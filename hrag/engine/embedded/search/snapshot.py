"""The snapshot of a collection: a read transaction and a view that show the same state.

A view is a collection in memory, with one row for each leaf. Each call opens a snapshot and reads
only this state.

A search runs in steps:

1. Find the eligible rows: the leaves that the search may return.

   * In the mode SUMMARY_FIRST, these are the leaves of the best sections.
   * In other modes, these are the leaves of all documents that pass the filter.
   * In every mode, a leaf is eligible only if its heading or text contains the words and phrases
     that the query requires.
2. Rank the eligible rows by vectors, by terms, or by both with fused scores.
3. Group the best rows by their ancestors. If there are too few passages, rank more rows.
4. Fetch the passages of the best groups. Their texts are read from LMDB in the snapshot's
   transaction. The texts of other chunks are not read in this step.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.records import DocumentRecord
from hrag.engine.common.routed_sections import chosen_sections
from hrag.engine.common.search import search
from hrag.engine.common.section_choice import SectionChoice, choose_sections, with_documents
from hrag.engine.common.snapshot import BrowsableSnapshot
from hrag.engine.common.validation import no_document
from hrag.engine.embedded.search.document_reader import CitationCache, EmbeddedDocumentReader
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.required_terms import rows_with_required_parts
from hrag.engine.embedded.search.selected_rows import FilterResultCache, evaluate
from hrag.engine.embedded.search.stored_vectors import SEARCHED
from hrag.engine.embedded.search.summary_router import (
    EmbeddedEvidence,
    rows_of_sections,
    section_summaries,
)
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.queries import (
    address_of,
    document_with_text,
    existing_document,
    find_document,
    handle_of,
)
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.find import FindRequest, FindResult, P, ResultForm
from hrag.observe.tracing import Stage
from hrag.passages.cited_place import TermLocator
from hrag.passages.tree_text import TreeText
from hrag.text.analysis import analyzer
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline
from hrag.values.documents import ByteRange, DocumentInfo
from hrag.values.filters import Filter, filter_digest, only_document
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import ChosenSection, SearchMode

_Eligible: TypeAlias = tuple[EligibleRows, tuple[ChosenSection, ...], SectionChoice | None]
_NO_TERMS = TermLocator(None, np.empty(0, np.uint64), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class SnapshotCaches:
    """The caches of citations and of filter results, which all snapshots of a reader share.

    Safe to use from several threads.
    """

    citations: CitationCache
    selections: FilterResultCache


class EmbeddedSnapshot(BrowsableSnapshot):
    """Reads a collection in the state after one change. Implements `hrag.engine.Snapshot`.

    A snapshot can be used as long as its transaction is open.
    """

    def __init__(
        self,
        txn: Txn,
        tenant_id: str,
        caches: SnapshotCaches,
        deadline: Deadline,
        view: View,
        summaries: View | None = None,
    ) -> None:
        """Creates a snapshot of the state that `txn` reads.

        `view` is the view of the collection in this state. `summaries` is the view of its summary
        collection in the same state; only searches in the mode SUMMARY_FIRST need it.
        """
        self._txn = txn
        self._tenant_id = tenant_id
        self._caches = caches
        self._view = view
        self._summaries = summaries
        self._deadline = deadline
        self._documents = self._reader_of(view)

    @property
    def name(self) -> str:
        """The collection's name, even if the snapshot was opened by an alias."""
        return self._txn.collections.require(self._view.collection).name

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""
        return self._view.settings

    @property
    def sequence(self) -> int:
        """The sequence number of the tenant's last change in the snapshot."""
        key = ("usage", self._tenant_id)
        return self._txn.cache.once(key, read_usage, self._txn, self._tenant_id).sequence

    def find(self, request: FindRequest, form: ResultForm[P]) -> FindResult[P]:
        """Runs a search. Returns its passages in the form `form`. Implements `Snapshot.find`."""
        token = SEARCHED.set(self._txn)
        try:
            return self._find(request, form)
        finally:
            SEARCHED.reset(token)

    def _find(self, request: FindRequest, form: ResultForm[P]) -> FindResult[P]:
        stages: list[Stage] = []
        began = time.perf_counter()
        ranker = Ranker(self._view, request)
        stages.append(("search", began, time.perf_counter()))
        eligible, sections, choice = self._eligible_rows(request, ranker, stages)
        fetch = Fetch(self._documents, request, form, self._locator(ranker), self._deadline)
        return search(
            request,
            with_documents(partial(ranker.best, eligible), choice),
            fetch.read,
            self._documents.tree,
            eligible.count,
            self._deadline,
            stages=stages,
            sections=sections,
        )

    def _locator(self, ranker: Ranker) -> TermLocator:
        """Returns the object that finds the terms of the query in the texts of passages.

        Each term has its BM25 weight if the request is ranked by terms, else the weight 1.
        """
        if not ranker.terms:
            return _NO_TERMS
        name = self.settings.analyzer
        if ranker.lexical is not None:
            ids, weights = ranker.lexical.ids, ranker.lexical.weights
        else:
            ids = np.sort(np.array([term.id for term in ranker.terms], np.uint64))
            weights = np.ones(len(ids), np.float32)
        return TermLocator(analyzer(name) if name else None, ids, weights)

    def _eligible_rows(
        self, request: FindRequest, ranker: Ranker, stages: list[Stage]
    ) -> _Eligible:
        """Returns the rows that the search may return, and the sections that routing has chosen.

        Routing chooses sections by their summaries. It is used only in the mode SUMMARY_FIRST; in
        other modes, no sections are returned. Appends the name, the start time and the end time of
        each step to `stages`.
        """
        eligible, sections, choice = self._filter_or_route(request, ranker, stages)
        if request.required:
            began = time.perf_counter()
            eligible = rows_with_required_parts(
                self._txn, eligible, request.required, self._deadline
            )
            stages.append(("filter", began, time.perf_counter()))
        return eligible, sections, choice

    def _filter_or_route(
        self, request: FindRequest, ranker: Ranker, stages: list[Stage]
    ) -> _Eligible:
        """Returns the rows that are eligible before required terms are checked, and the sections.

        * In the mode SUMMARY_FIRST, the rows in the best sections are eligible. Returns these rows
          and these sections.
        * In other modes, the rows of the documents that pass the filter are eligible. Without a
          filter, all rows are eligible. Returns no sections.

        Rows of deleted documents are never eligible.
        """
        if request.mode is SearchMode.SUMMARY_FIRST:
            return self._route_by_summaries(request, ranker, stages)
        if request.filter is None:
            return EligibleRows(self._view), (), None
        began = time.perf_counter()
        rows = self._rows_passing(request.filter)
        stages.append(("filter", began, time.perf_counter()))
        return EligibleRows(self._view, rows), (), None

    def _rows_passing(self, filter: Filter) -> RowNumbers:
        """Returns the rows of the documents that pass a filter, from the cache if possible."""
        key = ("rows", filter_digest(filter))
        return self._caches.selections.get(self._view, key, partial(self._evaluate, filter))

    def _evaluate(self, filter: Filter) -> RowNumbers:
        """Returns the rows of the documents that pass a filter."""
        return evaluate(self._txn, self._view, filter, self._caches.selections, self._deadline)

    def _route_by_summaries(
        self, request: FindRequest, ranker: Ranker, stages: list[Stage]
    ) -> _Eligible:
        """Returns the rows of the best sections, and these sections.

        The rows belong to all sections that were chosen. Of the sections themselves, only those
        that the response lists are returned. The filter is evaluated on the documents and on their
        summary documents, which have the same metadata.
        """
        if self._summaries is None:
            raise TypeError("the snapshot was opened without summaries")
        began = time.perf_counter()
        summaries = section_summaries(
            self._txn, self._summaries, request.filter, self._caches.selections, self._deadline
        )
        leaves = EligibleRows(self._view)
        if request.filter is not None:
            leaves = EligibleRows(self._view, self._rows_passing(request.filter))
            stages.append(("filter", began, time.perf_counter()))
            began = time.perf_counter()
        evidence = EmbeddedEvidence(self._txn, request, ranker, leaves, summaries)
        choice = choose_sections(request, evidence, self._view.living)
        sections = chosen_sections(
            choice.sections.shown(request),
            self._reader_of(self._summaries),
            self._documents,
            self.settings.tree.embedding_level,
        )
        stages.append(("search", began, time.perf_counter()))
        rows = rows_of_sections(self._view, choice.sections)
        return EligibleRows(self._view, rows, exact=True), sections, choice

    def document(self, document_id: str, filter: Filter | None = None) -> DocumentInfo:
        """Returns a document without its text. Implements `Snapshot.document`."""
        handle = handle_of(self._txn, self._view.collection)
        _, document = existing_document(self._txn, handle, document_id)
        if filter is not None:
            only = only_document(filter, document_id)
            if not len(self._evaluate(only)):
                raise no_document(handle, document_id)
        return document.info()

    def document_with_text(
        self, document_id: str, part: ByteRange | None = None, reply: ReplyLimit = UNLIMITED
    ) -> tuple[DocumentInfo, str, int]:
        """Returns a document with its text. Implements `Snapshot.document_with_text`."""
        handle = handle_of(self._txn, self._view.collection)
        return document_with_text(self._txn, handle, document_id, part, reply)

    def _document(self, document_id: str) -> TreeText | None:
        """Returns the text and the tree of the document with this id; None if it does not exist."""
        ordinal = self._txn.document_ids.get((self._view.collection, document_id))
        return None if ordinal is None else self._documents.tree_text(ordinal)

    def _record(self, document_id: str) -> tuple[int, DocumentRecord] | None:
        """Returns the ordinal and the record of a document; None if it does not exist."""
        ordinal, record = find_document(self._txn, self._view.collection, document_id)
        return None if record is None else (ordinal, record)

    def _original_bytes(self, ordinal: int, start: int, end: int) -> bytes:
        address = address_of(self._txn, self._view.collection, ordinal)
        return self._txn.originals.read(address, start, end)

    def _reader_of(self, view: View) -> EmbeddedDocumentReader:
        return EmbeddedDocumentReader(
            self._txn,
            view.collection,
            view.metadata_sequence,
            self._caches.citations,
        )
