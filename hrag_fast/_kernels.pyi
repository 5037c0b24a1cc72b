"""Types and promises of the compiled kernels.

Every array argument is one-dimensional and C-contiguous, and may be read-only (a memory
map, a buffer of LMDB). Every array returned is new. A wrong dtype or shape is a
ValueError, None or no array a TypeError.

`climb` keeps the GIL for up to 1,000 hits (some 15 us) and releases it for more;
`boundary_ranks` always releases it. Arguments must not change during a call.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

# How a group's score comes from its children's.
MAX: Final = 0
SUM: Final = 1
MEAN: Final = 2
COUNT: Final = 3

# How good a place for a cut is; higher is better.
CUT_FORBIDDEN: Final = 0
CUT_CODE_POINT: Final = 1
CUT_WORD: Final = 2
CUT_SENTENCE: Final = 3
CUT_PARAGRAPH: Final = 4

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

def boundary_ranks(text: bytes, ends: NDArray[np.uint32]) -> NDArray[np.uint8]:
    r"""Says how good a cut of `text` at each of `ends` is: uint8[n], one CUT_ rank each.

    `text` is valid UTF-8; `ends` uint32[n] are byte offsets from 1 to `len(text)`, in any
    order. A cut at p parts bytes p - 1 and p. The first rule that fits decides:

    * CUT_PARAGRAPH: p is the end of the text.
    * CUT_FORBIDDEN: p is inside a code point or a CRLF.
    * CUT_PARAGRAPH: the white space just before p holds a form feed or two newlines
      (``\n``, ``\r\n`` or lone ``\r``).
    * CUT_SENTENCE: that white space holds one newline; or before it, and before any
      closing quotes and brackets, stands a CJK sentence end, or one of ``. ! ?`` where p
      has white space on either side.
    * CUT_WORD: p has white space on either side, or a CJK code point.
    * CUT_CODE_POINT: anywhere else.

    White space is that of ASCII and U+3000. The look-back ends after 64 bytes of white
    space and 16 bytes of closers.

    Raises IndexError for an end outside 1 to `len(text)`, TypeError if `text` is no bytes.
    """
