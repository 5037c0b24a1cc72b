"""Types and promises of the compiled `Graph`, whose searches release the GIL."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class Graph:
    """An HNSW index of inner products, as hnswlib 0.8 saves it, searched where it lies.

    Nothing is copied: `file` may be a map of a file that several processes share. Safe to
    search from several threads.
    """

    def __init__(self, file: Buffer) -> None:
        """Reads and checks every link; raises ValueError unless `file` is such an index.

        Its n items must be numbered from 0 to n - 1, in any order.
        """

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""

    def __len__(self) -> int:
        """How many vectors there are."""

    def search(
        self, query: NDArray[np.float32], count: int, ef: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the `count` items nearest to `query`, float32[dimension], best first.

        Returns item numbers uint32[n] and inner products float32[n]; fewer than `count`
        where there are fewer, or where the graph leads to fewer. Looks at `ef` candidates
        at once, or at `count` if that is more: the answer is hnswlib's own for the same ef.

        Raises ValueError for a query of another dimension.
        """

    def scores(self, query: NDArray[np.float32], items: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Inner products, float32[n], of `query`, float32[dimension], with items, uint32[n].

        Raises ValueError for a query of another dimension, IndexError for an item that is
        not there.
        """
