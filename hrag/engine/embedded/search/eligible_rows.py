"""The eligible rows of a search: the rows of a view that the search may return.

These are all living rows, or fewer: a filter, routing by summaries and required terms each
restrict them. Sources search among the eligible rows and do not know what restricted them.
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
    """The eligible rows of a view: `rows`, or all living rows if `rows` is None.

    `rows` are living rows, ascending: `uint32[n]`. With `exact`, sources compare every eligible
    row and do not approximate.
    """

    view: View
    rows: RowNumbers | None = None
    exact: bool = False

    @property
    def count(self) -> int:
        """The number of eligible rows."""
        return self.view.living if self.rows is None else len(self.rows)

    def contains(self, rows: RowNumbers) -> NDArray[np.bool_] | None:
        """Returns `bool[n]`, True for each of `rows` that is eligible.

        Returns None if all rows of the view are eligible.
        """
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
        """Yields each segment with the number of its first row and its eligible rows, ascending."""
        for segment, base, end in self.view.segment_rows():
            yield segment, base, self.between(base, end)

    def between(self, start: int, end: int) -> RowNumbers:
        """Returns the eligible rows from `start` up to, but not including, `end`, ascending."""
        if self.rows is not None:
            return self.rows[slice(*_bounds(self.rows, start, end))]
        if self.view.living == self.view.count:
            return np.arange(start, end, dtype=np.uint32)
        return (start + np.flatnonzero(self.view.alive[start:end])).astype(np.uint32)

    def count_between(self, start: int, end: int) -> int:
        """Returns the number of eligible rows from `start` up to, but not including, `end`.

        Without `rows` it is an estimate: deleted rows are assumed to be spread evenly.
        """
        if self.rows is not None:
            first, last = _bounds(self.rows, start, end)
            return last - first
        return (end - start) * self.view.living // self.view.count


def _bounds(rows: RowNumbers, start: int, end: int) -> tuple[int, int]:
    """Returns the slice bounds of the rows from `start` to `end` in the ascending `rows`."""
    # With plain integers numpy would convert all rows to another type.
    bounds = np.array((start, end), np.uint32)
    first, last = np.searchsorted(rows, bounds).tolist()
    return first, last
