"""The twin of `_join_candidates.pyx`: it uses a dict."""

import numpy as np
from numpy.typing import NDArray

from hrag_fast import JoinedCandidates


def join_candidates(
    term_rows: NDArray[np.uint32],
    term_scores: NDArray[np.float32],
    vector_rows: NDArray[np.uint32],
    vector_scores: NDArray[np.float32],
    lexical_scores: NDArray[np.float32],
) -> JoinedCandidates:
    """The twin of `hrag_fast.join_candidates`, which `_join_candidates.pyi` documents."""
    lexical = dict(zip(term_rows.tolist(), term_scores.tolist(), strict=True))
    lexical |= zip(vector_rows.tolist(), lexical_scores.tolist(), strict=True)
    dense = dict(zip(vector_rows.tolist(), vector_scores.tolist(), strict=True))
    rows = sorted(lexical)
    return JoinedCandidates(
        np.array(rows, np.uint32),
        np.array([lexical[row] for row in rows], np.float32),
        np.array([dense.get(row, 0.0) for row in rows], np.float32),
        np.array([i for i, row in enumerate(rows) if row not in dense], np.int64),
    )
