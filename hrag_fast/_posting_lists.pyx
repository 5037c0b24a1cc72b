# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`PostingLists`: an inverted index that is read in place from one buffer.

The layout is little-endian; `_posting_lists.pxd` names its parts:

* The buffer has a header, the term ids as ascending uint64[t], the offsets of the terms' lists in
  the units as uint64[t + 1], the document frequencies as uint32[t], and the units as uint16.
* The rows are divided into windows of 8,192 rows. A list consists of one block for each window in
  which the term occurs. A block has the index of the window, the count of the units that follow,
  and the postings in order of rows.
* A posting is the unit `row_in_window << 3 | frequency`. A frequency of 7 or more is written as
  7, and the frequency follows in a second unit.

The buffer is checked once, when it is opened. From then on no offset can lead out of the buffer.
`_posting_lists.pyi` is the documentation for callers; `tests/twins/postings.py` has the plain twin,
which defines the right answer.
"""

import numpy as np

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    // GCC compiles these loops once for each kind of CPU; the loader chooses the best one.
    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define HRAG_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define HRAG_CPU_CLONES
    #endif

    enum { HRAG_LANES = 16, HRAG_LONG = 7 };  // A frequency of 7 or more is in a second unit.

    // Returns how many of the first units are postings of one unit each, with ascending rows. The
    // result is a multiple of 16. The last of these postings is compared with the unit after it,
    // so this unit must exist.
    HRAG_CPU_CLONES
    static size_t hrag_plain_units(const uint16_t* units, size_t count) {
        size_t i = 0;
        for (; i + HRAG_LANES < count; i += HRAG_LANES) {
            int wrong = 0;
            for (size_t j = i; j < i + HRAG_LANES; j++) {
                wrong |= (units[j] & 7) == 0;
                wrong |= (units[j] & 7) == HRAG_LONG;
                wrong |= units[j] >> 3 >= units[j + 1] >> 3;
            }
            if (wrong) break;
        }
        return i;
    }

    // Counts the postings of a block whose rows have a flag other than 0.
    static size_t hrag_count_flagged(
        const uint16_t* units, const uint16_t* end, const uint8_t* flags
    ) {
        size_t count = 0;
        while (end - units >= HRAG_LANES) {
            int is_long = 0;
            for (int i = 0; i < HRAG_LANES; i++) is_long |= (units[i] & 7) == HRAG_LONG;
            if (!is_long) {
                for (int i = 0; i < HRAG_LANES; i++) count += flags[units[i] >> 3] != 0;
                units += HRAG_LANES;
            } else {
                const uint16_t* stop = units + HRAG_LANES;
                for (; units < stop; units += 1 + ((units[0] & 7) == HRAG_LONG))
                    count += flags[units[0] >> 3] != 0;
            }
        }
        for (; units < end; units += 1 + ((units[0] & 7) == HRAG_LONG))
            count += flags[units[0] >> 3] != 0;
        return count;
    }
    """
    size_t hrag_plain_units(const uint16_t* units, size_t count) noexcept nogil
    size_t hrag_count_flagged(
        const uint16_t* units, const uint16_t* end, const uint8_t* flags
    ) noexcept nogil

cdef enum:
    SHORT_RUN = 16  # Up to this many units, reading all of them is faster than binary search.
    # A unit below 256 is a frequency or the posting of a low row. Postings of low rows occur only
    # among the first units of a block, at most this many. After them, such a unit is a frequency.
    AMBIGUOUS_UNITS = 2 * (MAX_FREQUENCY + 1) >> FREQUENCY_BITS


