# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`Graph` and `GraphSearch`: search an HNSW index in hnswlib's file format, in place.

The algorithm is that of Malkov and Yashunin, "Efficient and robust approximate nearest neighbor
search using Hierarchical Navigable Small World graphs" (arXiv 1603.09320, 2016; IEEE TPAMI 42(4),
2020), in the form that hnswlib 0.8 gives it.

The file is checked once, when it is opened: from then on no link can lead out of it. A search
checks its arguments and then runs one C loop without Python objects and without the GIL.
`_graph.pyi` is the documentation for callers, `_graph_loops.h` has the innermost loops;
`_reference.py` has the plain twin, which defines the right answer.

A search mostly waits for memory, so links are followed by codes of the vectors, which are a
quarter as long: of each vector, less the mean of many, the numbers are rounded to 8 bits by a
scale of its own (scalar quantisation). The mean adds the same to all inner products with a query,
so it does not change their order; but models often give all texts some large numbers, beside which
8 bits leave little of the others. What was found is scored with the vectors themselves.

An *item* is the number under which a vector was added (hnswlib's label); an *internal id* is its
position in the file, which is the order of insertion.
"""

import numpy as np

from libc.math cimport sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.algorithm cimport nth_element, partial_sort, pop_heap, push_heap
from libcpp.pair cimport pair
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

ctypedef pair[float, uint32_t] Candidate
ctypedef pair[float, uint32_t] Scored  # A negated score and a position.

cdef enum:
    COUNT_MASK = 0xFFFF  # The word before a list of links: its length, and flags above it.
    MAX_LEVEL = 64  # Far above what hnswlib's random levels reach.
    PREFETCH_AHEAD = 8  # Vectors between the one that is read and the one that is prefetched.
    IN_FRONTIER = 0x80000000  # Beside an internal id.
    MAX_ELEMENTS = 0x7FFFFFFF  # Internal ids have 31 bits.
    FLOAT32 = -1  # The path that follows links by the vectors themselves.
    MEAN_OF = 1024  # Vectors; of those of one model they tell enough.
    WANTED_A_SPARE = 16  # See `nearest`.
    SCANNED_BY_CODES = 4  # So many times what is wanted, or fewer, are scored at once.
    MAX_INT16 = 32767
    MAX_INT32 = 0x7FFFFFFF


cdef double FLOAT_ERROR = 2.0 ** -24


cdef struct Header:  # As hnswlib's `saveIndex` writes it.
    uint64_t level0_offset
    uint64_t max_elements
    uint64_t count
    uint64_t element_bytes
    uint64_t label_offset
    uint64_t data_offset
    int32_t max_level
    uint32_t entry_point
    uint64_t max_links
    uint64_t max_links0
    uint64_t m
    double level_multiplier
    uint64_t ef_construction


cdef struct Query:
    const float* vector
    const int16_t* codes


def inner_products(const float[::1] query not None, const float[:, ::1] vectors not None):
    """Exact scan of vectors that are in no index; see `_graph.pyi`."""
    cdef size_t count = vectors.shape[0]
    cdef size_t dimension = query.shape[0]
    cdef size_t i
    if <size_t>vectors.shape[1] != dimension:
        raise ValueError(f"vectors have {vectors.shape[1]} dimensions, the query has {dimension}")
    scores = np.zeros(count, np.float32)
    cdef float[::1] out = scores
    if count and dimension:
        with nogil:
            for i in range(count):
                out[i] = inner_product(&query[0], &vectors[i, 0], dimension)
    return scores


cdef class Graph:
    """An HNSW index of inner products, searched in place; see `_graph.pyi`."""

    cdef const uint8_t[::1] file
    cdef const uint64_t[::1] upper_offsets  # By internal id; 0 without links above level 0.
    cdef const uint32_t[::1] internal_ids  # By item.
    cdef const uint8_t* elements
    cdef Header header
    cdef size_t vector_size
    cdef size_t level_bytes
    cdef int path
    cdef object codes  # The array that `rows` points into.
    cdef const float[::1] scales  # Of codes, by internal id.
    cdef double mean_length  # Of the mean that was subtracted before.
    cdef const uint8_t* rows  # What links are followed by: codes, or the vectors.
    cdef size_t row_bytes
    cdef size_t row_step
    cdef list spare_visited  # Arrays that no search is using now.

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
            raise ValueError("a link of the index leads out of it")
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
            raise ValueError("the header is not one of an index of inner products")

    def _read_upper_offsets(self):
        """Where each element's links above level 0 begin in the file; 0 if it has none."""
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
            raise ValueError(f"the index has {size} bytes, its links take {at}")
        return offsets

    def _read_internal_ids(self):
        """The internal id of each item: threads insert items in any order."""
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
            raise ValueError(f"its items are not numbered from 0 to {self.header.count - 1}")
        return ids

    def _make_codes(self):
        """Rounds all vectors to codes, less their mean, each by a scale of its own."""
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
        wide.resize(row_bytes)  # With zeros, which pad the rows.
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
        """Writes the mean of some vectors, at equal distances in the file; `mean` holds zeros."""
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
        """True if each link of a list leads to an element that has this level."""
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
        """ANN search; see `_graph.pyi`."""
        return GraphSearch(self, query, ef)

    def scores(self, const float[::1] query not None, const uint32_t[::1] items not None):
        """Exact scan: the inner product of the query with each item; see `_graph.pyi`."""
        self._check_query(query)
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
        """Exact scan for the best of the items; see `_graph.pyi`."""
        self._check_query(query)
        cdef vector[uint32_t] internal_ids
        cdef vector[Scored] found
        cdef vector[int16_t] codes
        cdef float unit
        cdef size_t i
        self._read_items(items, internal_ids)
        count = min(count, <size_t>items.shape[0])
        positions, scores = np.empty(count, np.uint32), np.empty(count, np.float32)
        if not count:
            return positions, scores
        cdef uint32_t[::1] positions_out = positions
        cdef float[::1] scores_out = scores
        unit = self.round_query(&query[0], codes)
        cdef Query rounded_query = Query(&query[0], codes.data())
        with nogil:
            self.choose(&rounded_query, unit, internal_ids, count, found)
            self.score_chosen(&query[0], internal_ids, found)
            partial_sort(found.begin(), found.begin() + count, found.end())
            for i in range(count):
                scores_out[i] = -found[i].first
                positions_out[i] = found[i].second
        return positions, scores

    cdef int _read_items(
        self, const uint32_t[::1] items, vector[uint32_t]& internal_ids
    ) except -1:
        """Finds the internal id of each item; raises IndexError."""
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

    cdef float round_query(self, const float* query, vector[int16_t]& codes):
        """Rounds a query to codes; returns their unit.

        To as many bits as give sums that int32 holds: 16 up to 516 dimensions.
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
        """Writes the positions of all elements that may be among the `count` best, and 0 for each.

        By codes, an inner product is known but for an error. An element cannot be among the best
        if `count` others are better than it even where all errors are as large as can be.
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
                # Without a scale nothing is known.
                if not most[i] < bound or self.scales[internal_ids[i]] == 0:
                    chosen.push_back(Scored(0, <uint32_t>i))
        else:
            for i in range(size):
                chosen.push_back(Scored(0, <uint32_t>i))
        return 0

    cdef float error_share(self, const float* query, float unit, float* least) noexcept nogil:
        """The largest error of an inner product by codes, for each unit of a vector's scale.

        A number of a vector is rounded by half its scale at most, a number of the query by half
        a unit; by the inequality of Cauchy and Schwarz this bounds the error of their product.
        Floats are rounded, too: in a sum of n products, n times by 2**-24 of what it can be. The
        part of that which does not depend on the scale is written to `least`.
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
        cdef vector[uint32_t] own
        cdef vector[float] scores
        cdef size_t i
        own.resize(chosen.size())
        scores.resize(chosen.size())
        for i in range(chosen.size()):
            own[i] = internal_ids[chosen[i].second]
        self.score(query, own.data(), own.size(), scores.data())
        for i in range(chosen.size()):
            chosen[i].first = -scores[i]
        return 0

    def _check_query(self, const float[::1] query):
        if <size_t>query.shape[0] != self.vector_size:
            raise ValueError(
                f"query has {query.shape[0]} numbers; the index's have {self.vector_size}"
            )

    cdef inline const uint8_t* element(self, size_t internal_id) noexcept nogil:
        return self.elements + internal_id * self.header.element_bytes

    cdef inline const float* vector(self, size_t internal_id) noexcept nogil:
        return <const float*>(self.element(internal_id) + self.header.data_offset)

    cdef inline uint64_t item(self, size_t internal_id) noexcept nogil:
        cdef uint64_t item
        memcpy(&item, self.element(internal_id) + self.header.label_offset, sizeof(item))
        return item

    cdef inline uint32_t upper_bytes(self, size_t internal_id) noexcept nogil:
        """Length of an element's links above level 0, where there are any."""
        cdef uint32_t length
        cdef size_t at = self.upper_offsets[internal_id] - sizeof(uint32_t)
        memcpy(&length, &self.file[at], sizeof(uint32_t))
        return length

    cdef inline const uint8_t* row(self, size_t internal_id) noexcept nogil:
        return self.rows + internal_id * self.row_step

    cdef inline float distance(self, const Query* query, size_t internal_id) noexcept nogil:
        """The negated inner product; by codes, but for a factor and a term that all share."""
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
                # The CPU itself reads ahead where one vector follows the other.
                if internal_ids[i + PREFETCH_AHEAD] - internal_ids[i] != PREFETCH_AHEAD:
                    prefetch_whole(
                        self.vector(internal_ids[i + PREFETCH_AHEAD]),
                        self.vector_size * sizeof(float),
                    )
            scores[i] = inner_product(query, self.vector(internal_ids[i]), self.vector_size)

    cdef size_t visit_links(
        self, size_t internal_id, uint16_t* visited, uint16_t tag, uint32_t* unvisited
    ) noexcept nogil:
        """Marks an element's links at level 0; writes and counts those that were not visited.

        A graph search mostly waits for memory. So everything that is read next is prefetched
        here, before any of it is used. `unvisited` has space for one more than all links.
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
        """The element at level 0 to begin with: a greedy search on each level above."""
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
    """A search of one query that goes on where it stopped; see `_graph.pyi`.

    Best-first search follows links in one order whatever ef is: a larger one only stops later. So
    what is too far for a smaller ef is kept for a larger one, and nothing is compared twice.
    """

    cdef Graph graph
    cdef const float[::1] vector
    cdef vector[int16_t] codes
    cdef Query query  # Both of them.
    cdef size_t ef
    cdef object visited  # The array of `tagged`, which no other search uses meanwhile.
    cdef uint16_t* tagged
    cdef uint16_t tag
    cdef vector[Candidate] found  # A heap: the `ef` nearest, the farthest first.
    cdef vector[Candidate] frontier  # A heap, the nearest first: distances are negated.
    cdef vector[Candidate] farther  # All others, with IN_FRONTIER if they are or were there.

    def __cinit__(self, Graph graph not None, const float[::1] query not None, size_t ef):
        graph._check_query(query)
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
        if self.visited is not None:  # It is if the arguments were refused.
            self.graph.spare_visited.append(self.visited)

    def nearest(self, size_t count):
        """The `count` nearest items and their scores; see `_graph.pyi`."""
        count = min(count, <size_t>self.graph.header.count)
        items, scores = np.empty(count, np.uint32), np.empty(count, np.float32)
        if not count:
            return items, scores
        cdef uint32_t[::1] items_out = items
        cdef float[::1] scores_out = scores
        cdef size_t found
        # By codes, the last of the wanted may come after others. With one in 32 more, recall@200 of
        # 2,000 x 64 that are much alike, ef 200, is 0.001 less than by vectors; with one in 16 more.
        cdef size_t spare = 0 if self.graph.path == FLOAT32 else 1 + count // WANTED_A_SPARE
        self.ef = max(self.ef, count + spare)
        try:
            with nogil:
                found = self.find(self.graph, count, &items_out[0], &scores_out[0])
        except MemoryError:
            self.start_over()
            raise
        return items[:found], scores[:found]

    cdef void start_over(self) noexcept:
        """Forgets what was visited and found: a search that got no memory stopped anywhere."""
        self.tag = next_tag(self.tagged, self.graph.header.count)
        self.found.clear()
        self.frontier.clear()
        self.farther.clear()

    cdef size_t find(
        self, Graph graph, size_t count, uint32_t* items, float* scores
    ) except -1 nogil:
        """K-NN-SEARCH and SEARCH-LAYER, algorithms 5 and 2 of the paper; stops as hnswlib does."""
        if self.found.empty():
            self.begin(graph)
        elif self.found.size() < self.ef:
            self.widen()
        self.search_layer(graph)
        return self.write_nearest(graph, count, items, scores)

    cdef int begin(self, Graph graph) except -1 nogil:
        cdef uint32_t start = graph.descend(&self.query)
        cdef float distance = graph.distance(&self.query, start)
        self.tagged[1 + start] = self.tag
        push(self.found, Candidate(distance, start))
        push(self.frontier, Candidate(-distance, start))
        return 0

    cdef int widen(self) except -1 nogil:
        """Moves the nearest of `farther` to `found`, which has space, and to the frontier."""
        cdef size_t moved = min(self.ef - self.found.size(), self.farther.size())
        cdef size_t i
        cdef Candidate each
        if moved < self.farther.size():
            nth_element(
                self.farther.begin(), self.farther.begin() + moved, self.farther.end()
            )
        for i in range(moved):
            each = self.farther[i]
            if not each.second & IN_FRONTIER:
                push(self.frontier, Candidate(-each.first, each.second))
            push(self.found, Candidate(each.first, each.second & ~IN_FRONTIER))
        self.farther.erase(self.farther.begin(), self.farther.begin() + moved)
        return 0

    cdef int search_layer(self, Graph graph) except -1 nogil:
        cdef float bound = self.found.front().first
        cdef float distance
        cdef vector[uint32_t] unvisited  # Links of one element.
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
                if self.found.size() < self.ef or distance < bound:
                    push(self.frontier, Candidate(-distance, current))
                    push(self.found, Candidate(distance, current))
                    if self.found.size() > self.ef:
                        farthest = self.found.front()
                        self.farther.push_back(
                            Candidate(farthest.first, farthest.second | IN_FRONTIER)
                        )
                        pop(self.found)
                    bound = self.found.front().first
                else:
                    self.farther.push_back(Candidate(distance, current))
        return 0

    cdef size_t write_nearest(
        self, Graph graph, size_t count, uint32_t* items, float* scores
    ) except -1 nogil:
        """Writes the `count` of `found` that have the best scores; returns how many there are."""
        cdef size_t found_count = self.found.size()
        cdef size_t i
        cdef vector[uint32_t] internal_ids
        cdef vector[float] exact
        cdef vector[Candidate] best
        internal_ids.resize(found_count)
        exact.resize(found_count)
        best.resize(found_count)
        for i in range(found_count):
            internal_ids[i] = self.found[i].second
        graph.score(self.query.vector, internal_ids.data(), found_count, exact.data())
        for i in range(found_count):
            best[i] = Candidate(-exact[i], internal_ids[i])
        count = min(count, found_count)
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
    """The Euclidean length of a vector."""
    cdef double sum = 0
    cdef size_t i
    for i in range(count):
        sum += <double>numbers[i] * numbers[i]
    return sqrt(sum)


cdef float largest_of(vector[float]& values, size_t count) noexcept nogil:
    """The `count`-th largest of values, which are put in another order."""
    nth_element(values.begin(), values.begin() + (values.size() - count), values.end())
    return values[values.size() - count]


cdef uint16_t next_tag(uint16_t* tagged, size_t count) noexcept nogil:
    """The tag of a new search, which none of `count` elements bears yet: nothing needs clearing.

    The first word holds the last tag; when that overflows, all are cleared. hnswlib's
    VisitedList does the same.
    """
    cdef uint16_t tag = tagged[0] + 1
    if tag == 0:
        memset(tagged, 0, (count + 1) * sizeof(uint16_t))
        tag = 1
    tagged[0] = tag
    return tag
