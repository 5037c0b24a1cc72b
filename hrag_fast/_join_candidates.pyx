# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`join_candidates`: joins the candidates of two sources into one table of rows and scores.

`_join_candidates.pyi` is the documentation for callers; `tests/twins/candidates.py` has the plain
twin, which defines the right answer.
"""

from collections import namedtuple

import numpy as np

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

from hrag_fast._climb cimport array_of

JoinedCandidates = namedtuple("JoinedCandidates", ("rows", "lexical", "dense", "unscored"))

cdef object UINT32 = np.dtype(np.uint32)
cdef object FLOAT32 = np.dtype(np.float32)
cdef object INT64 = np.dtype(np.int64)


def join_candidates(
    const uint32_t[::1] term_rows not None,
    const float[::1] term_scores not None,
    const uint32_t[::1] vector_rows not None,
    const float[::1] vector_scores not None,
    const float[::1] lexical_scores not None,
):
    """Joins the candidates of two sources; see `_join_candidates.pyi`."""
    cdef size_t i, j = 0, n = term_rows.shape[0], m = vector_rows.shape[0]
    cdef uint32_t row
    cdef float score
    cdef vector[uint64_t] by_terms  # `row << 32 | index`
    cdef vector[uint32_t] rows
    cdef vector[float] lexical, dense
    cdef vector[int64_t] unscored
    check_length("term_scores", term_scores.shape[0], n)
    check_length("vector_scores", vector_scores.shape[0], m)
    check_length("lexical_scores", lexical_scores.shape[0], m)
    for i in range(1, m):
        if vector_rows[i] <= vector_rows[i - 1]:
            raise ValueError(
                f"vector_rows[{i}] is {vector_rows[i]}; it must be above vector_rows[{i - 1}], "
                f"{vector_rows[i - 1]}"
            )
    by_terms.resize(n)
    for i in range(n):
        by_terms[i] = <uint64_t>term_rows[i] << 32 | i
    sort(by_terms.begin(), by_terms.end())
    rows.reserve(n + m)
    lexical.reserve(n + m)
    dense.reserve(n + m)
    unscored.reserve(n)
    for i in range(n):
        row, score = <uint32_t>(by_terms[i] >> 32), term_scores[<uint32_t>by_terms[i]]
        while j < m and vector_rows[j] < row:
            add(rows, lexical, dense, vector_rows[j], lexical_scores[j], vector_scores[j])
            j += 1
        if j < m and vector_rows[j] == row:
            continue  # The row is added with its score by vector.
        unscored.push_back(<int64_t>rows.size())
        add(rows, lexical, dense, row, score, 0)
    for j in range(j, m):
        add(rows, lexical, dense, vector_rows[j], lexical_scores[j], vector_scores[j])
    return tuple.__new__(JoinedCandidates, (
        array_of(UINT32, rows.data(), rows.size(), sizeof(uint32_t)),
        array_of(FLOAT32, lexical.data(), lexical.size(), sizeof(float)),
        array_of(FLOAT32, dense.data(), dense.size(), sizeof(float)),
        array_of(INT64, unscored.data(), unscored.size(), sizeof(int64_t)),
    ))


cdef inline int add(
    vector[uint32_t]& rows,
    vector[float]& lexical,
    vector[float]& dense,
    uint32_t row,
    float lexical_score,
    float dense_score,
) except -1:
    rows.push_back(row)
    lexical.push_back(lexical_score)
    dense.push_back(dense_score)
    return 0


cdef int check_length(str name, size_t length, size_t expected) except -1:
    if length != expected:
        raise ValueError(f"{name} has {length} entries; it must have {expected}, as its rows")
    return 0
