# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`join_candidates`: joins the candidates of two sources into one table of rows and scores.

`_join_candidates.pyi` is the documentation for callers; `tests/twins/candidates.py` has the plain
twin, which defines the right answer.
"""

from collections import namedtuple

import numpy as np

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy
from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.vector cimport vector

JoinedCandidates = namedtuple("JoinedCandidates", ("rows", "lexical", "dense", "unscored"))

ctypedef pair[uint32_t, float] Scored


def join_candidates(
    const uint32_t[::1] term_rows not None,
    const float[::1] term_scores not None,
    const uint32_t[::1] vector_rows not None,
    const float[::1] vector_scores not None,
    const float[::1] lexical_scores not None,
):
    """Joins the candidates of two sources; see `_join_candidates.pyi`."""
    cdef size_t i, j = 0, n = term_rows.shape[0], m = vector_rows.shape[0]
    cdef vector[Scored] by_terms
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
    for i in range(n):
        by_terms.push_back(Scored(term_rows[i], term_scores[i]))
    sort(by_terms.begin(), by_terms.end())
    for i in range(n):
        while j < m and vector_rows[j] < by_terms[i].first:
            add(rows, lexical, dense, vector_rows[j], lexical_scores[j], vector_scores[j])
            j += 1
        if j < m and vector_rows[j] == by_terms[i].first:
            continue  # The row is added with its score by vector.
        unscored.push_back(<int64_t>rows.size())
        add(rows, lexical, dense, by_terms[i].first, by_terms[i].second, 0)
    for j in range(j, m):
        add(rows, lexical, dense, vector_rows[j], lexical_scores[j], vector_scores[j])
    return tuple.__new__(JoinedCandidates, (
        array_of(np.uint32, rows.data(), rows.size(), sizeof(uint32_t)),
        array_of(np.float32, lexical.data(), lexical.size(), sizeof(float)),
        array_of(np.float32, dense.data(), dense.size(), sizeof(float)),
        array_of(np.int64, unscored.data(), unscored.size(), sizeof(int64_t)),
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


cdef object array_of(dtype, const void* values, size_t count, size_t size):
    """Returns a new array with a copy of the values."""
    array = np.empty(count, dtype)
    cdef unsigned char[::1] out
    if count:
        out = array.view(np.uint8)
        memcpy(&out[0], values, count * size)
    return array
