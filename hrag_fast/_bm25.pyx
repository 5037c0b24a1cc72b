# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""`Postings`: the inverted index of a segment, searched in place by BM25.

BM25 is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
(Foundations and Trends in Information Retrieval 3(4), 2009), with Lucene's idf and without its
constant factor. Rows are scored window by window, term by term, into an array of sums, as
Lucene's bulk scorer of disjunctions does.

The layout, little-endian; `_bm25.pxd` names its parts:

* a header; term ids uint64[t], ascending; offsets uint64[t + 1] of each term's list in the units;
  document frequencies uint32[t]; units uint16[...];
* a list is a sequence of blocks, one for each window of 8,192 rows that has postings: the
  window's number, the number of units that follow, the postings in order of rows;
* a posting is the unit `row_in_window << 3 | frequency`. A frequency of 7 or more is written as
  7 and follows in a unit of its own.

The buffer is checked once, when it is opened: from then on nothing can lead out of it. A search
checks its arguments and then runs one C loop without Python objects. `_bm25.pyi` is the
documentation for callers; `_bm25_reference.py` has the plain twin, which defines the right
answer.
"""

import numpy as np

from libc.math cimport isfinite
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from libcpp.algorithm cimport sort
from libcpp.queue cimport priority_queue
from libcpp.vector cimport vector

cdef enum:
    # A thread that releases the GIL may wait for another's whole switch interval, 5 ms, to get
    # it back. Up to this many units the work takes about 10 us: keeping it delays nobody.
    GIL_KEPT_UP_TO = 4000


cdef struct Block:  # A term's postings in one window.
    const uint16_t* units
    const uint16_t* end
    uint32_t window


cdef struct Cursor:  # Where a query's term stands in its list.
    const uint16_t* next
    const uint16_t* end
    float weight


cdef struct Formula:  # What turns a frequency into a score.
    float a
    float b
    const uint32_t* lengths


cdef inline float score_of(
    const Formula* formula, float weight, uint32_t frequency, size_t row
) noexcept nogil:
    cdef float occurrences = <float>frequency
    return weight * occurrences / (occurrences + (formula.a + formula.b * <float>formula.lengths[row]))


cdef inline uint32_t window_of(const Cursor* cursor) noexcept nogil:
    """The window of a cursor's next block; past all windows at the end of its list."""
    return cursor.next[0] if cursor.next < cursor.end else <uint32_t>0xFFFFFFFF


cdef inline Block next_block(Cursor* cursor) noexcept nogil:
    cdef Block block
    block.window = cursor.next[0]
    block.units = cursor.next + BLOCK_HEADER_UNITS
    block.end = block.units + cursor.next[1]
    cursor.next = block.end
    return block


cdef inline uint64_t rank_key(float score, uint32_t row) noexcept nogil:
    """Keys ascend from the best row to the worst: by score descending, then by row.

    The bits of floats that are not negative ascend as the floats do.
    """
    cdef uint32_t bits
    memcpy(&bits, &score, sizeof(bits))
    return <uint64_t>(~bits) << 32 | row


cdef inline float score_in(uint64_t key) noexcept nogil:
    cdef uint32_t bits = ~<uint32_t>(key >> 32)
    cdef float score
    memcpy(&score, &bits, sizeof(score))
    return score


cdef bint valid_lists(const Index* index) noexcept nogil:
    cdef size_t term
    if index.offsets[0] != 0 or index.offsets[index.header.terms] != index.header.units:
        return False
    for term in range(index.header.terms):
        if index.offsets[term] >= index.offsets[term + 1]:
            return False
    for term in range(index.header.terms):
        if term and index.ids[term - 1] >= index.ids[term]:
            return False
        if not valid_list(index, term):
            return False
    return True


cdef bint valid_list(const Index* index, size_t term) noexcept nogil:
    """True if blocks and rows ascend, end where they must, and are as many as is said."""
    cdef const uint16_t* next = index.units + index.offsets[term]
    cdef const uint16_t* end = index.units + index.offsets[term + 1]
    cdef const uint16_t* block_end
    cdef uint64_t least_row = 0, row
    cdef size_t count = 0, window_start, block_units
    cdef uint32_t frequency
    while next < end:
        if end - next <= BLOCK_HEADER_UNITS:
            return False
        window_start = <size_t>next[0] << WINDOW_BITS
        block_units = next[1]
        next += BLOCK_HEADER_UNITS
        if block_units == 0 or <size_t>(end - next) < block_units or window_start < least_row:
            return False
        block_end = next + block_units
        while next < block_end:
            row = window_start + (next[0] >> FREQUENCY_BITS)
            frequency = next[0] & LONG_FREQUENCY
            next += 1
            if frequency == LONG_FREQUENCY:
                if next == block_end:
                    return False
                frequency = next[0]
                next += 1
                if not LONG_FREQUENCY <= frequency <= MAX_FREQUENCY:
                    return False
            if frequency == 0 or row < least_row or row >= index.header.rows:
                return False
            least_row = row + 1
            count += 1
        # A window has one block: the next one begins above its rows.
        least_row = window_start + WINDOW_ROWS
    return count == index.frequencies[term]


