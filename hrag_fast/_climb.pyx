# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`climb`: turns candidates into ranked ancestors. Every search uses it.

It is a hash aggregation (open addressing with linear probing, Fibonacci hashing: Knuth, The Art of
Computer Programming 3, 6.4) followed by merge sorts.

The kernel checks its arguments, then runs one C function without Python objects. It reads const
views only, so memory maps and LMDB's buffers are used in place. It allocates all memory at once.
`_climb.pyi` is the documentation for callers; `tests/twins/ancestor_groups.py` has the plain twin,
which defines the right answer.
"""

from collections import namedtuple

import numpy as np

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

cdef enum:
    AGGREGATE_MAX, AGGREGATE_SUM, AGGREGATE_MEAN, AGGREGATE_COUNT

MAX = AGGREGATE_MAX
SUM = AGGREGATE_SUM
MEAN = AGGREGATE_MEAN
COUNT = AGGREGATE_COUNT

Groups = namedtuple("Groups", ("keys", "scores", "starts", "children", "child_scores"))

cdef object new_tuple = tuple.__new__  # It takes half the time of calling the namedtuple's class.
cdef object empty = np.empty
cdef object UINT32 = np.dtype(np.uint32)
cdef object UINT64 = np.dtype(np.uint64)
cdef object FLOAT32 = np.dtype(np.float32)

cdef enum:
    LEAF_INDEX_BITS = 20
    SHORT_RUN = 8  # Up to this length, insertion sort is faster than merge sort.
    # `climb` keeps the GIL for up to this many candidates. Grouping them takes about 15 us, so it
    # delays nobody. A thread that releases the GIL may wait for another thread's whole switch
    # interval, 5 ms, to get it back.
    GIL_KEPT_UP_TO = 1000

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / phi distributes neighbouring keys.


def climb(
    const uint32_t[::1] rows not None,
    const float[::1] scores not None,
    const uint64_t[::1] labels not None,
    const uint32_t[::1] ancestors not None,
    const uint8_t[::1] alive not None,
    int aggregation,
):
    """Groups candidates by ancestor and ranks the groups; see `_climb.pyi`."""
    cdef size_t count = rows.shape[0]
    cdef size_t row_count = labels.shape[0]
    if <size_t>scores.shape[0] != count:
        raise ValueError(f"scores has {scores.shape[0]} entries; it must have {count}, as rows")
    check_table(row_count, ancestors.shape[0], alive.shape[0], aggregation)
    cdef size_t outside = first_outside(&rows[0], count, row_count)
    if outside < count:
        raise IndexError(f"rows[{outside}] is {rows[outside]}; it must be below {row_count}")

    cdef Candidates candidates
    candidates.rows = &rows[0]
    candidates.scores = &scores[0]
    candidates.count = count
    candidates.labels = &labels[0]
    candidates.ancestors = &ancestors[0]
    candidates.alive = &alive[0]
    return run(&candidates, aggregation)


cdef int check_table(
    size_t labels, size_t ancestors, size_t alive, int aggregation
) except -1:
    """Raises ValueError if columns of the table differ in length, or for no known aggregation."""
    if ancestors != labels:
        raise ValueError(f"ancestors has {ancestors} entries; it must have {labels}, as labels")
    if alive != labels:
        raise ValueError(f"alive has {alive} entries; it must have {labels}, as labels")
    if not AGGREGATE_MAX <= aggregation <= AGGREGATE_COUNT:
        raise ValueError(
            f"aggregation is {aggregation}; it must be {MAX} (MAX), {SUM} (SUM), "
            f"{MEAN} (MEAN) or {COUNT} (COUNT)"
        )
    return 0


cdef size_t first_outside(const uint32_t* rows, size_t count, size_t limit) noexcept nogil:
    cdef size_t i
    for i in range(count):
        if rows[i] >= limit:
            return i
    return count


cdef object run(const Candidates* candidates, int aggregation):
    """Allocates memory, groups the candidates, and returns a copy of the result as arrays."""
    cdef Work work
    cdef void* memory = allocate(&work, candidates.count)
    if memory == NULL:
        raise MemoryError(f"climb needs memory for {candidates.count} candidates")
    try:
        if candidates.count <= GIL_KEPT_UP_TO:
            run_climb(candidates, aggregation, &work)
        else:
            with nogil:
                run_climb(candidates, aggregation, &work)
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
    """Returns a new array with a copy of `items`.

    It is written through a plain buffer, which takes half the time of writing to a typed view.
    """
    cdef object array = empty(count, dtype)
    cdef Py_buffer buffer
    if not count:  # `items` may be NULL.
        return array
    PyObject_GetBuffer(array, &buffer, PyBUF_WRITABLE)
    memcpy(buffer.buf, items, count * item_bytes)
    PyBuffer_Release(&buffer)
    return array


cdef void* allocate(Work* work, size_t count) noexcept nogil:
    """Allocates the arrays of `work` in one block of memory, which the caller has to free.

    Returns the block, or NULL if there is not enough memory. The arrays with the widest types come
    first, so that all arrays are aligned.
    """
    work.slot_bits = 1
    # The table is at most half full, which keeps probes short.
    while (<size_t>1 << work.slot_bits) < 2 * count:
        work.slot_bits += 1
    cdef size_t slot_bytes = sizeof(uint32_t) << work.slot_bits
    cdef size_t candidate_bytes = (
        sizeof(Leaf) + sizeof(Group) + 2 * sizeof(Ranked)
        + sizeof(uint64_t) + 2 * sizeof(uint32_t) + 2 * sizeof(float)
    )
    cdef void* memory = malloc(count * candidate_bytes + sizeof(uint32_t) + slot_bytes)
    if memory == NULL:
        return NULL
    work.leaves = <Leaf*>memory
    work.groups = <Group*>(work.leaves + count)
    work.ranked = <Ranked*>(work.groups + count)
    work.scratch = work.ranked + count
    work.keys = <uint64_t*>(work.scratch + count)
    work.scores = <float*>(work.keys + count)
    work.child_scores = work.scores + count
    work.children = <uint32_t*>(work.child_scores + count)
    work.starts = work.children + count
    work.slots = work.starts + count + 1
    memset(work.slots, 0, slot_bytes)
    return memory


cdef void run_climb(const Candidates* candidates, int aggregation, Work* work) noexcept nogil:
    work.child_count = gather(candidates, work.leaves)
    work.group_count = group_leaves(work)
    rank_groups(work, aggregation)
    write_groups(work)
    write_children(work)


cdef size_t gather(const Candidates* candidates, Leaf* leaves) noexcept nogil:
    """Reads the labels and ancestors of the candidates that are alive. Returns their count.

    These reads miss the CPU's cache. They are in a separate loop, in which no read depends on
    another one, so that the CPU can run many of them at the same time.
    """
    cdef size_t i, count = 0
    cdef uint32_t row
    cdef uint64_t label
    for i in range(candidates.count):
        row = candidates.rows[i]
        if not candidates.alive[row]:
            continue
        label = candidates.labels[row]
        leaves[count].label = label
        leaves[count].key = label >> LEAF_INDEX_BITS << LEAF_INDEX_BITS | candidates.ancestors[row]
        leaves[count].score = candidates.scores[i]
        leaves[count].row = row
        count += 1
    return count


cdef size_t group_leaves(Work* work) noexcept nogil:
    """Assigns each leaf to a group, in the order of candidates. Returns the count of groups."""
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
    """Returns the slot of the key's group; if there is no such group, the free slot for it."""
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
    sort(work.ranked, work.scratch, work.group_count)


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
    """Writes each leaf to the range of its group in the output, then sorts each range."""
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
        sort(work.ranked + start, work.scratch, end - start)
    for i in range(work.child_count):
        work.children[i] = work.ranked[i].index
        work.child_scores[i] = work.ranked[i].score


cdef inline bint precedes(const Ranked* a, const Ranked* b) noexcept nogil:
    if a.score != b.score:
        return a.score > b.score
    if a.best != b.best:
        return a.best > b.best
    return a.tie < b.tie


cdef void sort(Ranked* items, Ranked* scratch, size_t count) noexcept nogil:
    """Sorts `items` by a stable merge sort. `scratch` has space for half of the items."""
    if count <= SHORT_RUN:
        sort_short(items, count)
        return
    cdef size_t half = count >> 1
    sort(items, scratch, half)
    sort(items + half, scratch, count - half)
    if precedes(&items[half], &items[half - 1]):  # Candidates are often sorted already.
        memcpy(scratch, items, half * sizeof(Ranked))
        merge(items, scratch, half, count)


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
