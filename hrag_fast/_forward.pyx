# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`forward_matches`: finds a query's terms in rows that are in no postings yet.

The forward form lists the terms of each row. A search scans all entries of the rows. For speed, a
table in the L1 cache marks the low bits of the query's term ids, which are hashes. One look-up in
this table rules out nearly every entry, with only one branch for sixteen entries. The terms of the
remaining entries are looked up in the query by binary search.

`_forward.pyi` is the documentation for callers; `tests/twins/postings.py` has the plain twin, which
defines the right answer.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

cdef extern from *:
    """
    enum { HRAG_TABLE_BITS = 14, HRAG_RUN = 16 };

    static inline int hrag_may_be_wanted(uint64_t entry, const uint8_t* wanted) {
        return wanted[entry >> 8 & ((1 << HRAG_TABLE_BITS) - 1)];
    }

    // Returns how many of the first entries have terms that the query certainly does not have.
    static size_t hrag_skip(const uint64_t* entries, size_t count, const uint8_t* wanted) {
        size_t i = 0;
        for (; i + HRAG_RUN <= count; i += HRAG_RUN) {
            int any = 0;
            for (size_t j = i; j < i + HRAG_RUN; j++) any |= hrag_may_be_wanted(entries[j], wanted);
            if (any) break;
        }
        while (i < count && !hrag_may_be_wanted(entries[i], wanted)) i++;
        return i;
    }
    """
    cdef enum:
        HRAG_TABLE_BITS
    size_t hrag_skip(const uint64_t* entries, size_t count, const uint8_t* wanted) noexcept nogil

cdef enum:
    FREQUENCY_BITS = 8  # An entry is `term_id << 8 | frequency`.
    MAX_FREQUENCY = 255
    # The GIL is kept for up to this many entries. Scanning them takes about 10 us, so it delays
    # nobody. A thread that releases the GIL may wait for another thread's whole switch interval,
    # 5 ms, to get it back.
    GIL_KEPT_UP_TO = 8000


cdef struct Terms:  # The terms of the query.
    const uint64_t* ids
    size_t count
    uint8_t wanted[1 << HRAG_TABLE_BITS]  # 1 if any id has these low bits.


cdef struct Forward:  # The forward form of consecutive rows.
    const int64_t* starts
    const uint64_t* entries
    size_t count  # The count of entries.


def forward_matches(
    const int64_t[::1] starts not None,
    const uint64_t[::1] entries not None,
    size_t first,
    size_t last,
    const uint64_t[::1] ids not None,
):
    """Returns where a query's terms occur in the forward form; see `_forward.pyi`."""
    cdef size_t i, row_count = max(<Py_ssize_t>1, starts.shape[0]) - 1
    if not first <= last <= row_count:
        raise ValueError(f"first and last are {first} and {last}; there are {row_count} rows")
    for i in range(1, <size_t>ids.shape[0]):
        if ids[i - 1] >= ids[i]:
            raise ValueError(f"ids[{i}] is {ids[i]}; it must be above ids[{i - 1}], {ids[i - 1]}")
    for i in range(first, last):
        if not 0 <= starts[i] <= starts[i + 1] <= entries.shape[0]:
            raise ValueError(
                f"starts[{i}] and starts[{i + 1}] are {starts[i]} and {starts[i + 1]}; "
                f"they must ascend from 0 to {entries.shape[0]}"
            )
    cdef Terms terms
    terms.ids = &ids[0]
    terms.count = ids.shape[0]
    fill_table(&terms)
    cdef Forward forward
    forward.starts = &starts[first]
    forward.entries = &entries[0]
    forward.count = starts[last] - starts[first] if first < last else 0
    cdef vector[uint32_t] rows, which, frequencies
    if forward.count <= GIL_KEPT_UP_TO:
        find(&forward, &terms, rows, which, frequencies)
    else:
        with nogil:
            find(&forward, &terms, rows, which, frequencies)
    return array_of(rows), array_of(which), array_of(frequencies)


cdef object array_of(vector[uint32_t]& values):
    array = np.empty(values.size(), np.uint32)
    cdef uint32_t[::1] out = array
    if values.size():
        memcpy(&out[0], values.data(), values.size() * sizeof(uint32_t))
    return array


cdef void fill_table(Terms* terms) noexcept nogil:
    cdef size_t i
    memset(terms.wanted, 0, sizeof(terms.wanted))
    for i in range(terms.count):
        terms.wanted[terms.ids[i] & ((1 << HRAG_TABLE_BITS) - 1)] = 1


cdef size_t term_of(const Terms* terms, uint64_t id) noexcept nogil:
    """Returns the index of a term in the query; `terms.count` if the query does not have it."""
    cdef size_t low = 0, high = terms.count, middle
    while low < high:
        middle = (low + high) >> 1
        if terms.ids[middle] < id:
            low = middle + 1
        else:
            high = middle
    return low if low < terms.count and terms.ids[low] == id else terms.count


cdef int find(
    const Forward* forward,
    const Terms* terms,
    vector[uint32_t]& rows,
    vector[uint32_t]& which,
    vector[uint32_t]& frequencies,
) except -1 nogil:
    cdef size_t row = 0, term
    cdef int64_t i, end
    if forward.count == 0:
        return 0
    i = forward.starts[0]
    end = i + forward.count
    while i < end:
        i += hrag_skip(forward.entries + i, end - i, terms.wanted)
        if i == end:
            return 0
        term = term_of(terms, forward.entries[i] >> FREQUENCY_BITS)
        if term < terms.count:
            while forward.starts[row + 1] <= i:
                row += 1
            rows.push_back(<uint32_t>row)
            which.push_back(<uint32_t>term)
            frequencies.push_back(<uint32_t>(forward.entries[i] & MAX_FREQUENCY))
        i += 1
    return 0
