# cython: language_level=3
"""Declares the steps of `climb`, so that a search can group its candidates without the GIL."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct Candidates:  # The rows to group, with their scores, and the columns of the table.
    const uint32_t* rows
    const float* scores
    size_t count
    const uint64_t* labels
    const uint32_t* ancestors
    const uint8_t* alive


cdef struct Leaf:  # A candidate that is alive.
    uint64_t label
    uint64_t key
    float score
    uint32_t row
    uint32_t group


cdef struct Group:  # An ancestor and the aggregates of its children.
    uint64_t key
    double sum
    float best
    uint32_t count
    uint32_t next  # The index in the output at which the group's next child is written.


cdef struct Ranked:  # The sort key of a group or of a child.
    float score
    float best
    uint64_t tie
    uint32_t index


# The arrays in one block of memory. Every array has space for at least one entry per candidate.
cdef struct Work:
    Leaf* leaves
    Group* groups
    Ranked* ranked
    Ranked* scratch
    uint64_t* keys  # This array and the next four arrays are the result.
    float* scores
    uint32_t* starts
    uint32_t* children
    float* child_scores
    uint32_t* slots  # A hash table from a key to the index of its group + 1; 0 is a free slot.
    int slot_bits
    size_t group_count
    size_t child_count


cdef int check_table(
    size_t labels, size_t ancestors, size_t alive, int aggregation
) except -1
cdef void* allocate(Work* work, size_t count) noexcept nogil
cdef void run_climb(const Candidates* candidates, int aggregation, Work* work) noexcept nogil
cdef object groups_of(const Work* work)
cdef object array_of(object dtype, const void* items, size_t count, size_t item_bytes)
