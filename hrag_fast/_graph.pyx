# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`Graph` and `GraphSearch`: search an HNSW index in hnswlib's file format.

The algorithm is described in Malkov and Yashunin, "Efficient and robust approximate nearest
neighbor search using Hierarchical Navigable Small World graphs" (arXiv 1603.09320, 2016; IEEE TPAMI
42(4), 2020). It is implemented in the form of hnswlib 0.8.

`_graph_file.pyx` reads and checks the file once, when it is opened. From then on no link can lead
out of the arrays. A search checks its arguments and then runs one C loop without Python objects and
without the GIL. `_graph.pyi` is the documentation for callers, `_graph_loops.h` has the innermost
loops; `tests/twins/graph.py` has the plain twin, which defines the right answer.

A search mostly waits for memory. So to follow links, it compares codes of the vectors, which are a
quarter as long (scalar quantisation). To make the codes, the mean of many vectors is subtracted
from each vector; then the numbers of the vector are rounded to 8 bits, with a separate scale for
each vector. The mean is subtracted because in the vectors of many models, the same few dimensions
have large numbers for every text. Without subtraction, 8 bits would leave little of the other
dimensions. Subtraction changes all inner products with a query by the same value, so it does not
change their order. At the end, candidates are scored with the vectors themselves: those candidates
that may be among the best, because the error of an inner product by codes is bounded. Vectors may
stay in the file (`_vector_file.pyx`); then only the vectors of these candidates are read.

