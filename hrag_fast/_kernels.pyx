# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled loops: `climb` on the path of every search, `boundary_ranks` in chunking.

A kernel checks its arguments, then runs one C function that sees no Python object. All it
reads are const views, so maps of files and buffers of LMDB serve in place; all it needs
besides is allocated at once. `_reference.py` holds the plain twin of each kernel, which
defines the right answer.
"""

from collections import namedtuple

import numpy as np

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cdef enum:
    AGGREGATE_MAX, AGGREGATE_SUM, AGGREGATE_MEAN, AGGREGATE_COUNT
cdef enum:
    FORBIDDEN, CODE_POINT, WORD, SENTENCE, PARAGRAPH

MAX = AGGREGATE_MAX
SUM = AGGREGATE_SUM
MEAN = AGGREGATE_MEAN
COUNT = AGGREGATE_COUNT

CUT_FORBIDDEN = FORBIDDEN
CUT_CODE_POINT = CODE_POINT
CUT_WORD = WORD
CUT_SENTENCE = SENTENCE
CUT_PARAGRAPH = PARAGRAPH

Groups = namedtuple("Groups", ("keys", "scores", "starts", "children", "child_scores"))

cdef object new_tuple = tuple.__new__  # Half the cost of calling the namedtuple.
cdef object empty = np.empty
cdef object UINT8 = np.dtype(np.uint8)
cdef object UINT32 = np.dtype(np.uint32)
cdef object UINT64 = np.dtype(np.uint64)
cdef object FLOAT32 = np.dtype(np.float32)

cdef enum:
    LEAF_INDEX_BITS = 20
    SHORT_RUN = 8  # Below it, insertion beats merging.
    # A thread that gives up the GIL may wait another's whole turn for it, 5 ms. Up to this
    # many hits the work is some 15 us, and keeping the GIL delays nobody.
    GIL_KEPT_UP_TO = 1000
    BLANK_LOOK_BACK = 64  # Bytes; so that a text of nothing but blanks stays linear.
    CLOSER_LOOK_BACK = 16  # Bytes; five CJK closers, more than any sentence ends with.

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / phi spreads neighbouring keys.


# --- climb ---------------------------------------------------------------------------


cdef struct Hits:  # What climb was given.
    const uint32_t* rows
    const float* scores
    size_t count
    const uint64_t* labels
    const uint32_t* ancestors
    const uint8_t* alive


cdef struct Leaf:  # A hit that lives.
    uint64_t label
    uint64_t key
    float score
    uint32_t row
    uint32_t group


cdef struct Group:  # An ancestor and what its children add up to.
    uint64_t key
    double sum
    float best
    uint32_t count
    uint32_t next  # Where in the output its next child goes.


cdef struct Ranked:  # What orders groups among groups and children among children.
    float score
    float best
    uint64_t tie
    uint32_t index


cdef struct Work:  # One allocation, cut up. Every part has room for one entry a hit.
    Leaf* leaves
    Group* groups
    Ranked* ranked
    Ranked* spare
    uint64_t* keys  # These five are the answer.
    float* scores
    uint32_t* starts
    uint32_t* children
    float* child_scores
    uint32_t* slots  # Hash table, key to group + 1; 0 is free.
    int slot_bits
    size_t group_count
    size_t child_count


def climb(
    const uint32_t[::1] rows not None,
    const float[::1] scores not None,
    const uint64_t[::1] labels not None,
    const uint32_t[::1] ancestors not None,
    const uint8_t[::1] alive not None,
    int aggregation,
):
    """Groups hits by ancestor and ranks them; `_kernels.pyi` has the whole promise."""
    cdef size_t count = rows.shape[0]
    cdef size_t row_count = labels.shape[0]
    if <size_t>scores.shape[0] != count:
        raise ValueError(f"scores has {scores.shape[0]} entries; it must have {count}, as rows")
    if <size_t>ancestors.shape[0] != row_count:
        raise ValueError(
            f"ancestors has {ancestors.shape[0]} entries; it must have {row_count}, as labels"
        )
    if <size_t>alive.shape[0] != row_count:
        raise ValueError(f"alive has {alive.shape[0]} entries; it must have {row_count}, as labels")
    if not AGGREGATE_MAX <= aggregation <= AGGREGATE_COUNT:
        raise ValueError(
            f"aggregation is {aggregation}; it must be {MAX} (MAX), {SUM} (SUM), "
            f"{MEAN} (MEAN) or {COUNT} (COUNT)"
        )
    cdef size_t outside = first_outside(&rows[0], count, row_count)
    if outside < count:
        raise IndexError(f"rows[{outside}] is {rows[outside]}; it must be below {row_count}")

    cdef Hits hits
    hits.rows = &rows[0]
    hits.scores = &scores[0]
    hits.count = count
    hits.labels = &labels[0]
    hits.ancestors = &ancestors[0]
    hits.alive = &alive[0]
    return climbed(&hits, aggregation)


cdef size_t first_outside(const uint32_t* rows, size_t count, size_t limit) noexcept nogil:
    cdef size_t i
    for i in range(count):
        if rows[i] >= limit:
            return i
    return count


cdef object climbed(const Hits* hits, int aggregation):
    """Allocates, climbs and copies out: all that needs the GIL."""
    cdef Work work
    cdef void* memory = allocate(&work, hits.count)
    if memory == NULL:
        raise MemoryError(f"climb needs memory for {hits.count} hits")
    try:
        if hits.count <= GIL_KEPT_UP_TO:
            run_climb(hits, aggregation, &work)
        else:
            with nogil:
                run_climb(hits, aggregation, &work)
        return groups_of(&work)
    finally:
        free(memory)


cdef object groups_of(const Work* work):
    return new_tuple(Groups, (
        array_of(UINT64, work.keys, work.group_count, sizeof(uint64_t)),
        array_of(FLOAT32, work.scores, work.group_count, sizeof(float)),
        array_of(UINT32, work.starts, work.group_count + 1, sizeof(uint32_t)),
        array_of(UINT32, work.children, work.child_count, sizeof(uint32_t)),
        array_of(FLOAT32, work.child_scores, work.child_count, sizeof(float)),
    ))


cdef object array_of(object dtype, const void* items, size_t count, size_t item_bytes):
    """A new array with a copy of `items`. A plain buffer costs half of a typed view."""
    cdef object array = empty(count, dtype)
    cdef Py_buffer buffer
    PyObject_GetBuffer(array, &buffer, PyBUF_WRITABLE)
    memcpy(buffer.buf, items, count * item_bytes)
    PyBuffer_Release(&buffer)
    return array


cdef void* allocate(Work* work, size_t count) noexcept nogil:
    """Returns what to free, or NULL. Widest types first, so that each part is aligned."""
    work.slot_bits = 1
    while (<size_t>1 << work.slot_bits) < 2 * count:  # At most half full: probes stay short.
        work.slot_bits += 1
    cdef size_t slot_bytes = sizeof(uint32_t) << work.slot_bits
    cdef size_t hit_bytes = (
        sizeof(Leaf) + sizeof(Group) + 2 * sizeof(Ranked)
        + sizeof(uint64_t) + 2 * sizeof(uint32_t) + 2 * sizeof(float)
    )
    cdef void* memory = malloc(count * hit_bytes + sizeof(uint32_t) + slot_bytes)
    if memory == NULL:
        return NULL
    work.leaves = <Leaf*>memory
    work.groups = <Group*>(work.leaves + count)
    work.ranked = <Ranked*>(work.groups + count)
    work.spare = work.ranked + count
    work.keys = <uint64_t*>(work.spare + count)
    work.scores = <float*>(work.keys + count)
    work.child_scores = work.scores + count
    work.children = <uint32_t*>(work.child_scores + count)
    work.starts = work.children + count
    work.slots = work.starts + count + 1
    memset(work.slots, 0, slot_bytes)
    return memory


cdef void run_climb(const Hits* hits, int aggregation, Work* work) noexcept nogil:
    work.child_count = gather(hits, work.leaves)
    work.group_count = group_leaves(work)
    rank_groups(work, aggregation)
    write_groups(work)
    write_children(work)


cdef size_t gather(const Hits* hits, Leaf* leaves) noexcept nogil:
    """Reads the living hits' labels and ancestors, and counts them.

    Alone in its loop because these reads miss the cache: nothing here waits for another.
    """
    cdef size_t i, count = 0
    cdef uint32_t row
    cdef uint64_t label
    for i in range(hits.count):
        row = hits.rows[i]
        if not hits.alive[row]:
            continue
        label = hits.labels[row]
        leaves[count].label = label
        leaves[count].key = (label >> LEAF_INDEX_BITS << LEAF_INDEX_BITS) | hits.ancestors[row]
        leaves[count].score = hits.scores[i]
        leaves[count].row = row
        count += 1
    return count


cdef size_t group_leaves(Work* work) noexcept nogil:
    """Gives each leaf its group, in hit order, and counts the groups."""
    cdef size_t i, group_count = 0
    cdef Leaf* leaf
    cdef Group* group
    cdef uint32_t* slot
    for i in range(work.child_count):
        leaf = &work.leaves[i]
        slot = find_slot(work, leaf.key)
        if slot[0] == 0:
            group = &work.groups[group_count]
            group_count += 1
            slot[0] = group_count
            group.key = leaf.key
            group.sum = 0.0
            group.best = leaf.score
            group.count = 0
        leaf.group = slot[0] - 1
        group = &work.groups[leaf.group]
        group.sum += leaf.score
        group.count += 1
        if leaf.score > group.best:
            group.best = leaf.score
    return group_count


cdef inline uint32_t* find_slot(const Work* work, uint64_t key) noexcept nogil:
    """The slot that holds the key's group, or the free one where it belongs."""
    cdef size_t mask = (<size_t>1 << work.slot_bits) - 1
    cdef size_t i = (key * GOLDEN) >> (64 - work.slot_bits)
    while work.slots[i] != 0 and work.groups[work.slots[i] - 1].key != key:
        i = (i + 1) & mask
    return &work.slots[i]


