# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""`Postings`: searches an inverted index by BM25.

`hrag/text/bm25.py` has the formula and its constants, and computes the weights and the norm that
the kernel is called with. A search goes through windows of 8,192 rows. In each window it goes
through the terms of the query, and adds what each term contributes to the scores of the window's
rows to an array of sums that stays in the CPU's cache. Lucene's bulk scorer of disjunctions works
in the same way.

The search does not prune. MaxScore (Turtle and Flood, "Query Evaluation: Strategies and
Optimizations", Information Processing & Management 31(6), 1995) would skip long lists that cannot
change the result. But then the remaining rows must be looked up in every list in the order of
terms, because another order of additions would change the last bit of their scores. Measurements
showed that MaxScore saves a tenth of the time at best, and costs as much in other cases: looking up
a row takes many times as long as reading a posting.

Arguments are checked, then one C loop runs without Python objects. `_bm25.pyi` is the
documentation for callers; `tests/twins/postings.py` has the plain twin, which defines the right
answer; `_posting_lists.pyx` describes the layout.
"""

import numpy as np

from libc.math cimport isfinite
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.algorithm cimport nth_element, sort
from libcpp.vector cimport vector

from hrag_fast._posting_lists cimport (
    GIL_KEPT_UP_TO,
    NO_WINDOW,
    WINDOW_BITS,
    WINDOW_ROWS,
    Block,
    Cursor,
    Index,
    Posting,
    PostingLists,
    check_ascending,
    check_entries,
    find_terms,
    next_block,
    read_posting,
    seek,
    window_of,
)

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    // GCC compiles these loops once for each kind of CPU; the loader picks the best version.
    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define HRAG_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define HRAG_CPU_CLONES
    #endif

    enum { HRAG_LANES = 16, HRAG_SCAN = 32, HRAG_BATCH = 256 };
    #define HRAG_FOUR_BITS(n) 1u << n, 2u << n, 4u << n, 8u << n
    static const uint32_t HRAG_BITS[HRAG_SCAN] = {
        HRAG_FOUR_BITS(0), HRAG_FOUR_BITS(4), HRAG_FOUR_BITS(8), HRAG_FOUR_BITS(12),
        HRAG_FOUR_BITS(16), HRAG_FOUR_BITS(20), HRAG_FOUR_BITS(24), HRAG_FOUR_BITS(28),
    };
    enum { HRAG_LONG = 7 };  // A frequency of 7 or more is in a second unit.

    // Adds a term's shares to the sums of the rows of one window. `lengths` are the lengths of
    // these rows. It works in batches, by plain loops over arrays: the compiler turns them into
    // vector code.
    HRAG_CPU_CLONES
    static void hrag_add(
        const uint16_t* units, const uint16_t* end, float weight,
        float norm_base, float norm_per_term, const uint32_t* lengths, float* sums
    ) {
        uint16_t rows[HRAG_BATCH];
        float counts[HRAG_BATCH], row_lengths[HRAG_BATCH], shares[HRAG_BATCH];
        while (units < end) {
            size_t n = 0;
            while (n + HRAG_LANES <= HRAG_BATCH && units < end) {
                int is_long = end - units < HRAG_LANES;
                if (!is_long)
                    for (int i = 0; i < HRAG_LANES; i++) is_long |= (units[i] & 7) == HRAG_LONG;
                if (!is_long) {
                    for (int i = 0; i < HRAG_LANES; i++) rows[n + i] = units[i] >> 3;
                    for (int i = 0; i < HRAG_LANES; i++) counts[n + i] = (float)(units[i] & 7);
                    n += HRAG_LANES;
                    units += HRAG_LANES;
                } else {
                    const uint16_t* stop = end - units < HRAG_LANES ? end : units + HRAG_LANES;
                    for (; units < stop; units++) {
                        rows[n] = units[0] >> 3;
                        counts[n] = (float)((units[0] & 7) < HRAG_LONG ? units[0] & 7 : *++units);
                        n++;
                    }
                }
            }
            for (size_t i = 0; i < n; i++) row_lengths[i] = (float)lengths[rows[i]];
            for (size_t i = 0; i < n; i++)
                shares[i] = weight * counts[i]
                    / (counts[i] + (norm_base + norm_per_term * row_lengths[i]));
            for (size_t i = 0; i < n; i++) sums[rows[i]] += shares[i];
        }
    }

    // Writes the rows whose sum is above the bound. Returns the count of these rows. The compiler
    // compares a group of rows by vector code, and a bit stands for each row above the bound.
    HRAG_CPU_CLONES
    static size_t hrag_above(const float* sums, size_t count, float bound, uint16_t* rows) {
        size_t written = 0, i = 0;
        for (; i + HRAG_SCAN <= count; i += HRAG_SCAN) {
            uint32_t above = 0;
            for (size_t j = 0; j < HRAG_SCAN; j++) above |= sums[i + j] > bound ? HRAG_BITS[j] : 0;
            for (; above; above &= above - 1) rows[written++] = (uint16_t)(i + __builtin_ctz(above));
        }
        for (; i < count; i++)
            if (sums[i] > bound) rows[written++] = (uint16_t)i;
        return written;
    }

    HRAG_CPU_CLONES
    static size_t hrag_count_flags(const uint8_t* flags, size_t count) {
        uint32_t total = 0;
        for (size_t i = 0; i < count; i++) total += flags[i] != 0;
        return total;
    }
    """
    void hrag_add(
        const uint16_t* units, const uint16_t* end, float weight,
        float norm_base, float norm_per_term, const uint32_t* lengths, float* sums
    ) noexcept nogil
    size_t hrag_above(
        const float* sums, size_t count, float bound, uint16_t* rows
    ) noexcept nogil
    size_t hrag_count_flags(const uint8_t* flags, size_t count) noexcept nogil

cdef enum:
    LOOK_UP_UNITS = 40  # Looking up one row takes as long as reading this many units.
    # If the query's terms have fewer units than this in a window, the rows with a score are found
    # by reading these postings again. Otherwise all sums of the window are scanned.
    SPARSE_UNITS = 256


cdef struct Query:
    const float* weights
    float norm_base
    float norm_per_term
    const uint32_t* lengths


cdef cppclass Ranking:
    """The best rows so far, as keys that `rank_key` returns.

    As soon as `count` rows were added, the ranking has from `count` to `2 * count - 1` keys. Rows
    may be added in any order.
    """

    size_t count
    uint64_t last  # A row is added only if its key is lower than this key.
    vector[uint64_t] keys

    void add(float score, uint64_t row) noexcept nogil:
        cdef uint64_t key = rank_key(score, row)
        if key < this.last:
            this.keys.push_back(key)
            if this.keys.size() >= 2 * this.count:
                this.shrink()

    void shrink() noexcept nogil:
        nth_element(this.keys.begin(), this.keys.begin() + (this.count - 1), this.keys.end())
        this.keys.resize(this.count)
        this.last = this.keys.back()


cdef struct Requested:
    # Rows whose scores are requested. Both arrays have `count` entries.
    const uint32_t* rows  # Ascending.
    float* scores
    size_t count
    size_t next  # How many of the rows are in the windows that were read.


cdef cppclass Window:
    """The rows that are scored together, and their postings."""

    size_t first
    size_t rows
    size_t units  # The number of units in all blocks.
    vector[Block] blocks  # One block for each term that occurs in the window, in order of terms.
    vector[float] weights  # One weight per block.
    float[WINDOW_ROWS] sums  # One sum per row. All sums are zero before a window is read.
    uint16_t[WINDOW_ROWS] chosen  # Space for a list of rows, relative to `first`.


cdef class Postings(PostingLists):
    """An inverted index, searched by BM25; see `_bm25.pyi`."""

    def best(
        self,
        const uint64_t[::1] ids not None,
        const float[::1] weights not None,
        float norm_base,
        float norm_per_term,
        const uint32_t[::1] lengths not None,
        const uint8_t[::1] allowed,
        size_t count,
    ):
        """Returns the rows with the highest scores; see `_bm25.pyi`."""
        return self.search(ids, weights, norm_base, norm_per_term, lengths, allowed, count, None)[:2]

    def best_and_scores(
        self,
        const uint64_t[::1] ids not None,
        const float[::1] weights not None,
        float norm_base,
        float norm_per_term,
        const uint32_t[::1] lengths not None,
        const uint8_t[::1] allowed,
        size_t count,
        const uint32_t[::1] requested not None,
    ):
        """Returns the same as `best`, and the scores of requested rows; see `_bm25.pyi`."""
        return self.search(
            ids, weights, norm_base, norm_per_term, lengths, allowed, count, requested
        )

    cdef tuple search(
        self,
        const uint64_t[::1] ids,
        const float[::1] weights,
        float norm_base,
        float norm_per_term,
        const uint32_t[::1] lengths,
        const uint8_t[::1] allowed,
        size_t count,
        const uint32_t[::1] requested,
    ):
        cdef Query query = checked_query(
            &self.index, ids, weights, norm_base, norm_per_term, lengths
        )
        cdef const uint8_t* flags = NULL
        if allowed is not None:
            check_entries("allowed", allowed.shape[0], self.index.header.rows)
            flags = &allowed[0]
        requested_scores = np.zeros(0 if requested is None else requested.shape[0], np.float32)
        cdef float[::1] scores_out = requested_scores
        cdef Requested rows = Requested(NULL, &scores_out[0], 0, 0)
        if requested is not None:
            check_requested(requested, flags, self.index.header.rows)
            rows.rows, rows.count = &requested[0], requested.shape[0]
        cdef vector[Cursor] cursors
        cdef size_t units = find_terms(&self.index, &ids[0], ids.shape[0], cursors)
        cdef Ranking ranking
        ranking.last = rank_key(0, 0)  # A row with the score 0 is not ranked.
        # A ranking of at least one row needs no special case.
        ranking.count = max(min(count, <size_t>self.index.header.rows), <size_t>1)
        if count == 0 and rows.count == 0:
            cursors.clear()
        if units <= GIL_KEPT_UP_TO:
            rank(&self.index, cursors, &query, flags, &rows, ranking)
        else:
            with nogil:
                rank(&self.index, cursors, &query, flags, &rows, ranking)
        if ranking.keys.size() > count:
            ranking.keys.resize(count)
        return *ranked_arrays(ranking.keys), requested_scores


cdef int check_requested(
    const uint32_t[::1] requested, const uint8_t* allowed, size_t rows
) except -1:
    """Raises an error if a requested row does not exist or is not allowed, or if rows descend."""
    cdef size_t i
    for i in range(<size_t>requested.shape[0]):
        if requested[i] >= rows:
            raise IndexError(f"requested[{i}] is {requested[i]}; it must be below {rows}")
        if i and requested[i] <= requested[i - 1]:
            raise ValueError(
                f"requested[{i}] is {requested[i]}; it must be above requested[{i - 1}], "
                f"{requested[i - 1]}"
            )
        if allowed != NULL and not allowed[requested[i]]:
            raise ValueError(f"requested[{i}] is {requested[i]}, which is not allowed")
    return 0


cdef Query checked_query(
    const Index* index,
    const uint64_t[::1] ids,
    const float[::1] weights,
    float norm_base,
    float norm_per_term,
    const uint32_t[::1] lengths,
) except *:
    """Returns the arguments of a query, except the ids. Raises ValueError for a wrong argument."""
    cdef size_t i
    cdef Query query
    check_ascending(&ids[0], ids.shape[0])
    if weights.shape[0] != ids.shape[0]:
        raise ValueError(
            f"weights has {weights.shape[0]} entries; it must have {ids.shape[0]}, as ids"
        )
    for i in range(<size_t>weights.shape[0]):
        if not 0 <= weights[i] <= 1:
            raise ValueError(f"weights[{i}] is {weights[i]}; it must be from 0 to 1")
    if not (isfinite(norm_base) and norm_base >= 0):
        raise ValueError(f"norm_base is {norm_base}; it must be finite and not negative")
    if not (isfinite(norm_per_term) and norm_per_term >= 0):
        raise ValueError(f"norm_per_term is {norm_per_term}; it must be finite and not negative")
    check_entries("lengths", lengths.shape[0], index.header.rows)
    query.weights = &weights[0]
    query.norm_base = norm_base
    query.norm_per_term = norm_per_term
    query.lengths = &lengths[0]
    return query


cdef object ranked_arrays(const vector[uint64_t]& keys):
    """Returns the rows and the scores that keys contain, as two arrays."""
    rows, scores = np.empty(keys.size(), np.uint32), np.empty(keys.size(), np.float32)
    cdef uint32_t[::1] rows_out = rows
    cdef float[::1] scores_out = scores
    cdef size_t i
    for i in range(keys.size()):
        rows_out[i] = <uint32_t>keys[i]
        scores_out[i] = score_in(keys[i])
    return rows, scores


cdef inline uint64_t rank_key(float score, uint64_t row) noexcept nogil:
    """Returns the key of a row. Keys ascend from the best row to the worst.

    So they sort by score descending, then by row ascending. The bits of floats that are not
    negative have the same order as the floats.
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
    const Query* query, float weight, uint32_t frequency, size_t row
) noexcept nogil:
    """Returns what a term adds to the score of a row."""
    cdef float count = <float>frequency
    cdef float length = <float>query.lengths[row]
    return weight * count / (count + (query.norm_base + query.norm_per_term * length))


cdef uint32_t lowest_window(vector[Cursor]& cursors) noexcept nogil:
    """Returns the first window that has unread postings; NO_WINDOW if all lists are at the end."""
    cdef size_t i
    cdef uint32_t lowest = NO_WINDOW
    for i in range(cursors.size()):
        lowest = min(lowest, window_of(&cursors[i]))
    return lowest


cdef int rank(
    const Index* index,
    vector[Cursor]& cursors,
    const Query* query,
    const uint8_t* allowed,
    Requested* requested,
    Ranking& ranking,
) except -1 nogil:
    """Writes the best rows to the ranking, in order, and the scores of the requested rows.

    It allocates all memory first, so that the functions that it calls cannot fail.
    """
    cdef Window window
    cdef uint32_t number = lowest_window(cursors)
    window.blocks.reserve(cursors.size())
    window.weights.reserve(cursors.size())
    memset(window.sums, 0, sizeof(window.sums))
    ranking.keys.reserve(min(2 * ranking.count, <size_t>index.header.rows))
    while number != NO_WINDOW:
        window.first = <size_t>number << WINDOW_BITS
        window.rows = min(<size_t>WINDOW_ROWS, index.header.rows - window.first)
        take_blocks(window, cursors, query, number)
        rank_window(window, query, allowed, requested, ranking)
        number = lowest_window(cursors)
    sort(ranking.keys.begin(), ranking.keys.end())
    if ranking.keys.size() > ranking.count:
        ranking.keys.resize(ranking.count)
    return 0


cdef void take_blocks(
    Window& window, vector[Cursor]& cursors, const Query* query, uint32_t number
) noexcept nogil:
    cdef size_t i
    cdef Block block
    window.blocks.clear()
    window.weights.clear()
    window.units = 0
    for i in range(cursors.size()):
        if window_of(&cursors[i]) == number:
            block = next_block(&cursors[i])
            window.blocks.push_back(block)
            window.weights.push_back(query.weights[cursors[i].which])
            window.units += block.end - block.first


cdef void rank_window(
    Window& window,
    const Query* query,
    const uint8_t* allowed,
    Requested* requested,
    Ranking& ranking,
) noexcept nogil:
    """Adds the window's best rows to the ranking, in the way that takes the least time.

    Also writes the scores of requested rows, which are sums before the sums are set to zero.
    """
    cdef size_t allowed_rows
    if allowed != NULL:
        allowed_rows = hrag_count_flags(allowed + window.first, window.rows)
        if allowed_rows == 0:
            return
        if allowed_rows * window.blocks.size() * LOOK_UP_UNITS <= window.units:
            rank_chosen(window, query, choose_allowed(window, allowed), requested, ranking)
            return
    add_blocks(window, query)
    write_requested(window, requested)
    if window.units < SPARSE_UNITS:
        rank_sparse(window, allowed, ranking)
    else:
        rank_sums(window, allowed, ranking)


cdef void write_requested(Window& window, Requested* requested) noexcept nogil:
    """Writes the scores of the requested rows that are in the window. They are allowed rows."""
    cdef size_t row
    while requested.next < requested.count:
        row = requested.rows[requested.next]
        if row >= window.first + window.rows:
            return
        if row >= window.first:
            requested.scores[requested.next] = window.sums[row - window.first]
        requested.next += 1


cdef size_t choose_allowed(Window& window, const uint8_t* allowed) noexcept nogil:
    """Writes the allowed rows to `window.chosen`. Returns the count of these rows."""
    cdef size_t row, count = 0
    for row in range(window.rows):
        if allowed[window.first + row]:
            window.chosen[count] = <uint16_t>row
            count += 1
    return count


cdef void rank_chosen(
    Window& window, const Query* query, size_t count, Requested* requested, Ranking& ranking
) noexcept nogil:
    """Ranks the first `count` rows of `window.chosen`. Looks them up in every block."""
    cdef size_t i, j, row
    cdef const uint16_t* at
    cdef Posting posting
    for i in range(window.blocks.size()):
        at = window.blocks[i].first
        for j in range(count):
            row = window.chosen[j]
            at = seek(window.blocks[i].first, at, window.blocks[i].end, <uint32_t>row)
            if at == window.blocks[i].end:
                break
            read_posting(at, &posting)
            if posting.row == row:
                window.sums[row] += share(
                    query, window.weights[i], posting.frequency, window.first + row
                )
    write_requested(window, requested)
    for j in range(count):
        row = window.chosen[j]
        ranking.add(window.sums[row], window.first + row)
        window.sums[row] = 0


cdef void add_blocks(Window& window, const Query* query) noexcept nogil:
    """Adds the shares of all terms to the sums."""
    cdef size_t i
    for i in range(window.blocks.size()):
        hrag_add(
            window.blocks[i].first, window.blocks[i].end, window.weights[i],
            query.norm_base, query.norm_per_term, query.lengths + window.first, window.sums,
        )


cdef void rank_sums(Window& window, const uint8_t* allowed, Ranking& ranking) noexcept nogil:
    """Ranks the rows by their sums, and sets the sums to zero."""
    cdef size_t i, row
    # A row with the same score as the ranking's last row ranks after that row, because earlier
    # windows have lower rows. So only rows with a higher sum are ranked.
    cdef size_t count = hrag_above(
        window.sums, window.rows, score_in(ranking.last), window.chosen
    )
    for i in range(count):
        row = window.chosen[i]
        if allowed == NULL or allowed[window.first + row]:
            ranking.add(window.sums[row], window.first + row)
    memset(window.sums, 0, window.rows * sizeof(float))


cdef void rank_sparse(Window& window, const uint8_t* allowed, Ranking& ranking) noexcept nogil:
    """Does the same as `rank_sums`, but finds the rows by reading the window's postings again."""
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
            window.sums[posting.row] = 0  # The row's next posting then adds nothing to the ranking.
