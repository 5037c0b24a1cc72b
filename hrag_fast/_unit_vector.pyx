# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`unit_vector`: scales the vector of a query to length 1. It begins every search by vector.

The squares are added up in the order in which numpy adds them (pairwise summation), so the result
has the same bits as the plain definition in numpy, which `tests/twins/unit_vector.py` has. A square
of a 32-bit number is exact in 64 bits, so a fused multiply-add would not change it.

`_unit_vector.pyi` is the documentation for callers.
"""

import numpy as np

from libc.math cimport isfinite, sqrt

cdef enum:
    LANES = 8  # This many sums are computed side by side.
    BLOCK = 128  # More numbers than this are split into two halves.

cdef object new_array = np.empty
cdef object FLOAT32 = np.dtype(np.float32)


def unit_vector(const float[::1] vector not None):
    """Returns the length of a vector, and the vector scaled to length 1; see `_unit_vector.pyi`."""
    cdef size_t count = vector.shape[0], i
    cdef double norm = sqrt(sum_of_squares(&vector[0], count)) if count else 0.0
    cdef float[::1] scaled
    if norm == 0 or not isfinite(norm):
        return norm, None
    unit = new_array(count, FLOAT32)
    scaled = unit
    for i in range(count):
        scaled[i] = <float>(vector[i] / norm)
    return norm, unit


cdef double sum_of_squares(const float* numbers, size_t count) noexcept nogil:
    cdef double sums[LANES]
    cdef double total = 0
    cdef size_t i, lane, half
    if count > BLOCK:
        half = count // 2 - count // 2 % LANES
        return sum_of_squares(numbers, half) + sum_of_squares(numbers + half, count - half)
    i = 0
    if count >= LANES:
        for lane in range(LANES):
            sums[lane] = square(numbers[lane])
        i = LANES
        while i + LANES <= count:
            for lane in range(LANES):
                sums[lane] += square(numbers[i + lane])
            i += LANES
        total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + (
            (sums[4] + sums[5]) + (sums[6] + sums[7])
        )
    while i < count:
        total += square(numbers[i])
        i += 1
    return total


cdef inline double square(float number) noexcept nogil:
    return <double>number * number
