"""Two-stage routing: chooses the sections in which a search looks, by their summaries.

The summaries of a collection are stored as leaves of a second collection, its summary collection.
For each document of the summarised collection, the summary collection has at most one summary
document. Leaf 0 of a summary document is the summary of the whole document. The further leaves are
the summaries of the document's sections.

The first stage ranks the summaries by vectors, by terms or by both, as the request demands. In the
second stage, the search may return only leaves of the best sections.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from hrag.engine.common.candidates import RowNumbers, ScoredRows, Scores
from hrag.engine.common.labels import label, leaves_of, ordinals_of, split_label
from hrag.engine.common.routed_sections import RoutedSection
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.selected_rows import FilterResultCache, evaluate
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.find import FindRequest
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter, filter_digest
from hrag.values.search import SummaryScope


class SummaryRouter:
    """Chooses sections of documents by their summaries.

    The summaries are the rows of `summaries`, the view of a summary collection. `cache` is the
    cache of filter results.
    """

    def __init__(
        self,
        txn: Txn,
        summaries: View,
        cache: FilterResultCache,
        deadline: Deadline,
    ) -> None:
        self._txn = txn
        self._view = summaries
        self._cache = cache
        self._deadline = deadline

    def eligible(self, request: FindRequest) -> EligibleRows:
        """Returns the rows of the summaries that `route` ranks first.

        With SummaryScope.SECTIONS, these are the summaries of sections. With DOCUMENTS, these are
        the summaries of whole documents. Summaries of documents that do not pass the request's
        filter are left out. Raises DeadlineExceeded or Cancelled.
        """
        sections = request.summary_scope is not SummaryScope.DOCUMENTS
        return EligibleRows(self._view, self._rows(request.filter, sections=sections))

    def route(self, request: FindRequest, eligible: EligibleRows) -> list[RoutedSection]:
        """Returns at most `request.top_sections` sections, best first.

        `eligible` must be the result of the method `eligible` for the same request.

        * With SummaryScope.SECTIONS, the summaries of all eligible sections are ranked.
        * With SummaryScope.DOCUMENTS, the best `request.top_sections` documents are chosen first.
          Then the summaries of the sections of these documents are ranked.

        Both the ranking by vectors and the ranking by terms return the best
        max(`request.candidates`, `request.top_sections`) summaries. So, with SECTIONS, a larger
        `top_sections` of at most `request.candidates` only adds sections at the end of the result.
        """
        count = request.top_sections
        candidates = max(request.candidates, count)
        ranker = Ranker(self._view, request)
        if request.summary_scope is SummaryScope.DOCUMENTS:
            rows, _ = _best(ranker.best(eligible, candidates), count)
            ordinals = np.sort(ordinals_of(self._view.labels[rows]))
            rows = self._of_kind(self._view.rows_of(ordinals), sections=True)
            eligible = EligibleRows(self._view, rows)
        return list(self._read_sections(*_best(ranker.best(eligible, candidates), count)))

    def _rows(self, filter: Filter | None, *, sections: bool) -> RowNumbers:
        """Returns the rows of the summaries whose documents pass the filter, ascending.

        If `sections` is True, returns summaries of sections, otherwise summaries of whole
        documents. If `filter` is None, all documents pass.
        """

        def compute() -> RowNumbers:
            if filter is None:
                rows = EligibleRows(self._view).between(0, self._view.count)
            else:
                rows = evaluate(self._txn, self._view, filter, self._cache, self._deadline)
            return self._of_kind(rows, sections=sections)

        digest = b"" if filter is None else filter_digest(filter)
        return self._cache.get(
            self._view, ("sections" if sections else "documents", digest), compute
        )

    def _of_kind(self, rows: RowNumbers, *, sections: bool) -> RowNumbers:
        """Returns the rows in `rows` that are summaries of one kind.

        If `sections` is True, these are summaries of sections, otherwise summaries of whole
        documents.
        """
        is_section = leaves_of(self._view.labels[rows]) != 0
        rows_of_kind: RowNumbers = rows[is_section == sections]
        return rows_of_kind

    def _read_sections(self, rows: RowNumbers, scores: Scores) -> Iterator[RoutedSection]:
        """Yields the section of each summary in `rows`, with its score, in the order of `rows`."""
        labels = self._view.labels[rows].tolist()
        for summary, score in zip(labels, scores.tolist(), strict=True):
            ordinal, leaf = split_label(summary)
            summarised = self._txn.summarised.require((self._view.collection, ordinal))
            yield RoutedSection(summarised.ordinal, summarised.sections[leaf - 1], summary, score)


def _best(ranked: ScoredRows, count: int) -> tuple[RowNumbers, Scores]:
    """Returns the `count` best of the ranked rows and their scores, best row first."""
    order = ranked.best_first()[:count]
    return ranked.rows[order], ranked.scores[order]


def rows_of_sections(view: View, sections: Sequence[RoutedSection]) -> RowNumbers:
    """Returns the rows of all leaves in `sections`, ascending: `uint32[n]`.

    The sections must not overlap.
    """
    bounds = sorted(
        (label(section.ordinal, section.leaves.start), len(section.leaves)) for section in sections
    )
    starts, counts = np.array(bounds, np.uint64).reshape(-1, 2).T
    return view.rows_between(starts, starts + counts)
