"""Encodes posting lists of the lexical index: the leaves of a part that have a term.

One row of the table `postings` has the postings of one term in one part, in ascending order of
labels. A header has the count of postings and the width of each column. Three columns follow;
each is as narrow as its values allow. The first column has the distance of a document's ordinal
from the first ordinal of the part. In the second column, the lowest 8 bits are the term frequency,
and the bits above them are the leaf's index. The third column has the leaf's length, so that
scoring reads no other row. One numpy operation encodes or decodes many rows, because most rows
have few postings and an operation for each row would be slow.
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

# The header has the count of postings, then the width of each column in bytes.
_HEADER = struct.Struct("<4I")
_DTYPES = {kind.itemsize: kind for kind in map(np.dtype, ("u1", "<u2", "<u4"))}
# The possible widths of the values in a column, in bytes.
_WIDTHS = np.array(list(_DTYPES))
_LIMITS = np.array([1 << 8 * width for width in list(_DTYPES)[:-1]])
_COLUMNS = 3
_FREQUENCY_BITS = np.uint32(8)
_LARGEST_OFFSET = 0xFFFF_FFFF
# To divide postings into slices of similar size, a sample of their documents' ordinals is sorted.
# The sample contains the ordinal of one in this many postings.
_SAMPLE_STRIDE = 256

_Columns = list[NDArray[Any]]


class PostingArrays(NamedTuple):
    """The postings of several terms, one term after the other.

    Each term has at least one posting.

    There are t terms with n postings in total. `terms` is `uint64[t]` and `starts` is
    `int64[t + 1]`. The postings of term i have the indices `starts[i]` to `starts[i + 1]`
    (exclusive) in the other arrays. `labels` is `uint64[n]`, ascending within a term. `frequencies`
    and `lengths` are `uint32[n]`.
    """

    terms: NDArray[np.uint64]
    starts: NDArray[np.int64]
    labels: Labels
    frequencies: NDArray[np.uint32]
    lengths: NDArray[np.uint32]

    def only(self, mask: NDArray[np.bool_]) -> "PostingArrays":
        """Returns the postings for which `mask`, `bool[n]`, is true.

        Terms without a remaining posting are left out.
        """
        starts = np.concatenate(([0], np.cumsum(mask)))[self.starts]
        has_any = starts[1:] > starts[:-1]
        return PostingArrays(
            self.terms[has_any],
            np.concatenate((starts[:1], starts[1:][has_any])),
            self.labels[mask],
            self.frequencies[mask],
            self.lengths[mask],
        )

    def packed(self, first_ordinal: int) -> list[bytes]:
        """Returns the encoded row of each term, for one part of the lexical index.

        `first_ordinal` is the lowest ordinal of the part.
        """
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
            narrow = {width: column.astype(dtype).tobytes() for width, dtype in _DTYPES.items()}
            slices = zip(widths, bounds, strict=True)
            packed.append([narrow[width][width * a : width * b] for width, (a, b) in slices])
            header.append(widths)
        headers = map(_HEADER.pack, *header)
        return list(map(b"".join, zip(headers, *packed, strict=True)))

    @classmethod
    def unpacked(cls, stored: Sequence[tuple[int, int, bytes]]) -> "PostingArrays":
        """Decodes rows that `packed` has encoded.

        Each element of `stored` is a tuple of a term, the first ordinal of the part, and the
        encoded row. Raises DataLoss if the size of a row does not match its header.
        """
        return StoredPostings(stored).whole()

    def merged(self) -> "PostingArrays":
        """Returns these postings, after successive posting lists of the same term became one list.

        Posting lists of the same term that do not follow each other directly stay separate.
        """
        first = begins_run(self.terms)
        starts = np.append(self.starts[:-1][first], self.starts[-1])
        return self._replace(terms=self.terms[first], starts=starts)


class StoredPostings:
    """Encoded rows of postings, which can be decoded all at once or slice by slice.

    The columns of the rows are views of the encoded bytes, not copies.
    """

    def __init__(self, stored: Sequence[tuple[int, int, bytes]]) -> None:
        """Reads the headers of the rows; `stored` is the argument of `PostingArrays.unpacked`.

        Raises DataLoss if the size of a row does not match its header.
        """
        self._terms = np.array([term for term, _, _ in stored], np.uint64)
        self._firsts = np.array([first for _, first, _ in stored], np.uint64)
        self._columns = [_read_columns(*row) for row in stored]
        self._counts = np.array([len(offsets) for offsets, *_ in self._columns], np.int64)

    @property
    def count(self) -> int:
        """The count of postings in all rows."""
        return int(self._counts.sum())

    def whole(self) -> PostingArrays:
        """Returns all postings, in the order of the rows."""
        return self._unpack_range(np.zeros_like(self._counts), self._counts)

    def slices(self, size: int) -> Iterator[PostingArrays]:
        """Yields slices of about `size` postings, in ascending order of documents.

        All postings of a document are in the same slice.
        """
        if self.count <= size:
            yield self.whole()
            return
        for starts, ends in pairwise(self._slice_bounds(size)):
            yield self._unpack_range(starts, ends)

    def _slice_bounds(self, size: int) -> list[NDArray[np.int64]]:
        """Returns the boundaries of the slices: slice i is between boundaries i and i + 1.

        Each boundary is an array, `int64[rows]`: for each row, the index of the first posting after
        the boundary.
        """
        begins = self._sample_ordinals()[:: max(size // _SAMPLE_STRIDE, 1)][1:]
        bounds = np.zeros((len(begins), len(self._counts)), np.int64)
        for row, (first, (offsets, *_)) in enumerate(
            zip(self._firsts.tolist(), self._columns, strict=True)
        ):
            bounds[:, row] = np.searchsorted(offsets, begins - first)
        return [np.zeros_like(self._counts), *bounds, self._counts]

    def _sample_ordinals(self) -> NDArray[np.int64]:
        """Returns the document ordinals of a sample of all postings, in ascending order."""
        sampled, count = [np.empty(0, np.int64)], 0
        for first, (offsets, *_) in zip(self._firsts.tolist(), self._columns, strict=True):
            sampled.append(
                offsets[-count % _SAMPLE_STRIDE :: _SAMPLE_STRIDE].astype(np.int64) + first
            )
            count += len(offsets)
        return np.sort(np.concatenate(sampled))

    def _unpack_range(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> PostingArrays:
        """Decodes, of each row i, the postings from index `starts[i]` to `ends[i]` (exclusive)."""
        rows = np.flatnonzero(ends > starts)
        bounds = zip(rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True)
        parts: list[_Columns] = [[np.empty(0, np.uint32)] for _ in range(_COLUMNS)]
        for row, start, end in bounds:
            for part, column in zip(parts, self._columns[row], strict=True):
                part.append(column[start:end])
        offsets, leaves, lengths = map(np.concatenate, parts)
        counts = (ends - starts)[rows]
        labels = np.repeat(self._firsts[rows], counts)
        labels += offsets
        labels <<= np.uint64(LEAF_BITS)
        labels |= leaves >> _FREQUENCY_BITS
        return PostingArrays(
            self._terms[rows],
            np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
            labels,
            leaves & np.uint32(0xFF),
            lengths,
        )


def fits_a_part(first_ordinal: int, last_ordinal: int) -> bool:
    """Returns True if one part of the lexical index can have both of these ordinals.

    A posting stores its document's ordinal minus the part's first ordinal, in at most 32 bits.
    """
    return last_ordinal - first_ordinal <= _LARGEST_OFFSET


def _read_columns(term: int, first_ordinal: int, row: bytes) -> _Columns:
    """Returns views of the three columns of an encoded row.

    Raises DataLoss if the size of the row does not match its header.
    """
    columns: _Columns = []
    offset = _HEADER.size
    try:
        count, *widths = _HEADER.unpack_from(row)
        for width in widths:
            columns.append(np.frombuffer(row, _DTYPES[width], count, offset))
            offset += count * width
        is_whole = offset == len(row)
    except (struct.error, KeyError, ValueError):
        is_whole = False
    if not is_whole:
        raise DataLoss(
            f"the postings of term {term} from ordinal {first_ordinal} on are damaged: "
            f"the header of their row does not match the {len(row)} bytes of the row"
        )
    return columns
