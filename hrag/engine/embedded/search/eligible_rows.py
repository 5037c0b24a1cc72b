"""Which rows of a view a search may find: all living ones, or those that were selected.

A filter and the routing by summaries select rows. Sources search among them and do not
know why they were selected.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment
from hrag.engine.search.candidates import RowNumbers
from hrag.engine.search.sorted_sets import is_in


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
        view = self.view
        if self.rows is not None:
            return self.rows[np.searchsorted(self.rows, view.tail_base) :]
        living = np.flatnonzero(view.alive[view.tail_base : view.count])
        return (living + view.tail_base).astype(np.uint32)

    def in_segments(self) -> Iterator[tuple[LoadedSegment, int, RowNumbers]]:
        """Yields each segment with its first row and its eligible rows, ascending."""
        view = self.view
        rows = self.rows
        if rows is None:
            rows = np.flatnonzero(view.alive[: view.tail_base]).astype(np.uint32)
        ends = np.searchsorted(rows, (*view.bases, view.tail_base))
        for segment, base, (start, end) in zip(
            view.segments, view.bases, pairwise(ends), strict=True
        ):
            yield segment, base, rows[start:end]
