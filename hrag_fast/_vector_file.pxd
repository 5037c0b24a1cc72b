# cython: language_level=3
"""Declares the file of a graph's vectors, which `_graph_file.pyx` fills and `_graph.pyx` reads."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef enum:  # Results of `read`. Other results are numbers of errors of the operating system.
    READ = 0
    FILE_ENDS = -1


@cython.final
cdef class VectorFile:
    cdef int descriptor
    cdef uint64_t first_offset  # Where the first vector begins in the file.
    cdef uint64_t step  # The distance between the beginnings of two vectors, in bytes.
    cdef size_t dimension
    cdef size_t half  # Half of the words of a row, rounded up: a row is padded with a zero.
    cdef uint32_t[::1] keys
    cdef uint64_t[::1] checksums

    cdef int read(self, size_t row, float* out) noexcept nogil
    cdef void begin_to_read(self, size_t row) noexcept nogil
    cdef void remember(self, size_t row, const float* vector) noexcept nogil
    cdef bint is_intact(self, size_t row, const float* vector) noexcept nogil
    cdef bint read_cached(self, size_t row, float* out) noexcept nogil
    cdef bint read_intact(self, size_t row, float* out, int* result) noexcept nogil
