"""Types and documentation of the compiled `Postings`.

Array arguments are one-dimensional and C-contiguous and may be read-only; a wrong dtype or shape
is a ValueError, None (where it is not allowed) or no array a TypeError. Arrays returned are new.

The GIL is kept for work of about 10 us and released for more.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class Postings:
    """An immutable inverted index of n rows, read in place from one buffer.

    `buffer` holds what `write_postings` or `postings_of` writes; it may be a memory map that
    several processes share; it is kept, and must not change. Nothing else is allocated.

    A score is BM25 (Robertson and Zaragoza, 2009) divided by its largest possible value: the sum
    of `weight * frequency / (frequency + (a + b * length))` over the terms of the query that the
    row has. With BM25's k1 and b, `a` is `k1 * (1 - b)` and `b` is `k1 * b / average_length`;
    weights are the terms' inverse document frequencies divided by their sum. All is computed in
    float32 and added in ascending order of term ids: the same query gives the same bits in
    `best`, in `scores` and in `bm25`.

    Safe to use from several threads.
    """

    def __init__(self, buffer: Buffer) -> None:
        """Reads and checks every posting, in time linear in their number.

        `buffer` must begin at a multiple of 8 bytes in memory, as maps, arrays and bytes do.

        Raises ValueError if it is anything but postings: no later call can read outside it,
        whatever it holds.
        """

    @property
    def rows(self) -> int:
        """Number of rows, n, with and without terms."""

    def __len__(self) -> int:
        """Number of terms."""

    def document_frequencies(
        self, ids: NDArray[np.uint64], alive: NDArray[np.uint8] | None
    ) -> NDArray[np.uint32]:
        """Returns in how many rows each term occurs, uint32[q].

        * `ids`: uint64[q], term ids in any order; an unknown one has 0.
        * `alive`: uint8[n]; rows with 0 do not count. None: all rows count, without reading any
          list.

        Raises ValueError for another number of rows.
        """

    def best(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        a: float,
        b: float,
        lengths: NDArray[np.uint32],
        allowed: NDArray[np.uint8] | None,
        count: int,
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the `count` rows with the highest scores, best first; lower rows first in ties.

        * `ids`: uint64[q], ascending term ids; unknown ones are ignored.
        * `weights`: float32[q], from 0 to 1.
        * `a`, `b`: finite, not negative.
        * `lengths`: uint32[n], the number of terms in each row.
        * `allowed`: uint8[n]; rows with 0 are left out. None: all rows are allowed.

        Returns rows uint32[m] and scores float32[m], all above 0. m is `count`, or less if fewer
        allowed rows have a term with a weight above 0.

        Takes time linear in the postings of the terms, less where long lists cannot change the
        result.

        Raises ValueError for lengths that disagree, ids that do not ascend, weights, `a` or `b`
        out of range.
        """

    def scores(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        a: float,
        b: float,
        lengths: NDArray[np.uint32],
        rows: NDArray[np.uint32],
    ) -> NDArray[np.float32]:
        """Returns the score of each of `rows`, float32[m], equal to that of `best` to the bit.

        `rows` is uint32[m] in any order; the other arguments are those of `best`. A row without
        any of the terms has 0.

        Raises ValueError as `best`, IndexError for a row that is not below n.
        """

    def rows_with_all(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Returns the rows that have every term, uint32[m], ascending.

        `ids` is uint64[q], ascending; with none every row is returned, with an unknown one none.

        Raises ValueError for ids that do not ascend.
        """
