# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""`Postings`: the inverted index of a segment, searched in place by BM25.

BM25 is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
(Foundations and Trends in Information Retrieval 3(4), 2009), with Lucene's idf and without its
constant factor. A search goes through windows of rows, and in each through the terms, adding
shares to an array of sums that stays in the L1 cache, as Lucene's bulk scorer of disjunctions
does. As in MaxScore (Turtle and Flood, "Query Evaluation: Strategies and Optimizations",
Information Processing & Management 31(6), 1995), terms whose weights together cannot lift a row
above the worst result so far are read only where other terms did most of the lifting; such rows
are scored anew, in the order of terms, so that pruning changes no bit of a score.

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
from libcpp.algorithm cimport nth_element, sort
from libcpp.vector cimport vector

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    // GCC compiles these loops once for each kind of CPU; the loader picks the best one.
    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define HRAG_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define HRAG_CPU_CLONES
    #endif

    enum { HRAG_LANES = 16, HRAG_LONG = 7 };  // A frequency of 7 follows in a unit of its own.
    typedef uint16_t hrag_units __attribute__((vector_size(2 * HRAG_LANES), aligned(2)));
    typedef uint32_t hrag_words __attribute__((vector_size(4 * HRAG_LANES)));
    typedef float hrag_floats __attribute__((vector_size(4 * HRAG_LANES)));

    // True if 16 units, the first of which begins a posting, are postings of one unit each.
    static inline int hrag_all_short(const uint16_t* units) {
        int is_long = 0;
        for (int i = 0; i < HRAG_LANES; i++) is_long |= (units[i] & 7) == HRAG_LONG;
        return !is_long;
    }

    // Reads one posting, adds its share to the sum of its row; returns the next one.
    static inline const uint16_t* hrag_add_one(
        const uint16_t* units, float weight, float a, float b, const uint32_t* lengths, float* sums
    ) {
        uint32_t row = units[0] >> 3, frequency = units[0] & 7;
        units += 1;
        if (frequency == HRAG_LONG) frequency = *units++;
        float count = (float)frequency;
        sums[row] += weight * count / (count + (a + b * (float)lengths[row]));
        return units;
    }

    // Adds a term's shares to the sums of the rows of one window, whose lengths are given.
    HRAG_CPU_CLONES
    static void hrag_add(
        const uint16_t* units, const uint16_t* end, float weight, float a, float b,
        const uint32_t* lengths, float* sums
    ) {
        while (end - units >= HRAG_LANES) {
            if (hrag_all_short(units)) {
                hrag_words words = __builtin_convertvector(*(const hrag_units*)units, hrag_words);
                hrag_words rows = words >> 3, length;
                for (int i = 0; i < HRAG_LANES; i++) length[i] = lengths[rows[i]];
                hrag_floats counts = __builtin_convertvector(words & 7, hrag_floats);
                hrag_floats norms = a + b * __builtin_convertvector(length, hrag_floats);
                hrag_floats shares = weight * counts / (counts + norms);
                for (int i = 0; i < HRAG_LANES; i++) sums[rows[i]] += shares[i];
                units += HRAG_LANES;
            } else {
                const uint16_t* stop = units + HRAG_LANES;
                while (units < stop) units = hrag_add_one(units, weight, a, b, lengths, sums);
            }
        }
        while (units < end) units = hrag_add_one(units, weight, a, b, lengths, sums);
    }

    // Writes the rows whose sum is above the bound; returns their number.
    HRAG_CPU_CLONES
    static size_t hrag_above(const float* sums, size_t count, float bound, uint16_t* rows) {
        size_t found = 0, i = 0;
        for (; i + 64 <= count; i += 64) {
            int any = 0;
            for (size_t j = 0; j < 64; j++) any |= sums[i + j] > bound;
            if (!any) continue;
            for (size_t j = 0; j < 64; j++) {  // Without a branch to predict.
                rows[found] = (uint16_t)(i + j);
                found += sums[i + j] > bound;
            }
        }
        for (; i < count; i++)
            if (sums[i] > bound) rows[found++] = (uint16_t)i;
        return found;
    }

    // Counts the postings of a window whose rows have a flag.
    static size_t hrag_count_flags(
        const uint16_t* units, const uint16_t* end, const uint8_t* flags
    ) {
        size_t count = 0;
        while (units < end) {
            if (end - units >= HRAG_LANES && hrag_all_short(units)) {
                for (int i = 0; i < HRAG_LANES; i++) count += flags[units[i] >> 3] != 0;
                units += HRAG_LANES;
            } else {
                count += flags[units[0] >> 3] != 0;
                units += 1 + ((units[0] & 7) == HRAG_LONG);
            }
        }
        return count;
    }

    // How many units from the first on are postings of one unit each, of ascending rows: a
    // multiple of 16. The last one is compared with the next, which must be in the buffer.
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
    """
    void hrag_add(
        const uint16_t* units, const uint16_t* end, float weight, float a, float b,
        const uint32_t* lengths, float* sums
    ) noexcept nogil
    size_t hrag_above(
        const float* sums, size_t count, float bound, uint16_t* rows
    ) noexcept nogil
    size_t hrag_count_flags(
        const uint16_t* units, const uint16_t* end, const uint8_t* flags
    ) noexcept nogil
    size_t hrag_plain_units(const uint16_t* units, size_t count) noexcept nogil

cdef enum:
    # A thread that releases the GIL may wait for another's whole switch interval, 5 ms, to get
    # it back. Up to this many units the work takes about 10 us: keeping it delays nobody.
    GIL_KEPT_UP_TO = 4000
    LINEAR_UNITS = 16  # Up to this many units, reading all is faster than binary search.
    LOOK_UP_UNITS = 40  # So many units are read in the time that one row is looked up.
    SPARSE_UNITS = 256  # With fewer units than this, a window's sums are not scanned.
    MOST_IDLE_WINDOWS = 32  # After pruning failed, it is not tried for a while.

cdef uint32_t NO_WINDOW = 0xFFFFFFFF


cdef struct Formula:  # What makes a share of a score of a frequency.
    float a
    float b
    const uint32_t* lengths


cdef struct Cursor:  # Where a term of a query stands in its list.
    const uint16_t* next
    const uint16_t* end
    float weight


cdef struct Block:  # A term's postings in one window.
    const uint16_t* first
    const uint16_t* end
    float weight
    bint light  # Whether it is read only where others lift a row; see MaxScore.


cdef cppclass Ranking:
    """The best rows so far, as keys; more than `count` until the worst of them are dropped."""

    size_t count
    float bound  # A row is of interest if its score is higher.
    vector[uint64_t] keys

    void add(float score, uint64_t row) noexcept nogil:
        if score > this.bound:
            this.keys.push_back(rank_key(score, row))
            if this.keys.size() >= 2 * this.count:
                this.shrink()

    void shrink() noexcept nogil:
        if this.keys.size() >= this.count:
            nth_element(
                this.keys.begin(), this.keys.begin() + (this.count - 1), this.keys.end()
            )
            this.keys.resize(this.count)
            this.bound = score_in(this.keys.back())


cdef cppclass Window:
    """The rows that are scored at once, and what is needed for that."""

    size_t first
    size_t rows
    size_t units  # In all blocks.
    vector[Block] blocks  # In the order of terms.
    vector[float] sums  # Zero between windows.
    vector[uint16_t] chosen  # Rows of the window.
    size_t idle  # Windows to go without an attempt to prune.
    size_t last_idle


cdef inline uint64_t rank_key(float score, uint64_t row) noexcept nogil:
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


cdef inline float share(
    const Formula* formula, float weight, uint32_t frequency, size_t row
) noexcept nogil:
    cdef float count = <float>frequency
    return weight * count / (count + (formula.a + formula.b * <float>formula.lengths[row]))


cdef inline uint32_t window_of(const Cursor* cursor) noexcept nogil:
    """The window of a cursor's next block; NO_WINDOW at the end of its list."""
    return cursor.next[0] if cursor.next < cursor.end else NO_WINDOW


