"""The twins of the kernels of lexical search: they use dicts, and return the same bits.

The kernels are `_posting_lists.pyx`, `_bm25.pyx`, `_forward.pyx` and `_postings_writer.pyx`. The
twins compute scores by `hrag.text.bm25`, which defines what a score is.
"""

import struct
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hrag.text.bm25 import LengthNorm, leaf_scores
from hrag_fast import MAX_FREQUENCY

HEADER = struct.Struct("<8sIIQQ")
MAGIC = b"hragbm25"
VERSION = 1
WINDOW_ROWS = 8192
MAX_ROWS = WINDOW_ROWS << 16
LONG_FREQUENCY = 7
DROPPED = 0xFFFFFFFF

Lists = dict[int, dict[int, int]]
"""Term frequencies, by term id and by row: `lists[term_id][row]`. Only rows with the term occur."""


class Postings:
    """The twin of `hrag_fast.Postings`."""

    def __init__(self, buffer: bytes | memoryview) -> None:
        """Reads and checks postings; see `_posting_lists.pyi`."""
        self.rows, self.lists = _read(bytes(buffer))

    def __len__(self) -> int:
        """Returns the number of terms."""
        return len(self.lists)

    def document_frequencies(
        self, ids: NDArray[np.uint64], alive: NDArray[np.uint8] | None
    ) -> NDArray[np.uint32]:
        """Returns in how many rows each term occurs; see `_posting_lists.pyi`."""
        self._check_column("alive", alive)
        counts = [
            sum(alive is None or alive[row] != 0 for row in self.lists.get(term, ()))
            for term in ids.tolist()
        ]
        return np.array(counts, np.uint32)

    def best(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        norm_base: float,
        norm_per_term: float,
        lengths: NDArray[np.uint32],
        allowed: NDArray[np.uint8] | None,
        count: int,
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Returns the rows with the highest scores; see `_bm25.pyi`."""
        self._check_column("allowed", allowed)
        scores = self._all_scores(ids, weights, norm_base, norm_per_term, lengths)
        ranked = [row for row in np.flatnonzero(scores) if allowed is None or allowed[row]]
        ranked.sort(key=lambda row: (-scores[row], row))
        best = np.array(ranked[:count], np.uint32)
        return best, scores[best]

    def best_and_scores(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        norm_base: float,
        norm_per_term: float,
        lengths: NDArray[np.uint32],
        allowed: NDArray[np.uint8] | None,
        count: int,
        requested: NDArray[np.uint32],
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.float32]]:
        """Returns the same as `best`, and the scores of requested rows; see `_bm25.pyi`."""
        scores = self._all_scores(ids, weights, norm_base, norm_per_term, lengths)
        before = -1
        for i, row in enumerate(requested.tolist()):
            if row >= self.rows:
                raise IndexError(f"requested[{i}] is {row}; it must be below {self.rows}")
            if row <= before:
                raise ValueError(
                    f"requested[{i}] is {row}; it must be above requested[{i - 1}], {before}"
                )
            if allowed is not None and not allowed[row]:
                raise ValueError(f"requested[{i}] is {row}, which is not allowed")
            before = row
        best = self.best(ids, weights, norm_base, norm_per_term, lengths, allowed, count)
        return *best, scores[requested]

    def rows_with_all(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Returns the rows that have every term; see `_posting_lists.pyi`."""
        _check_ascending(ids)
        rows = set(range(self.rows))
        for term in ids.tolist():
            rows &= self.lists.get(term, {}).keys()
        return np.array(sorted(rows), np.uint32)

    def _all_scores(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        norm_base: float,
        norm_per_term: float,
        lengths: NDArray[np.uint32],
    ) -> NDArray[np.float32]:
        _check_ascending(ids)
        if len(weights) != len(ids):
            raise ValueError(f"weights has {len(weights)} entries; it must have {len(ids)}, as ids")
        for i, weight in enumerate(weights.tolist()):
            if not 0 <= weight <= 1:
                raise ValueError(f"weights[{i}] is {weight}; it must be from 0 to 1")
        for name, value in (("norm_base", norm_base), ("norm_per_term", norm_per_term)):
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is {value}; it must be finite and not negative")
        self._check_column("lengths", lengths)
        matches = [
            (row, which, frequency)
            for which, term in enumerate(ids.tolist())
            for row, frequency in self.lists.get(term, {}).items()
        ]
        norm = LengthNorm(norm_base, norm_per_term)
        return leaf_scores(weights, norm, *_columns(matches), lengths)

    def _check_column(self, name: str, column: NDArray[np.generic] | None) -> None:
        if column is not None and len(column) != self.rows:
            raise ValueError(f"{name} has {len(column)} entries; it must have {self.rows}")


def _columns(
    matches: list[tuple[int, int, int]],
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    rows, which, frequencies = np.array(matches, np.uint32).reshape(-1, 3).T
    return rows, which, frequencies


def _check_ascending(ids: NDArray[np.uint64]) -> None:
    for i in range(1, len(ids)):
        if ids[i - 1] >= ids[i]:
            raise ValueError(f"ids[{i}] is {ids[i]}; it must be above ids[{i - 1}], {ids[i - 1]}")


def _read(buffer: bytes) -> tuple[int, Lists]:
    """Returns the count of rows, and the frequencies by term and row.

    Raises ValueError for damaged postings.
    """
    if len(buffer) < HEADER.size:
        raise ValueError(f"{len(buffer)} bytes are too few for postings")
    magic, version, rows, term_count, unit_count = HEADER.unpack_from(buffer)
    if magic != MAGIC or version != VERSION or rows > MAX_ROWS:
        raise ValueError("the buffer does not hold postings")
    if len(buffer) != HEADER.size + 8 + 20 * term_count + 2 * unit_count:
        raise ValueError("the header of the postings does not fit their size")
    at = HEADER.size
    ids = np.frombuffer(buffer, "<u8", term_count, at).tolist()
    at += 8 * term_count
    offsets = np.frombuffer(buffer, "<u8", term_count + 1, at).tolist()
    at += 8 * (term_count + 1)
    counts = np.frombuffer(buffer, "<u4", term_count, at).tolist()
    units = np.frombuffer(buffer, "<u2", unit_count, at + 4 * term_count).tolist()
    if [offsets[0], offsets[-1]] != [0, unit_count] or offsets != sorted(offsets):
        raise ValueError("the offsets must ascend from 0 to the count of units")
    if ids != sorted(set(ids)):
        raise ValueError("the term ids must ascend")
    lists = {
        term: _read_list(units[start:end], rows)
        for term, start, end in zip(ids, offsets[:-1], offsets[1:], strict=True)
    }
    if [len(postings) for postings in lists.values()] != counts or 0 in counts:
        raise ValueError("the document frequencies are wrong")
    return rows, lists


def _read_list(units: list[int], rows: int) -> dict[int, int]:
    """Returns the frequencies of one term by row, read from the units of its list.

    Raises ValueError if `_encoded` would write other units for these frequencies.
    """
    postings: dict[int, int] = {}
    at = 0
    try:
        while at < len(units):
            window, size = units[at : at + 2]
            at += 2
            end = at + size
            while at < end:
                row, frequency = divmod(units[at], LONG_FREQUENCY + 1)
                at += 1
                if frequency == LONG_FREQUENCY:
                    frequency = units[at]
                    at += 1
                postings[window * WINDOW_ROWS + row] = frequency
    except (IndexError, ValueError):
        raise ValueError("a list of the postings ends too early") from None
    frequencies = postings.values()
    if (
        max(postings, default=0) >= rows
        or not all(1 <= frequency <= MAX_FREQUENCY for frequency in frequencies)
        or _encoded(postings) != units
    ):
        raise ValueError("a list of the postings is damaged")
    return postings


def _encoded(postings: dict[int, int]) -> list[int]:
    """Returns the units of one term's list; `_posting_lists.pyx` describes the layout.

    `postings` has the frequency of the term in each row that has it.
    """
    blocks: dict[int, list[int]] = {}
    for row, frequency in sorted(postings.items()):
        window, place = divmod(row, WINDOW_ROWS)
        units = blocks.setdefault(window, [])
        if frequency < LONG_FREQUENCY:
            units.append(place << 3 | frequency)
        else:
            units += [place << 3 | LONG_FREQUENCY, frequency]
    return [unit for window, units in blocks.items() for unit in (window, len(units), *units)]


def _packed(rows: int, lists: Lists) -> bytes:
    """Returns an inverted index of `rows` rows as bytes, which `Postings` can read."""
    terms = sorted(term for term, postings in lists.items() if postings)
    encoded = [_encoded(lists[term]) for term in terms]
    offsets = np.cumsum([0, *map(len, encoded)])
    units = [unit for term_units in encoded for unit in term_units]
    return b"".join(
        [
            HEADER.pack(MAGIC, VERSION, rows, len(terms), len(units)),
            np.array(terms, "<u8").tobytes(),
            offsets.astype("<u8").tobytes(),
            np.array([len(lists[term]) for term in terms], "<u4").tobytes(),
            np.array(units, "<u2").tobytes(),
        ]
    )


def postings_of(starts: NDArray[np.int64], entries: NDArray[np.uint64], rows: int) -> bytes:
    """The twin of `hrag_fast.postings_of`, which `_postings_writer.pyi` documents."""
    if rows > MAX_ROWS:
        raise ValueError(f"rows is {rows}; it must be at most {MAX_ROWS}")
    if len(starts) != rows + 1:
        raise ValueError(f"starts has {len(starts)} entries; it must have {rows + 1}")
    lists: Lists = {}
    for row, pairs in _forward_rows(starts, entries, 0, rows):
        terms = [term for term, _ in pairs]
        if terms != sorted(set(terms)) or not all(frequency for _, frequency in pairs):
            raise ValueError(f"row {row} is damaged")
        for term, frequency in pairs:
            lists.setdefault(term, {})[row] = frequency
    return _packed(rows, lists)


def _forward_rows(
    starts: NDArray[np.int64], entries: NDArray[np.uint64], first: int, last: int
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yields each row from `first` to `last - 1` that has terms, with its terms.

    Each term is a pair of its id and its frequency in the row.
    """
    borders = starts[first : last + 1]
    bad = (borders < 0) | (borders > len(entries))
    bad[:-1] |= borders[:-1] > borders[1:]
    if last > first and bad.any():
        raise ValueError(f"row {first + int(np.argmax(bad))} does not lie in entries")
    for row in (first + np.flatnonzero(borders[:-1] < borders[1:])).tolist():
        row_entries = entries[starts[row] : starts[row + 1]].tolist()
        yield row, [divmod(entry, MAX_FREQUENCY + 1) for entry in row_entries]


def write_postings(
    path: str | PathLike[str], sources: Sequence[tuple[Postings, NDArray[np.uint32]]]
) -> None:
    """The twin of `hrag_fast.write_postings`, which `_postings_writer.pyi` documents."""
    lists: Lists = {}
    remaining_rows: list[int] = []
    for number, (postings, remap) in enumerate(sources):
        if len(remap) != postings.rows:
            raise ValueError(f"the remap of source {number} must have {postings.rows} entries")
        new_rows = remap.tolist()
        remaining_rows += [row for row in new_rows if row != DROPPED]
        for term, frequencies in postings.lists.items():
            merged = lists.setdefault(term, {})
            for row, frequency in frequencies.items():
                if new_rows[row] != DROPPED:
                    merged[new_rows[row]] = frequency
    count = len(remaining_rows)
    if sorted(remaining_rows) != list(range(count)):
        raise ValueError(f"together the remaps must have each row from 0 to {count - 1} once")
    Path(path).write_bytes(_packed(count, lists))


def forward_matches(
    starts: NDArray[np.int64],
    entries: NDArray[np.uint64],
    first: int,
    last: int,
    ids: NDArray[np.uint64],
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """The twin of `hrag_fast.forward_matches`, which `_forward.pyi` documents."""
    if not 0 <= first <= last < max(1, len(starts)):
        raise ValueError(f"first and last are {first} and {last}; there are {len(starts) - 1} rows")
    _check_ascending(ids)
    places = {term: which for which, term in enumerate(ids.tolist())}
    matches = [
        (row - first, places[term], frequency)
        for row, pairs in _forward_rows(starts, entries, first, last)
        for term, frequency in pairs
        if term in places
    ]
    return _columns(matches)
