# cython: language_level=3
"""Declares `find_terms`, by which other kernels find terms in a part of a document's text."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct Match:
    # An occurrence of a term: its start and end in code points, and the index of the term's id.
    uint32_t start
    uint32_t end
    uint32_t which


cdef size_t find_terms(
    object extractor,
    object buffers,
    const uint8_t* text,
    size_t size,
    const uint64_t* ids,
    size_t n,
    const Match** matches,
) except? 0
# Finds where terms occur in a text in UTF-8, like `TermExtractor.matches`. `ids` must ascend. Sets
# `matches` to an array in `buffers`, which the next call overwrites. Returns its length. Raises
# UnicodeDecodeError for bytes that are not UTF-8.


cdef object new_buffers()
# Returns memory that calls of `find_terms` need. Only one thread may use it at a time.