cdef inline Block next_block(Cursor* cursor) noexcept nogil:
    cdef Block block
    block.first = cursor.next + BLOCK_HEADER_UNITS
    block.end = block.first + cursor.next[1]
    block.weight = cursor.weight
    block.light = False
    cursor.next = block.end
    return block


cdef const uint16_t* seek(
    const uint16_t* first, const uint16_t* low, const uint16_t* end, uint32_t row
) noexcept nogil:
    """The first posting of a row that is not below `row`, from the posting at `low` on, or `end`.

    A binary search may hit a unit that is a frequency. Frequencies are below 256, as are only
    the first 64 units of a block else: so the unit before tells, but near the block's beginning.
    """
    cdef const uint16_t* high = end
    cdef const uint16_t* middle
    cdef Posting posting
    while high - low > LINEAR_UNITS:
        middle = low + ((high - low) >> 1)
        if (middle - 1)[0] > MAX_FREQUENCY:
            middle += ((middle - 1)[0] & LONG_FREQUENCY) == LONG_FREQUENCY
        elif middle - first <= 2 * (MAX_FREQUENCY + 1) >> FREQUENCY_BITS:
            break
        if middle[0] >> FREQUENCY_BITS < row:
            low = middle
        else:
            high = middle
    while low < end and low[0] >> FREQUENCY_BITS < row:
        low = read_posting(low, &posting)
    return low


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
    """True if windows ascend, blocks end where they must, and postings are as many as is said."""
    cdef const uint16_t* next = index.units + index.offsets[term]
    cdef const uint16_t* end = index.units + index.offsets[term + 1]
    cdef size_t least_window = 0, window, block_units, count = 0
    while next < end:
        if end - next <= BLOCK_HEADER_UNITS:
            return False
        window = next[0]
        block_units = next[1]
        next += BLOCK_HEADER_UNITS
        if window < least_window or block_units == 0 or <size_t>(end - next) < block_units:
            return False
        if not valid_block(next, block_units, index.header.rows, window << WINDOW_BITS, &count):
            return False
        least_window = window + 1
        next += block_units
    return count == index.frequencies[term]


