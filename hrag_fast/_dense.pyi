"""Types and documentation of the compiled `DenseSearch` and `SegmentVectors`.

Arrays are C-contiguous, and may be read-only. Nobody may change them while an object that got them
exists. A wrong dtype or shape raises ValueError; None or an object that is no array raises
TypeError. Arrays that are returned are new. Searches release the GIL once; `scores` keeps it for up
to 256 rows (about 30 us), if all vectors are in memory. Methods raise
MemoryError if there is not enough memory; the object stays valid, and the same call may be made
again.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag_fast._climb import Groups
from hrag_fast._graph import Graph

SEARCH_COST: Final[int]
"""Searching a graph for one row is assumed to cost as much as scanning this many rows."""

class NearestRows(NamedTuple):
    """The rows that a search found, in ascending order."""

    rows: NDArray[np.uint32]
    """uint32[n]: the row numbers, without duplicates."""
    scores: NDArray[np.float32]
    """float32[n]: the inner product of each row's vector and the query."""
    exact: bool
    """True if no other eligible row has a higher score for certain."""
    complete: bool
    """True if there is no further eligible row."""

class SegmentVectors:
    """The HNSW index of a segment, with the rows of each of its items.

    Equal vectors are one item of the index. `items`, uint32[rows], has the item of each row. The
    rows of item i are `members[heads[i]:heads[i + 1]]`; `heads` is uint32[items + 1] and `members`
    is uint32[rows]. Both are empty if item i is the item of row i for every i. `ef` is the size of
    the list of candidates of a graph search. Safe to search from several threads.
    """

    graph: Graph

    def __init__(
        self,
        graph: Graph,
        items: NDArray[np.uint32],
        heads: NDArray[np.uint32],
        members: NDArray[np.uint32],
        ef: int,
    ) -> None:
        """Checks all arrays, so that no later search can read outside of them.

        Raises ValueError if their lengths disagree, or if a number is too large.
        """

    @property
    def size_bytes(self) -> int:
        """The memory that the graph has allocated, in bytes; see `Graph.size_bytes`."""

class DenseSearch:
    """Searches of one query in one view. They continue where they stopped.

    The rows of a view are the rows of `segments`, in this order, then those of `tail`,
    float32[m, d]. `query` is float32[d]. `count` is the count of rows, of which `living` are not
    deleted: those whose entry in `alive`, uint8[count or more], is 1. Searching a graph for one row
    is assumed to cost as much as scanning `search_cost` rows.

    Safe to use from one thread at a time.
    """

    def __init__(
        self,
        query: NDArray[np.float32],
        segments: Iterable[SegmentVectors | None],
        tail: NDArray[np.float32],
        alive: NDArray[np.uint8],
        count: int,
        living: int,
        search_cost: int = ...,
    ) -> None:
        """Raises ValueError if dimensions or lengths disagree, and TypeError for a segment None."""

    def nearest(
        self, count: int, rows: NDArray[np.uint32] | None = None, exact: bool = False
    ) -> NearestRows:
        """Returns the `count` nearest eligible rows, or all of them if there are fewer.

        `rows`, uint32[n], are the eligible rows, ascending; if it is None, all rows that are not
        deleted are eligible. If more rows are found, the best ones are chosen; of rows with equal
        scores, those with lower row numbers are.

        The tail is scanned. The eligible rows of a segment are scanned in three cases: `exact` is
        True, a scan costs less than a search of the graph, or the graph is not fully connected and
        a search does not reach enough items. Otherwise the graph is searched until `count` eligible
        rows are found; then the result is not exact.

        Raises ValueError if `count` is 0, and IndexError for an eligible row that is no row.
        """

    def climb(
        self,
        count: int,
        labels: NDArray[np.uint64],
        ancestors: NDArray[np.uint32],
        aggregation: int,
        rows: NDArray[np.uint32] | None = None,
        exact: bool = False,
    ) -> tuple[NearestRows, Groups]:
        """Returns the same as `nearest`, and the groups that `climb` makes of these rows.

        `labels` and `ancestors` are the columns that `hrag_fast.climb` reads, with as many entries
        as `alive`. Raises the errors of both functions.
        """

    def scores(self, rows: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Returns the inner product of the query and the vector of each row: float32[n].

        `rows`, uint32[n], must ascend. Scores have the same bits as in `nearest`. Raises IndexError
        for rows that do not ascend, or a row that is not below `count`.
        """
