"""The eligible rows of a search: the rows of a view that the search may return.

Without restrictions, all living rows are eligible. A filter, routing by summaries, and required
terms each make fewer rows eligible. The sources search among the eligible rows, and do not know
why a row is not eligible.
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

    `rows` are numbers of living rows, ascending: `uint32[n]`. If `exact` is True, the sources must
    score every eligible row, and must not use an approximate index.
    """

    view: View
    rows: RowNumbers | None = None
    exact: bool = False

    @property
    def count(self) -> int:
        """The count of eligible rows."""
        return self.view.living if self.rows is None else len(self.rows)

    def contains(self, rows: RowNumbers) -> NDArray[np.bool_] | None:
        """Returns a mask that is True for each of the given `rows` that is eligible: `bool[n]`.

        Returns None instead if all rows of the view are eligible.
        """
        if self.rows is not None:
            return is_in(rows, self.rows)
        if self.view.living == self.view.count:
            return None
        living: NDArray[np.bool_] = self.view.alive[rows] != 0
        return living

    def in_tail(self) -> RowNumbers:
        """Returns the numbers of the eligible rows of the tail, ascending: `uint32[n]`."""
        return self.between(self.view.tail_base, self.view.count)

    def in_segments(self) -> Iterator[tuple[LoadedSegment, int, RowNumbers]]:
        """Yields each segment with its first row and its eligible rows.

        All are row numbers of the view. The eligible rows are ascending.
        """
        for segment, base, end in self.view.segment_rows():
            yield segment, base, self.between(base, end)

    def between(self, start: int, end: int) -> RowNumbers:
        """Returns the eligible rows from `start` up to, but not including, `end`, ascending.

        All are row numbers of the view. The result is `uint32[n]`.
        """
        if self.rows is not None:
            return self.rows[slice(*_bounds(self.rows, start, end))]
        if self.view.living == self.view.count:
            return np.arange(start, end, dtype=np.uint32)
        return (start + np.flatnonzero(self.view.alive[start:end])).astype(np.uint32)

    def count_between(self, start: int, end: int) -> int:
        """Returns the count of eligible rows from `start` up to, but not including, `end`.

        If `rows` is None, the count is an estimate, which assumes that deleted rows are distributed
        evenly over the view.
        """
        if self.rows is not None:
            first, last = _bounds(self.rows, start, end)
            return last - first
        return (end - start) * self.view.living // self.view.count


def _bounds(rows: RowNumbers, start: int, end: int) -> tuple[int, int]:
    """Returns the bounds of the slice of `rows` with the values from `start` up to before `end`.

    `rows` are ascending.
    """
    # If the bounds were Python integers, numpy would first convert all rows to another type.
    bounds = np.array((start, end), np.uint32)
    first, last = np.searchsorted(rows, bounds).tolist()
    return first, last