cdef bint valid_block(
    const uint16_t* next, size_t units, size_t rows, size_t first_row, size_t* count
) noexcept nogil:
    """True if rows ascend and exist and frequencies are written as they must; counts postings."""
    cdef const uint16_t* end = next + units
    cdef const uint16_t* stop
    cdef size_t least_row = 0, plain
    while next < end:
        if next[0] >> FREQUENCY_BITS < least_row:
            return False
        plain = hrag_plain_units(next, end - next)
        if plain:
            next += plain
            least_row = ((next - 1)[0] >> FREQUENCY_BITS) + 1
            count[0] += plain
        stop = min(end, next + LINEAR_UNITS)
        while next < stop:
            if next[0] >> FREQUENCY_BITS < least_row or next[0] & LONG_FREQUENCY == 0:
                return False
            least_row = (next[0] >> FREQUENCY_BITS) + 1
            count[0] += 1
            next += 1
            if (next - 1)[0] & LONG_FREQUENCY == LONG_FREQUENCY:
                if next == end or not LONG_FREQUENCY <= next[0] <= MAX_FREQUENCY:
                    return False
                next += 1
    return first_row + least_row <= rows


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


cdef Cursor cursor_of(const Index* index, size_t term, float weight) noexcept nogil:
    cdef Cursor cursor
    cursor.next = index.units + index.offsets[term]
    cursor.end = index.units + index.offsets[term + 1]
    cursor.weight = weight
    return cursor


cdef size_t find_terms(
    const Index* index, const uint64_t* ids, const float* weights, size_t count,
    vector[Cursor]& cursors,
) noexcept nogil:
    """Adds cursors of the terms that have postings and a weight; returns the units to read."""
    cdef size_t i, term, units = 0
    for i in range(count):
        term = term_of(index, ids[i])
        if term < index.header.terms and weights[i] > 0:
            cursors.push_back(cursor_of(index, term, weights[i]))
            units += index.offsets[term + 1] - index.offsets[term]
    return units


cdef size_t count_alive(const Index* index, size_t term, const uint8_t* alive) noexcept nogil:
    """The number of a term's postings whose rows are alive."""
    cdef Cursor cursor = cursor_of(index, term, 0)
    cdef Block block
    cdef size_t first, count = 0
    while cursor.next < cursor.end:
        first = <size_t>cursor.next[0] << WINDOW_BITS
        block = next_block(&cursor)
        count += hrag_count_flags(block.first, block.end, alive + first)
    return count