cdef void rank_groups(Work* work, int aggregation) noexcept nogil:
    cdef size_t i
    cdef Group* group
    for i in range(work.group_count):
        group = &work.groups[i]
        work.ranked[i].score = aggregated(group, aggregation)
        work.ranked[i].best = group.best
        work.ranked[i].tie = group.key
        work.ranked[i].index = i
    sort(work.ranked, work.spare, work.group_count)


cdef inline float aggregated(const Group* group, int aggregation) noexcept nogil:
    if aggregation == AGGREGATE_MAX:
        return group.best
    if aggregation == AGGREGATE_SUM:
        return <float>group.sum
    if aggregation == AGGREGATE_MEAN:
        return <float>(group.sum / group.count)
    return <float>group.count


cdef void write_groups(Work* work) noexcept nogil:
    cdef size_t i
    cdef uint32_t start = 0
    cdef Group* group
    for i in range(work.group_count):
        group = &work.groups[work.ranked[i].index]
        work.keys[i] = group.key
        work.scores[i] = work.ranked[i].score
        work.starts[i] = start
        group.next = start
        start += group.count
    work.starts[work.group_count] = start


cdef void write_children(Work* work) noexcept nogil:
    """Puts each leaf in its group's range, then sorts range by range."""
    cdef size_t i, start, end
    cdef Leaf* leaf
    cdef Group* group
    cdef Ranked* child
    for i in range(work.child_count):
        leaf = &work.leaves[i]
        group = &work.groups[leaf.group]
        child = &work.ranked[group.next]
        group.next += 1
        child.score = leaf.score
        child.best = leaf.score
        child.tie = leaf.label
        child.index = leaf.row
    for i in range(work.group_count):
        start = work.starts[i]
        end = work.starts[i + 1]
        sort(work.ranked + start, work.spare, end - start)
    for i in range(work.child_count):
        work.children[i] = work.ranked[i].index
        work.child_scores[i] = work.ranked[i].score


