"""Postings: which leaves of one part of the lexical index have a term, how often.

One row of the table `postings` has a term's postings of one part, in ascending order of labels:
three columns, each as narrow as its values allow, behind a header of their lengths. A posting
has the ordinal behind the part's first, the leaf with the frequency, and the leaf's length: so
that scoring needs no other row. Many rows are packed and unpacked at once, since most have few
postings.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import LEAF_BITS, Labels, leaves_of, ordinals_of
from hrag.engine.common.sorted_sets import begins_run
from hrag.values.errors import DataLoss

_HEADER = struct.Struct("<4I")  # The number of postings, then the width of each column.
_KINDS = {kind.itemsize: kind for kind in map(np.dtype, ("u1", "<u2", "<u4"))}
_WIDTHS = np.array(list(_KINDS))  # Bytes of a value.
_LIMITS = np.array([1 << 8 * width for width in list(_KINDS)[:-1]])
_COLUMNS = 3
_FREQUENCY_BITS = np.uint32(8)
_LARGEST_OFFSET = 0xFFFF_FFFF
_SAMPLED = 256  # Of so many postings one tells where documents are.

_Columns = list[NDArray[Any]]


class Postings(NamedTuple):
    """The postings of several terms, one term after the other, each with at least one.

    `terms` is `uint64[t]`; those of term i are the places `starts[i]` to `starts[i + 1]` of
    the other arrays, `starts` being `int64[t + 1]`. `labels` is `uint64[n]`, ascending within
    a term, `frequencies` and `lengths` are `uint32[n]`.
    """

    terms: NDArray[np.uint64]
    starts: NDArray[np.int64]
    labels: Labels
    frequencies: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    def only(self, chosen: NDArray[np.bool_]) -> "Postings":
        """Returns the chosen postings, `bool[n]`, and the terms that have any of them."""
        kept = np.concatenate(([0], np.cumsum(chosen)))[self.starts]
        has_any = kept[1:] > kept[:-1]
        return Postings(
            self.terms[has_any],
            np.concatenate((kept[:1], kept[1:][has_any])),
            self.labels[chosen],
            self.frequencies[chosen],
            self.lengths[chosen],
        )

    def packed(self, first_ordinal: int) -> list[bytes]:
        """Returns the row of each term, for a part that begins with `first_ordinal`."""
        if not len(self.terms):
            return []
        offsets = (ordinals_of(self.labels) - np.uint64(first_ordinal)).astype(np.uint32)
        leaves = leaves_of(self.labels).astype(np.uint32)
        columns = (offsets, leaves << _FREQUENCY_BITS | self.frequencies, self.lengths)
        starts, ends = self.starts[:-1], self.starts[1:]
        bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
        header = [(ends - starts).tolist()]
        packed = []
        for column in columns:
            largest = np.maximum.reduceat(column, starts)
            widths = _WIDTHS[np.searchsorted(_LIMITS, largest, "right")].tolist()
            narrow = {width: column.astype(kind).tobytes() for width, kind in _KINDS.items()}
            each = zip(widths, bounds, strict=True)
            packed.append([narrow[width][width * a : width * b] for width, (a, b) in each])
            header.append(widths)
        headers = map(_HEADER.pack, *header)
        return list(map(b"".join, zip(headers, *packed, strict=True)))

    @classmethod
    def unpacked(cls, stored: Sequence[tuple[int, int, bytes]]) -> "Postings":
        """Returns what `packed` packed.

        Each row comes with its term and its part's first ordinal: (term, ordinal, bytes).
        Raises DataLoss if a row has not as many bytes as its header says.
        """
        return StoredPostings(stored).whole()

    def merged(self) -> "Postings":
        """Returns the same postings; neighbours of one term become one term."""
        first = begins_run(self.terms)
        starts = np.append(self.starts[:-1][first], self.starts[-1])
        return self._replace(terms=self.terms[first], starts=starts)


class StoredPostings:
    """Rows of postings, whose columns are read where they lie; unpacked whole or in slices."""

    def __init__(self, stored: Sequence[tuple[int, int, bytes]]) -> None:
        """Takes and raises what `Postings.unpacked` does."""
        self._terms = np.array([term for term, _, _ in stored], np.uint64)
        self._firsts = np.array([first for _, first, _ in stored], np.uint64)
        self._columns = [_columns_of(*each) for each in stored]
        self._counts = np.array([len(offsets) for offsets, *_ in self._columns], np.int64)

    @property
    def count(self) -> int:
        """The number of postings."""
        return int(self._counts.sum())

    def whole(self) -> Postings:
        """Returns all postings, in the order of the rows."""
        return self._between(np.zeros_like(self._counts), self._counts)

    def slices(self, most: int) -> Iterator[Postings]:
        """Yields about `most` postings at a time, ascending by document; none is parted."""
        if self.count <= most:
            yield self.whole()
            return
        for starts, ends in pairwise(self._cuts(most)):
            yield self._between(starts, ends)

    def _cuts(self, most: int) -> list[NDArray[np.int64]]:
        """Where slices begin and end in each row: `int64[rows]` for each boundary."""
        begins = self._ordinals()[:: max(most // _SAMPLED, 1)][1:]
        cuts = np.zeros((len(begins), len(self._counts)), np.int64)
        for row, (first, (offsets, *_)) in enumerate(
            zip(self._firsts.tolist(), self._columns, strict=True)
        ):
            cuts[:, row] = np.searchsorted(offsets, begins - first)
        return [np.zeros_like(self._counts), *cuts, self._counts]

    def _ordinals(self) -> NDArray[np.int64]:
        """Ordinals of a sample of all postings, ascending."""
        sampled, seen = [np.empty(0, np.int64)], 0
        for first, (offsets, *_) in zip(self._firsts.tolist(), self._columns, strict=True):
            sampled.append(offsets[-seen % _SAMPLED :: _SAMPLED].astype(np.int64) + first)
            seen += len(offsets)
        return np.sort(np.concatenate(sampled))

    def _between(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Postings:
        """The postings of some rows, from a place in each row to another."""
        chosen = np.flatnonzero(ends > starts)
        bounds = zip(chosen.tolist(), starts[chosen].tolist(), ends[chosen].tolist(), strict=True)
        parts: list[_Columns] = [[np.empty(0, np.uint32)] for _ in range(_COLUMNS)]
        for row, start, end in bounds:
            for part, column in zip(parts, self._columns[row], strict=True):
                part.append(column[start:end])
        offsets, leaves, lengths = map(np.concatenate, parts)
        counts = (ends - starts)[chosen]
        labels = np.repeat(self._firsts[chosen], counts)
        labels += offsets
        labels <<= np.uint64(LEAF_BITS)
        labels |= leaves >> _FREQUENCY_BITS
        return Postings(
            self._terms[chosen],
            np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
            labels,
            leaves & np.uint32(0xFF),
            lengths,
        )


def fits_a_part(first_ordinal: int, last_ordinal: int) -> bool:
    """Returns whether one part may hold documents as far apart as these."""
    return last_ordinal - first_ordinal <= _LARGEST_OFFSET


def _columns_of(term: int, first_ordinal: int, row: bytes) -> _Columns:
    """The three columns of a row, as they are stored; raises DataLoss if it is damaged."""
    columns: _Columns = []
    at = _HEADER.size
    try:
        count, *widths = _HEADER.unpack_from(row)
        for width in widths:
            columns.append(np.frombuffer(row, _KINDS[width], count, at))
            at += count * width
        is_whole = at == len(row)
    except (struct.error, KeyError, ValueError):
        is_whole = False
    if not is_whole:
        raise DataLoss(
            f"postings of term {term} from ordinal {first_ordinal} on are not what was stored: "
            f"{len(row)} bytes that do not fit their header"
        )
    return columns
