"""The layout of postings, shared by what reads them and what writes them."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    FORMAT_VERSION = 1
    WINDOW_BITS = 13
    WINDOW_ROWS = 1 << WINDOW_BITS
    FREQUENCY_BITS = 3
    LONG_FREQUENCY = 7  # This one and larger ones take a unit of their own.
    MAX_FREQUENCY = 255
    MAX_ROWS = WINDOW_ROWS << 16  # A window's number has 16 bits.
    BLOCK_HEADER_UNITS = 2


cdef inline const char* magic() noexcept nogil:
    return b"hragbm25"


cdef struct Header:  # The arrays follow: term ids, offsets, document frequencies, units.
    uint8_t magic[8]
    uint32_t version
    uint32_t rows
    uint64_t terms
    uint64_t units


cdef struct Posting:
    uint32_t row  # Within its window.
    uint32_t frequency


cdef inline const uint16_t* read_posting(const uint16_t* units, Posting* posting) noexcept nogil:
    """Reads the posting that begins at `units`; returns where the next one begins."""
    cdef uint16_t unit = units[0]
    posting.row = unit >> FREQUENCY_BITS
    posting.frequency = unit & LONG_FREQUENCY
    if posting.frequency != LONG_FREQUENCY:
        return units + 1
    posting.frequency = units[1]
    return units + 2


cdef struct Index:  # Where the parts of a checked buffer lie.
    Header header
    const uint64_t* ids
    const uint64_t* offsets
    const uint32_t* frequencies
    const uint16_t* units


cdef class Postings:
    cdef const uint8_t[::1] buffer
    cdef Index index
