# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`rows_of_documents`: from the documents that a filter selects to the rows of their leaves.

A bitmap of documents and a pass over all labels. Neither branches on the data: half of such
branches are mispredicted where half of the documents are selected, which takes longer than all
the rest.

`_rows.pyi` is the documentation for callers; `_reference.py` has the plain twin, which defines
the right answer.
"""

import numpy as np

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

cdef enum:
    LEAF_INDEX_BITS = 20
    BYTES_A_ROW = 16  # Of a bitmap, at most; where documents are sparser, rows bisect.
    # A thread that releases the GIL may wait for another's whole switch interval to get it back.
    # Up to this many rows looking them up takes about 10 us: keeping it delays nobody.
    GIL_KEPT_UP_TO = 16_000


def rows_of_documents(
    const uint64_t[::1] labels not None, const uint64_t[::1] ordinals not None
):
    """The rows whose labels are of one of the documents; see `_rows.pyi`."""
    cdef size_t count = labels.shape[0], chosen = ordinals.shape[0], found
    if count > 0xFFFF_FFFF:
        raise ValueError(f"labels has {count} entries; at most {0xFFFF_FFFF} are allowed")
    if not count or not chosen:
        return np.empty(0, np.uint32)
    cdef uint64_t last = ordinals[chosen - 1] - ordinals[0]  # Huge if they do not ascend.
    cdef bint sparse = last >= BYTES_A_ROW * <uint64_t>count
    cdef uint32_t* rows = <uint32_t*>malloc(count * sizeof(uint32_t))
    cdef uint8_t* bitmap = NULL if sparse else <uint8_t*>calloc(last + 2, 1)
    cdef uint32_t[::1] out
    try:
        if rows == NULL or (bitmap == NULL and not sparse):
            raise MemoryError
        if sparse:
            with nogil:
                found = bisect(labels, ordinals, rows)
        elif count <= GIL_KEPT_UP_TO:
            found = look_up(labels, ordinals, bitmap, last, rows)
        else:
            with nogil:
                found = look_up(labels, ordinals, bitmap, last, rows)
        array = np.empty(found, np.uint32)
        if found:
            out = array
            memcpy(&out[0], rows, found * sizeof(uint32_t))
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
    """`bitmap` has `last + 1` bytes, one an ordinal from the first on, and one that stays 0."""
    cdef uint64_t low = ordinals[0], place
    cdef size_t i, found = 0
    for i in range(<size_t>ordinals.shape[0]):
        place = ordinals[i] - low
        bitmap[min(place, last)] = 1
    for i in range(<size_t>labels.shape[0]):
        place = (labels[i] >> LEAF_INDEX_BITS) - low  # Below `low`, wrapped around.
        rows[found] = <uint32_t>i
        found += bitmap[place if place <= last else last + 1]
    return found


cdef size_t bisect(
    const uint64_t[::1] labels, const uint64_t[::1] ordinals, uint32_t* rows
) noexcept nogil:
    cdef size_t chosen = ordinals.shape[0]
    cdef size_t i, low, high, middle, found = 0
    cdef uint64_t wanted
    for i in range(<size_t>labels.shape[0]):
        wanted = labels[i] >> LEAF_INDEX_BITS
        low, high = 0, chosen
        while low < high:
            middle = (low + high) >> 1
            if ordinals[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        rows[found] = <uint32_t>i
        found += low < chosen and ordinals[low] == wanted
    return found
