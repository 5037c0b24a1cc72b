"""The twins of `_rows.pyx`: one looks up each row's document in a set, the other uses a list."""

import numpy as np
from numpy.typing import NDArray


def rows_of_documents(
    labels: NDArray[np.uint64], ordinals: NDArray[np.uint64]
) -> NDArray[np.uint32]:
    """The twin of `hrag_fast.rows_of_documents`, which `_rows.pyi` documents."""
    documents = set(ordinals.tolist())
    rows = [row for row, label in enumerate(labels.tolist()) if label >> 20 in documents]
    return np.array(rows, np.uint32)


def indexes_of(rows: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The twin of `hrag_fast.indexes_of`, which `_rows.pyi` documents."""
    return np.array([rows.tolist().index(row) for row in wanted.tolist()], np.int64)
