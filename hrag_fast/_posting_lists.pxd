"""The layout of postings, and the functions that read a list of postings, for all kernels.

A window is 8,192 consecutive rows; a block is one term's postings in one window. A unit is 16 bits:
`_posting_lists.pyx` describes the layout.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libcpp.vector cimport vector

cdef enum:
    FORMAT_VERSION = 1
    WINDOW_BITS = 13
    WINDOW_ROWS = 1 << WINDOW_BITS
    MAX_ROWS = WINDOW_ROWS << 16  # The index of a window is stored in 16 bits.
    BLOCK_HEADER_UNITS = 2  # The index of the window, and the count of the units that follow.
    FREQUENCY_BITS = 3
    LONG_FREQUENCY = 7  # A frequency of 7 or more is stored in a second unit.
    MAX_FREQUENCY = 255
    NO_WINDOW = 1 << 16
    # The GIL is kept for lists of up to this many units in total. Reading them takes about 10 us,
    # so it delays nobody. A thread that releases the GIL may wait for another thread's whole switch
    # interval, 5 ms, to get it back.
    GIL_KEPT_UP_TO = 4000


cdef struct Header:  # The arrays follow: term ids, offsets, document frequencies, units.
    uint8_t magic[8]
    uint32_t version
    uint32_t rows
    uint64_t terms
    uint64_t units


cdef inline const char* magic() noexcept nogil:
    return b"hragbm25"


cdef struct Index:  # Where the parts of a checked buffer are.
    Header header
    const uint64_t* ids
    const uint64_t* offsets
    const uint32_t* frequencies
    const uint16_t* units


cdef struct Posting:
    uint32_t row  # The row, relative to the first row of its window.
    uint32_t frequency


cdef struct Block:  # A term's postings in one window.
    const uint16_t* first
    const uint16_t* end


cdef struct Cursor:  # A reading position in the list of one term of a query.
    const uint16_t* next
    const uint16_t* end
    size_t which  # The index of the term in the query.


cdef inline const uint16_t* read_posting(const uint16_t* units, Posting* posting) noexcept nogil:
    """Reads the posting that begins at `units`. Returns where the next posting begins."""
    posting.row = units[0] >> FREQUENCY_BITS
    posting.frequency = units[0] & LONG_FREQUENCY
    if posting.frequency != LONG_FREQUENCY:
        return units + 1
    posting.frequency = units[1]
    return units + 2


cdef inline uint32_t window_of(const Cursor* cursor) noexcept nogil:
    """Returns the window of a cursor's next block; NO_WINDOW at the end of the list."""
    return cursor.next[0] if cursor.next < cursor.end else <uint32_t>NO_WINDOW


cdef inline Block next_block(Cursor* cursor) noexcept nogil:
    cdef Block block
    block.first = cursor.next + BLOCK_HEADER_UNITS
    block.end = block.first + cursor.next[1]
    cursor.next = block.end
    return block


cdef Cursor cursor_of(const Index* index, size_t term) noexcept nogil
cdef size_t find_terms(
    const Index* index, const uint64_t* ids, size_t count, vector[Cursor]& cursors
) except? -1
cdef const uint16_t* seek(
    const uint16_t* first, const uint16_t* low, const uint16_t* end, uint32_t row
) noexcept nogil
cdef void look_up(
    Cursor cursor, const uint32_t* rows, size_t count, uint32_t* frequencies
) noexcept nogil
cdef int check_entries(str name, size_t entries, size_t expected) except -1
cdef int check_ascending(const uint64_t* ids, size_t count) except -1


cdef class PostingLists:
    cdef const uint8_t[::1] buffer
    cdef Index index
