"""Types and documentation of the compiled `PostingLists`.

Array arguments are one-dimensional and C-contiguous and may be read-only; a wrong dtype or shape
is a ValueError, None (where it is not allowed) or no array a TypeError. Arrays returned are new.
Methods raise MemoryError if memory is short, and may be called again.

The GIL is kept for work of about 10 us and released for more.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class PostingLists:
    """An immutable inverted index of n rows, read in place from one buffer.

    `buffer` holds what `write_postings` or `postings_of` writes. It may be a memory map that
    several processes share; it is kept, and must not change. Nothing else is allocated.

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
        * `alive`: uint8[n]; rows with 0 do not count. None: all rows count, and no list is read.

        Takes time linear in the postings of the terms, with None O(q log t) for t terms.

        Raises ValueError for another number of rows.
        """

    def rows_with_all(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Returns the rows that have every term, uint32[m], ascending.

        `ids` is uint64[q], ascending. With none, every row is returned; with an unknown one, none.

        Takes time linear in the postings of the rarest term, times q.

        Raises ValueError for ids that do not ascend.
        """
