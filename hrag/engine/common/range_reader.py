"""Reads the ordinals of ranges of filter terms, so that no term is read again for each range.

The ranges of a filter may overlap, and reading a range costs most of the time of a filter. So the
first and the last terms of all ranges divide the terms into pieces. A range consists of whole
pieces. A piece that several ranges contain is read once and kept until the last of them is read.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from hrag.engine.common.filter_terms import TermRange
from hrag.engine.common.sorted_sets import Ordinals, union

# The kept pieces have at most this many ordinals in total (32 MiB). A piece that does not fit is
# read again for each range.
_MAX_KEPT = 1 << 22

ReadTerms = Callable[[bytes, bytes], Ordinals]
"""Reads the ordinals of the documents that have a term from the first up to the second argument."""


class RangeReader:
    """Reads ranges of the filter terms of one filter. Not thread-safe."""

    def __init__(
        self, ranges: Sequence[TermRange], read: ReadTerms, max_kept: int = _MAX_KEPT
    ) -> None:
        """Creates a reader of `ranges`, and of unions of these ranges; reads nothing."""
        self._read = read
        self._bounds = sorted({bound for pair in ranges for bound in pair})
        # The count of ranges that contain each piece and have not been read yet.
        self._uses = [0] * len(self._bounds)
        for pair in ranges:
            for piece in self._pieces(pair):
                self._uses[piece] += 1
        self._kept: dict[int, Ordinals] = {}
        self._left = max_kept

    def ordinals(self, range_: TermRange) -> Ordinals:
        """Returns the ordinals of the documents that have a term in the range, ascending.

        Raises the errors of `read`.
        """
        return union([self._piece(piece) for piece in self._pieces(range_)])

    def _pieces(self, range_: TermRange) -> range:
        """Returns the numbers of the pieces in a range. A piece ends where the next one begins."""
        return range(*(bisect_left(self._bounds, bound) for bound in range_))

    def _piece(self, piece: int) -> Ordinals:
        self._uses[piece] -= 1
        ordinals = self._kept.get(piece)
        if ordinals is None:
            ordinals = self._read(self._bounds[piece], self._bounds[piece + 1])
            if self._uses[piece] > 0 and len(ordinals) <= self._left:
                self._kept[piece] = ordinals
                self._left -= len(ordinals)
        elif self._uses[piece] <= 0:
            del self._kept[piece]
            self._left += len(ordinals)
        return ordinals
