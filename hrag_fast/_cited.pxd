# cython: language_level=3
"""Declares `sentence_of`, by which other kernels find the sentence to cite in a document.

`add_spans` and `joined` make the spans of a query's terms.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from hrag_fast._analysis cimport Match

ctypedef pair[uint32_t, uint32_t] Range


cdef struct TextRange:
    # A range of a document's text, and the section that has most of it.
    size_t byte_start
    size_t byte_end
    uint32_t char_start
    uint32_t char_end
    uint32_t section


cdef inline size_t count_before(const uint32_t[::1] starts, uint64_t char) noexcept:
    """Returns how many of `starts` are lower than the offset `char`. The starts must ascend."""
    cdef size_t middle, first = 0, end = starts.shape[0]
    while first < end:
        middle = (first + end) // 2
        if starts[middle] < char:
            first = middle + 1
        else:
            end = middle
    return first


cdef TextRange sentence_of(
    const uint8_t[::1] text,
    const TextRange* leaf,
    const uint32_t[::1] section_starts,
    object heading_end,
    const Match* matches,
    size_t count,
    const float[::1] weights,
) except *


cdef int add_spans(
    const Match* matches,
    size_t count,
    uint32_t char_start,
    uint32_t first,
    uint32_t end,
    vector[Range]& spans,
) except -1
# Appends the spans of matches in a text that begins at `char_start`. Spans that are not between
# `first` and `end` are left out.


cdef list joined(vector[Range]& spans)
# Returns the spans as tuples, in order; spans that overlap are joined.
