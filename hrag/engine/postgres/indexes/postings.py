"""Postings: which leaves of one part of the lexical index have a term, how often.

One row of the table `postings` has a term's postings of one part, in ascending order of labels:
three columns, each as narrow as its values allow, behind a header of their lengths. A posting
has the ordinal behind the part's first, the leaf with the frequency, and the leaf's length: so
that scoring needs no other row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.engine.stored.labels import LEAF_BITS, Labels

_HEADER = np.dtype("<u4")
_KINDS: dict[int, np.dtype[Any]] = {
    kind.itemsize: kind for kind in map(np.dtype, ("u1", "<u2", "<u4"))
}
_COLUMNS = 3
_FREQUENCY_BITS = np.uint32(8)
_LARGEST_OFFSET = 0xFFFF_FFFF


class PostingList(NamedTuple):
    """The postings of one term: `uint64[n]` ascending labels, `uint32[n]` of each of the rest."""

    labels: Labels
    frequencies: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    @classmethod
    def merged(cls, lists: "Sequence[PostingList]") -> "PostingList":
        """Returns the postings of several lists, which share no leaf, as one."""
        whole = cls(
            np.concatenate([each.labels for each in lists]),
            np.concatenate([each.frequencies for each in lists]),
            np.concatenate([each.lengths for each in lists]),
        )
        return whole.only(np.argsort(whole.labels))

    def only(self, chosen: NDArray[Any]) -> "PostingList":
        """Returns the chosen postings, by position or as a mask."""
        return PostingList(self.labels[chosen], self.frequencies[chosen], self.lengths[chosen])

    def packed(self, first_ordinal: int) -> bytes:
        """Returns the postings as bytes, for a part that begins with `first_ordinal`."""
        first = np.uint64(first_ordinal << LEAF_BITS)
        behind = self.labels - first
        offsets = (behind >> np.uint64(LEAF_BITS)).astype(np.uint32)
        leaves = (behind & np.uint64((1 << LEAF_BITS) - 1)).astype(np.uint32)
        columns = (offsets, leaves << _FREQUENCY_BITS | self.frequencies, self.lengths)
        narrow = [column.astype(_narrowest(column)) for column in columns]
        header = np.array([len(self.labels), *(each.itemsize for each in narrow)], _HEADER)
        return b"".join(part.tobytes() for part in (header, *narrow))

    @classmethod
    def unpacked(cls, value: bytes, first_ordinal: int) -> "PostingList":
        """Returns what `packed` packed."""
        count, *widths = np.frombuffer(value, _HEADER, 1 + _COLUMNS).tolist()
        at, columns = _HEADER.itemsize * (1 + _COLUMNS), []
        for width in widths:
            columns.append(np.frombuffer(value, _KINDS[width], count, at))
            at += count * width
        offsets, leaves, lengths = columns
        leaves = leaves.astype(np.uint32)
        ordinals = offsets.astype(np.uint64) + np.uint64(first_ordinal)
        return cls(
            ordinals << np.uint64(LEAF_BITS) | (leaves >> _FREQUENCY_BITS),
            leaves & np.uint32(0xFF),
            lengths.astype(np.uint32),
        )


def fits_a_part(first_ordinal: int, last_ordinal: int) -> bool:
    """Returns whether one part may hold documents as far apart as these."""
    return last_ordinal - first_ordinal <= _LARGEST_OFFSET


def _narrowest(column: NDArray[np.uint32]) -> np.dtype[Any]:
    largest = int(column.max(initial=0))
    return next(kind for width, kind in _KINDS.items() if largest < 1 << 8 * width)
