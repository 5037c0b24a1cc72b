# cython: language_level=3
"""Declares the content of an index file, in the arrays that `_graph.pyx` searches."""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from hrag_fast._vector_file cimport VectorFile


cdef struct Header:  # The header as hnswlib's `saveIndex` writes it.
    uint64_t level0_offset
    uint64_t max_elements
    uint64_t count
    uint64_t element_bytes
    uint64_t label_offset
    uint64_t data_offset
    int32_t max_level
    uint32_t entry_point
    uint64_t max_links
    uint64_t max_links0
    uint64_t m
    double level_multiplier
    uint64_t ef_construction


cdef enum:
    COUNT_MASK = 0xFFFF  # The word before a list of links has its length in the low 16 bits.


@cython.final
cdef class GraphFile:
    cdef Header header
    cdef size_t dimension
    cdef size_t links_bytes  # The size of an element's list of links at level 0.
    cdef size_t level_bytes  # The size of an element's list of links at a level above 0.
    cdef uint8_t[::1] links  # The lists of level 0, in the order of internal ids.
    cdef uint8_t[::1] upper  # The links above level 0, as in the file.
    # An entry for each internal id: where its links above level 0 begin in `upper`; 0 for none.
    cdef uint64_t[::1] upper_offsets
    cdef uint32_t[::1] items  # The item of each internal id.
    cdef uint32_t[::1] internal_ids  # The internal id of each item.
    cdef float[::1] vectors  # The vectors; empty if they stay in the file.
    cdef VectorFile stored  # The vectors in the file, or None if they are in memory.
    cdef int8_t* codes  # The codes of each vector, or NULL if none are made.
    cdef object codes_memory  # The array that `codes` points into.
    cdef size_t row_bytes  # The size of the codes of one vector, a multiple of a cache line.
    cdef float[::1] scales  # The scale of the codes of each internal id.
    cdef vector[float] mean  # The mean that is subtracted from each vector before it is rounded.
    # The state of reading.
    cdef size_t size_bytes
    cdef size_t read_bytes
    cdef size_t read_elements
    cdef size_t numbered_items
    cdef size_t upper_bytes
    cdef size_t next_sample
    cdef vector[uint8_t] partial  # The first bytes of the header or element that is read next.
    cdef vector[float] row, centred, sampled
    cdef vector[int16_t] wide

    cdef size_t append(self, const uint8_t* data, size_t size, size_t whole) except? 0 nogil
    cdef int take_rest(self, const uint8_t* data, size_t size) except -1 nogil
    cdef int take_element(self, const uint8_t* element) except -1 nogil
    cdef size_t sample_count(self) noexcept nogil
    cdef size_t sample_row(self, size_t sample) noexcept nogil
    cdef void encode(self, size_t internal_id, const float* vector) noexcept nogil
    cdef bint links_are_valid(self) noexcept nogil
    cdef bint list_is_valid(
        self, const uint8_t* first, size_t max_count, size_t level
    ) noexcept nogil
    cdef uint32_t upper_size(self, size_t internal_id) noexcept nogil
