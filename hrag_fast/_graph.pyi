"""Types and documentation of the compiled `Graph` and `GraphSearch`.

Searches release the GIL. Arrays are one-dimensional and C-contiguous and may be read-only; a
wrong dtype or shape is a ValueError, None or no array a TypeError. Arrays returned are new.
Methods raise MemoryError if memory is short, and may be called again.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class Graph:
    """An HNSW index of inner products, as hnswlib 0.8 saves it, searched without a copy.

    HNSW: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
    Hierarchical Navigable Small World graphs", arXiv 1603.09320 (2016), IEEE TPAMI 42(4), 2020.

    `file` may be a memory map that several processes share; it is kept, and must not change.
    Its n vectors have the item numbers 0 to n - 1, in any order.

    Links are followed by codes of the vectors, 8 bits a number (scalar quantisation), and what
    was found is scored with the vectors. Results are the same, to the bit, on every processor.

    Safe to search from several threads.
    """

    def __init__(self, file: Buffer, path: str | None = None) -> None:
        """Reads and checks every link, and rounds every vector to codes.

        `path` is one of `supported_paths()`, by default the fastest; all find the same. On the
        path "float32" links are followed by the vectors themselves, and there are no codes: it
        finds what hnswlib finds.

        Takes time linear in the size of the file. The GIL is released meanwhile.

        Raises ValueError if `file` is anything but such an index: no later call can read
        outside it, whatever it holds. So it does for another path.
        """

    @property
    def size_bytes(self) -> int:
        """Memory allocated beside the file, without what searches need: 2 n for each that lives.

        16 bytes a vector and its codes, d bytes, rounded up to a multiple of 64.
        """

    @property
    def dimension(self) -> int:
        """Numbers in a vector, d."""

    def __len__(self) -> int:
        """Number of vectors, n."""

    def search(self, query: NDArray[np.float32], ef: int) -> GraphSearch:
        """ANN search: begins to look for the items with the largest inner product.

        `query` is float32[d]; it is kept and must not change. `ef` is the size of the list of
        candidates, all of which are scored: larger is slower and finds more of the true nearest.

        Raises ValueError for a query of another dimension.
        """

    def scores(self, query: NDArray[np.float32], items: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Exact scan: computes the inner product of `query` with each item.

        `query` is float32[d], `items` uint32[m] in any order. Returns float32[m], in the order
        of `items`. Takes m inner products of d numbers.

        Raises ValueError for a query of another dimension, IndexError for an item that is not
        below n.
        """

    def best(
        self, query: NDArray[np.float32], items: NDArray[np.uint32], count: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Exact scan for the `count` items with the largest inner product, best first.

        `query` is float32[d], `items` uint32[n] in any order. Returns positions in `items`,
        uint32[m], and inner products, float32[m], equal to those of `scores` to the bit; m is
        `count`, or n if smaller. Of equal ones the first in `items` come first.

        Takes n inner products of d codes, which say of most items that they cannot be among the
        best whatever rounding did, and inner products of d numbers for the others, some multiples
        of `count`.

        Raises ValueError for a query of another dimension, IndexError for an item that is not
        below the number of vectors.
        """

def inner_products(query: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Computes the inner product of `query`, float32[d], with each row of `vectors`, float32[n, d].

    Returns float32[n], to the bit what `Graph.scores` gives for the same vectors, so that equal
    vectors have equal scores whether an index holds them or not. Releases the GIL.

    Raises ValueError for vectors of another dimension.
    """

class GraphSearch:
    """A search of one query, which goes on where it stopped when more items are asked for.

    Made by `Graph.search`. Safe to use from one thread at a time.
    """

    def nearest(self, count: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the `count` items with the largest inner product, best first.

        `ef` is raised to 17/16 of `count`, plus 1, if smaller, for this call and all later ones:
        codes may put the last of the wanted behind others. (To `count` on the path "float32".)
        The items are the best of the `ef` that a new search finds, whatever was asked for before.

        Returns item numbers uint32[m] and inner products float32[m], for unit vectors the cosine
        similarities from -1 to 1. Scores are those of `Graph.scores`, to the bit. m is `count`,
        or less if there are fewer vectors or the graph leads to fewer.

        Takes about ef * M * log(n) inner products of d codes, M being the index's links a vector,
        less those of the calls before, and ef inner products of d numbers.
        """
