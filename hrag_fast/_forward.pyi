"""Types and documentation of the compiled `forward_matches`.

Array arguments are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape
raises ValueError; None or an object that is no array raises TypeError. Arrays that are returned
are new.

The GIL is kept for up to 8,000 entries (about 10 us), and released for more.
"""

import numpy as np
from numpy.typing import NDArray

def forward_matches(
    starts: NDArray[np.int64],
    entries: NDArray[np.uint64],
    first: int,
    last: int,
    ids: NDArray[np.uint64],
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Finds where the terms of a query occur in the rows `first` to `last - 1`.

    The rows are in the forward form: row i has the terms `entries[starts[i]:starts[i + 1]]`.

    * `starts`: int64[n + 1], ascending, from 0 to e.
    * `entries`: uint64[e], `term_id << 8 | frequency`; the terms of a row ascend.
    * `ids`: uint64[q], ascending term ids.

    Returns three arrays uint32[m] with one entry for each match: its row relative to `first`, the
    index of its term in `ids`, and its frequency from 1 to 255. Matches are in order of their
    rows, and then of their terms.

    Raises ValueError for rows that do not exist, ids that do not ascend, or starts outside of the
    entries. Raises MemoryError.
    """
