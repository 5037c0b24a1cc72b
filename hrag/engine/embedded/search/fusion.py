"""Fusion: one list of candidates from several sources'.

A convex combination with equal weights (Bruch, Gai, Ingber: An Analysis of Fusion Functions
for Hybrid Retrieval, 2023). Knows nothing of where the candidates come from.
"""

from collections.abc import Sequence

import numpy as np

from hrag.engine.embedded.search.candidates import Candidates


def fuse(found: Sequence[Candidates]) -> Candidates:
    """Returns every row that a source found, with the mean of the sources' scores.

    The scores must be on one scale; a row counts 0 in a source that did not return it. One
    source's candidates are returned as they are. Raises ValueError for no source.
    """
    if not found:
        raise ValueError("there is no source to take candidates from")
    if len(found) == 1:
        return found[0]
    rows, inverse = np.unique(np.concatenate([each.rows for each in found]), return_inverse=True)
    scores = np.concatenate([each.scores for each in found])
    sums = np.bincount(inverse, weights=scores, minlength=len(rows))
    complete = all(each.complete for each in found)
    return Candidates(
        rows,
        (sums / len(found)).astype(np.float32),
        # A row that one source left out might score higher once its score there is known.
        exact=complete and all(each.exact for each in found),
        complete=complete,
    )
