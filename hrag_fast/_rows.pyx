# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`rows_of_documents`: finds the rows of the leaves of the documents that match a filter.

`indexes_of` finds the places of rows in an array of rows.

`rows_of_documents` makes a bitmap of documents, then one pass over all labels. No branch of this
pass depends on the data. If half of the documents match, a CPU would mispredict half of such
branches, which would take longer than all other work.

`_rows.pyi` is the documentation for callers; `tests/twins/rows.py` has the plain twin, which
defines the right answer.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

cdef enum:
    LEAF_INDEX_BITS = 20
    # A bitmap may have at most this many bytes per row. If it would need more, because the ordinals
    # are far apart, there is no bitmap: each row's ordinal is found by binary search.
    BYTES_A_ROW = 16
    # The GIL is kept for up to this many rows. Looking them up takes about 10 us, so it delays
    # nobody. A thread that releases the GIL may wait for another thread's whole switch interval to
    # get it back.
    GIL_KEPT_UP_TO = 16_000


def rows_of_documents(
    const uint64_t[::1] labels not None, const uint64_t[::1] ordinals not None
):
    """Returns the rows whose leaves belong to any of the documents; see `_rows.pyi`."""
    cdef size_t count = labels.shape[0], document_count = ordinals.shape[0], row_count
    if count > 0xFFFF_FFFF:
        raise ValueError(f"labels has {count} entries; at most {0xFFFF_FFFF} are allowed")
    if not count or not document_count:
        return np.empty(0, np.uint32)
    # If the ordinals do not ascend, this may wrap around to a huge number. Then no bitmap is made.
    cdef uint64_t last = ordinals[document_count - 1] - ordinals[0]
    cdef bint sparse = last >= BYTES_A_ROW * <uint64_t>count
    cdef uint32_t* rows = <uint32_t*>malloc(count * sizeof(uint32_t))
    cdef uint8_t* bitmap = NULL if sparse else <uint8_t*>calloc(last + 2, 1)
    cdef uint32_t[::1] out
    try:
        if rows == NULL or (bitmap == NULL and not sparse):
            raise MemoryError
        if sparse:
            with nogil:
                row_count = bisect(labels, ordinals, rows)
        elif count <= GIL_KEPT_UP_TO:
            row_count = look_up(labels, ordinals, bitmap, last, rows)
        else:
            with nogil:
                row_count = look_up(labels, ordinals, bitmap, last, rows)
        array = np.empty(row_count, np.uint32)
        if row_count:
            out = array
            memcpy(&out[0], rows, row_count * sizeof(uint32_t))
        return array
    finally:
        free(rows)
        free(bitmap)


cdef size_t look_up(
    const uint64_t[::1] labels,
    const uint64_t[::1] ordinals,
    uint8_t* bitmap,
    uint64_t last,
    uint32_t* rows,
) noexcept nogil:
    """Writes the rows of the documents. Returns the count of these rows.

    `bitmap` has `last + 1` bytes, one for each ordinal from the first on, and one more byte that
    stays 0.
    """
    cdef uint64_t low = ordinals[0], place
    cdef size_t i, row_count = 0
    for i in range(<size_t>ordinals.shape[0]):
        place = ordinals[i] - low
        bitmap[min(place, last)] = 1
    for i in range(<size_t>labels.shape[0]):
        # An ordinal below `low` wraps around to a huge number.
        place = (labels[i] >> LEAF_INDEX_BITS) - low
        rows[row_count] = <uint32_t>i
        row_count += bitmap[place if place <= last else last + 1]
    return row_count


cdef size_t bisect(
    const uint64_t[::1] labels, const uint64_t[::1] ordinals, uint32_t* rows
) noexcept nogil:
    cdef size_t document_count = ordinals.shape[0]
    cdef size_t i, low, high, middle, row_count = 0
    cdef uint64_t ordinal
    for i in range(<size_t>labels.shape[0]):
        ordinal = labels[i] >> LEAF_INDEX_BITS
        low, high = 0, document_count
        while low < high:
            middle = (low + high) >> 1
            if ordinals[middle] < ordinal:
                low = middle + 1
            else:
                high = middle
        rows[row_count] = <uint32_t>i
        row_count += low < document_count and ordinals[low] == ordinal
    return row_count


def indexes_of(const uint32_t[::1] rows not None, const uint32_t[::1] wanted not None):
    """Returns the index of each wanted row in `rows`; see `_rows.pyi`."""
    cdef size_t row_count = rows.shape[0], count = wanted.shape[0], i, first, length, half
    indexes = np.empty(count, np.int64)
    cdef int64_t[::1] out = indexes
    for i in range(count):
        # This binary search always takes the same steps, so that compilers need no branches that
        # depend on the data.
        first, length = 0, row_count
        while length > 1:
            half = length >> 1
            if rows[first + half] <= wanted[i]:
                first += half
            length -= half
        if not row_count or rows[first] != wanted[i]:
            raise IndexError(f"wanted[{i}] is {wanted[i]}, which is not among the rows")
        out[i] = first
    return indexes
