"""Types and documentation of the compiled `PostingLists`.

Array arguments are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape
raises ValueError. None (where it is not allowed) or an object that is no array raises TypeError.
Arrays that are returned are new. Methods raise MemoryError if there is not enough memory; the
object stays valid, and the same call may be made again.

The GIL is kept for work of up to about 10 us, and released for longer work.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class PostingLists:
    """An immutable inverted index of n rows, read in place from one buffer.

    `buffer` contains postings that `write_postings` or `postings_of` wrote. It may be a memory map
    that several processes share. The index keeps a reference to the buffer, whose content must not
    change. No other memory is allocated.

    Safe to use from several threads.
    """

    def __init__(self, buffer: Buffer) -> None:
        """Reads and checks every posting, in time linear in the count of postings.

        `buffer` must begin at an address that is a multiple of 8; memory maps, numpy arrays and
        bytes do.

        Raises ValueError if the buffer does not contain valid postings, so that no later call can
        read outside of the buffer.
        """

    @property
    def rows(self) -> int:
        """The count of all rows, n, including rows without terms."""

    def __len__(self) -> int:
        """Returns how many different terms the index has."""

    def document_frequencies(
        self, ids: NDArray[np.uint64], alive: NDArray[np.uint8] | None
    ) -> NDArray[np.uint32]:
        """Returns in how many rows each term occurs, uint32[q].

        * `ids`: uint64[q], term ids in any order. The result for an unknown id is 0.
        * `alive`: uint8[n]; rows with 0 do not count. If `alive` is None, all rows count, and no
          list of postings is read.

        Takes time linear in the postings of the terms. If `alive` is None, it takes O(q log t)
        time, where t is the number of terms of the index.

        Raises ValueError if `alive` does not have n entries.
        """

    def rows_with_all(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Returns the rows that have every term, uint32[m], ascending.

        `ids` is uint64[q], ascending. If `ids` is empty, every row is returned. If `ids` has an
        unknown id, no row is returned.

        Takes time linear in the postings of the rarest term, times q.

        Raises ValueError for ids that do not ascend.
        """
