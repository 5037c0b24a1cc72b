"""The twin of `_rows.pyx`: it looks up each row's document in a set."""

import numpy as np
from numpy.typing import NDArray


def rows_of_documents(
    labels: NDArray[np.uint64], ordinals: NDArray[np.uint64]
) -> NDArray[np.uint32]:
    """The twin of `hrag_fast.rows_of_documents`, which `_rows.pyi` documents."""
    documents = set(ordinals.tolist())
    rows = [row for row, label in enumerate(labels.tolist()) if label >> 20 in documents]
    return np.array(rows, np.uint32)