cdef inline bint precedes(const Ranked* a, const Ranked* b) noexcept nogil:
    if a.score != b.score:
        return a.score > b.score
    if a.best != b.best:
        return a.best > b.best
    return a.tie < b.tie


cdef void sort(Ranked* items, Ranked* spare, size_t count) noexcept nogil:
    """Stable merge sort; `spare` has room for half of `items`."""
    if count <= SHORT_RUN:
        sort_short(items, count)
        return
    cdef size_t half = count >> 1
    sort(items, spare, half)
    sort(items + half, spare, count - half)
    if precedes(&items[half], &items[half - 1]):  # Hits often come in order already.
        memcpy(spare, items, half * sizeof(Ranked))
        merge(items, spare, half, count)


cdef void sort_short(Ranked* items, size_t count) noexcept nogil:
    cdef size_t i, j
    cdef Ranked moving
    for i in range(1, count):
        if not precedes(&items[i], &items[i - 1]):
            continue
        moving = items[i]
        j = i
        while j > 0 and precedes(&moving, &items[j - 1]):
            items[j] = items[j - 1]
            j -= 1
        items[j] = moving


cdef void merge(Ranked* items, const Ranked* left, size_t half, size_t count) noexcept nogil:
    """Merges `left[:half]` with `items[half:count]` into `items`."""
    cdef size_t i = 0, j = half, out = 0
    while i < half and j < count:
        if precedes(&items[j], &left[i]):
            items[out] = items[j]
            j += 1
        else:
            items[out] = left[i]
            i += 1
        out += 1
    memcpy(items + out, left + i, (half - i) * sizeof(Ranked))


