"""Types and documentation of the compiled `rows_of_documents` and `indexes_of`.

Array arguments are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape
raises ValueError; None or an object that is no array raises TypeError. `rows_of_documents` keeps
the GIL if it takes linear time (see below) and has at most 16,000 labels, which takes about 10 us.
Otherwise it releases the GIL. `indexes_of` keeps the GIL.
"""

import numpy as np
from numpy.typing import NDArray

def rows_of_documents(
    labels: NDArray[np.uint64], ordinals: NDArray[np.uint64]
) -> NDArray[np.uint32]:
    """Returns the rows whose leaves belong to any of the documents, ascending: a new uint32[r].

    * `labels`: uint64[n], the label of each row's leaf, `document_ordinal << 20 | leaf_index`, in
      any order; n below 2**32.
    * `ordinals`: uint64[m], the ordinals of the documents, ascending. If they do not ascend, the
      result lacks some rows of these documents.

    Takes time O(n + m) if the difference of the last and the first ordinal is below 16 n.
    Otherwise takes time O(n log m).

    Raises ValueError for too many labels, and MemoryError.
    """

def indexes_of(rows: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Returns the index of each wanted row in `rows`: a new int64[m].

    * `rows`: uint32[n], ascending, without repetition.
    * `wanted`: uint32[m], rows that are among `rows`, in any order.

    The result is that of `rows.searchsorted(wanted)`, which releases the GIL in every call. Takes
    time O(m log n). Raises IndexError for a row that is not among `rows`, and, if `rows` do not
    ascend, perhaps for others.
    """
