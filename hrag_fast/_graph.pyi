"""Types and documentation of the compiled `Graph` and `GraphSearch`.

Searches release the GIL. Arrays are one-dimensional and C-contiguous, and may be read-only. A wrong
dtype or shape raises ValueError; None or an object that is no array raises TypeError. Arrays that
are returned are new. Methods raise MemoryError if there is not enough memory; the object stays
valid, and the same call may be made again.
"""

from collections.abc import Callable, Iterable
from typing import overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class Graph:
    """An HNSW index of inner products, read from a file in the format of hnswlib 0.8.

    HNSW is described in Malkov and Yashunin, "Efficient and robust approximate nearest neighbor
    search using Hierarchical Navigable Small World graphs", arXiv 1603.09320 (2016), IEEE TPAMI
    42(4), 2020.

    Its n vectors are called items, and have the item numbers 0 to n - 1, in any order.

    To follow links, a search compares codes of the vectors, which have 8 bits per dimension (scalar
    quantisation). Then it scores those candidates that may be among the best with the vectors
    themselves. Results have the same bits on every processor.

    The vectors are in memory, or stay in the file. If they stay in the file, each one is read and
    verified when it is needed; results are the same. The file may be removed meanwhile. A vector
    that cannot be read, or that differs from what was loaded, is requested from `source`.

    Safe to search from several threads.
    """

    @overload
    def __init__(self, file: Buffer, path: str | None = None) -> None: ...
    @overload
    def __init__(
        self,
        file: Iterable[Buffer],
        path: str | None = None,
        *,
        size_bytes: int,
        descriptor: int | None = None,
        source: Callable[[NDArray[np.uint32], str], NDArray[np.float32]] | None = None,
    ) -> None:
        """Reads and checks every link, and rounds every vector to 8-bit codes.

        `file` is the content of the file, or its blocks in order, which have `size_bytes` together.
        The graph copies what it needs, so a block may be overwritten when the next one is
        requested.

        If `descriptor` is that of the file, the vectors stay in the file. The graph duplicates the
        descriptor. `source` is called with the item numbers of vectors that cannot be read,
        uint32[m], and a description of the problem. It returns these vectors, float32[m, d]. A
        vector that it does not know may be NaN; the item is then scored by its codes. Without a
        source, methods raise OSError. They also raise each error of the source.

        `path` is one of `supported_paths()`, by default the fastest one. All of them give the same
        results. The path "float32" compares the vectors themselves and makes no codes: its results
        are those of hnswlib.

        Takes time linear in the size of the file. The GIL is released during this time.

        Raises ValueError if `file` is not an index of this form, so that no later call can read
        outside of it. Raises ValueError for an unknown path too, and for "float32" with a
        descriptor. Raises OSError if the descriptor cannot be read.
        """

    @property
    def size_bytes(self) -> int:
        """How many bytes of memory the graph has allocated.

        They contain all links. A vector needs 4 d bytes, or 8 bytes for its checksum if it stays in
        the file; its codes need d bytes rounded up to a multiple of 64. The memory of searches is
        not counted: each GraphSearch that exists needs 2 n bytes.
        """

    @property
    def dimension(self) -> int:
        """The number of dimensions of a vector, d."""

    def __len__(self) -> int:
        """Returns the number of vectors, n."""

    def search(self, query: NDArray[np.float32], ef: int) -> GraphSearch:
        """Begins an ANN search for the items with the largest inner product.

        `query` is float32[d]. The search keeps a reference to `query`, whose content must not
        change. `ef` is the size of the list of candidates, all of which are scored. A search with a
        larger `ef` is slower and finds more of the true nearest items.

        Raises ValueError for a query of another dimension.
        """

    def scores(self, query: NDArray[np.float32], items: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Returns the inner product of `query` with each item (an exact scan).

        `query` is float32[d], `items` has item numbers, uint32[m], in any order. The result is
        float32[m], in the order of `items`. Computes m inner products of d numbers.

        Raises ValueError for a query of another dimension, IndexError for an item that is not
        below n.
        """

    def best(
        self, query: NDArray[np.float32], items: NDArray[np.uint32], count: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the `count` items with the largest inner product, best first (an exact scan).

        `query` is float32[d], `items` has item numbers, uint32[n], in any order. Returns indexes
        into `items`, uint32[m], and inner products, float32[m], with the same bits as in `scores`.
        m is the smaller of `count` and n. Of items with the same inner product, the one that is
        earlier in `items` comes first.

        Computes n inner products of d codes. They show that most items cannot be among the best,
        even with the largest rounding error. For the remaining items, which are a few times
        `count`, it computes inner products of d numbers.

        Raises ValueError for a query of another dimension, IndexError for an item that is not
        below the number of vectors.
        """

class GraphSearch:
    """A search of one query. It continues where it stopped if more items are needed.

    `Graph.search` creates it. Safe to use from one thread at a time.
    """

    def nearest(self, count: int) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Finds the `count` items with the largest inner product, best first.

        If `ef` is less than `count + count // 16 + 1`, it is raised to this value, for this call
        and all later calls. The additional candidates are needed because comparing codes may rank
        the last of the best items after other items. On the path "float32", `ef` is raised only to
        `count`. Earlier calls of this search do not change the result: a new search with the same
        `ef` would return it too.

        Returns item numbers uint32[m] and inner products float32[m]; for unit vectors, inner
        products are cosine similarities from -1 to 1. They have the same bits as in
        `Graph.scores`. m is `count`, or less if the search reaches fewer vectors.

        Computes about ef * M * log(n) inner products of d codes, where M is the number of links
        per vector, except those that earlier calls have computed. Then it computes ef inner
        products of d numbers, or fewer: candidates are left out if their codes show that they
        cannot be among the best `count`.
        """
