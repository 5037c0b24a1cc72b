"""Types and documentation of the compiled `join_candidates`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

class JoinedCandidates(NamedTuple):
    """The candidates of the lexical and the vector search, in ascending order of their rows."""

    rows: NDArray[np.uint32]
    """uint32[n]: all rows that one of the sources returned."""
    lexical: NDArray[np.float32]
    """float32[n]: the score of each row in the lexical search."""
    dense: NDArray[np.float32]
    """float32[n]: the score of each row in the vector search; 0 if it is not known."""
    unscored: NDArray[np.int64]
    """int64[m]: the indexes of the rows whose score in the vector search is not known."""

def join_candidates(
    term_rows: NDArray[np.uint32],
    term_scores: NDArray[np.float32],
    vector_rows: NDArray[np.uint32],
    vector_scores: NDArray[np.float32],
    lexical_scores: NDArray[np.float32],
) -> JoinedCandidates:
    """Joins the candidates of the lexical and the vector search into one table.

    * `term_rows`, `term_scores`: uint32[a] and float32[a], the candidates of the lexical search, in
      any order, without repetition.
    * `vector_rows`, `vector_scores`: uint32[b] and float32[b], the candidates of the vector search,
      ascending.
    * `lexical_scores`: float32[b], the scores that the rows in `vector_rows` have in the lexical
      search.

    Takes O(a log a + b) time. Keeps the GIL. Raises ValueError for another dtype or shape, for
    arrays that differ in length, and for `vector_rows` that do not ascend.
    """