cdef void rank(
    const Index* index,
    vector[Cursor]& cursors,
    const Formula* formula,
    const uint8_t* allowed,
    Ranking& ranking,
) noexcept nogil:
    """Leaves the best rows in the ranking, in order."""
    cdef Window window
    cdef size_t i
    cdef uint32_t number
    window.idle = window.last_idle = 0
    window.sums.resize(WINDOW_ROWS)
    window.chosen.resize(WINDOW_ROWS)
    while True:
        number = NO_WINDOW
        for i in range(cursors.size()):
            number = min(number, window_of(&cursors[i]))
        if number == NO_WINDOW:
            break
        window.first = <size_t>number << WINDOW_BITS
        window.rows = min(<size_t>WINDOW_ROWS, index.header.rows - window.first)
        window.units = 0
        window.blocks.clear()
        for i in range(cursors.size()):
            if window_of(&cursors[i]) == number:
                window.blocks.push_back(next_block(&cursors[i]))
                window.units += window.blocks.back().end - window.blocks.back().first
        rank_window(window, formula, allowed, ranking)
    sort(ranking.keys.begin(), ranking.keys.end())
    if ranking.keys.size() > ranking.count:
        ranking.keys.resize(ranking.count)


cdef void rank_window(
    Window& window, const Formula* formula, const uint8_t* allowed, Ranking& ranking
) noexcept nogil:
    """Adds the window's rows of interest to the ranking, in the way that reads least."""
    cdef size_t allowed_rows = window.rows
    if allowed != NULL:
        allowed_rows = count_flags(allowed + window.first, window.rows)
        if allowed_rows == 0:
            return
        if is_few(window, allowed_rows, window.units):
            rank_chosen(window, formula, choose_allowed(window, allowed), ranking)
            return
    if window.units < SPARSE_UNITS:
        add_blocks(window, formula, False)
        rank_sparse(window, allowed, ranking)
    elif not rank_pruned(window, formula, allowed, ranking):
        add_blocks(window, formula, False)
        rank_sums(window, allowed, ranking)


cdef inline bint is_few(const Window& window, size_t rows, size_t units) noexcept nogil:
    """True if looking rows up in all blocks takes less time than reading so many units."""
    return rows * window.blocks.size() * LOOK_UP_UNITS <= units


cdef size_t count_flags(const uint8_t* flags, size_t count) noexcept nogil:
    cdef size_t i
    cdef uint32_t total = 0
    for i in range(count):
        total += flags[i] != 0
    return total


cdef size_t choose_allowed(Window& window, const uint8_t* allowed) noexcept nogil:
    cdef size_t row, count = 0
    for row in range(window.rows):
        if allowed[window.first + row]:
            window.chosen[count] = <uint16_t>row
            count += 1
    return count


cdef void add_blocks(Window& window, const Formula* formula, bint without_light) noexcept nogil:
    """Adds the shares of all terms, or of those that are not light, to the sums."""
    cdef size_t i
    cdef const Block* block
    for i in range(window.blocks.size()):
        block = &window.blocks[i]
        if not (without_light and block.light):
            hrag_add(
                block.first, block.end, block.weight, formula.a, formula.b,
                formula.lengths + window.first, window.sums.data(),
            )


cdef void rank_sums(Window& window, const uint8_t* allowed, Ranking& ranking) noexcept nogil:
    """Ranks the rows by their sums, and clears these."""
    cdef size_t i, row
    cdef size_t count = hrag_above(
        window.sums.data(), window.rows, ranking.bound, window.chosen.data()
    )
    for i in range(count):
        row = window.chosen[i]
        if allowed == NULL or allowed[window.first + row]:
            ranking.add(window.sums[row], window.first + row)
    memset(window.sums.data(), 0, window.rows * sizeof(float))


cdef void rank_sparse(Window& window, const uint8_t* allowed, Ranking& ranking) noexcept nogil:
    """Like `rank_sums`, through the few rows that have postings."""
    cdef size_t i, row
    cdef const uint16_t* next
    cdef Posting posting
    for i in range(window.blocks.size()):
        next = window.blocks[i].first
        while next < window.blocks[i].end:
            next = read_posting(next, &posting)
            row = window.first + posting.row
            if allowed == NULL or allowed[row]:
                ranking.add(window.sums[posting.row], row)
            window.sums[posting.row] = 0  # So that the row's next posting adds nothing.


