# cython: language_level=3
"""The occurrences of terms in a folded text, and how their ids are sorted."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset


cdef enum:
    CROWDED = 64  # A bucket with more ids than this is sorted by heap sort, not by insertion.


cdef struct Occurrence:
    uint64_t id
    uint32_t start  # An offset in bytes of the folded text, like `end`.
    uint32_t end


cdef inline void insertion_sort(uint64_t* ids, size_t n) noexcept nogil:
    cdef size_t i, place
    cdef uint64_t value
    for i in range(1, n):
        value = ids[i]
        place = i
        while place > 0 and ids[place - 1] > value:
            ids[place] = ids[place - 1]
            place -= 1
        ids[place] = value


cdef inline void sift_down(uint64_t* ids, size_t place, size_t n) noexcept nogil:
    cdef uint64_t value = ids[place]
    cdef size_t child = 2 * place + 1
    while child < n:
        if child + 1 < n and ids[child + 1] > ids[child]:
            child += 1
        if ids[child] <= value:
            break
        ids[place] = ids[child]
        place = child
        child = 2 * place + 1
    ids[place] = value


cdef inline void heap_sort(uint64_t* ids, size_t n) noexcept nogil:
    """Sorts a bucket with many ids. Takes linear time if all ids are equal, and never quadratic."""
    cdef size_t i
    for i in range(n // 2, 0, -1):
        sift_down(ids, i - 1, n)
    for i in range(n - 1, 0, -1):
        ids[0], ids[i] = ids[i], ids[0]
        sift_down(ids, 0, i)


cdef inline void sort_hashes(
    const Occurrence* occurrences, size_t n, int bits, uint64_t* ids, uint32_t* offsets
) noexcept nogil:
    """Writes the sorted ids of occurrences to `ids`.

    The first `bits` of the 56 bits of an id are the index of its bucket. Ids are distributed to
    buckets, then the buckets are sorted. `offsets` has space for one entry per bucket.
    """
    cdef size_t i, bucket, buckets = <size_t>1 << bits
    cdef uint32_t largest = 0, count, start = 0, end = 0
    cdef int shift = 56 - bits
    memset(offsets, 0, buckets * sizeof(uint32_t))
    for i in range(n):
        offsets[occurrences[i].id >> shift] += 1
    for i in range(buckets):
        count = offsets[i]
        largest = max(largest, count)
        offsets[i] = end
        end += count
    for i in range(n):
        bucket = occurrences[i].id >> shift
        ids[offsets[bucket]] = occurrences[i].id
        offsets[bucket] += 1
    if largest <= CROWDED:
        insertion_sort(ids, n)
        return
    for i in range(buckets):  # An offset is now the end of its bucket.
        count = offsets[i] - start
        if count <= CROWDED:
            insertion_sort(ids + start, count)
        else:
            heap_sort(ids + start, count)
        start = offsets[i]
