"""BM25 itself, in numpy: for rows that are in no postings, and for the twin of `Postings`."""

import numpy as np
from numpy.typing import NDArray


def bm25(
    weights: NDArray[np.float32],
    a: float,
    b: float,
    rows: NDArray[np.uint32],
    which: NDArray[np.uint32],
    frequencies: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
) -> NDArray[np.float32]:
    """Returns the scores of n rows, float32[n]; a row without a match has 0.

    Match j says that row `rows[j]` has the query's term `which[j]` `frequencies[j]` times, as
    `forward_matches` returns it. It adds `weight * frequency / (frequency + (a + b * length))`.

    * `weights`: float32[q], the weight of each term.
    * `a`, `b`: `k1 * (1 - b)` and `k1 * b / average_length` of BM25's own k1 and b.
    * `rows`, `which`, `frequencies`: uint32[m]; the matches of a row in order of its terms' ids.
    * `lengths`: uint32[n], the number of terms in each row.

    All is computed in float32 and added in the order of matches, so that the result equals that
    of `Postings` to the bit.

    Raises IndexError for a row that is not below n, or a term that is not below q.
    """
    occurrences = frequencies.astype(np.float32)
    norms = np.float32(a) + np.float32(b) * lengths.astype(np.float32)
    scores = np.zeros(len(lengths), np.float32)
    # Not a sum over axes, which numpy adds up pairwise: this adds in the order of matches.
    np.add.at(scores, rows, weights[which] * occurrences / (occurrences + norms[rows]))
    return scores
