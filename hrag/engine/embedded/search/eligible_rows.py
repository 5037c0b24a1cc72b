"""The eligible rows of a search: the rows of a view that the search may return.

A row is the position of one leaf in the view. Without restrictions, all rows of documents that are
not deleted are eligible. A filter, routing by summaries, and required terms each make fewer rows
eligible. The dense and the lexical source search among the eligible rows, and do not know why a row
is not eligible.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments.segment_files import LoadedSegment


@dataclass(slots=True)
class EligibleRows:
    """The eligible rows of a view.

    `rows` are the row numbers of the eligible rows, ascending: `uint32[n]`, contiguous. If `rows`
    is None, all rows of existing documents are eligible. Rows of deleted documents are never
    eligible. If `exact` is True, a search must score every eligible row, and must not use an
    approximate index.
    """

    view: View
    rows: RowNumbers | None = None
    exact: bool = False

    @property
    def count(self) -> int:
        """The count of eligible rows."""
        return self.view.living if self.rows is None else len(self.rows)

    def in_segments(self) -> Iterator[tuple[LoadedSegment, int, RowNumbers]]:
        """Yields each segment with the number of its first row and its eligible rows.

        The eligible rows are row numbers of the view, ascending.
        """
        for segment, base, end in self.view.segment_rows():
            yield segment, base, self.between(base, end)

    def between(self, start: int, end: int) -> RowNumbers:
        """Returns the eligible rows from `start` up to, but not including, `end`, ascending.

        The bounds and the result are row numbers of the view. The result is `uint32[n]`.
        """
        if self.rows is not None:
            return self.rows[slice(*_bounds(self.rows, start, end))]
        if self.view.living == self.view.count:
            return np.arange(start, end, dtype=np.uint32)
        return (start + np.flatnonzero(self.view.alive[start:end])).astype(np.uint32)


def _bounds(rows: RowNumbers, start: int, end: int) -> tuple[int, int]:
    """Returns two positions in `rows`, which is ascending: `first` and `last`.

    `rows[first:last]` are the row numbers from `start` up to, but not including, `end`.
    """
    # If the bounds were Python integers, numpy would convert all rows to another type first.
    bounds = np.array((start, end), np.uint32)
    first, last = np.searchsorted(rows, bounds).tolist()
    return first, last
