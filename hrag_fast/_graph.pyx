# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`Graph` and `GraphSearch`: search an HNSW index in hnswlib's file format, in place.

The algorithm is described in Malkov and Yashunin, "Efficient and robust approximate nearest
neighbor search using Hierarchical Navigable Small World graphs" (arXiv 1603.09320, 2016; IEEE TPAMI
42(4), 2020). It is implemented in the form of hnswlib 0.8.

The file is checked once, when it is opened. From then on no link can lead out of the file. A search
checks its arguments and then runs one C loop without Python objects and without the GIL.
`_graph.pyi` is the documentation for callers, `_graph_loops.h` has the innermost loops;
`tests/twins/graph.py` has the plain twin, which defines the right answer.

A search mostly waits for memory. So to follow links, it compares codes of the vectors, which are a
quarter as long (scalar quantisation). To make the codes, the mean of many vectors is subtracted
from each vector; then the numbers of the vector are rounded to 8 bits, with a separate scale for
each vector. The mean is subtracted because in the vectors of many models, the same few dimensions
have large numbers for every text. Without subtraction, 8 bits would leave little of the other
dimensions. Subtraction changes all inner products with a query by the same value, so it does not
change their order. At the end, candidates are scored with the vectors themselves.

An *item* is the id under which a vector was added (hnswlib's label); an *internal id* is the
vector's position in the file, which is the order of insertion. An *element* is the data that the
file has for one internal id: links at level 0, vector and item.
"""

import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.algorithm cimport nth_element, partial_sort, pop_heap, push_heap
from libcpp.vector cimport vector

from hrag_fast._cpu_paths cimport path_of

cdef extern from "_graph_loops.h" namespace "hrag" nogil:
    cdef enum:
        MAX_CODE
        CACHE_LINE

    float inner_product(const float* a, const float* b, size_t count)
    int32_t code_product(int path, const int16_t* query, const int8_t* codes, size_t lines)
    float rounded(const float* values, size_t count, int32_t most_code, int16_t* out)
    void add(const float* values, size_t count, float* sums)
    void subtract(const float* values, const float* others, size_t count, float* out)
    void narrow(const int16_t* values, size_t count, int8_t* out)
    void prefetch(const void* at)
    void prefetch_whole(const void* at, size_t size)

cdef enum:
    COUNT_MASK = 0xFFFF  # The word before a list of links has its length in the low 16 bits.
    MAX_LEVEL = 64  # Random levels of hnswlib are far below this.
    PREFETCH_AHEAD = 8  # While a vector is read, the vector this many steps later is prefetched.
    IN_FRONTIER = 0x80000000  # A flag that is added to an internal id.
    MAX_ELEMENTS = 0x7FFFFFFF  # Internal ids have 31 bits.
    FLOAT32 = -1  # The path that compares the vectors themselves to follow links.
    MEAN_OF = 1024  # The mean of this many vectors is near the mean of all vectors of a model.
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
    """An HNSW index of inner products, searched in place; see `_graph.pyi`."""

    def __cinit__(self, const uint8_t[::1] file not None, path=None):
        self.path = FLOAT32 if path == "float32" else path_of(path)
        if <size_t>file.shape[0] < sizeof(Header):
            raise ValueError(f"{file.shape[0]} bytes are too few for an index")
        self.file = file
        memcpy(&self.header, &file[0], sizeof(Header))
        self.elements = &file[0] + sizeof(Header)
        self._check_header()
        self.vector_size = (self.header.label_offset - self.header.data_offset) // sizeof(float)
        self.level_bytes = (self.header.max_links + 1) * sizeof(uint32_t)
        self.upper_offsets = self._read_upper_offsets()
        self.internal_ids = self._read_internal_ids()
        cdef bint valid
        with nogil:
            valid = self.links_are_valid()
        if not valid:
            raise ValueError(
                "the links of the index are damaged: a list of links has a wrong length, or a link "
                "leads to no element"
            )
        if self.path == FLOAT32:
            self.rows = self.elements + self.header.data_offset
            self.row_bytes = self.vector_size * sizeof(float)
            self.row_step = self.header.element_bytes
        else:
            self._make_codes()
        self.spare_visited = []

    def _check_header(self):
        cdef Header* header = &self.header
        cdef size_t rest = <size_t>self.file.shape[0] - sizeof(Header)
        if (
            header.level0_offset != 0
            or not 0 < header.max_links <= COUNT_MASK
            or not 0 < header.max_links0 <= COUNT_MASK
            or header.data_offset != (header.max_links0 + 1) * sizeof(uint32_t)
            or not header.data_offset < header.label_offset <= rest
            or (header.label_offset - header.data_offset) % sizeof(float)
            or header.element_bytes != header.label_offset + sizeof(uint64_t)
            or not 0 <= header.max_level <= MAX_LEVEL
            or not 0 < header.count <= min(rest // header.element_bytes, MAX_ELEMENTS)
            or header.entry_point >= header.count
        ):
            raise ValueError(
                "the file does not begin with the header of an index of inner products"
            )

    def _read_upper_offsets(self):
        """Returns where each element's links above level 0 begin in the file; 0 if it has none."""
        offsets = np.zeros(self.header.count, np.uint64)
        cdef uint64_t[::1] out = offsets
        cdef size_t size = self.file.shape[0]
        cdef size_t at = sizeof(Header) + self.header.count * self.header.element_bytes
        cdef size_t i = 0
        cdef uint32_t length
        with nogil:
            while i < self.header.count and at + sizeof(uint32_t) <= size:
                memcpy(&length, &self.file[at], sizeof(uint32_t))
                at += sizeof(uint32_t)
                if length:
                    out[i] = at
                    at += length
                i += 1
        if i != self.header.count or at != size:
            raise ValueError(f"the index has {size} bytes, but its links end at byte {at}")
        return offsets

    def _read_internal_ids(self):
        """Returns the internal id of each item. Ids differ because threads insert in any order."""
        ids = np.full(self.header.count, self.header.count, np.uint32)
        cdef uint32_t[::1] out = ids
        cdef uint64_t item
        cdef size_t i = 0
        with nogil:
            while i < self.header.count:
                item = self.item(i)
                if item >= self.header.count or out[item] != self.header.count:
                    break
                out[item] = <uint32_t>i
                i += 1
        if i != self.header.count:
            raise ValueError(
                f"the {self.header.count} items of the index must be numbered from 0 to "
                f"{self.header.count - 1}, each number once"
            )
        return ids

    def _make_codes(self):
        """Subtracts the mean from all vectors, and rounds the results to codes.

        Each vector has a separate scale.
        """
        cdef size_t count = self.header.count, i
        cdef size_t row_bytes = (self.vector_size + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
        codes, scales = np.empty((count + 1) * row_bytes, np.uint8), np.empty(count, np.float32)
        cdef uint8_t[::1] memory = codes
        cdef float[::1] scales_out = scales
        cdef uint8_t* rows = &memory[-<size_t>&memory[0] % CACHE_LINE]
        cdef vector[float] mean, centred
        cdef vector[int16_t] wide
        mean.resize(self.vector_size)
        centred.resize(self.vector_size)
        wide.resize(row_bytes)  # All values are zeros, and the last ones stay so to pad the rows.
        with nogil:
            self.write_mean(mean.data())
            self.mean_length = length_of(mean.data(), self.vector_size)
            for i in range(count):
                subtract(self.vector(i), mean.data(), self.vector_size, centred.data())
                scales_out[i] = rounded(centred.data(), self.vector_size, MAX_CODE, wide.data())
                narrow(wide.data(), row_bytes, <int8_t*>rows + i * row_bytes)
        self.codes, self.scales, self.rows = codes, scales, rows
        self.row_bytes = self.row_step = row_bytes

    cdef void write_mean(self, float* mean) noexcept nogil:
        """Writes the mean of up to MEAN_OF vectors, at equal distances in the file.

        All values of `mean` must be zero before.
        """
        cdef size_t count = min(self.header.count, <size_t>MEAN_OF)
        cdef size_t i
        for i in range(count):
            add(self.vector(i * self.header.count // count), self.vector_size, mean)
        for i in range(self.vector_size):
            mean[i] /= count

    cdef bint links_are_valid(self) noexcept nogil:
        cdef size_t i, level, levels
        cdef uint32_t length
        for i in range(self.header.count):
            if not self.list_is_valid(self.element(i), self.header.max_links0, 0):
                return False
            levels = 0
            if self.upper_offsets[i]:
                length = self.upper_bytes(i)
                if length % self.level_bytes:
                    return False
                levels = length // self.level_bytes
            if i == self.header.entry_point and levels < <size_t>self.header.max_level:
                return False
            for level in range(levels):
                if not self.list_is_valid(
                    &self.file[self.upper_offsets[i] + level * self.level_bytes],
                    self.header.max_links,
                    level + 1,
                ):
                    return False
        return True

    cdef bint list_is_valid(
        self, const uint8_t* first, size_t max_count, size_t level
    ) noexcept nogil:
        """Returns True if a list is not too long and each link leads to an element of `level`."""
        cdef const uint32_t* links = <const uint32_t*>first
        cdef size_t count = links[0] & COUNT_MASK
        cdef size_t i
        if count > max_count:
            return False
        for i in range(1, count + 1):
            if links[i] >= self.header.count:
                return False
            if level:
                if not self.upper_offsets[links[i]]:
                    return False
                if self.upper_bytes(links[i]) < level * self.level_bytes:
                    return False
        return True

    @property
    def dimension(self):
        return self.vector_size

    @property
    def size_bytes(self):
        size = self.upper_offsets.nbytes + self.internal_ids.nbytes
        if self.path != FLOAT32:
            size += self.codes.nbytes + self.scales.nbytes
        return size

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
        cdef vector[float] least, most
        cdef float error, share, floor, bound
        if self.path != FLOAT32 and size > SCANNED_BY_CODES * count:
            least.resize(size)
            most.resize(size)
            share = self.error_share(query.vector, unit, &floor)
            for i in range(size):
                if i + PREFETCH_AHEAD < size:
                    prefetch_whole(self.row(internal_ids[i + PREFETCH_AHEAD]), self.row_bytes)
                    prefetch(&self.scales[internal_ids[i + PREFETCH_AHEAD]])
                error = self.scales[internal_ids[i]] * share + floor
                least[i] = most[i] = -self.distance(query, internal_ids[i]) * unit
                least[i] -= error
                most[i] += error
            bound = largest_of(least, count)
            for i in range(size):
                # If the scale is 0, the codes say nothing about the vector, so it is chosen.
                if not most[i] < bound or self.scales[internal_ids[i]] == 0:
                    chosen.push_back(Scored(0, <uint32_t>i))
        else:
            for i in range(size):
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

    cdef inline const uint8_t* element(self, size_t internal_id) noexcept nogil:
        return self.elements + internal_id * self.header.element_bytes

    cdef inline const float* vector(self, size_t internal_id) noexcept nogil:
        return <const float*>(self.element(internal_id) + self.header.data_offset)

    cdef inline uint64_t item(self, size_t internal_id) noexcept nogil:
        cdef uint64_t item
        memcpy(&item, self.element(internal_id) + self.header.label_offset, sizeof(item))
        return item

    cdef inline uint32_t upper_bytes(self, size_t internal_id) noexcept nogil:
        """Returns the size in bytes of an element's links above level 0, which must exist."""
        cdef uint32_t length
        cdef size_t at = self.upper_offsets[internal_id] - sizeof(uint32_t)
        memcpy(&length, &self.file[at], sizeof(uint32_t))
        return length

    cdef inline const uint8_t* row(self, size_t internal_id) noexcept nogil:
        return self.rows + internal_id * self.row_step

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

    cdef void score(
        self, const float* query, const uint32_t* internal_ids, size_t count, float* scores
    ) noexcept nogil:
        """Writes the inner products of elements with the query."""
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

    cdef size_t visit_links(
        self, size_t internal_id, uint16_t* visited, uint16_t tag, uint32_t* unvisited
    ) noexcept nogil:
        """Marks the elements that an element's links at level 0 lead to as visited.

        Writes the elements that were not visited before to `unvisited`, which must have space for
        one more than all links. Returns their count. A graph search mostly waits for memory. So all
        data that is read next is prefetched here, before any of it is used.
        """
        cdef const uint32_t* links = <const uint32_t*>self.element(internal_id)
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
                links = <const uint32_t*>&self.file[
                    self.upper_offsets[current] + (level - 1) * self.level_bytes
                ]
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
        graph.round_query(&query[0], self.codes)
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
        cdef vector[float] exact
        cdef vector[Candidate] best
        internal_ids.resize(nearest_count)
        exact.resize(nearest_count)
        best.resize(nearest_count)
        for i in range(nearest_count):
            internal_ids[i] = self.nearest_heap[i].second
        graph.score(self.query.vector, internal_ids.data(), nearest_count, exact.data())
        for i in range(nearest_count):
            best[i] = Candidate(-exact[i], internal_ids[i])
        count = min(count, nearest_count)
        partial_sort(best.begin(), best.begin() + count, best.end())
        for i in range(count):
            items[i] = <uint32_t>graph.item(best[i].second)
            scores[i] = -best[i].first
        return count


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
