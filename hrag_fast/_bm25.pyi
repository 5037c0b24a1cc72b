"""Types and documentation of the compiled `Postings`.

Array arguments are one-dimensional and C-contiguous, and may be read-only. A wrong dtype or shape
raises ValueError. None (where it is not allowed) or an object that is no array raises TypeError.
Arrays that are returned are new. Methods raise MemoryError if there is not enough memory; the
object stays valid, and the same call may be made again.

The GIL is kept for work of up to about 10 us, and released for longer work.
"""

import numpy as np
from numpy.typing import NDArray

from hrag_fast._posting_lists import PostingLists

class Postings(PostingLists):
    """An immutable inverted index of n rows, searched by BM25.

    A score is BM25 (Robertson and Zaragoza, 2009) divided by its largest possible value. It is the
    sum of `weight * frequency / (frequency + norm)` over the terms of the query that the row has,
    where `norm` is `norm_base + norm_per_term * length`. `hrag/text/bm25.py` computes the weights
    and the norm, and describes the whole formula. Scores are computed in float32, and added in
    ascending order of term ids. So the methods and the function
    `hrag.text.bm25.leaf_scores` return the same bits for the same query and row.

    Safe to use from several threads.
    """

    def best(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        norm_base: float,
        norm_per_term: float,
        lengths: NDArray[np.uint32],
        allowed: NDArray[np.uint8] | None,
        count: int,
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
        """Returns the `count` rows with the highest scores, best first. In ties, lower rows come
        first.

        * `ids`: uint64[q], ascending term ids; unknown ones are ignored.
        * `weights`: float32[q], from 0 to 1.
        * `norm_base`, `norm_per_term`: finite, not negative.
        * `lengths`: uint32[n], the number of terms in each row.
        * `allowed`: uint8[n]; rows with 0 are left out. If it is None, all rows are allowed.
        * `count`: not negative.

        Returns rows uint32[m] and scores float32[m], all above 0. m is `count`, or less if fewer
        allowed rows have a score above 0.

        Takes time linear in the postings of the terms, and less time if few rows are allowed.

        Raises ValueError for arrays whose lengths disagree, for ids that do not ascend, and for a
        weight, `norm_base` or `norm_per_term` out of range. Raises OverflowError for a negative
        count.
        """

    def best_and_scores(
        self,
        ids: NDArray[np.uint64],
        weights: NDArray[np.float32],
        norm_base: float,
        norm_per_term: float,
        lengths: NDArray[np.uint32],
        allowed: NDArray[np.uint8] | None,
        count: int,
        requested: NDArray[np.uint32],
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.float32]]:
        """Returns the same as `best`, and the score of each row of `requested`, float32[k].

        `requested` is uint32[k], ascending; each of these rows must be allowed. A row without any
        of the terms has the score 0. The scores cost nearly nothing, because `best` computes them
        anyway.

        Raises the same errors as `best`. Raises ValueError for requested rows that do not ascend or
        are not allowed, and IndexError for a requested row that is not below n.
        """