cdef bint rank_pruned(
    Window& window, const Formula* formula, const uint8_t* allowed, Ranking& ranking
) noexcept nogil:
    """Ranks the rows without reading light blocks as a whole; False if that does not pay."""
    cdef size_t light_units, i, row, count, kept = 0
    cdef double limit
    if window.idle:
        window.idle -= 1
        return False
    limit = mark_light(window, ranking.bound, &light_units)
    if light_units == window.units:
        return True
    if light_units == 0:
        return False
    add_blocks(window, formula, True)
    count = hrag_above(window.sums.data(), window.rows, <float>limit, window.chosen.data())
    memset(window.sums.data(), 0, window.rows * sizeof(float))
    for i in range(count):
        row = window.chosen[i]
        if allowed == NULL or allowed[window.first + row]:
            window.chosen[kept] = <uint16_t>row
            kept += 1
    if is_few(window, kept, light_units):
        window.last_idle = 0
        rank_chosen(window, formula, kept, ranking)
        return True
    window.idle = window.last_idle = min(2 * window.last_idle + 1, <size_t>MOST_IDLE_WINDOWS)
    return False


cdef double mark_light(Window& window, float bound, size_t* light_units) noexcept nogil:
    """Marks the blocks of the lowest weights that together cannot lift a row above the bound.

    A share is at most its weight. Returns what the others must give a row for it to be of
    interest: the bound less all that light blocks can give, and less the rounding of the sums.
    """
    cdef size_t i
    cdef Block* lightest
    cdef double most = bound / (1 + (window.blocks.size() + 8.0) / (1 << 22))
    light_units[0] = 0
    while True:
        lightest = NULL
        for i in range(window.blocks.size()):
            if not window.blocks[i].light and (
                lightest == NULL or window.blocks[i].weight < lightest.weight
            ):
                lightest = &window.blocks[i]
        if lightest == NULL or lightest.weight > most:
            return most
        lightest.light = True
        light_units[0] += lightest.end - lightest.first
        most -= lightest.weight


cdef void rank_chosen(
    Window& window, const Formula* formula, size_t count, Ranking& ranking
) noexcept nogil:
    """Ranks the first `count` chosen rows, by looking them up in every block."""
    cdef size_t i, j, row
    cdef const uint16_t* next
    cdef const Block* block
    cdef Posting posting
    for i in range(window.blocks.size()):
        block = &window.blocks[i]
        next = block.first
        for j in range(count):
            row = window.chosen[j]
            next = seek(block.first, next, block.end, row)
            if next == block.end:
                break
            read_posting(next, &posting)
            if posting.row == row:
                window.sums[row] += share(
                    formula, block.weight, posting.frequency, window.first + row
                )
    for j in range(count):
        row = window.chosen[j]
        ranking.add(window.sums[row], window.first + row)
        window.sums[row] = 0


cdef void add_scores(
    Cursor* cursor, const Formula* formula, const vector[uint64_t]& order, float* scores
) noexcept nogil:
    """Adds a term's shares to the scores of rows, `row << 32 | position`, which ascend."""
    cdef size_t i, row
    cdef uint32_t window = NO_WINDOW
    cdef Block block
    cdef const uint16_t* next = NULL
    cdef Posting posting
    for i in range(order.size()):
        row = order[i] >> 32
        while window_of(cursor) <= row >> WINDOW_BITS:
            window = window_of(cursor)
            block = next_block(cursor)
            next = block.first
        if window != row >> WINDOW_BITS:
            continue
        next = seek(block.first, next, block.end, row & (WINDOW_ROWS - 1))
        if next == block.end:
            continue
        read_posting(next, &posting)
        if posting.row == (row & (WINDOW_ROWS - 1)):
            scores[<uint32_t>order[i]] += share(formula, cursor.weight, posting.frequency, row)


