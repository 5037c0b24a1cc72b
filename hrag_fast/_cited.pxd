# cython: language_level=3
"""The sentence to cite, for kernels that have the document at hand."""

from libc.stdint cimport uint8_t, uint32_t


cdef struct Stretch:  # Of a document's text; the section is that which holds most of it.
    size_t byte_start
    size_t byte_end
    uint32_t char_start
    uint32_t char_end
    uint32_t section


cdef Stretch sentence_of(
    const uint8_t[::1] text,
    const Stretch* leaf,
    const uint32_t[::1] section_starts,
    object heading_end,
    object matches,
    const float[::1] weights,
) except *
