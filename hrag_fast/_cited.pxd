# cython: language_level=3
"""The sentence to cite, for kernels that have the document at hand."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct Stretch:  # Of a document's text; the section is that which holds most of it.
    size_t byte_start
    size_t byte_end
    uint32_t char_start
    uint32_t char_end
    uint32_t section


cdef inline size_t count_before(const uint32_t[::1] starts, uint64_t char) noexcept:
    """How many starts, which ascend, are before a character."""
    cdef size_t middle, first = 0, end = starts.shape[0]
    while first < end:
        middle = (first + end) // 2
        if starts[middle] < char:
            first = middle + 1
        else:
            end = middle
    return first


cdef Stretch sentence_of(
    const uint8_t[::1] text,
    const Stretch* leaf,
    const uint32_t[::1] section_starts,
    object heading_end,
    object matches,
    const float[::1] weights,
) except *
