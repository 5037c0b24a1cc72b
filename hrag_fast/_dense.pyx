# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`DenseSearch`: ranks the leaves of a view by vector and groups the best ones by ancestor.

The rows of a view are the leaves of its segments, then those of its tail. Each segment is searched
in its HNSW graph, or scanned exactly if a scan costs less. The cost of a scan is proportional to the
count of eligible rows. The cost of a graph search is proportional to the count of rows that it
visits; if few rows are eligible, it must visit many rows to find eligible ones. The tail is always
scanned.

A search checks its arguments, and then calls the other kernels (`_graph.pyx`, `_climb.pyx`) in C,
without the GIL and without Python objects in between. `_dense.pyi` is the documentation for callers;
`tests/twins/dense_search.py` has the plain twin, which defines the right answer.
"""

from collections import namedtuple

import numpy as np

from cpython.ref cimport PyObject
from libc.math cimport ceil, sqrt
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libcpp.algorithm cimport binary_search, lower_bound, partial_sort, sort
from libcpp.vector cimport vector

from hrag_fast._climb cimport (
    Candidates,
    Work,
    allocate,
    array_of,
    check_table,
    groups_of,
    run_climb,
)
from hrag_fast._graph cimport Graph, GraphSearch, Scored, product

cdef enum:
    # Searching the graph for one row costs as much as scanning this many rows. This was measured in
    # a segment of 100,000 rows with 384 dimensions. A graph search for 50 rows took as long as a
    # scan of 30 * 50 rows, and a graph search for 200 rows took as long as a scan of 36 * 200 rows.
    DEFAULT_SEARCH_COST = 33
    # If only some rows of a segment are eligible, a graph search returns eligible rows and other
    # rows, and the count of eligible rows among them varies. This count must rarely be too small.
    # So a search requests more rows than are needed on average, by this many standard deviations of
    # the count.
    SPARE_DEVIATIONS = 3
    # A graph search that found too few eligible rows requests this many times as many rows.
    DEEPER = 4
    # `scores` keeps the GIL for up to this many rows, which are more than one source of a search
    # returns by default. Their scores take about 30 us. A thread that releases the GIL may wait for
    # another thread's whole switch interval to get it back.
    GIL_KEPT_UP_TO = 256

cdef enum Reached:
    TOO_FEW  # The graph is not fully connected: the search reached fewer items than requested.
    SOME
    EVERY_ROW

SEARCH_COST = DEFAULT_SEARCH_COST
NearestRows = namedtuple("NearestRows", ("rows", "scores", "exact", "complete"))

cdef object new_tuple = tuple.__new__  # It takes half the time of calling the namedtuple's class.
cdef object UINT32 = np.dtype(np.uint32)
cdef object FLOAT32 = np.dtype(np.float32)


cdef class SegmentVectors:
    """The HNSW index of a segment, with the rows of each item; see `_dense.pyi`."""

    cdef readonly Graph graph
    cdef const uint32_t[::1] items
    cdef const uint32_t[::1] heads
    cdef const uint32_t[::1] members
    cdef size_t ef

    def __cinit__(
        self,
        Graph graph not None,
        const uint32_t[::1] items not None,
        const uint32_t[::1] heads not None,
        const uint32_t[::1] members not None,
        size_t ef,
    ):
        cdef size_t count = graph.header.count, rows = items.shape[0], i
        self.graph, self.items, self.heads, self.members = graph, items, heads, members
        self.ef = ef
        if not all_below(items, count):
            raise ValueError(f"items must be below {count}, the number of items of the graph")
        if not heads.shape[0]:
            if rows != count:
                raise ValueError(f"without heads, {rows} rows need as many items, not {count}")
            return
        if <size_t>heads.shape[0] != count + 1 or <size_t>members.shape[0] != rows:
            raise ValueError(
                f"heads has {heads.shape[0]} entries and members has {members.shape[0]}; they must "
                f"have {count + 1} and {rows}, for {count} items and {rows} rows"
            )
        if not all_below(members, rows):
            raise ValueError(f"members must be below {rows}, the number of rows")
        for i in range(count):
            if heads[i] > heads[i + 1]:
                raise ValueError("heads must ascend")
        if heads[count] > rows:
            raise ValueError(f"heads must be at most {rows}, the number of rows")

    @property
    def size_bytes(self):
        return self.graph.size_bytes


cdef bint all_below(const uint32_t[::1] numbers, size_t limit) noexcept:
    cdef size_t i
    for i in range(<size_t>numbers.shape[0]):
        if numbers[i] >= limit:
            return False
    return True


cdef struct Part:  # A segment in a search.
    PyObject* vectors  # A SegmentVectors.
    PyObject* search  # A GraphSearch; NULL until the graph is searched.
    size_t base  # The segment has the rows from `base` up to, but not including, `end`.
    size_t end
    size_t eligible_count  # The count of eligible rows, which may be an estimate.
    size_t requested  # How many rows to request from the graph; 0 if the rows are scanned.


cdef class DenseSearch:
    """Searches of one query in one view; see `_dense.pyi`."""

    cdef object vector
    cdef const float[::1] query  # The numbers of `vector`.
    cdef list referenced  # The objects that `parts` points to.
    cdef vector[Part] parts
    cdef const float[:, ::1] tail
    cdef const uint8_t[::1] alive
    cdef size_t tail_base
    cdef size_t count
    cdef size_t living
    cdef size_t search_cost
    # The eligible rows of the current search. If it is None, all living rows are eligible.
    cdef const uint32_t[::1] eligible
    cdef bint has_filter
    # The result of the current search: ascending rows, and their scores.
    cdef vector[uint32_t] rows
    cdef vector[float] scores_of_rows
    cdef bint exact
    cdef bint complete

    def __cinit__(
        self,
        query not None,
        segments,
        const float[:, ::1] tail not None,
        const uint8_t[::1] alive not None,
        size_t count,
        size_t living,
        size_t search_cost=DEFAULT_SEARCH_COST,
    ):
        cdef SegmentVectors vectors
        cdef Part part
        self.vector, self.query, self.tail, self.alive = query, query, tail, alive
        self.count, self.living, self.search_cost = count, living, search_cost
        self.referenced = []
        part.end = 0
        part.search = NULL
        for segment in segments:
            if segment is None:
                raise TypeError("no vectors of the segment are loaded")
            vectors = <SegmentVectors?>segment
            vectors.graph.check_query(self.query)
            part.vectors = <PyObject*>segment
            part.base = part.end
            part.end += vectors.items.shape[0]
            self.referenced.append(segment)
            self.parts.push_back(part)
        self.tail_base = part.end
        if not part.end <= count <= part.end + <size_t>tail.shape[0]:
            raise ValueError(
                f"count is {count}; it must be from {part.end}, the rows of the segments, to "
                f"{part.end + tail.shape[0]}, those with the tail"
            )
        if <size_t>alive.shape[0] < count or living > count:
            raise ValueError(
                f"alive has {alive.shape[0]} entries, {living} of them 1; it must have at least "
                f"{count}, the number of rows"
            )
        if count > self.tail_base and tail.shape[1] != self.query.shape[0]:
            raise ValueError(
                f"the tail has {tail.shape[1]} dimensions, the query has {self.query.shape[0]}"
            )

    def nearest(self, size_t count, const uint32_t[::1] rows=None, bint exact=False):
        """Returns the nearest eligible rows; see `_dense.pyi`."""
        self.prepare(count, rows, exact)
        try:
            with nogil:
                self.find(count)
        except MemoryError:
            self.start_over()
            raise
        return self.result()

    def climb(
        self,
        size_t count,
        const uint64_t[::1] labels not None,
        const uint32_t[::1] ancestors not None,
        int aggregation,
        const uint32_t[::1] rows=None,
        bint exact=False,
    ):
        """Returns the nearest eligible rows, and their groups; see `_dense.pyi`."""
        cdef Candidates candidates
        cdef Work work
        cdef void* memory = NULL
        check_table(labels.shape[0], ancestors.shape[0], self.alive.shape[0], aggregation)
        self.prepare(count, rows, exact)
        candidates.labels, candidates.ancestors = &labels[0], &ancestors[0]
        candidates.alive = &self.alive[0]
        try:
            with nogil:
                self.find(count)
                candidates.rows, candidates.scores = self.rows.data(), self.scores_of_rows.data()
                candidates.count = self.rows.size()
                memory = allocate(&work, candidates.count)
                if memory != NULL:
                    run_climb(&candidates, aggregation, &work)
            if memory == NULL:
                raise MemoryError(f"climb needs memory for {candidates.count} candidates")
            return self.result(), groups_of(&work)
        except MemoryError:
            self.start_over()
            raise
        finally:
            free(memory)

    def scores(self, const uint32_t[::1] rows not None):
        """Returns the cosine of each row with the query; see `_dense.pyi`."""
        cdef size_t count = rows.shape[0], i
        scores = np.empty(count, np.float32)
        cdef float[::1] out = scores
        for i in range(count):
            if rows[i] >= self.count or (i and rows[i] <= rows[i - 1]):
                raise IndexError(
                    f"rows[{i}] is {rows[i]}; rows must ascend, and be below {self.count}"
                )
        if count <= GIL_KEPT_UP_TO and self.are_vectors_in_memory():
            self.score_rows(rows, out)
        else:
            with nogil:
                self.score_rows(rows, out)
        return scores

    cdef bint are_vectors_in_memory(self) noexcept:
        """Returns False if vectors of a segment may have to be read from their file."""
        cdef Part part
        for part in self.parts:
            if (<SegmentVectors>part.vectors).graph.vectors == NULL:
                return False
        return True

    cdef int score_rows(self, const uint32_t[::1] rows, float[::1] scores) except -1 nogil:
        """Writes the cosine of each row."""
        cdef size_t first = 0, i
        for i in range(self.parts.size()):
            first = self.score_part(&self.parts[i], rows, first, scores)
        for i in range(first, <size_t>rows.shape[0]):
            scores[i] = self.tail_score(rows[i])
        return 0

    cdef object result(self):
        return new_tuple(NearestRows, (
            array_of(UINT32, self.rows.data(), self.rows.size(), sizeof(uint32_t)),
            array_of(FLOAT32, self.scores_of_rows.data(), self.rows.size(), sizeof(float)),
            self.exact,
            self.complete,
        ))

    cdef int start_over(self) except -1:
        """Clears the graph searches, because one that got no memory stopped at any point."""
        cdef Part part
        for part in self.parts:
            if part.search != NULL:
                (<GraphSearch>part.search).start_over()
        return 0

    cdef int prepare(self, size_t count, const uint32_t[::1] rows, bint exact) except -1:
        """Decides which graphs are searched, and begins the searches that did not begin yet."""
        cdef Part* part
        cdef SegmentVectors vectors
        cdef size_t i
        if not count:
            raise ValueError("count is 0; it must be at least 1")
        self.has_filter = rows is not None
        self.eligible = rows
        for i in range(self.parts.size()):
            part = &self.parts[i]
            part.eligible_count = self.count_between(part.base, part.end)
            part.requested = rows_to_request(count, part.eligible_count, part.end - part.base)
            if exact or part.requested * self.search_cost >= part.eligible_count:
                part.requested = 0
            elif part.search == NULL:
                vectors = <SegmentVectors>part.vectors
                search = GraphSearch(vectors.graph, self.vector, vectors.ef)
                part.search = <PyObject*>search
                self.referenced.append(search)
        return 0

    cdef int find(self, size_t count) except -1 nogil:
        """Writes the `count` nearest eligible rows, or all if there are fewer, to the result.

        Of rows with equal scores, those with lower row numbers are preferred.
        """
        cdef vector[Scored] found
        cdef size_t i
        self.exact = self.complete = True
        self.scan_tail(found)
        for i in range(self.parts.size()):
            self.search_segment(&self.parts[i], count, found)
        if found.size() > count:
            partial_sort(found.begin(), found.begin() + count, found.end())
            found.resize(count)
            self.complete = False
        sort(found.begin(), found.end(), is_earlier)
        self.rows.resize(found.size())
        self.scores_of_rows.resize(found.size())
        for i in range(found.size()):
            self.rows[i], self.scores_of_rows[i] = found[i].second, -found[i].first
        return 0

    cdef int search_segment(
        self, Part* part, size_t count, vector[Scored]& found
    ) except -1 nogil:
        """Adds the `count` nearest eligible rows of a segment, or all of them if there are fewer.

        The graph is searched until `count` eligible rows are found. If the search stopped earlier,
        the result would have rows of the tail or of other segments, although this segment has
        nearer rows. If the graph reaches too few items, the rows are scanned.
        """
        cdef size_t before = found.size(), requested = part.requested
        cdef Reached reached
        while requested and requested * self.search_cost < part.eligible_count:
            reached = <Reached>self.search_graph(part, requested, found)
            if reached == TOO_FEW:
                break
            if reached == EVERY_ROW or found.size() - before >= count:
                self.exact = False
                if reached != EVERY_ROW:
                    self.complete = False
                return 0
            found.resize(before)
            requested *= DEEPER
        return self.scan_segment(part, count, found)

    cdef int search_graph(
        self, Part* part, size_t requested, vector[Scored]& found
    ) except -1 nogil:
        """Adds the eligible rows that have the nearest `requested` items of a segment.

        Returns a value of `Reached`.
        """
        cdef vector[uint32_t] items
        cdef vector[float] scores
        cdef size_t limit = min(requested, (<SegmentVectors>part.vectors).graph.header.count)
        cdef size_t i, j, written, rows = 0
        items.resize(limit)
        scores.resize(limit)
        written = (<GraphSearch>part.search).find(
            (<SegmentVectors>part.vectors).graph, limit, items.data(), scores.data()
        )
        if written < limit:
            return TOO_FEW
        for i in range(limit):
            if not (<SegmentVectors>part.vectors).heads.shape[0]:
                self.add(part.base + items[i], scores[i], found)
                rows += 1
                continue
            for j in range(
                (<SegmentVectors>part.vectors).heads[items[i]],
                (<SegmentVectors>part.vectors).heads[items[i] + 1],
            ):
                self.add(part.base + (<SegmentVectors>part.vectors).members[j], scores[i], found)
                rows += 1
        return EVERY_ROW if rows == part.end - part.base else SOME

    cdef int add(self, size_t row, float score, vector[Scored]& found) except -1 nogil:
        """Adds a row that a graph search found, if it is eligible."""
        cdef const uint32_t* first
        if self.has_filter:
            if not self.eligible.shape[0]:
                return 0
            first = &self.eligible[0]
            if not binary_search(first, first + self.eligible.shape[0], <uint32_t>row):
                return 0
        elif not self.alive[row]:
            return 0
        found.push_back(Scored(-score, <uint32_t>row))
        return 0

    cdef int scan_segment(
        self, Part* part, size_t count, vector[Scored]& found
    ) except -1 nogil:
        """Adds the `count` nearest eligible rows of a segment, by an exact scan."""
        cdef vector[uint32_t] rows, internal_ids
        cdef vector[Scored] best
        cdef size_t i
        self.write_eligible(part.base, part.end, rows)
        if rows.empty():
            return 0
        internal_ids.resize(rows.size())
        for i in range(rows.size()):
            internal_ids[i] = internal_id(part, rows[i])
        count = min(count, rows.size())
        (<SegmentVectors>part.vectors).graph.scan(&self.query[0], internal_ids, count, best)
        for i in range(count):
            found.push_back(Scored(best[i].first, rows[best[i].second]))
        if count < rows.size():
            self.complete = False
        return 0

    cdef int scan_tail(self, vector[Scored]& found) except -1 nogil:
        cdef vector[uint32_t] rows
        cdef size_t i
        self.write_eligible(self.tail_base, self.count, rows)
        for i in range(rows.size()):
            found.push_back(Scored(-self.tail_score(rows[i]), rows[i]))
        return 0

    cdef inline float tail_score(self, size_t row) noexcept nogil:
        return product(&self.query[0], &self.tail[row - self.tail_base, 0], self.query.shape[0])

    cdef size_t score_part(
        self, const Part* part, const uint32_t[::1] rows, size_t first, float[::1] scores
    ) except? 0 nogil:
        """Writes the scores of the rows of a segment, which begin at the index `first`.

        Returns the index after the last one of them.
        """
        cdef vector[uint32_t] internal_ids
        cdef size_t i = first
        while i < <size_t>rows.shape[0] and rows[i] < part.end:
            internal_ids.push_back(internal_id(part, rows[i]))
            i += 1
        if i > first:
            (<SegmentVectors>part.vectors).graph.score(
                &self.query[0], internal_ids.data(), i - first, &scores[first]
            )
        return i

    cdef int write_eligible(
        self, size_t start, size_t end, vector[uint32_t]& rows
    ) except -1 nogil:
        """Writes the eligible rows from `start` up to, but not including, `end`."""
        cdef size_t row, i
        if self.has_filter:
            for i in range(self.first_eligible(start), self.first_eligible(end)):
                row = self.eligible[i]
                if not start <= row < end:
                    with gil:
                        raise IndexError(
                            f"rows[{i}] is {row}; rows must ascend, and be below {self.count}"
                        )
                rows.push_back(<uint32_t>row)
            return 0
        for row in range(start, end):
            if self.alive[row]:
                rows.push_back(<uint32_t>row)
        return 0

    cdef size_t count_between(self, size_t start, size_t end) noexcept nogil:
        """Returns the count of eligible rows from `start` up to, but not including, `end`.

        Without a filter, the count is an estimate, which assumes that deleted rows are distributed
        evenly over the view.
        """
        cdef size_t first
        if self.has_filter:
            first = self.first_eligible(start)
            return max(first, self.first_eligible(end)) - first
        return (end - start) * self.living // self.count if self.count else 0

    cdef size_t first_eligible(self, size_t row) noexcept nogil:
        """Returns the index of the first eligible row that is not below `row`, in a filter."""
        if not self.eligible.shape[0]:
            return 0
        cdef const uint32_t* first = &self.eligible[0]
        return lower_bound(first, first + self.eligible.shape[0], <uint32_t>row) - first


cdef inline uint32_t internal_id(const Part* part, size_t row) noexcept nogil:
    return (<SegmentVectors>part.vectors).graph.internal_ids[
        (<SegmentVectors>part.vectors).items[row - part.base]
    ]


cdef bint is_earlier(const Scored& a, const Scored& b) noexcept nogil:
    return a.second < b.second


cdef size_t rows_to_request(size_t count, size_t eligible_count, size_t rows) noexcept nogil:
    """Returns how many rows to request from a graph so that `count` are probably eligible.

    The segment has `rows` rows, of which `eligible_count` are eligible. On average,
    count * rows / eligible_count rows would be enough. The result is some standard deviations
    greater: with only the average, every second search would find too few eligible rows.
    """
    if not rows:
        return 0
    count, eligible_count = min(count, rows), min(eligible_count, rows)
    cdef double spare = SPARE_DEVIATIONS * sqrt(count * (1 - <double>eligible_count / rows))
    return <size_t>ceil((count + spare) * rows / max(eligible_count, <size_t>1))
