"""The twin of `_unit_vector.pyx`: it scales a vector with numpy."""

import math

import numpy as np
from numpy.typing import NDArray


def unit_vector(vector: NDArray[np.float32]) -> tuple[float, NDArray[np.float32] | None]:
    """The twin of `hrag_fast.unit_vector`, which `_unit_vector.pyi` documents."""
    wide = vector.astype(np.float64)
    norm = math.sqrt((wide * wide).sum())
    if norm == 0 or not math.isfinite(norm):
        return norm, None
    return norm, (wide / norm).astype(np.float32)
