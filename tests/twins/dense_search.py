"""The twin of `_dense.pyx`: it keeps candidates in lists, and calls the twins of other kernels."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag_fast import SEARCH_COST, Groups, NearestRows
from tests.twins.ancestor_groups import climb
from tests.twins.graph import Graph, GraphSearch

# The constants of a search; see `_dense.pyx`.
_SPARE_DEVIATIONS = 3
_DEEPER = 4

_Candidate = tuple[float, int]
"""A negated score and a row. So the best candidate is the smallest one."""


@dataclass(frozen=True, slots=True)
class SegmentVectors:
    """The twin of `hrag_fast.SegmentVectors`, which `_dense.pyi` documents."""

    graph: Graph
    items: NDArray[np.uint32]
    heads: NDArray[np.uint32]
    members: NDArray[np.uint32]
    ef: int

    def rows_of(self, item: int) -> list[int]:
        """Returns the rows that have the vector of an item."""
        if not len(self.heads):
            return [item]
        rows: list[int] = self.members[self.heads[item] : self.heads[item + 1]].tolist()
        return rows


class DenseSearch:
    """The twin of `hrag_fast.DenseSearch`, which `_dense.pyi` documents."""

    def __init__(
        self,
        query: NDArray[np.float32],
        segments: Iterable[SegmentVectors],
        tail: NDArray[np.float32],
        alive: NDArray[np.uint8],
        count: int,
        living: int,
        search_cost: int = SEARCH_COST,
    ) -> None:
        self._query, self._tail, self._alive = query, tail, alive
        self._count, self._living, self._search_cost = count, living, search_cost
        self._segments = tuple(segments)
        self._searches: dict[int, GraphSearch] = {}

    def nearest(
        self, count: int, rows: NDArray[np.uint32] | None = None, exact: bool = False
    ) -> NearestRows:
        """Returns the nearest eligible rows; see `_dense.pyi`."""
        eligible = np.flatnonzero(self._alive[: self._count]) if rows is None else rows
        found, is_exact, complete, base = [], True, True, 0
        for number, segment in enumerate(self._segments):
            end = base + len(segment.items)
            inside = eligible[(base <= eligible) & (eligible < end)].tolist()
            estimate = (end - base) * self._living // self._count if rows is None else len(inside)
            reached = None if exact else self._search(number, base, inside, estimate, count)
            if reached is None:
                scanned = sorted(zip((-self.scores(inside)).tolist(), inside, strict=True))
                found += scanned[:count]
                complete &= len(scanned) <= count
            else:
                candidates, whole = reached
                found += candidates
                is_exact, complete = False, complete and whole
            base = end
        in_tail = eligible[eligible >= base].tolist()
        found += zip((-self.scores(in_tail)).tolist(), in_tail, strict=True)
        best = sorted((row, -score) for score, row in sorted(found)[:count])
        return NearestRows(
            np.array([row for row, _ in best], np.uint32),
            np.array([score for _, score in best], np.float32),
            is_exact,
            complete and len(found) <= count,
        )

    def climb(
        self,
        count: int,
        labels: NDArray[np.uint64],
        ancestors: NDArray[np.uint32],
        aggregation: int,
        rows: NDArray[np.uint32] | None = None,
        exact: bool = False,
    ) -> tuple[NearestRows, Groups]:
        """Returns the nearest eligible rows and their groups; see `_dense.pyi`."""
        found = self.nearest(count, rows, exact)
        groups = climb(found.rows, found.scores, labels, ancestors, self._alive, aggregation)
        return found, groups

    def scores(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """Returns the inner product of each row; see `_dense.pyi`."""
        return np.array([self._score(row) for row in rows], np.float32)

    def _score(self, row: int) -> float:
        for segment in self._segments:
            if row < len(segment.items):
                return float(segment.graph.scores(self._query, segment.items[row : row + 1])[0])
            row -= len(segment.items)
        return float(self._tail[row].astype(np.float64) @ self._query.astype(np.float64))

    def _search(
        self, number: int, base: int, inside: Sequence[int], estimate: int, count: int
    ) -> tuple[list[_Candidate], bool] | None:
        """Searches a graph; returns None if the eligible rows of its segment must be scanned.

        Otherwise returns the eligible rows that were found, and whether all rows were found.
        """
        segment = self._segments[number]
        requested = _rows_to_request(count, estimate, len(segment.items))
        while requested * self._search_cost < estimate:
            if number not in self._searches:
                self._searches[number] = segment.graph.search(self._query, segment.ef)
            items, scores = self._searches[number].nearest(requested)
            if len(items) < min(requested, len(segment.graph)):
                return None
            rows = [
                (-score, base + row)
                for item, score in zip(items.tolist(), scores.tolist(), strict=True)
                for row in segment.rows_of(item)
            ]
            found = [candidate for candidate in rows if candidate[1] in set(inside)]
            whole = len(rows) == len(segment.items)
            if whole or len(found) >= count:
                return found, whole
            requested *= _DEEPER
        return None


def _rows_to_request(count: int, eligible_count: int, rows: int) -> int:
    spare = _SPARE_DEVIATIONS * math.sqrt(count * (1 - eligible_count / rows))
    return math.ceil((count + spare) * rows / max(eligible_count, 1))
