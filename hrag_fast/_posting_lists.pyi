"""Types and documentation of the compiled `PostingLists`.

Array arguments are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape
raises ValueError. None (where it is not allowed) or an object that is no array raises TypeError.
Arrays that are returned are new. Methods raise MemoryError if memory is short, and may then be
called again.

The GIL is kept for work of up to about 10 us, and released for longer work.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class PostingLists:
    """An immutable inverted index of n rows, read in place from one buffer.

    `buffer` contains postings that `write_postings` or `postings_of` wrote. It may be a memory map
    that several processes share. The index keeps a reference to it, and it must not change. No
    other memory is allocated.

    Safe to use from several threads.
    """

    def __init__(self, buffer: Buffer) -> None:
        """Reads and checks every posting, in time linear in their number.

        `buffer` must begin at a multiple of 8 bytes in memory, like maps, arrays and bytes.

        Raises ValueError if it does not contain valid postings, so that no later call can read
        outside of it.
        """

    @property
    def rows(self) -> int:
        """The number of rows, n, with and without terms."""

    def __len__(self) -> int:
        """Returns the number of terms."""

    def document_frequencies(
        self, ids: NDArray[np.uint64], alive: NDArray[np.uint8] | None
    ) -> NDArray[np.uint32]:
        """Returns in how many rows each term occurs, uint32[q].

        * `ids`: uint64[q], term ids in any order. The result for an unknown id is 0.
        * `alive`: uint8[n]; rows with 0 do not count. If it is None, all rows count, and no list is
          read.

        Takes time linear in the postings of the terms. If `alive` is None, it takes O(q log t)
        time, where t is the number of terms of the index.

        Raises ValueError if `alive` does not have n entries.
        """

    def rows_with_all(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Returns the rows that have every term, uint32[m], ascending.

        `ids` is uint64[q], ascending. If it is empty, every row is returned. If it has an unknown
        id, no row is returned.

        Takes time linear in the postings of the rarest term, times q.

        Raises ValueError for ids that do not ascend.
        """
