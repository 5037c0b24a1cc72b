"""The dense source: ranks leaves by the cosine between their vectors and the query's vector.

A segment is searched in its HNSW graph (Malkov, Yashunin 2016), or scanned exactly if a scan costs
less. The cost of a scan is proportional to the count of eligible rows. The cost of a graph search
is proportional to the count of rows that the search visits. If few rows are eligible, a graph
search must visit many rows to find eligible ones. The tail is always scanned.
"""

import math

import numpy as np

from hrag.engine.common.candidates import Candidates, RowNumbers, Scores, best_of
from hrag.engine.common.rounds import FACTOR
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment, SegmentSearch
from hrag.engine.find import Vector
from hrag_fast import inner_products

# Searching the graph for one row costs as much as scanning this many rows. This was measured in a
# segment of 100,000 rows with 384 dimensions. A graph search for 50 rows took as long as a scan of
# 30 * 50 rows, and a graph search for 200 rows took as long as a scan of 36 * 200 rows.
_SEARCH_COST = 33
# If only some rows of a segment are eligible, a graph search returns eligible rows and other rows,
# and the count of eligible rows among them varies. This count must rarely be too small. So a search
# requests more rows than are needed on average, by this many standard deviations of the count.
_SPARE_DEVIATIONS = 3


class VectorQuery:
    """The vector of a query, and the graph search for it in each segment.

    `vector` is `float32[dimension]`, of unit length. Not safe to use from several threads.
    """

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self._searches: dict[int, SegmentSearch] = {}

    def search(self, segment: LoadedSegment) -> SegmentSearch:
        """Returns the search for this query in a segment's graph.

        All calls with the same segment return the same object, so that the search can continue
        where it stopped.
        """
        number = segment.record.segment_id
        if number not in self._searches:
            self._searches[number] = segment.search(self.vector)
        return self._searches[number]


class VectorSource:
    """Ranks rows by the cosine between their vectors and the query's vector.

    Implements `CandidateSource`. If the same query is searched again with a larger `count`, the
    graph searches continue where they stopped. Searching the graph for one row is assumed to cost
    as much as scanning `search_cost` rows.
    """

    def __init__(self, search_cost: int = _SEARCH_COST) -> None:
        self._search_cost = search_cost

    def candidates(self, query: VectorQuery, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` nearest eligible rows, or all eligible rows if there are fewer.

        The scores are cosines. The result is exact if the vectors of all eligible rows were
        compared with the query. Otherwise it is approximate.
        """
        view = eligible.view
        parts = [_scan_tail(query.vector, eligible)] if view.count > view.tail_base else []
        parts += [
            _nearest(query, eligible, *segment, count, self._search_cost)
            for segment in view.segment_rows()
        ]
        return best_of(parts, count)

    def cosines(self, query: VectorQuery, view: View, rows: RowNumbers) -> Scores:
        """Returns the exact cosine of each row in `rows` with the query: `float32[n]`.

        `rows` are row numbers of the view, ascending.
        """
        cosines = np.empty(len(rows), np.float32)
        first = np.searchsorted(rows, view.tail_base)
        in_tail = view.tail.vectors[rows[first:] - np.uint32(view.tail_base)]
        cosines[first:] = inner_products(query.vector, in_tail)
        for segment, base, end in view.segment_rows():
            start, stop = np.searchsorted(rows, (base, end))
            if start < stop:
                cosines[start:stop] = segment.scores(
                    query.vector, rows[start:stop] - np.uint32(base)
                )
        return cosines


def _nearest(
    query: VectorQuery,
    eligible: EligibleRows,
    segment: LoadedSegment,
    base: int,
    end: int,
    count: int,
    search_cost: int,
) -> Candidates:
    """Returns the `count` nearest eligible rows of a segment, or all of them if there are fewer.

    The segment has the rows of the view from `base` up to, but not including, `end`. The eligible
    rows are scanned exactly in each of these cases:

    * `eligible.exact` is True.
    * A scan of the eligible rows costs less than a search in the segment's graph. Searching the
      graph for one row is assumed to cost as much as scanning `search_cost` rows.
    * The graph is not fully connected, and the graph search cannot reach enough rows.

    In other cases, the graph is searched until `count` eligible rows are found. If the search
    stopped earlier, the caller would fill the result with rows of the tail or of other segments,
    although this segment has nearer rows.
    """
    eligible_count = eligible.count_between(base, end)
    requested = _rows_to_request(count, eligible_count, end - base)
    while not eligible.exact and requested * search_cost < eligible_count:
        reached = query.search(segment).nearest(requested)
        if reached is None:
            break
        whole = len(reached[0]) == segment.record.rows
        nearest = _eligible_candidates(eligible, reached[0] + np.uint32(base), reached[1], whole)
        if whole or len(nearest) >= count:
            return nearest
        requested *= FACTOR
    rows = eligible.between(base, end)
    best, scores = segment.best(query.vector, rows - np.uint32(base), count)
    return Candidates(best + np.uint32(base), scores, exact=True, complete=len(best) == len(rows))


def _rows_to_request(count: int, eligible_count: int, rows: int) -> int:
    """Returns how many rows to request from a graph so that `count` of them are probably eligible.

    The segment has `rows` rows, of which `eligible_count` are eligible. On average,
    count * rows / eligible_count rows would be enough. The result is some standard deviations
    greater: with only the average, every second search would find too few eligible rows.
    """
    spare = _SPARE_DEVIATIONS * math.sqrt(count * (1 - eligible_count / rows))
    return math.ceil((count + spare) * rows / max(eligible_count, 1))


def _eligible_candidates(
    eligible: EligibleRows, rows: RowNumbers, scores: Scores, complete: bool
) -> Candidates:
    """Returns the rows in `rows` that are eligible, with their scores, as candidates.

    `rows` are the rows that a graph search found. `complete` is True if these are all rows of the
    segment.
    """
    is_eligible = eligible.contains(rows)
    if is_eligible is None:
        return Candidates(rows, scores, exact=False, complete=complete)
    return Candidates(rows[is_eligible], scores[is_eligible], exact=False, complete=complete)


def _scan_tail(query: Vector, eligible: EligibleRows) -> Candidates:
    """Returns all eligible rows of the tail, with their exact cosines."""
    view = eligible.view
    vectors = view.tail.vectors
    rows = eligible.in_tail()
    if eligible.rows is None:
        # Most rows of the tail are not deleted. So scoring all rows costs less than first copying
        # the vectors of the rows that are not deleted, and then scoring only these rows.
        scores = inner_products(query, vectors[: view.count - view.tail_base])
        if len(rows) < len(scores):
            scores = scores[rows - view.tail_base]
    else:
        scores = inner_products(query, vectors[rows - view.tail_base])
    return Candidates(rows, scores, exact=True, complete=True)
