# cython: language_level=3
"""Declares `cut_sentences`, by which other kernels cut a text only as far as they need it."""

from libc.stdint cimport uint32_t
from libcpp.vector cimport vector


cdef struct Cut:
    # How far a text is cut into sentences. Both fields are offsets in code points, first 0.
    Py_ssize_t at  # The first character that was not read yet.
    Py_ssize_t start  # The end of the last sentence that was found.


cdef bint cut_sentences(
    str text, Cut* cut, vector[uint32_t]& ends, size_t until
) except -1
# Appends the ends of the sentences after `cut.start`, in code points, up to the first one that is
# at or after `until`. Returns True if the whole text is cut. Two calls find the same ends as one.
