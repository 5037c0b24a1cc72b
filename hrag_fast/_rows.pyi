"""Types and documentation of the compiled `rows_of_documents`.

Array arguments are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape
raises ValueError; None or an object that is no array raises TypeError. The GIL is kept if the call
takes linear time (see below) and has at most 16,000 labels, which takes about 10 us. Otherwise the
GIL is released.
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
