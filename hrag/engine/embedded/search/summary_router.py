"""Two-stage routing: what a search by summaries knows of the sections of a collection.

The summaries of a collection are stored as leaves of a second collection, its summary collection.
For each document of the summarised collection, the summary collection has at most one summary
document. Leaf 0 of a summary document is the summary of the whole document. The further leaves are
the summaries of the document's sections.

`hrag.engine.common.section_choice` chooses the sections. In the second stage, the search may return
only leaves of these sections.
"""

import numpy as np

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.labels import first_labels, leaves_of
from hrag.engine.common.records import Summarised
from hrag.engine.common.routed_sections import Sections
from hrag.engine.common.section_choice import Ranked
from hrag.engine.common.sorted_sets import Ordinals
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.selected_rows import FilterResultCache, evaluate
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.find import FindRequest
from hrag.values.deadline import Deadline
from hrag.values.filters import Filter, filter_digest


def section_summaries(
    txn: Txn,
    summaries: View,
    filter: Filter | None,
    cache: FilterResultCache,
    deadline: Deadline,
) -> EligibleRows:
    """Returns the rows of those summaries of sections whose documents pass the filter.

    If `filter` is None, all documents pass. `summaries` is the view of a summary collection.
    `cache` is the cache of filter results. Raises DeadlineExceeded or Cancelled.
    """

    def compute() -> RowNumbers:
        if filter is None:
            rows = EligibleRows(summaries).between(0, summaries.count)
        else:
            rows = evaluate(txn, summaries, filter, cache, deadline)
        section_rows: RowNumbers = rows[leaves_of(summaries.labels[rows]) != 0]
        return section_rows

    digest = b"" if filter is None else filter_digest(filter)
    return EligibleRows(summaries, cache.get(summaries, ("sections", digest), compute))


class EmbeddedEvidence:
    """Ranks the leaves and the summaries of a collection. Implements `SectionEvidence`.

    `leaves` are the eligible leaves of the collection, and `summaries` are the eligible rows of its
    summary collection: those of the documents that pass the request's filter. `ranker` ranks rows
    of the view of `leaves`.
    """

    def __init__(
        self,
        txn: Txn,
        request: FindRequest,
        ranker: Ranker,
        leaves: EligibleRows,
        summaries: EligibleRows,
    ) -> None:
        self._txn = txn
        self._leaves, self._summaries = leaves, summaries
        self._candidates = request.candidates
        self._leaf_ranker = ranker
        self._summary_ranker = Ranker(summaries.view, request)

    def leaves(self, ordinals: Ordinals | None = None) -> Ranked:
        """Ranks leaves. Implements `SectionEvidence.leaves`."""
        eligible = self._leaves
        if ordinals is not None:
            eligible = EligibleRows(eligible.view, eligible.view.rows_of(ordinals))
        return Ranked.of(self._leaf_ranker.best(eligible, self._candidates))

    def summaries(self, count: int) -> Ranked:
        """Ranks summaries of sections. Implements `SectionEvidence.summaries`."""
        return Ranked.of(self._summary_ranker.best(self._summaries, count))

    def document_summaries(self, summaries: Ordinals) -> Ranked:
        """Scores whole documents' summaries. Implements `SectionEvidence.document_summaries`."""
        view = self._summaries.view
        firsts = first_labels(summaries)
        rows = view.rows_between(firsts, firsts + np.uint64(1))
        eligible = EligibleRows(view, np.sort(rows), exact=True)
        return Ranked.of(self._summary_ranker.best(eligible, max(len(rows), 1)))

    def summarised(self, ordinals: Ordinals, summaries: Ordinals) -> dict[int, Summarised]:
        """Reads what is summarised. Implements `SectionEvidence.summarised`.

        Most of it is cached, because to find the summaries of a document, its record is decoded.
        """
        numbers = set(summaries.tolist()).union(*map(self._summaries_of, ordinals.tolist()))
        return {number: self._summarised(number) for number in sorted(numbers)}

    def _summaries_of(self, ordinal: int) -> tuple[int, ...]:
        """Returns the ordinal of a document's summary document, or nothing if it has none."""

        def read() -> tuple[int, ...]:
            address = address_of(self._txn, documents, ordinal)
            name = self._txn.documents.require(address).document_id
            number = self._txn.document_ids.get((self._summaries.view.collection, name))
            return () if number is None else (number,)

        documents = self._leaves.view.collection
        return self._txn.cache.once(("summaries", documents, ordinal), read)

    def _summarised(self, number: int) -> Summarised:
        key = (self._summaries.view.collection, number)
        return self._txn.cache.once(("summarised", *key), self._txn.summarised.require, key)


def rows_of_sections(view: View, sections: Sections) -> RowNumbers:
    """Returns the rows of all leaves in `sections`, ascending: `uint32[n]`.

    The sections must not overlap.
    """
    order = np.argsort(sections.starts)
    return view.rows_between(sections.starts[order], sections.ends[order])
