"""Which leaves of a view a search may find, and the nearest of them.

Two ways lead there. Comparing every leaf is exact and costs in proportion to how many
there are; walking the segments' graphs costs in proportion to how many it looks at, and
under a filter it must look at many to find a few. Whichever is cheaper is taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hrag.engine import Vector
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment

RowNumbers = NDArray[np.uint32]

# What a walk costs for each leaf it is to find, in leaves compared where they lie: 1.2 to
# 1.5 us against 0.04 to 0.08 on 100,000 x 384.
_WALK_COST = 20
_DEEPEN = 4  # Each walk past leaves out of scope is so many times longer: few, little waste.


@dataclass(frozen=True, slots=True)
class Hits:
    """Leaves found: `uint32[n]` rows of a view with `float32[n]` cosines.

    In no order. `complete` when they are all in scope, `exact` when no other in scope is
    nearer for certain.
    """

    rows: RowNumbers
    scores: Vector
    complete: bool
    exact: bool

    def __len__(self) -> int:
        return len(self.rows)


_NONE = Hits(np.empty(0, np.uint32), np.empty(0, np.float32), complete=True, exact=True)


@dataclass(frozen=True, slots=True)
class Scope:
    """All living leaves of a view, or those of `rows`, which live and are ascending.

    `by_comparison` takes no other way than to compare them all.
    """

    view: View
    rows: RowNumbers | None = None
    by_comparison: bool = False

    @property
    def leaf_count(self) -> int:
        return self.view.living if self.rows is None else len(self.rows)

    def nearest(self, query: Vector, count: int) -> Hits:
        """The `count` nearest leaves, or all there are."""
        in_tail = [self._in_tail(query)] if self.view.count > self.view.tail_base else []
        found = in_tail.copy()
        for segment, base in zip(self.view.segments, self.view.bases, strict=True):
            hits = self._walk(segment, base, query, count)
            if hits is None:
                return _best([*in_tail, *self._in_segments(query)], count)
            found.append(hits)
        return _best(found, count)

    def _walk(self, segment: LoadedSegment, base: int, query: Vector, count: int) -> Hits | None:
        """A segment's `count` nearest leaves in scope, or all it has.

        None where comparing all costs less, or HNSW cannot say. Looks past leaves out of
        scope: else farther leaves of the tail or of other segments would take places that
        are its own.
        """
        wanted = -(-count * self.view.count // max(self.leaf_count, 1))
        while not self.by_comparison and wanted * _WALK_COST < self.leaf_count:
            found = segment.search(query, wanted)
            if found is None:
                return None
            whole = len(found[0]) == segment.record.rows
            hits = self._within(found[0] + np.uint32(base), found[1], whole)
            if whole or len(hits) >= count:
                return hits
            wanted *= _DEEPEN
        return None

    def _within(self, rows: RowNumbers, scores: Vector, complete: bool) -> Hits:
        """Those in scope, of a walk."""
        if self.rows is None and self.view.living == self.view.count:
            return Hits(rows, scores, complete, exact=False)
        inside = self.view.alive[rows] != 0 if self.rows is None else is_in(rows, self.rows)
        return Hits(rows[inside], scores[inside], complete, exact=False)

    def _in_tail(self, query: Vector) -> Hits:
        view = self.view
        if self.rows is None:
            rows = np.arange(view.tail_base, view.count, dtype=np.uint32)
            scores = view.tail[: len(rows)] @ query
            living = view.alive[rows] != 0
            return Hits(rows[living], scores[living], complete=True, exact=True)
        rows = self.rows[np.searchsorted(self.rows, view.tail_base) :]
        return Hits(rows, view.tail[rows - view.tail_base] @ query, complete=True, exact=True)

    def _in_segments(self, query: Vector) -> Iterator[Hits]:
        """Every leaf in scope of each segment."""
        view = self.view
        rows = self.rows
        if rows is None:
            rows = np.flatnonzero(view.alive[: view.tail_base]).astype(np.uint32)
        ends = np.searchsorted(rows, (*view.bases, view.tail_base))
        for segment, base, (start, end) in zip(
            view.segments, view.bases, pairwise(ends), strict=True
        ):
            own = rows[start:end]
            scores = segment.scores(query, own - np.uint32(base))
            yield Hits(own, scores, complete=True, exact=True)


def is_in(
    values: NDArray[np.unsignedinteger], others: NDArray[np.unsignedinteger]
) -> NDArray[np.bool_]:
    """Which of `values` are among `others`, which are ascending."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    places = np.searchsorted(others, values)
    places[places == len(others)] = 0
    among: NDArray[np.bool_] = others[places] == values
    return among


def _best(found: Sequence[Hits], count: int) -> Hits:
    if not found:
        return _NONE
    if len(found) == 1 and len(found[0]) <= count:
        return found[0]
    rows = np.concatenate([hits.rows for hits in found])
    scores = np.concatenate([hits.scores for hits in found])
    exact = all(hits.exact for hits in found)
    if len(rows) <= count:
        return Hits(rows, scores, all(hits.complete for hits in found), exact)
    chosen = np.argpartition(scores, len(scores) - count)[-count:]
    return Hits(rows[chosen], scores[chosen], complete=False, exact=exact)
