"""Types and documentation of the compiled `unit_vector`."""

import numpy as np
from numpy.typing import NDArray

def unit_vector(vector: NDArray[np.float32]) -> tuple[float, NDArray[np.float32] | None]:
    """Returns the length of a vector, and a new vector in the same direction with length 1.

    `vector` is float32[n], contiguous, and may be read-only. The result is float32[n]; both are
    computed in 64 bits. Returns None in its place if the length is 0, or if the vector contains NaN
    or infinity: then the length is NaN or infinity. The GIL is kept, because a vector takes about a
    microsecond.

    Raises ValueError for another dtype or shape, and TypeError for an object that is no array.
    """