cdef void keep_rows(Cursor* cursor, vector[uint64_t]& rows) noexcept nogil:
    """Drops the rows, which ascend, that a term does not have."""
    cdef size_t i, row, kept = 0
    cdef uint32_t window = NO_WINDOW
    cdef Block block
    cdef const uint16_t* next = NULL
    for i in range(rows.size()):
        row = rows[i]
        while window_of(cursor) <= row >> WINDOW_BITS:
            window = window_of(cursor)
            block = next_block(cursor)
            next = block.first
        if window != row >> WINDOW_BITS:
            continue
        next = seek(block.first, next, block.end, row & (WINDOW_ROWS - 1))
        if next < block.end and next[0] >> FREQUENCY_BITS == row & (WINDOW_ROWS - 1):
            rows[kept] = row
            kept += 1
    rows.resize(kept)


cdef class Postings:
    """An inverted index, read in place; see `_bm25.pyi`."""

    def __init__(self, const uint8_t[::1] buffer not None):
        cdef size_t size = buffer.shape[0]
        if size < sizeof(Header):
            raise ValueError(f"{size} bytes are too few for postings")
        if <size_t>&buffer[0] % sizeof(uint64_t):
            raise ValueError("postings must begin at a multiple of 8 bytes in memory")
        self.buffer = buffer
        self.index = index_of(&buffer[0], size)
        cdef bint valid
        with nogil:
            valid = valid_lists(&self.index)
        if not valid:
            raise ValueError("a list of the postings is damaged")

    @property
    def rows(self):
        return self.index.header.rows

    def __len__(self):
        return self.index.header.terms

    def document_frequencies(self, const uint64_t[::1] ids not None, const uint8_t[::1] alive):
        """How many rows have each term; see `_bm25.pyi`."""
        check_rows("alive", alive, self.index.header.rows)
        counts = np.zeros(ids.shape[0], np.uint32)
        cdef uint32_t[::1] out = counts
        cdef vector[size_t] terms
        cdef size_t i, units = 0
        for i in range(<size_t>ids.shape[0]):
            terms.push_back(term_of(&self.index, ids[i]))
            if terms[i] < self.index.header.terms:
                out[i] = self.index.frequencies[terms[i]]
                units += self.index.offsets[terms[i] + 1] - self.index.offsets[terms[i]]
        if alive is not None and units <= GIL_KEPT_UP_TO:
            recount(&self.index, terms, &alive[0], &out[0])
        elif alive is not None:
            with nogil:
                recount(&self.index, terms, &alive[0], &out[0])
        return counts

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
        cdef Formula formula = checked_formula(&self.index, ids, weights, a, b, lengths)
        check_rows("allowed", allowed, self.index.header.rows)
        cdef const uint8_t* flags = NULL
        if allowed is not None:
            flags = &allowed[0]
        cdef Ranking ranking
        ranking.bound = 0
        ranking.count = min(count, <size_t>self.index.header.rows)
        cdef vector[Cursor] cursors
        cdef size_t units = find_terms(&self.index, &ids[0], &weights[0], ids.shape[0], cursors)
        if ranking.count == 0:
            cursors.clear()
        if units <= GIL_KEPT_UP_TO:
            rank(&self.index, cursors, &formula, flags, ranking)
        else:
            with nogil:
                rank(&self.index, cursors, &formula, flags, ranking)
        return ranked_arrays(ranking.keys)

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
        cdef Formula formula = checked_formula(&self.index, ids, weights, a, b, lengths)
        cdef vector[uint64_t] order
        cdef vector[Cursor] cursors
        cdef size_t i
        order.reserve(rows.shape[0])
        for i in range(<size_t>rows.shape[0]):
            if rows[i] >= self.index.header.rows:
                raise IndexError(
                    f"rows[{i}] is {rows[i]}; it must be below {self.index.header.rows}"
                )
            order.push_back(<uint64_t>rows[i] << 32 | i)
        scores = np.zeros(rows.shape[0], np.float32)
        cdef float[::1] out = scores
        find_terms(&self.index, &ids[0], &weights[0], ids.shape[0], cursors)
        with nogil:
            sort(order.begin(), order.end())
            for i in range(cursors.size()):
                add_scores(&cursors[i], &formula, order, &out[0])
        return scores

    def rows_with_all(self, const uint64_t[::1] ids not None):
        """The rows that have every term; see `_bm25.pyi`."""
        check_ascending(ids)
        if ids.shape[0] == 0:
            return np.arange(self.index.header.rows, dtype=np.uint32)
        cdef vector[uint64_t] order, rows  # Terms, the rarest first: `frequency << 32 | term`.
        cdef Cursor cursor
        cdef size_t i, term
        for i in range(<size_t>ids.shape[0]):
            term = term_of(&self.index, ids[i])
            if term == self.index.header.terms:
                return np.empty(0, np.uint32)
            order.push_back(<uint64_t>self.index.frequencies[term] << 32 | term)
        with nogil:
            sort(order.begin(), order.end())
            collect_rows(cursor_of(&self.index, <uint32_t>order[0], 0), rows)
            for i in range(1, order.size()):
                cursor = cursor_of(&self.index, <uint32_t>order[i], 0)
                keep_rows(&cursor, rows)
        found = np.empty(rows.size(), np.uint32)
        cdef uint32_t[::1] out = found
        for i in range(rows.size()):
            out[i] = <uint32_t>rows[i]
        return found