An *item* is the id under which a vector was added (hnswlib's label); an *internal id* is the
vector's position in the file, which is the order of insertion. An *element* is what the file has
for one internal id: links at level 0, vector and item.
"""

import os

import numpy as np

from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memset
from libcpp.algorithm cimport nth_element, partial_sort, pop_heap, push_heap
from libcpp.vector cimport vector

from hrag_fast._cpu_paths cimport path_of
from hrag_fast._graph_file cimport COUNT_MASK, GraphFile
from hrag_fast._vector_file cimport FILE_ENDS, READ

cdef extern from "_graph_loops.h" namespace "hrag" nogil:
    cdef enum:
        MAX_CODE
        CACHE_LINE

    float inner_product(const float* a, const float* b, size_t count)
    int32_t code_product(int path, const int16_t* query, const int8_t* codes, size_t lines)
    float rounded(const float* values, size_t count, int32_t most_code, int16_t* out)
    void prefetch(const void* at)
    void prefetch_whole(const void* at, size_t size)

cdef enum:
    PREFETCH_AHEAD = 8  # While a vector is read, the vector this many steps later is prefetched.
    IN_FRONTIER = 0x80000000  # A flag that is added to an internal id.
    FLOAT32 = -1  # The path that compares the vectors themselves to follow links.
    WANTED_A_SPARE = 16  # `nearest` adds one spare candidate for this many wanted items.
    # An exact scan uses codes only if it has more than this many times as many items as are wanted.
    # Otherwise it scores all items with their vectors at once.
    SCANNED_BY_CODES = 4
    MAX_INT16 = 32767
    MAX_INT32 = 0x7FFFFFFF


cdef double FLOAT_ERROR = 2.0 ** -24


cdef float product(const float* a, const float* b, size_t count) noexcept nogil:
    """Returns an inner product, with the same bits as in `Graph.scores`."""
    return inner_product(a, b, count)


cdef class Graph:
    """An HNSW index of inner products; see `_graph.pyi`."""

    def __cinit__(self, file not None, path=None, *, size_bytes=None, descriptor=None, source=None):
        self.path = FLOAT32 if path == "float32" else path_of(path)
        if size_bytes is None:
            size_bytes = memoryview(file).nbytes
            file = (file,)
        cdef GraphFile content = GraphFile(file, size_bytes, descriptor, self.path != FLOAT32)
        self.file, self.header, self.source = content, content.header, source
        self.links, self.links_bytes = &content.links[0], content.links_bytes
        self.upper, self.level_bytes = &content.upper[0], content.level_bytes
        self.upper_offsets = &content.upper_offsets[0]
        self.items, self.internal_ids = &content.items[0], &content.internal_ids[0]
        self.vector_size, self.stored = content.dimension, content.stored
        if self.stored is None:
            self.vectors = &content.vectors[0]
        if self.path == FLOAT32:
            self.rows = <const uint8_t*>self.vectors
            self.row_bytes = self.vector_size * sizeof(float)
        else:
            self.rows, self.row_bytes = <const uint8_t*>content.codes, content.row_bytes
            self.scales = &content.scales[0]
            self.mean_length = length_of(content.mean.data(), self.vector_size)
        self.spare_visited = []

    @property
    def dimension(self):
        return self.vector_size

    @property
    def size_bytes(self):
        return self.file.memory_bytes

    def __len__(self):
        return self.header.count

    def search(self, const float[::1] query not None, size_t ef):
        """Begins an ANN search; see `_graph.pyi`."""
        return GraphSearch(self, query, ef)

    def scores(self, const float[::1] query not None, const uint32_t[::1] items not None):
        """Returns the inner product of the query with each item; see `_graph.pyi`."""
        self.check_query(query)
        cdef size_t count = items.shape[0]
        cdef vector[uint32_t] internal_ids
        scores = np.empty(count, np.float32)
        cdef float[::1] out = scores
        self._read_items(items, internal_ids)
        if count:
            with nogil:
                self.score(&query[0], internal_ids.data(), count, &out[0])
        return scores

    def best(
        self, const float[::1] query not None, const uint32_t[::1] items not None, size_t count
    ):
        """Finds the best of the items by an exact scan; see `_graph.pyi`."""
        self.check_query(query)
        cdef vector[uint32_t] internal_ids
        cdef vector[Scored] scored
        cdef size_t i
        self._read_items(items, internal_ids)
        count = min(count, <size_t>items.shape[0])
        positions, scores = np.empty(count, np.uint32), np.empty(count, np.float32)
        if not count:
            return positions, scores
        cdef uint32_t[::1] positions_out = positions
        cdef float[::1] scores_out = scores
        with nogil:
            self.scan(&query[0], internal_ids, count, scored)
            for i in range(count):
                scores_out[i] = -scored[i].first
                positions_out[i] = scored[i].second
        return positions, scores

    cdef int scan(
        self,
        const float* query,
        const vector[uint32_t]& internal_ids,
        size_t count,
        vector[Scored]& best,
    ) except -1 nogil:
        """Writes the `count` best elements, best first, as negated scores and indexes.

        The indexes are those in `internal_ids`, which has at least `count` elements.
        """
        cdef vector[int16_t] codes
        cdef float unit = self.round_query(query, codes)
        cdef Query rounded_query = Query(query, codes.data())
        self.choose(&rounded_query, unit, internal_ids, count, best)
        self.score_chosen(query, internal_ids, best)
        partial_sort(best.begin(), best.begin() + count, best.end())
        best.resize(count)
        return 0

    cdef int _read_items(
        self, const uint32_t[::1] items, vector[uint32_t]& internal_ids
    ) except -1:
        """Writes the internal id of each item. Raises IndexError for an unknown item."""
        cdef size_t count = items.shape[0]
        cdef size_t i = 0
        internal_ids.resize(count)
        with nogil:
            while i < count and items[i] < self.header.count:
                internal_ids[i] = self.internal_ids[items[i]]
                i += 1
        if i < count:
            raise IndexError(f"items[{i}] is {items[i]}; it must be below {self.header.count}")
        return 0

    cdef float round_query(
        self, const float* query, vector[int16_t]& codes
    ) except? -1 nogil:
        """Rounds a query to codes. Returns the value that the code 1 stands for.

        The codes have as many bits as possible without an overflow of sums in int32. These are 16
        bits for up to 516 dimensions.
        """
        codes.resize(self.row_bytes)
        return rounded(
            query,
            self.vector_size,
            min(MAX_INT16, MAX_INT32 // (MAX_CODE * self.vector_size)),
            codes.data(),
        )

    cdef int choose(
        self,
        const Query* query,
        float unit,
        const vector[uint32_t]& internal_ids,
        size_t count,
        vector[Scored]& chosen,
    ) except -1 nogil:
        """Writes the indexes, in `internal_ids`, of all elements that may be among the best.

        The `count` best are wanted; the scores are written as 0. An inner product of codes has an
        error, but the largest possible error is known. An element cannot be among the best if
        `count` other elements are better even with the largest errors.
        """
        cdef size_t i, size = internal_ids.size()
        cdef vector[float] distances
        if self.path != FLOAT32 and size > SCANNED_BY_CODES * count:
            distances.resize(size)
            for i in range(size):
                if i + PREFETCH_AHEAD < size:
                    prefetch_whole(self.row(internal_ids[i + PREFETCH_AHEAD]), self.row_bytes)
                    prefetch(&self.scales[internal_ids[i + PREFETCH_AHEAD]])
                distances[i] = self.distance(query, internal_ids[i])
            self.choose_by_distances(query, unit, internal_ids, distances, count, chosen)
        else:
            for i in range(size):
                chosen.push_back(Scored(0, <uint32_t>i))
        return 0

    cdef int choose_by_distances(
        self,
        const Query* query,
        float unit,
        const vector[uint32_t]& internal_ids,
        const vector[float]& distances,
        size_t count,
        vector[Scored]& chosen,
    ) except -1 nogil:
        """Does the same as `choose`, for elements whose distances by codes are known."""
        cdef size_t i, size = internal_ids.size()
        cdef vector[float] least, most
        cdef float error, share, floor, bound
        least.resize(size)
        most.resize(size)
        share = self.error_share(query.vector, unit, &floor)
        for i in range(size):
            error = self.scales[internal_ids[i]] * share + floor
            least[i] = most[i] = -distances[i] * unit
            least[i] -= error
            most[i] += error
            if not least[i] <= most[i]:  # Not a number: the codes say nothing.
                least[i], most[i] = -INFINITY, INFINITY
        bound = largest_of(least, count)
        for i in range(size):
            # If the scale is 0, the codes say nothing about the vector, so it is chosen.
            if not most[i] < bound or self.scales[internal_ids[i]] == 0:
                chosen.push_back(Scored(0, <uint32_t>i))
        return 0

    cdef float error_share(self, const float* query, float unit, float* least) noexcept nogil:
        """Returns the largest error of an inner product of codes, per unit of a vector's scale.

        A number of a vector is rounded by at most half of the vector's scale, a number of the
        query by at most half a unit. With the Cauchy-Schwarz inequality, this bounds the error of
        the inner product. Floats are rounded too: a sum of n products is rounded n times, each
        time by at most 2**-24 of its largest possible value. The part of this error that does not
        depend on the scale is written to `least`.
        """
        cdef double numbers = self.vector_size, norm
        cdef double sum_error = 8 * FLOAT_ERROR * numbers
        norm = length_of(query, self.vector_size)
        least[0] = <float>(sum_error * self.mean_length * norm)
        return <float>(
            (0.5 + sum_error * MAX_CODE) * sqrt(numbers) * norm + 0.5 * MAX_CODE * numbers * unit
        )

    cdef int score_chosen(
        self, const float* query, const vector[uint32_t]& internal_ids, vector[Scored]& chosen
    ) except -1 nogil:
        """Writes the negated inner product of each chosen element with the query."""
        cdef vector[uint32_t] chosen_ids
        cdef vector[float] scores
        cdef size_t i
        chosen_ids.resize(chosen.size())
        scores.resize(chosen.size())
        for i in range(chosen.size()):
            chosen_ids[i] = internal_ids[chosen[i].second]
        self.score(query, chosen_ids.data(), chosen_ids.size(), scores.data())
        for i in range(chosen.size()):
            chosen[i].first = -scores[i]
        return 0

    cdef int check_query(self, const float[::1] query) except -1:
        """Raises ValueError if a query has another dimension than the vectors."""
        if <size_t>query.shape[0] != self.vector_size:
            raise ValueError(
                f"query has {query.shape[0]} numbers; the index's have {self.vector_size}"
            )
        return 0

    cdef inline const float* vector(self, size_t internal_id) noexcept nogil:
        """Returns the address of a vector that is in memory."""
        return self.vectors + internal_id * self.vector_size

    cdef inline const uint8_t* row(self, size_t internal_id) noexcept nogil:
        return self.rows + internal_id * self.row_bytes

    cdef inline float distance(self, const Query* query, size_t internal_id) noexcept nogil:
        """Returns the negated inner product of an element with the query, by vectors or by codes.

        By codes, the value is not the full inner product: a factor and a term are missing that are
        the same for all elements.
        """
        if self.path == FLOAT32:
            return -inner_product(query.vector, self.vector(internal_id), self.vector_size)
        return -self.scales[internal_id] * code_product(
            self.path,
            query.codes,
            <const int8_t*>self.row(internal_id),
            self.row_bytes // CACHE_LINE,
        )

    cdef int score(
        self, const float* query, const uint32_t* internal_ids, size_t count, float* scores
    ) except -1 nogil:
        """Writes the inner products of elements with the query.

        Raises the error of `score_from_source` if a vector cannot be read.
        """
        if self.vectors == NULL:
            return self.score_stored(query, internal_ids, count, scores)
        cdef size_t i
        for i in range(count):
            if i + PREFETCH_AHEAD < count:
                # The CPU reads ahead by itself if one vector follows the other.
                if internal_ids[i + PREFETCH_AHEAD] - internal_ids[i] != PREFETCH_AHEAD:
                    prefetch_whole(
                        self.vector(internal_ids[i + PREFETCH_AHEAD]),
                        self.vector_size * sizeof(float),
                    )
            scores[i] = inner_product(query, self.vector(internal_ids[i]), self.vector_size)
        return 0

    cdef int score_stored(
        self, const float* query, const uint32_t* internal_ids, size_t count, float* scores
    ) except -1 nogil:
        """Does the same as `score`, for vectors in the file.

        Vectors that are not cached are read after all others. So the disk reads them meanwhile, and
        all at the same time.
        """
        cdef vector[float] numbers
        cdef vector[uint32_t] waiting, unreadable
        cdef size_t i
        cdef uint32_t index
        cdef int result, problem = READ
        numbers.resize(2 * self.stored.half)
        for i in range(count):
            if self.stored.read_cached(internal_ids[i], numbers.data()):
                scores[i] = inner_product(query, numbers.data(), self.vector_size)
            else:
                waiting.push_back(<uint32_t>i)
        for index in waiting:
            if self.stored.read_intact(internal_ids[index], numbers.data(), &result):
                scores[index] = inner_product(query, numbers.data(), self.vector_size)
            else:
                unreadable.push_back(index)
                problem = result
        if not unreadable.empty():
            with gil:
                self.score_from_source(query, internal_ids, scores, unreadable, problem)
        return 0

    cdef int score_from_source(
        self,
        const float* query,
        const uint32_t* internal_ids,
        float* scores,
        const vector[uint32_t]& indexes,
        int problem,
    ) except -1:
        """Writes the scores of elements whose vectors cannot be read from the file.

        `indexes` are those of the elements in `internal_ids`. `problem` is a result of `read_at`,
        for the last of them. Raises OSError if there is no source, and any error of the source.
        """
        cdef size_t count = indexes.size(), i
        cdef uint32_t internal_id
        cdef vector[int16_t] codes
        cdef float unit = self.round_query(query, codes)
        cdef Query rounded_query = Query(query, codes.data())
        cdef float mean_score = inner_product(query, self.file.mean.data(), self.vector_size)
        items = np.empty(count, np.uint32)
        for i in range(count):
            items[i] = self.items[internal_ids[indexes[i]]]
        described = f"{count} vectors cannot be used: that of item {items[count - 1]} {why(problem)}"
        if self.source is None:
            raise OSError(described)
        rows = np.zeros((count, 2 * self.stored.half), np.float32)
        rows[:, : self.vector_size] = self.source(items, described)
        cdef const float[:, ::1] numbers = rows
        for i in range(count):
            internal_id = internal_ids[indexes[i]]
            if self.stored.is_intact(internal_id, &numbers[i, 0]):
                scores[indexes[i]] = inner_product(query, &numbers[i, 0], self.vector_size)
            else:
                scores[indexes[i]] = mean_score - self.distance(&rounded_query, internal_id) * unit
        return 0

    cdef size_t visit_links(
        self, size_t internal_id, uint16_t* visited, uint16_t tag, uint32_t* unvisited
    ) noexcept nogil:
        """Marks the elements that an element's links at level 0 lead to as visited.

        Writes the elements that were not visited before to `unvisited`, which must have space for
        one more than all links. Returns their count. A graph search mostly waits for memory. So all
        data that is read next is prefetched here, before any of it is used.
        """
        cdef const uint32_t* links = <const uint32_t*>(self.links + internal_id * self.links_bytes)
        cdef size_t links_count = links[0] & COUNT_MASK
        cdef size_t i, unvisited_count = 0
        for i in range(1, links_count + 1):
            prefetch(&visited[links[i]])
        for i in range(1, links_count + 1):
            unvisited[unvisited_count] = links[i]
            if visited[links[i]] != tag:
                visited[links[i]] = tag
                unvisited_count += 1
                prefetch_whole(self.row(links[i]), self.row_bytes)
                if self.path != FLOAT32:
                    prefetch(&self.scales[links[i]])
        return unvisited_count

    cdef uint32_t descend(self, const Query* query) noexcept nogil:
        """Returns the first element for level 0, found by a greedy search on each level above."""
        cdef uint32_t current = self.header.entry_point
        cdef float nearest = self.distance(query, current)
        cdef float distance
        cdef const uint32_t* links
        cdef size_t i
        cdef bint moved
        cdef int level = self.header.max_level
        while level > 0:
            moved = True
            while moved:
                moved = False
                links = <const uint32_t*>(
                    self.upper + self.upper_offsets[current] + (level - 1) * self.level_bytes
                )
                for i in range(1, (links[0] & COUNT_MASK) + 1):
                    distance = self.distance(query, links[i])
                    if distance < nearest:
                        nearest = distance
                        current = links[i]
                        moved = True
            level -= 1
        return current


cdef class GraphSearch:
    """A search of one query that can continue where it stopped; see `_graph.pyi`.

    Best-first search follows links in the same order for every ef; with a larger ef it only stops
    later. So elements that are too far for a smaller ef are kept for a larger one, and no element
    is compared twice.
    """

    def __cinit__(self, Graph graph not None, const float[::1] query not None, size_t ef):
        graph.check_query(query)
        self.graph = graph
        self.vector = query
        self.ef = ef
        self.unit = graph.round_query(&query[0], self.codes)
        self.query = Query(&query[0], self.codes.data())
        try:
            self.visited = graph.spare_visited.pop()
        except IndexError:
            self.visited = np.zeros(graph.header.count + 1, np.uint16)
        cdef uint16_t[::1] tagged = self.visited
        self.tagged = &tagged[0]
        self.tag = next_tag(self.tagged, graph.header.count)

    def __del__(self):
        if self.visited is not None:  # It is None if the arguments were refused.
            self.graph.spare_visited.append(self.visited)

    def nearest(self, size_t count):
        """Returns the `count` nearest items and their scores; see `_graph.pyi`."""
        count = min(count, <size_t>self.graph.header.count)
        items, scores = np.empty(count, np.uint32), np.empty(count, np.float32)
        if not count:
            return items, scores
        cdef uint32_t[::1] items_out = items
        cdef float[::1] scores_out = scores
        cdef size_t written
        try:
            with nogil:
                written = self.find(self.graph, count, &items_out[0], &scores_out[0])
        except MemoryError:
            self.start_over()
            raise
        return items[:written], scores[:written]

    cdef void start_over(self) noexcept:
        """Clears all state, because a search that got no memory may have stopped at any point."""
        self.tag = next_tag(self.tagged, self.graph.header.count)
        self.nearest_heap.clear()
        self.frontier.clear()
        self.farther.clear()

    cdef size_t find(
        self, Graph graph, size_t count, uint32_t* items, float* scores
    ) except -1 nogil:
        """Runs K-NN-SEARCH and SEARCH-LAYER, algorithms 5 and 2 of the paper.

        It stops under the same condition as hnswlib. `graph` is the search's graph; `count` is at
        least 1 and at most the count of its elements. After a MemoryError, `start_over` must be
        called. Returns how many items were written.
        """
        # Codes may rank the last of the wanted items after other items, so a few spare candidates
        # are needed. This was measured for 2,000 very similar vectors of 64 dimensions and ef 200.
        # With one spare candidate per 32 wanted items, recall@200 was 0.001 lower than that of a
        # search which compares the vectors themselves. With one per 16, it was higher.
        cdef size_t spare = 0 if graph.path == FLOAT32 else 1 + count // WANTED_A_SPARE
        self.ef = max(self.ef, count + spare)
        if self.nearest_heap.empty():
            self.begin(graph)
        elif self.nearest_heap.size() < self.ef:
            self.widen()
        self.search_layer(graph)
        return self.write_nearest(graph, count, items, scores)

    cdef int begin(self, Graph graph) except -1 nogil:
        cdef uint32_t start = graph.descend(&self.query)
        cdef float distance = graph.distance(&self.query, start)
        self.tagged[1 + start] = self.tag
        push(self.nearest_heap, Candidate(distance, start))
        push(self.frontier, Candidate(-distance, start))
        return 0

    cdef int widen(self) except -1 nogil:
        """Moves the nearest elements of `farther` to `nearest_heap`, until it has `ef` elements.

        Elements that were never in the frontier are also added to `frontier`.
        """
        cdef size_t moved = min(self.ef - self.nearest_heap.size(), self.farther.size())
        cdef size_t i
        cdef Candidate candidate
        if moved < self.farther.size():
            nth_element(
                self.farther.begin(), self.farther.begin() + moved, self.farther.end()
            )
        for i in range(moved):
            candidate = self.farther[i]
            if not candidate.second & IN_FRONTIER:
                push(self.frontier, Candidate(-candidate.first, candidate.second))
            push(self.nearest_heap, Candidate(candidate.first, candidate.second & ~IN_FRONTIER))
        self.farther.erase(self.farther.begin(), self.farther.begin() + moved)
        return 0

    cdef int search_layer(self, Graph graph) except -1 nogil:
        cdef float bound = self.nearest_heap.front().first
        cdef float distance
        cdef vector[uint32_t] unvisited  # The links of one element.
        cdef size_t unvisited_count, i
        cdef uint32_t current
        cdef Candidate farthest
        unvisited.resize(graph.header.max_links0 + 1)
        while not self.frontier.empty() and -self.frontier.front().first <= bound:
            unvisited_count = graph.visit_links(
                self.frontier.front().second, self.tagged + 1, self.tag, unvisited.data()
            )
            pop(self.frontier)
            for i in range(unvisited_count):
                current = unvisited[i]
                distance = graph.distance(&self.query, current)
                if self.nearest_heap.size() < self.ef or distance < bound:
                    push(self.frontier, Candidate(-distance, current))
                    push(self.nearest_heap, Candidate(distance, current))
                    if self.nearest_heap.size() > self.ef:
                        farthest = self.nearest_heap.front()
                        self.farther.push_back(
                            Candidate(farthest.first, farthest.second | IN_FRONTIER)
                        )
                        pop(self.nearest_heap)
                    bound = self.nearest_heap.front().first
                else:
                    self.farther.push_back(Candidate(distance, current))
        return 0

    cdef size_t write_nearest(
        self, Graph graph, size_t count, uint32_t* items, float* scores
    ) except -1 nogil:
        """Writes the `count` best elements of `nearest_heap`. Returns how many were written."""
        cdef size_t nearest_count = self.nearest_heap.size()
        cdef size_t i
        cdef vector[uint32_t] internal_ids
        cdef vector[float] distances
        cdef vector[Scored] chosen
        internal_ids.resize(nearest_count)
        distances.resize(nearest_count)
        for i in range(nearest_count):
            distances[i], internal_ids[i] = self.nearest_heap[i].first, self.nearest_heap[i].second
        count = min(count, nearest_count)
        if graph.path == FLOAT32 or count == nearest_count:
            for i in range(nearest_count):
                chosen.push_back(Scored(0, <uint32_t>i))
        else:
            graph.choose_by_distances(
                &self.query, self.unit, internal_ids, distances, count, chosen
            )
        graph.score_chosen(self.query.vector, internal_ids, chosen)
        for i in range(chosen.size()):
            chosen[i].second = internal_ids[chosen[i].second]
        partial_sort(chosen.begin(), chosen.begin() + count, chosen.end())
        for i in range(count):
            items[i] = graph.items[chosen[i].second]
            scores[i] = -chosen[i].first
        return count


cdef object why(int problem):
    """Returns why a vector cannot be read; `problem` is a result of `read_at`."""
    if problem == READ:
        return "differs from what was loaded"
    if problem == FILE_ENDS:
        return "lies beyond the end of the file"
    return f"cannot be read: {os.strerror(problem)}"


cdef inline int push(vector[Candidate]& heap, Candidate candidate) except -1 nogil:
    heap.push_back(candidate)
    push_heap(heap.begin(), heap.end())
    return 0


cdef inline void pop(vector[Candidate]& heap) noexcept nogil:
    pop_heap(heap.begin(), heap.end())
    heap.pop_back()


cdef double length_of(const float* numbers, size_t count) noexcept nogil:
    """Returns the Euclidean length of a vector."""
    cdef double sum = 0
    cdef size_t i
    for i in range(count):
        sum += <double>numbers[i] * numbers[i]
    return sqrt(sum)


cdef float largest_of(vector[float]& values, size_t count) noexcept nogil:
    """Returns the `count`-th largest of values. Changes the order of the values."""
    nth_element(values.begin(), values.begin() + (values.size() - count), values.end())
    return values[values.size() - count]


cdef uint16_t next_tag(uint16_t* tagged, size_t count) noexcept nogil:
    """Returns the tag with which a new search marks the elements that it visits.

    None of the `count` elements has this tag yet, so the tags of earlier searches need not be
    cleared. The first word of the array stores the last tag. When the tag overflows, all tags are
    cleared. hnswlib's VisitedList does the same.
    """
    cdef uint16_t tag = tagged[0] + 1
    if tag == 0:
        memset(tagged, 0, (count + 1) * sizeof(uint16_t))
        tag = 1
    tagged[0] = tag
    return tag
