"""Types and documentation of the compiled `postings_of` and `write_postings`.

Both release the GIL. Array arguments are one-dimensional and C-contiguous and may be read-only;
a wrong dtype or shape is a ValueError, None or no array a TypeError.
"""

from collections.abc import Iterable
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hrag_fast._posting_lists import PostingLists

def postings_of(starts: NDArray[np.int64], entries: NDArray[np.uint64], rows: int) -> bytes:
    """Returns the postings of rows in the forward form, as bytes that `Postings` reads.

    * `starts`: int64[rows + 1]; row i has the entries from `starts[i]` to `starts[i + 1]`.
    * `entries`: uint64[...], `term_id << 8 | frequency`; the terms of a row ascend, and
      frequencies are from 1 to 255.
    * `rows`: at most 2**29; a row may have no terms.

    Memory: about 40 bytes an entry. Meant for blocks of some thousand rows, which
    `write_postings` merges.

    Raises ValueError for anything else in the arrays, MemoryError.
    """

def write_postings(
    path: str | PathLike[str], sources: Iterable[tuple[PostingLists, NDArray[np.uint32]]]
) -> None:
    """Merges postings into a new file at `path`, which `Postings` reads.

    A source is postings and its remap, uint32[rows]: the new number of each of its rows, or
    0xFFFFFFFF for a row to drop. Together the remaps of all sources must have each number from 0
    to n - 1 once; n is the number of rows of the result. Terms that no kept row has are left out.
    The result is the same, byte for byte, as that of `postings_of` for the same rows.

    Streams to the file: memory is 8 bytes for each posting of the longest list, and a byte a row.
    The file is overwritten, and its header is written last. It is not synced.

    Raises ValueError for remaps that are not such and TypeError for None (before the file is
    opened), OSError if the file cannot be written, MemoryError: what was written stays, and is no
    postings.
    """
