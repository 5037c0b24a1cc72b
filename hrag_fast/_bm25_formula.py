"""The BM25 formula in numpy.

It scores rows that are in no postings. The twin of `Postings` uses it too.
"""

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

    A match says that a row has a term of the query: row `rows[j]` has term `which[j]`
    `frequencies[j]` times. `forward_matches` returns matches in this form. A match adds
    `weight * frequency / (frequency + (a + b * length))` to its row's score.

    * `weights`: float32[q], the weight of each term.
    * `a`, `b`: `k1 * (1 - b)` and `k1 * b / average_length`, where k1 and b are BM25's parameters.
    * `rows`, `which`, `frequencies`: uint32[m]; the matches of a row in order of its terms' ids.
    * `lengths`: uint32[n], the number of terms in each row.

    Scores are computed in float32, and shares are added in the order of matches. So the result has
    the same bits as the scores of `Postings`.

    Raises IndexError for a row that is not below n, or a term that is not below q.
    """
    occurrences = frequencies.astype(np.float32)
    norms = np.float32(a) + np.float32(b) * lengths.astype(np.float32)
    scores = np.zeros(len(lengths), np.float32)
    # `np.add.at` adds in the order of matches. A sum over an axis would add pairwise.
    np.add.at(scores, rows, weights[which] * occurrences / (occurrences + norms[rows]))
    return scores