cdef Index index_of(const uint8_t* buffer, size_t size) except *:
    """Where the parts of the buffer lie. Raises ValueError unless they fill it."""
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


cdef void recount(
    const Index* index, const vector[size_t]& terms, const uint8_t* alive, uint32_t* counts
) noexcept nogil:
    """Counts the postings that are alive, of each term that has any."""
    cdef size_t i
    for i in range(terms.size()):
        if counts[i]:
            counts[i] = <uint32_t>count_alive(index, terms[i], alive)


cdef void collect_rows(Cursor cursor, vector[uint64_t]& rows) noexcept nogil:
    """Appends all rows of a term."""
    cdef size_t first
    cdef Block block
    cdef Posting posting
    while cursor.next < cursor.end:
        first = <size_t>cursor.next[0] << WINDOW_BITS
        block = next_block(&cursor)
        while block.first < block.end:
            block.first = read_posting(block.first, &posting)
            rows.push_back(first + posting.row)


cdef object ranked_arrays(const vector[uint64_t]& keys):
    """Rows and scores of keys."""
    rows, scores = np.empty(keys.size(), np.uint32), np.empty(keys.size(), np.float32)
    cdef uint32_t[::1] rows_out = rows
    cdef float[::1] scores_out = scores
    cdef size_t i
    for i in range(keys.size()):
        rows_out[i] = <uint32_t>keys[i]
        scores_out[i] = score_in(keys[i])
    return rows, scores


cdef Formula checked_formula(
    const Index* index,
    const uint64_t[::1] ids,
    const float[::1] weights,
    float a,
    float b,
    const uint32_t[::1] lengths,
) except *:
    """The formula of a query. Raises ValueError if an argument of the query is not allowed."""
    cdef size_t i
    cdef Formula formula
    check_ascending(ids)
    if weights.shape[0] != ids.shape[0]:
        raise ValueError(
            f"weights has {weights.shape[0]} entries; it must have {ids.shape[0]}, as ids"
        )
    for i in range(<size_t>weights.shape[0]):
        if not 0 <= weights[i] <= 1:
            raise ValueError(f"weights[{i}] is {weights[i]}; it must be from 0 to 1")
    if not (isfinite(a) and a >= 0):
        raise ValueError(f"a is {a}; it must be finite and not negative")
    if not (isfinite(b) and b >= 0):
        raise ValueError(f"b is {b}; it must be finite and not negative")
    check_rows("lengths", lengths, index.header.rows)
    formula.a = a
    formula.b = b
    formula.lengths = &lengths[0]
    return formula


ctypedef fused Column:
    const uint8_t[::1]
    const uint32_t[::1]


cdef int check_rows(str name, Column column, size_t rows) except -1:
    if column is not None and <size_t>column.shape[0] != rows:
        raise ValueError(f"{name} has {column.shape[0]} entries; it must have {rows}, one a row")
    return 0


cdef int check_ascending(const uint64_t[::1] ids) except -1:
    cdef size_t i
    for i in range(1, <size_t>ids.shape[0]):
        if ids[i - 1] >= ids[i]:
            raise ValueError(f"ids[{i}] is {ids[i]}; it must be above ids[{i - 1}], {ids[i - 1]}")
    return 0
