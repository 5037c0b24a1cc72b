"""Types and promises of the compiled `climb`.

Every array argument is one-dimensional and C-contiguous, and may be read-only (a memory
map, a buffer of LMDB). Every array returned is new. A wrong dtype or shape is a
ValueError, None or no array a TypeError.

It keeps the GIL for up to 1,000 hits (some 15 us) and releases it for more. Arguments
must not change during a call.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# How a group's score comes from its children's.
MAX: Final = 0
SUM: Final = 1
MEAN: Final = 2
COUNT: Final = 3

class Groups(NamedTuple):
    """g ancestors, best first, and the m living hits below them.

    Group j has the children `children[starts[j]:starts[j + 1]]`.
    """

    keys: NDArray[np.uint64]
    """`[g]`: `document_ordinal << 20 | ancestor_index`."""
    scores: NDArray[np.float32]
    """`[g]`: aggregated, descending."""
    starts: NDArray[np.uint32]
    """`[g + 1]`: from 0 to m."""
    children: NDArray[np.uint32]
    """`[m]`: rows, best first within each group."""
    child_scores: NDArray[np.float32]
    """`[m]`: the children's own scores."""

def climb(
    rows: NDArray[np.uint32],
    scores: NDArray[np.float32],
    labels: NDArray[np.uint64],
    ancestors: NDArray[np.uint32],
    alive: NDArray[np.uint8],
    aggregation: int,
) -> Groups:
    """Groups k hits by their ancestor and ranks the groups.

    Hit i is the leaf at row `rows[i]` (all distinct) with similarity `scores[i]` (finite).
    Row r of n holds the leaf's label `document_ordinal << 20 | leaf_index`, the index of
    its ancestor at the return level within its document (`ancestors[r]`, below 2**20), and
    whether it lives (`alive[r]`, 0 or 1); dead hits are dropped.

    Groups are ordered by score descending, then best child's score descending, then key
    ascending; children by score descending, then label ascending. Sums are made in double
    precision in hit order and rounded once to float32. COUNT scores the number of living
    hits.

    `rows` uint32[k], `scores` float32[k], `labels` uint64[n], `ancestors` uint32[n],
    `alive` uint8[n]; `aggregation` is MAX, SUM, MEAN or COUNT.

    Raises IndexError for a row that is not below n, ValueError for lengths that disagree
    or an unknown aggregation, MemoryError.
    """
