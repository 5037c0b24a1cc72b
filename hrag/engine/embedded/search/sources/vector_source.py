"""The dense source: the leaves whose vectors are nearest to the query's, by cosine.

Segments are searched by their HNSW graphs (Malkov, Yashunin 2016), or scanned exactly where
that costs less: a scan costs in proportion to the eligible rows, a graph search in
proportion to the rows it looks at, and if few rows are eligible it must look at many to
find some. The tail is always scanned.
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

# What graph search costs for each row that it is to find, in rows scanned: both took as long where
# the rule gives 30 and 36 (50 and 200 rows wanted of 100,000 x 384).
_SEARCH_COST = 33
_SPARE_DEVIATIONS = 3


class VectorQuery:
    """A query's vector, and how far its segments were searched. To be used by one thread.

    `vector` is `float32[dimension]`, of unit length.
    """

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self._searches: dict[int, SegmentSearch] = {}

    def search(self, segment: LoadedSegment) -> SegmentSearch:
        """Returns the query's search of a segment, the same one each time."""
        number = segment.record.segment_id
        if number not in self._searches:
            self._searches[number] = segment.search(self.vector)
        return self._searches[number]


class VectorSource:
    """See `CandidateSource`. Asked for more, it goes on where it stopped."""

    def candidates(self, query: VectorQuery, eligible: EligibleRows, count: int) -> Candidates:
        """Returns the `count` nearest eligible rows, or all; scores are cosines.

        They are exact if every row was compared, else approximate.
        """
        view = eligible.view
        found = [_scan_tail(query.vector, eligible)] if view.count > view.tail_base else []
        found += [_nearest(query, eligible, *part, count) for part in view.segment_rows()]
        return best_of(found, count)

    def cosines(self, query: VectorQuery, view: View, rows: RowNumbers) -> Scores:
        """Returns the exact cosine of each of `rows`, which are ascending: `float32[n]`."""
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
) -> Candidates:
    """The `count` nearest eligible rows of a segment, which has those from `base` to `end`, or all.

    By its graph, or by an exact scan where that costs less or the graph does not reach enough
    rows. Looks past rows that are not eligible: else farther rows of the tail or of other
    segments would take the places of nearer ones of this segment.
    """
    share = eligible.share_of(base, end)
    wanted = _in_first_round(count, share, end - base)
    while not eligible.exact and wanted * _SEARCH_COST < share:
        found = query.search(segment).nearest(wanted)
        if found is None:
            break
        whole = len(found[0]) == segment.record.rows
        nearest = _eligible_of(eligible, found[0] + np.uint32(base), found[1], whole)
        if whole or len(nearest) >= count:
            return nearest
        wanted *= FACTOR
    rows = eligible.between(base, end)
    best, scores = segment.best(query.vector, rows - np.uint32(base), count)
    return Candidates(best + np.uint32(base), scores, exact=True, complete=len(best) == len(rows))


def _in_first_round(count: int, share: int, rows: int) -> int:
    """How many rows to look for, of which `count` are to be eligible, as `share` of all `rows` are.

    More than on average by some standard deviations, or every other search would find too few.
    """
    spare = _SPARE_DEVIATIONS * math.sqrt(count * (1 - share / rows))
    return math.ceil((count + spare) * rows / max(share, 1))


def _eligible_of(
    eligible: EligibleRows, rows: RowNumbers, scores: Scores, complete: bool
) -> Candidates:
    """Those of a graph search's rows that are eligible."""
    inside = eligible.contains(rows)
    if inside is None:
        return Candidates(rows, scores, exact=False, complete=complete)
    return Candidates(rows[inside], scores[inside], exact=False, complete=complete)


def _scan_tail(query: Vector, eligible: EligibleRows) -> Candidates:
    view = eligible.view
    vectors = view.tail.vectors
    rows = eligible.in_tail()
    if eligible.rows is None:  # Most rows live: products of all cost less than a gather.
        scores = inner_products(query, vectors[: view.count - view.tail_base])
        if len(rows) < len(scores):
            scores = scores[rows - view.tail_base]
    else:
        scores = inner_products(query, vectors[rows - view.tail_base])
    return Candidates(rows, scores, exact=True, complete=True)
