# cython: language_level=3
"""Declares `TermMatcher`, by which other kernels find the terms of a query in leaves."""

from libc.stdint cimport uint8_t, uint64_t
from libcpp.vector cimport vector

from hrag_fast._analysis cimport Match


cdef class TermMatcher:
    cdef object extractor
    cdef object buffers  # The memory of `find_terms`, or None while a call uses it.
    cdef object ids_array
    cdef const uint64_t[::1] ids
    cdef const float[::1] weights  # One weight per id.

    # Replaces `matches` with the occurrences of the terms in a text in UTF-8.
    cdef int find(self, const uint8_t* text, size_t size, vector[Match]& matches) except -1