cdef class PostingLists:
    """An inverted index that is read in place; see `_posting_lists.pyi`."""

    def __cinit__(self, const uint8_t[::1] buffer not None):
        cdef size_t size = buffer.shape[0]
        if size < sizeof(Header):
            raise ValueError(f"{size} bytes are too few for postings")
        if <size_t>&buffer[0] % sizeof(uint64_t):
            raise ValueError("postings must begin at a multiple of 8 bytes in memory")
        self.buffer = buffer
        self.index = index_of(&buffer[0], size)
        cdef bint valid
        with nogil:
            valid = lists_are_valid(&self.index)
        if not valid:
            raise ValueError("a list of the postings is damaged")

    @property
    def rows(self):
        return self.index.header.rows

    def __len__(self):
        return self.index.header.terms

    def document_frequencies(self, const uint64_t[::1] ids not None, const uint8_t[::1] alive):
        """Returns how many rows have each term; see `_posting_lists.pyi`."""
        counts = np.zeros(ids.shape[0], np.uint32)
        cdef uint32_t[::1] out = counts
        cdef vector[Cursor] cursors
        cdef size_t i, term, units
        if alive is None:
            for i in range(<size_t>ids.shape[0]):
                term = term_of(&self.index, ids[i])
                out[i] = self.index.frequencies[term] if term < self.index.header.terms else 0
            return counts
        check_entries("alive", alive.shape[0], self.index.header.rows)
        units = find_terms(&self.index, &ids[0], ids.shape[0], cursors)
        if units <= GIL_KEPT_UP_TO:
            count_alive(cursors, &alive[0], &out[0])
        else:
            with nogil:
                count_alive(cursors, &alive[0], &out[0])
        return counts

    def rows_with_all(self, const uint64_t[::1] ids not None):
        """Returns the rows that have every term; see `_posting_lists.pyi`."""
        check_ascending(&ids[0], ids.shape[0])
        if ids.shape[0] == 0:
            return np.arange(self.index.header.rows, dtype=np.uint32)
        cdef vector[uint32_t] rows
        # The values are `document_frequency << 32 | term`, so the rarest term comes first.
        cdef vector[uint64_t] terms
        cdef size_t i, term
        for i in range(<size_t>ids.shape[0]):
            term = term_of(&self.index, ids[i])
            if term == self.index.header.terms:
                return np.empty(0, np.uint32)
            terms.push_back(<uint64_t>self.index.frequencies[term] << 32 | term)
        with nogil:
            sort(terms.begin(), terms.end())
            append_rows(rows, cursor_of(&self.index, <uint32_t>terms[0]))
            for i in range(1, terms.size()):
                keep_rows(rows, cursor_of(&self.index, <uint32_t>terms[i]))
        array = np.empty(rows.size(), np.uint32)
        cdef uint32_t[::1] out = array
        if rows.size():
            memcpy(&out[0], rows.data(), rows.size() * sizeof(uint32_t))
        return array


cdef int check_entries(str name, size_t entries, size_t expected) except -1:
    if entries != expected:
        raise ValueError(f"{name} has {entries} entries; it must have {expected}, one a row")
    return 0


cdef int check_ascending(const uint64_t* ids, size_t count) except -1:
    cdef size_t i
    for i in range(1, count):
        if ids[i - 1] >= ids[i]:
            raise ValueError(f"ids[{i}] is {ids[i]}; it must be above ids[{i - 1}], {ids[i - 1]}")
    return 0


