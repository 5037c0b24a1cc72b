"""Types and documentation of the compiled `climb`.

Array arguments are one-dimensional and C-contiguous, and may be read-only (a memory map, a buffer
of LMDB). Nobody may change them during a call. A wrong dtype or shape raises ValueError; None or
an object that is no array raises TypeError. Arrays that are returned are new.

The GIL is kept for up to 1,000 candidates (about 15 us), and released for more.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# How a group's score is computed from the scores of its children.
MAX: Final = 0
SUM: Final = 1
MEAN: Final = 2
COUNT: Final = 3

class Groups(NamedTuple):
    """Candidates grouped by their ancestor: g groups, best first, with m children in total.

    A group is an ancestor; its children are the candidates below it whose rows are alive. The
    children of group j are `children[starts[j]:starts[j + 1]]`.
    """

    keys: NDArray[np.uint64]
    """uint64[g]: the ancestor of each group, `document_ordinal << 20 | ancestor_index`."""
    scores: NDArray[np.float32]
    """float32[g]: the aggregated score of each group, descending."""
    starts: NDArray[np.uint32]
    """uint32[g + 1]: where the children of each group begin in `children`; the last entry is m."""
    children: NDArray[np.uint32]
    """uint32[m]: the rows of the children, best first within each group."""
    child_scores: NDArray[np.float32]
    """float32[m]: the scores of the children."""

def climb(
    rows: NDArray[np.uint32],
    scores: NDArray[np.float32],
    labels: NDArray[np.uint64],
    ancestors: NDArray[np.uint32],
    alive: NDArray[np.uint8],
    aggregation: int,
) -> Groups:
    """Groups k candidates by their ancestor and ranks the groups.

    Candidate i is the leaf at row `rows[i]` (all distinct) with the score `scores[i]` (finite).

    * `rows`: uint32[k], each below n.
    * `scores`: float32[k].
    * `labels`: uint64[n], the label of each row's leaf, `document_ordinal << 20 | leaf_index`.
    * `ancestors`: uint32[n], the index within its document of each leaf's ancestor at the return
      level, below 2**20.
    * `alive`: uint8[n], 0 or 1. Candidates whose row is not alive are dropped.
    * `aggregation`: MAX, SUM, MEAN or COUNT of the children's scores. SUM and MEAN add in double
      precision, in the order of candidates, and round the result once to float32.

    Groups are ordered by score descending, then by their best child's score descending, then by
    key ascending. Children are ordered by score descending, then by label ascending. Takes time
    O(k log k), which does not depend on n.

    Raises ValueError for arrays whose lengths disagree or an unknown aggregation, IndexError for
    a row that is not below n, and MemoryError.
    """