# --- boundary_ranks ------------------------------------------------------------------


def boundary_ranks(bytes text not None, const uint32_t[::1] ends not None):
    """Ranks cuts of a text; `_kernels.pyi` has the whole promise."""
    cdef size_t size = len(text)
    cdef size_t count = ends.shape[0]
    cdef size_t i
    for i in range(count):
        if not 0 < ends[i] <= size:
            raise IndexError(
                f"ends[{i}] is {ends[i]}; it must be from 1 to {size}, the text's bytes"
            )
    ranks = empty(count, UINT8)
    cdef uint8_t[::1] out = ranks
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(text)
    with nogil:
        for i in range(count):
            out[i] = rank_cut(start, size, ends[i])
    return ranks


cdef uint8_t rank_cut(const uint8_t* text, size_t size, size_t end) noexcept nogil:
    if end == size:
        return PARAGRAPH
    if is_continuation(text[end]) or (text[end - 1] == b"\r" and text[end] == b"\n"):
        return FORBIDDEN
    cdef size_t bare = before_blanks(text, end)
    cdef int newlines = count_newlines(text, bare, end)
    if newlines >= 2:
        return PARAGRAPH
    cdef bint blank_after = is_blank(code_point_at(text, size, end))
    if newlines == 1 or ends_sentence(text, bare, bare < end or blank_after):
        return SENTENCE
    if bare < end or blank_after:
        return WORD
    if is_cjk(code_point_before(text, end)) or is_cjk(code_point_at(text, size, end)):
        return WORD
    return CODE_POINT


cdef size_t before_blanks(const uint8_t* text, size_t end) noexcept nogil:
    """Where the white space before `end` begins, as far as the look-back goes."""
    cdef size_t floor = end - BLANK_LOOK_BACK if end > BLANK_LOOK_BACK else 0
    cdef size_t start
    while end > floor:
        start = start_before(text, end)
        if start < floor or not is_blank(decode(text, start, end)):
            break
        end = start
    return end