cdef size_t term_of(const Index* index, uint64_t id) noexcept nogil:
    """Position of a term, by binary search; the number of terms if there is none."""
    cdef size_t low = 0, high = index.header.terms, middle
    while low < high:
        middle = (low + high) >> 1
        if index.ids[middle] < id:
            low = middle + 1
        else:
            high = middle
    return low if low < index.header.terms and index.ids[low] == id else index.header.terms


cdef size_t count_units(const Index* index, const uint64_t[::1] ids) noexcept nogil:
    """Units in the lists of some terms: how much work it is to read them all."""
    cdef size_t i, term, count = 0
    for i in range(<size_t>ids.shape[0]):
        term = term_of(index, ids[i])
        if term < index.header.terms:
            count += index.offsets[term + 1] - index.offsets[term]
    return count


cdef Cursor cursor_of(const Index* index, size_t term, float weight) noexcept nogil:
    cdef Cursor cursor
    cursor.next = index.units + index.offsets[term]
    cursor.end = index.units + index.offsets[term + 1]
    cursor.weight = weight
    return cursor


cdef vector[Cursor] cursors_of(const Index* index, const uint64_t[::1] ids, const float[::1] weights
) noexcept nogil:
    """Cursors of the terms that have postings, in the order of ids."""
    cdef vector[Cursor] cursors
    cdef size_t i, term
    for i in range(<size_t>ids.shape[0]):
        term = term_of(index, ids[i])
        if term < index.header.terms:
            cursors.push_back(cursor_of(index, term, weights[i]))
    return cursors


cdef void count_alive(const Index* index, const uint64_t[::1] ids, const uint8_t* alive, uint32_t* out
) noexcept nogil:
    cdef size_t i, term
    cdef Cursor cursor
    cdef Block block
    cdef Posting posting
    for i in range(<size_t>ids.shape[0]):
        term = term_of(index, ids[i])
        if term == index.header.terms:
            continue
        cursor = cursor_of(index, term, 0)
        while cursor.next < cursor.end:
            block = next_block(&cursor)
            while block.units < block.end:
                block.units = read_posting(block.units, &posting)
                out[i] += alive[(<size_t>block.window << WINDOW_BITS) + posting.row] != 0


cdef vector[uint64_t] best_of(const Index* index, vector[Cursor]& cursors, const Formula* formula, const uint8_t* allowed, size_t count
) noexcept nogil:
    cdef priority_queue[uint64_t] found  # The worst on top.
    cdef vector[float] sums
    cdef vector[uint64_t] ranked
    cdef uint32_t window
    cdef size_t i, row, first, rows
    cdef float bound = 0
    cdef Block block
    cdef Posting posting
    sums.resize(WINDOW_ROWS)
    while True:
        window = 0xFFFFFFFF
        for i in range(cursors.size()):
            window = min(window, window_of(&cursors[i]))
        if window == <uint32_t>0xFFFFFFFF:
            break
        first = <size_t>window << WINDOW_BITS
        rows = min(<size_t>WINDOW_ROWS, index.header.rows - first)
        memset(sums.data(), 0, rows * sizeof(float))
        for i in range(cursors.size()):
            if window_of(&cursors[i]) != window:
                continue
            block = next_block(&cursors[i])
            while block.units < block.end:
                block.units = read_posting(block.units, &posting)
                sums[posting.row] += score_of(
                    formula, cursors[i].weight, posting.frequency, first + posting.row
                )
        for row in range(rows):
            if sums[row] > bound and (allowed == NULL or allowed[first + row]):
                found.push(rank_key(sums[row], <uint32_t>(first + row)))
                if found.size() > count:
                    found.pop()
                if found.size() == count:
                    bound = score_in(found.top())
    while not found.empty():
        ranked.push_back(found.top())
        found.pop()
    sort(ranked.begin(), ranked.end())
    return ranked


