"""Types and documentation of the compiled `rows_of_documents`.

Array arguments are one-dimensional and C-contiguous and may be read-only; a wrong dtype or shape
is a ValueError, None or no array a TypeError. The GIL is kept where time is linear in up to 16,000
labels (about 10 us), and released otherwise.
"""

import numpy as np
from numpy.typing import NDArray

def rows_of_documents(
    labels: NDArray[np.uint64], ordinals: NDArray[np.uint64]
) -> NDArray[np.uint32]:
    """Returns the rows whose leaves are of one of some documents, ascending: a new uint32[r].

    * `labels`: uint64[n], the label of each row's leaf, `document_ordinal << 20 | leaf_index`, in
      any order; n below 2**32.
    * `ordinals`: uint64[m], the documents, ascending. If they do not ascend, some of their rows
      are missing.

    Takes time O(n + m) if the ordinals from the first to the last are at most 16 n numbers, else
    O(n log m).

    Raises ValueError for too many labels, MemoryError.
    """
