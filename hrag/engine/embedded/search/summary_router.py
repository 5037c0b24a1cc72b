"""Two-stage routing: which sections a search by summaries looks into.

Summaries are leaves of a summary collection: for each document first the summary of the
whole document, then those of its sections. The best summaries are found there by the sources
of the search itself; the rows of the sections they stand for become its eligible rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hrag.engine.common.candidates import RowNumbers, ScoredRows, Scores
from hrag.engine.common.labels import label, leaves_of, ordinals_of, split_label
from hrag.engine.common.records import Summarised
from hrag.engine.common.routed_sections import RoutedSection
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.selected_rows import SelectionCache, evaluate
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import required
from hrag.engine.find import FindRequest
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter, filter_digest
from hrag.values.search import SummaryScope


class SummaryRouter:
    """Chooses sections by the summaries of one view, in one transaction."""

    def __init__(
        self,
        store: Store,
        txn: Txn,
        summaries: View,
        selections: SelectionCache,
        deadline: Deadline,
    ) -> None:
        self._store = store
        self._txn = txn
        self._view = summaries
        self._selections = selections
        self._deadline = deadline

    def eligible(self, request: FindRequest) -> EligibleRows:
        """Returns the summaries to begin with, of documents that pass the filter.

        They are those of sections, or with SummaryScope.DOCUMENTS those of whole documents.
        Raises DeadlineExceeded.
        """
        sections = request.summary_scope is not SummaryScope.DOCUMENTS
        return EligibleRows(self._view, self._rows(request.filter, sections=sections))

    def route(self, request: FindRequest, eligible: EligibleRows) -> list[RoutedSection]:
        """Returns the best sections, best first: `request.top_sections` at most.

        `eligible` are the request's summaries. With SummaryScope.DOCUMENTS, as many documents
        are chosen first, and their sections are ranked. Which are best is decided among
        `request.candidates` of each source, so fewer sections are the first of more.
        """
        count = request.top_sections
        candidates = max(request.candidates, count)
        ranker = Ranker(self._view, replace(request, neighbour_bonus=0.0))
        if request.summary_scope is SummaryScope.DOCUMENTS:
            rows, _ = _best(ranker.best(eligible, candidates), count)
            ordinals = np.sort(ordinals_of(self._view.labels[rows]))
            rows = self._of_kind(self._view.rows_of(ordinals), sections=True)
            eligible = EligibleRows(self._view, rows)
        return list(self._routed(*_best(ranker.best(eligible, candidates), count)))

    def _rows(self, given: Filter | None, *, sections: bool) -> RowNumbers:
        """All summaries of sections, or all of whole documents, that pass the filter."""

        def select() -> RowNumbers:
            if given is None:
                rows = EligibleRows(self._view).between(0, self._view.count)
            else:
                rows = evaluate(
                    self._store, self._txn, self._view, given, self._selections, self._deadline
                )
            return self._of_kind(rows, sections=sections)

        digest = b"" if given is None else filter_digest(given)
        return self._selections.get(
            self._view, ("sections" if sections else "documents", digest), select
        )

    def _of_kind(self, rows: RowNumbers, *, sections: bool) -> RowNumbers:
        is_section = leaves_of(self._view.labels[rows]) != 0
        chosen: RowNumbers = rows[is_section == sections]
        return chosen

    def _routed(self, rows: RowNumbers, scores: Scores) -> Iterator[RoutedSection]:
        labels = self._view.labels[rows].tolist()
        for summary, score in zip(labels, scores.tolist(), strict=True):
            ordinal, leaf = split_label(summary)
            entry = schema.in_collection(self._view.collection, ordinal)
            value = required(self._txn.get(entry, db=self._store.db["summarised"]))
            summarised = Summarised.from_bytes(value)
            yield RoutedSection(summarised.ordinal, summarised.sections[leaf - 1], summary, score)


def _best(found: ScoredRows, count: int) -> tuple[RowNumbers, Scores]:
    """The `count` best rows and their scores, best first."""
    order = found.best_first()[:count]
    return found.rows[order], found.scores[order]


def rows_in(view: View, routed: Sequence[RoutedSection]) -> RowNumbers:
    """Returns the rows of the sections' leaves, ascending; no two sections share a leaf."""
    bounds = sorted((label(each.ordinal, each.leaves.start), len(each.leaves)) for each in routed)
    starts, counts = np.array(bounds, np.uint64).reshape(-1, 2).T
    return view.rows_between(starts, starts + counts)