cdef Index index_of(const uint8_t* buffer, size_t size) except *:
    """Returns where the parts of the buffer lie.

    Raises ValueError if the header is wrong, or if the parts do not exactly fill the buffer.
    """
    cdef size_t rest = size - sizeof(Header)
    cdef size_t term_bytes = 2 * sizeof(uint64_t) + sizeof(uint32_t)
    cdef Index index
    cdef Header* header = &index.header
    memcpy(header, buffer, sizeof(Header))
    if memcmp(header.magic, magic(), sizeof(header.magic)) != 0:
        raise ValueError("the buffer does not hold postings")
    if header.version != FORMAT_VERSION:
        raise ValueError(f"the postings have version {header.version}; it must be {FORMAT_VERSION}")
    if (
        header.rows > MAX_ROWS
        or header.terms > min(rest // term_bytes, <size_t>0xFFFFFFFF)
        or header.units > rest // sizeof(uint16_t)
        or rest != sizeof(uint64_t) + header.terms * term_bytes + header.units * sizeof(uint16_t)
    ):
        raise ValueError("the header of the postings does not fit their size")
    index.ids = <const uint64_t*>(buffer + sizeof(Header))
    index.offsets = index.ids + header.terms
    index.frequencies = <const uint32_t*>(index.offsets + header.terms + 1)
    index.units = <const uint16_t*>(index.frequencies + header.terms)
    return index


cdef bint lists_are_valid(const Index* index) noexcept nogil:
    cdef size_t term
    if index.offsets[0] != 0 or index.offsets[index.header.terms] != index.header.units:
        return False
    for term in range(index.header.terms):
        if index.offsets[term] >= index.offsets[term + 1]:
            return False
    for term in range(index.header.terms):
        if term and index.ids[term - 1] >= index.ids[term]:
            return False
        if not list_is_valid(index, term):
            return False
    return True


cdef bint list_is_valid(const Index* index, size_t term) noexcept nogil:
    """Returns True if a list of postings is valid.

    In a valid list, windows ascend, the last block ends where the list ends, and the count of
    postings is the term's document frequency.
    """
    cdef const uint16_t* next = index.units + index.offsets[term]
    cdef const uint16_t* end = index.units + index.offsets[term + 1]
    cdef size_t least_window = 0, window, units, count = 0, rows
    while next < end:
        if end - next <= BLOCK_HEADER_UNITS:
            return False
        window = next[0]
        units = next[1]
        next += BLOCK_HEADER_UNITS
        if window < least_window or units == 0 or <size_t>(end - next) < units:
            return False
        rows = rows_needed(next, next + units, &count)
        if rows == 0 or (window << WINDOW_BITS) + rows > index.header.rows:
            return False
        least_window = window + 1
        next += units
    return count == index.frequencies[term]


cdef size_t rows_needed(const uint16_t* next, const uint16_t* end, size_t* count) noexcept nogil:
    """Returns how many rows the window of a block must have; 0 if the block is damaged.

    This is the last row in the block, relative to the window, plus 1. In a valid block, rows
    ascend, and frequencies are written as the layout says. Adds the count of postings to `count`.
    """
    cdef const uint16_t* stop
    cdef size_t rows = 0, plain
    while next < end:
        if next[0] >> FREQUENCY_BITS < rows:
            return 0
        plain = hrag_plain_units(next, end - next)
        count[0] += plain
        next += plain
        if plain:
            rows = ((next - 1)[0] >> FREQUENCY_BITS) + 1
        stop = min(end, next + SHORT_RUN)
        while next < stop:
            if next[0] >> FREQUENCY_BITS < rows or next[0] & LONG_FREQUENCY == 0:
                return 0
            rows = (next[0] >> FREQUENCY_BITS) + 1
            count[0] += 1
            next += 1
            if (next - 1)[0] & LONG_FREQUENCY == LONG_FREQUENCY:
                if next == end or not LONG_FREQUENCY <= next[0] <= MAX_FREQUENCY:
                    return 0
                next += 1
    return rows


cdef size_t term_of(const Index* index, uint64_t id) noexcept nogil:
    """Returns the index of a term in `ids`; the count of all terms if the term does not exist."""
    cdef size_t low = 0, high = index.header.terms, middle
    while low < high:
        middle = (low + high) >> 1
        if index.ids[middle] < id:
            low = middle + 1
        else:
            high = middle
    return low if low < index.header.terms and index.ids[low] == id else index.header.terms


cdef Cursor cursor_of(const Index* index, size_t term) noexcept nogil:
    cdef Cursor cursor
    cursor.next = index.units + index.offsets[term]
    cursor.end = index.units + index.offsets[term + 1]
    cursor.which = 0
    return cursor


cdef size_t find_terms(
    const Index* index, const uint64_t* ids, size_t count, vector[Cursor]& cursors
) except? -1:
    """Adds a cursor for each term that has postings. Returns the count of units in their lists."""
    cdef size_t i, term, units = 0
    for i in range(count):
        term = term_of(index, ids[i])
        if term < index.header.terms:
            cursors.push_back(cursor_of(index, term))
            cursors.back().which = i
            units += index.offsets[term + 1] - index.offsets[term]
    return units


cdef void count_alive(
    vector[Cursor]& cursors, const uint8_t* alive, uint32_t* counts
) noexcept nogil:
    """Adds, for each term, how many of its postings have a row that is alive."""
    cdef size_t i, first
    cdef Block block
    for i in range(cursors.size()):
        while cursors[i].next < cursors[i].end:
            first = <size_t>window_of(&cursors[i]) << WINDOW_BITS
            block = next_block(&cursors[i])
            counts[cursors[i].which] += <uint32_t>hrag_count_flagged(
                block.first, block.end, alive + first
            )


cdef const uint16_t* seek(
    const uint16_t* first, const uint16_t* low, const uint16_t* end, uint32_t row
) noexcept nogil:
    """Returns the first posting, from `low` on, of a row that is not below `row`.

    Returns `end` if there is no such posting. `low` is a posting, and `first` is the block's first
    posting. Binary search may hit a unit that is a frequency. The unit before the one that is hit
    decides: if it is 256 or more, it is a posting, and its lowest bits say if a frequency follows.
    If it is below 256, it is a frequency. Exception: among the first AMBIGUOUS_UNITS units of a
    block, it may also be a posting.
    """
    cdef const uint16_t* high = end
    cdef const uint16_t* middle
    cdef Posting posting
    while high - low > SHORT_RUN:
        middle = low + ((high - low) >> 1)
        if (middle - 1)[0] > MAX_FREQUENCY:
            middle += ((middle - 1)[0] & LONG_FREQUENCY) == LONG_FREQUENCY
        elif middle - first <= AMBIGUOUS_UNITS:
            break
        if middle[0] >> FREQUENCY_BITS < row:
            low = middle
        else:
            high = middle
    while low < end and low[0] >> FREQUENCY_BITS < row:
        low = read_posting(low, &posting)
    return low


cdef void look_up(
    Cursor cursor, const uint32_t* rows, size_t count, uint32_t* frequencies
) noexcept nogil:
    """Writes how often the term occurs in each of `rows`. Rows must ascend, and may repeat."""
    cdef size_t i
    cdef uint32_t row, window = NO_WINDOW
    cdef const uint16_t* at = NULL
    cdef Block block
    cdef Posting posting
    block.first = block.end = NULL
    for i in range(count):
        frequencies[i] = 0
        while window_of(&cursor) <= rows[i] >> WINDOW_BITS:
            window = window_of(&cursor)
            block = next_block(&cursor)
            at = block.first
        if window != rows[i] >> WINDOW_BITS:
            continue
        row = rows[i] & (WINDOW_ROWS - 1)
        at = seek(block.first, at, block.end, row)
        if at < block.end:
            read_posting(at, &posting)
            if posting.row == row:
                frequencies[i] = posting.frequency


cdef int append_rows(vector[uint32_t]& rows, Cursor cursor) except -1 nogil:
    """Appends all rows in which the cursor's term occurs."""
    cdef size_t first
    cdef Block block
    cdef Posting posting
    while cursor.next < cursor.end:
        first = <size_t>window_of(&cursor) << WINDOW_BITS
        block = next_block(&cursor)
        while block.first < block.end:
            block.first = read_posting(block.first, &posting)
            rows.push_back(<uint32_t>(first + posting.row))
    return 0


cdef int keep_rows(vector[uint32_t]& rows, Cursor cursor) except -1 nogil:
    """Removes the rows in which the cursor's term does not occur. Rows must ascend."""
    cdef vector[uint32_t] frequencies
    cdef size_t i, kept = 0
    frequencies.resize(rows.size())
    look_up(cursor, rows.data(), rows.size(), frequencies.data())
    for i in range(rows.size()):
        if frequencies[i]:
            rows[kept] = rows[i]
            kept += 1
    rows.resize(kept)
    return 0