cdef int count_newlines(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Newlines in white space: \\n, \\r\\n and lone \\r are one each, a form feed is two."""
    cdef size_t i
    cdef int newlines = 0
    for i in range(start, end):
        if text[i] == b"\n":
            newlines += 1
        elif text[i] == b"\r":
            newlines += not (i + 1 < end and text[i + 1] == b"\n")
        elif text[i] == b"\f":
            newlines += 2
    return newlines


cdef bint ends_sentence(const uint8_t* text, size_t end, bint beside_blank) noexcept nogil:
    """Whether a sentence ends at `end`, perhaps with closing quotes or brackets."""
    cdef size_t floor = end - CLOSER_LOOK_BACK if end > CLOSER_LOOK_BACK else 0
    cdef size_t start
    cdef uint32_t last
    while end > floor:
        start = start_before(text, end)
        if start < floor or not is_closer(decode(text, start, end)):
            break
        end = start
    if end == 0:
        return False
    last = code_point_before(text, end)
    return is_cjk_sentence_end(last) or (beside_blank and is_sentence_end(last))


cdef inline uint32_t code_point_before(const uint8_t* text, size_t end) noexcept nogil:
    return decode(text, start_before(text, end), end)


cdef inline uint32_t code_point_at(
    const uint8_t* text, size_t size, size_t start
) noexcept nogil:
    cdef size_t end = start + 1
    while end < size and end - start < 4 and is_continuation(text[end]):
        end += 1
    return decode(text, start, end)


cdef inline size_t start_before(const uint8_t* text, size_t end) noexcept nogil:
    cdef size_t start = end - 1
    while start > 0 and end - start < 4 and is_continuation(text[start]):
        start -= 1
    return start


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef inline uint32_t decode(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """The code point that lies in `text[start:end]`."""
    cdef uint32_t code_point = text[start]
    cdef size_t i
    if end - start == 1:
        return code_point
    code_point &= 0xFF >> (end - start + 1)  # The lead byte's high bits tell the length.
    for i in range(start + 1, end):
        code_point = code_point << 6 | (text[i] & 0x3F)
    return code_point


cdef inline bint is_blank(uint32_t c) noexcept nogil:
    return c == 0x20 or 0x09 <= c <= 0x0D or c == 0x3000  # 09 to 0D: \t \n \v \f \r.


cdef inline bint is_closer(uint32_t c) noexcept nogil:
    if c < 0x80:
        return c == 0x22 or c == 0x27 or c == 0x29 or c == 0x5D or c == 0x7D  # " ' ) ] }
    return (
        c == 0x201D or c == 0x2019  # ” ’
        or c == 0x300D or c == 0x300F  # 」 』
        or c == 0xFF09 or c == 0x300B or c == 0x3011  # ） 》 】
    )


cdef inline bint is_sentence_end(uint32_t c) noexcept nogil:
    return c == 0x2E or c == 0x21 or c == 0x3F  # . ! ?


cdef inline bint is_cjk_sentence_end(uint32_t c) noexcept nogil:
    return (
        c == 0x3002 or c == 0xFF01 or c == 0xFF1F or c == 0xFF1B  # 。 ！ ？ ；
        or c == 0x2026 or c == 0xFF0E or c == 0xFF61  # … ． ｡
    )


cdef inline bint is_cjk(uint32_t c) noexcept nogil:
    return (
        0x3000 <= c <= 0x303F  # Punctuation.
        or 0x3040 <= c <= 0x30FF  # Kana.
        or 0x3400 <= c <= 0x4DBF or 0x4E00 <= c <= 0x9FFF  # Ideographs.
        or 0xAC00 <= c <= 0xD7AF  # Hangul.
        or 0xF900 <= c <= 0xFAFF  # Compatibility ideographs.
        or 0xFF00 <= c <= 0xFFEF  # Full-width forms.
        or 0x20000 <= c <= 0x3FFFF  # Ideographs beyond the basic plane.
    )