cdef void add_scores(const Index* index, Cursor* cursor, const Formula* formula, vector[uint64_t]& order, float* out
) noexcept nogil:
    """Adds a term's share to the scores of rows, which are in order."""
    cdef size_t i, row, at
    cdef Block block
    cdef Posting posting
    cdef const uint16_t* next
    block.window = 0xFFFFFFFF
    for i in range(order.size()):
        row = order[i] >> 32
        if window_of(cursor) <= row >> WINDOW_BITS:
            while window_of(cursor) <= row >> WINDOW_BITS:
                block = next_block(cursor)
        if block.window != row >> WINDOW_BITS:
            continue
        while block.units < block.end:
            next = read_posting(block.units, &posting)
            if posting.row >= (row & (WINDOW_ROWS - 1)):
                break
            block.units = next
        if block.units < block.end and posting.row == (row & (WINDOW_ROWS - 1)):
            out[<uint32_t>order[i]] += score_of(formula, cursor.weight, posting.frequency, row)


cdef class Postings:
    """An inverted index, read in place; see `_bm25.pyi`."""

    def __init__(self, const uint8_t[::1] buffer not None):
        cdef size_t size = buffer.shape[0]
        if size < sizeof(Header):
            raise ValueError(f"{size} bytes are too few for postings")
        if <size_t>&buffer[0] % sizeof(uint64_t):
            raise ValueError("postings must begin at a multiple of 8 bytes in memory")
        self.buffer = buffer
        memcpy(&self.index.header, &buffer[0], sizeof(Header))
        self._check_header(size - sizeof(Header))
        self.index.ids = <const uint64_t*>(&buffer[0] + sizeof(Header))
        self.index.offsets = self.index.ids + self.index.header.terms
        self.index.frequencies = <const uint32_t*>(self.index.offsets + self.index.header.terms + 1)
        self.index.units = <const uint16_t*>(self.index.frequencies + self.index.header.terms)
        cdef bint valid
        with nogil:
            valid = valid_lists(&self.index)
        if not valid:
            raise ValueError("a list of the postings is damaged")

    def _check_header(self, size_t rest):
        cdef Header* header = &self.index.header
        cdef size_t term_bytes = 2 * sizeof(uint64_t) + sizeof(uint32_t)
        if memcmp(header.magic, magic(), sizeof(header.magic)) != 0:
            raise ValueError("the buffer does not hold postings")
        if header.version != FORMAT_VERSION:
            raise ValueError(
                f"the postings have version {header.version}; it must be {FORMAT_VERSION}"
            )
        if (
            header.rows > MAX_ROWS
            or header.terms > rest // term_bytes
            or header.units > rest // sizeof(uint16_t)
            or rest != sizeof(uint64_t) + header.terms * term_bytes
            + header.units * sizeof(uint16_t)
        ):
            raise ValueError("the header of the postings does not fit their size")

    @property
    def rows(self):
        return self.index.header.rows

    def __len__(self):
        return self.index.header.terms

    def document_frequencies(
        self, const uint64_t[::1] ids not None, const uint8_t[::1] alive
    ):
        """How many rows have each term; see `_bm25.pyi`."""
        self._check_column("alive", alive is not None, 0 if alive is None else alive.shape[0])
        frequencies = np.zeros(ids.shape[0], np.uint32)
        cdef uint32_t[::1] out = frequencies
        cdef size_t i, term
        if alive is None:
            for i in range(<size_t>ids.shape[0]):
                term = term_of(&self.index, ids[i])
                out[i] = self.index.frequencies[term] if term < self.index.header.terms else 0
        elif count_units(&self.index, ids) <= GIL_KEPT_UP_TO:
            count_alive(&self.index, ids, &alive[0], &out[0])
        else:
            with nogil:
                count_alive(&self.index, ids, &alive[0], &out[0])
        return frequencies

    def _check_column(self, name, bint given, size_t length):
        if given and length != self.index.header.rows:
            raise ValueError(f"{name} has {length} entries; it must have {self.index.header.rows}, one a row")

    def _check_query(
        self,
        const uint64_t[::1] ids,
        const float[::1] weights,
        float a,
        float b,
        const uint32_t[::1] lengths,
    ):
        cdef size_t i
        check_ascending(ids)
        if weights.shape[0] != ids.shape[0]:
            raise ValueError(f"weights has {weights.shape[0]} entries; it must have {ids.shape[0]}, as ids")
        for i in range(<size_t>weights.shape[0]):
            if not 0 <= weights[i] <= 1:
                raise ValueError(f"weights[{i}] is {weights[i]}; it must be from 0 to 1")
        for name, value in (("a", a), ("b", b)):
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; it must be finite and not negative")
        self._check_column("lengths", True, lengths.shape[0])

    def best(
        self,
        const uint64_t[::1] ids not None,
        const float[::1] weights not None,
        float a,
        float b,
        const uint32_t[::1] lengths not None,
        const uint8_t[::1] allowed,
        size_t count,
    ):
        """The rows with the highest scores; see `_bm25.pyi`."""
        self._check_query(ids, weights, a, b, lengths)
        self._check_column("allowed", allowed is not None, 0 if allowed is None else allowed.shape[0])
        cdef Formula formula
        formula.a = a
        formula.b = b
        formula.lengths = &lengths[0]
        cdef const uint8_t* mask = NULL
        if allowed is not None:
            mask = &allowed[0]
        cdef vector[Cursor] cursors = cursors_of(&self.index, ids, weights)
        cdef vector[uint64_t] ranked
        if not count:
            return np.empty(0, np.uint32), np.empty(0, np.float32)
        with nogil:
            ranked = best_of(&self.index, cursors, &formula, mask, count)
        rows, scores = np.empty(ranked.size(), np.uint32), np.empty(ranked.size(), np.float32)
        cdef uint32_t[::1] rows_out = rows
        cdef float[::1] scores_out = scores
        cdef size_t i
        for i in range(ranked.size()):
            rows_out[i] = <uint32_t>ranked[i]
            scores_out[i] = score_in(ranked[i])
        return rows, scores

    def scores(
        self,
        const uint64_t[::1] ids not None,
        const float[::1] weights not None,
        float a,
        float b,
        const uint32_t[::1] lengths not None,
        const uint32_t[::1] rows not None,
    ):
        """The scores of given rows; see `_bm25.pyi`."""
        self._check_query(ids, weights, a, b, lengths)
        cdef size_t i
        for i in range(<size_t>rows.shape[0]):
            if rows[i] >= self.index.header.rows:
                raise IndexError(f"rows[{i}] is {rows[i]}; it must be below {self.index.header.rows}")
        cdef Formula formula
        formula.a = a
        formula.b = b
        formula.lengths = &lengths[0]
        scores = np.zeros(rows.shape[0], np.float32)
        cdef float[::1] out = scores
        cdef vector[Cursor] cursors = cursors_of(&self.index, ids, weights)
        cdef vector[uint64_t] order
        with nogil:
            for i in range(<size_t>rows.shape[0]):
                order.push_back(<uint64_t>rows[i] << 32 | i)
            sort(order.begin(), order.end())
            for i in range(cursors.size()):
                add_scores(&self.index, &cursors[i], &formula, order, &out[0])
        return scores

    def rows_with_all(self, const uint64_t[::1] ids not None):
        """The rows that have every term; see `_bm25.pyi`."""
        cdef vector[uint32_t] counts, rows
        cdef size_t i, term, row
        cdef Cursor cursor
        cdef Block block
        cdef Posting posting
        check_ascending(ids)
        with nogil:
            counts.resize(self.index.header.rows)
            for i in range(<size_t>ids.shape[0]):
                term = term_of(&self.index, ids[i])
                if term == self.index.header.terms:
                    break
                cursor = cursor_of(&self.index, term, 0)
                while cursor.next < cursor.end:
                    block = next_block(&cursor)
                    while block.units < block.end:
                        block.units = read_posting(block.units, &posting)
                        counts[(<size_t>block.window << WINDOW_BITS) + posting.row] += 1
            for row in range(counts.size()):
                if counts[row] == <size_t>ids.shape[0]:
                    rows.push_back(<uint32_t>row)
        found = np.empty(rows.size(), np.uint32)
        cdef uint32_t[::1] out = found
        if rows.size():
            memcpy(&out[0], rows.data(), rows.size() * sizeof(uint32_t))
        return found


cdef check_ascending(const uint64_t[::1] ids):
    cdef size_t i
    for i in range(1, <size_t>ids.shape[0]):
        if ids[i - 1] >= ids[i]:
            raise ValueError(f"ids[{i}] is {ids[i]}; it must be above ids[{i - 1}], {ids[i - 1]}")
