"""Which rows of a view a search may find: all living ones, or those that were selected.

A filter and the routing by summaries select rows. Sources search among them and do not
know why they were selected.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment


@dataclass(frozen=True, slots=True)
class EligibleRows:
    """All living rows of a view, or those of `rows`, which live and are ascending.

    `exact` asks sources not to approximate.
    """

    view: View
    rows: RowNumbers | None = None
    exact: bool = False

    @property
    def count(self) -> int:
        """How many rows are eligible."""
        return self.view.living if self.rows is None else len(self.rows)

    def contains(self, rows: RowNumbers) -> NDArray[np.bool_] | None:
        """Returns which of `rows` are eligible, `bool[n]`; None if all rows of the view are."""
        if self.rows is not None:
            return is_in(rows, self.rows)
        if self.view.living == self.view.count:
            return None
        living: NDArray[np.bool_] = self.view.alive[rows] != 0
        return living

    def in_tail(self) -> RowNumbers:
        """Returns the eligible rows of the tail, ascending."""
        return self.between(self.view.tail_base, self.view.count)

    def in_segments(self) -> Iterator[tuple[LoadedSegment, int, RowNumbers]]:
        """Yields each segment with its first row and its eligible rows, ascending."""
        for segment, base, end in self.view.segment_rows():
            yield segment, base, self.between(base, end)

    def between(self, start: int, end: int) -> RowNumbers:
        """Returns the eligible ones of the rows from `start` to `end`, ascending."""
        if self.rows is not None:
            return self.rows[slice(*_bounds(self.rows, start, end))]
        if self.view.living == self.view.count:
            return np.arange(start, end, dtype=np.uint32)
        return (start + np.flatnonzero(self.view.alive[start:end])).astype(np.uint32)

    def share_of(self, start: int, end: int) -> int:
        """Returns how many of the rows from `start` to `end` are eligible; without `rows` about."""
        if self.rows is not None:
            first, last = _bounds(self.rows, start, end)
            return last - first
        return (end - start) * self.view.living // self.view.count


def _bounds(rows: RowNumbers, start: int, end: int) -> tuple[int, int]:
    """Where the rows from `start` to `end` lie among `rows`, ascending."""
    bounds = np.array((start, end), np.uint32)  # numpy would convert all rows to another type.
    first, last = np.searchsorted(rows, bounds).tolist()
    return first, last
