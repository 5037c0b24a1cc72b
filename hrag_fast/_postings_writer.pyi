"""Types and documentation of the compiled `postings_of` and `write_postings`.

Both functions release the GIL. Array arguments are one-dimensional and C-contiguous, and may be
read-only. A wrong dtype or shape raises ValueError; None or an object that is no array raises
TypeError.
"""

from collections.abc import Iterable
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hrag_fast._posting_lists import PostingLists

def postings_of(starts: NDArray[np.int64], entries: NDArray[np.uint64], rows: int) -> bytes:
    """Returns the postings of rows that are in the forward form, as bytes for `Postings`.

    * `starts`: int64[rows + 1]; row i has the entries from `starts[i]` to `starts[i + 1]`.
    * `entries`: uint64[...], `term_id << 8 | frequency`; the terms of a row ascend, and
      frequencies are from 1 to 255.
    * `rows`: at most 2**29; a row may have no terms.

    The function needs about 20 bytes of memory per entry, because it sorts a 32nd of the terms at
    a time. It is meant for blocks of a few thousand rows, which `write_postings` merges.

    Raises ValueError if the arrays do not have this form, and MemoryError.
    """

def write_postings(
    path: str | PathLike[str], sources: Iterable[tuple[PostingLists, NDArray[np.uint32]]]
) -> None:
    """Merges postings into a new file at `path`, which `Postings` reads.

    Each of `sources` consists of postings and their remap, uint32[rows]: the new row number of each
    row, or 0xFFFFFFFF for a row to drop. Together the remaps of all sources must have each row
    number from 0 to n - 1 once, where n is the count of rows of the result. Terms that occur only
    in dropped rows are left out. The result has the same bytes as the result of `postings_of` for
    the same rows.

    The postings are streamed to the file. This needs 8 bytes of memory for each posting of the
    longest list, and one byte per row. An existing file is overwritten. The file's header is
    written last. The file is not synced to disk.

    Raises ValueError for invalid remaps and TypeError for None, before the file is opened. Raises
    OSError if the file cannot be written, and MemoryError. After these two errors the unfinished
    file remains, and `Postings` rejects it.
    """
