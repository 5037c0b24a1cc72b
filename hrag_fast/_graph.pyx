# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`Graph`: an HNSW index in hnswlib's file format, searched where it lies.

Checks the file once, when it is opened: from then on no link can lead out of it. A search
checks its arguments and then runs one C loop that sees no Python object. `_graph.pyi` has
the whole promise; `_reference.py` holds the plain twin, which defines the right answer.
"""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.pair cimport pair
from libcpp.queue cimport priority_queue
from libcpp.vector cimport vector

cdef extern from *:
    """
    #include <stddef.h>

    // GCC compiles the product once for each kind of CPU, and the loader takes the best one.
    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
    #define HRAG_EVERY_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define HRAG_EVERY_CPU
    #endif

    typedef float hrag_lanes __attribute__((vector_size(64), aligned(4)));

    HRAG_EVERY_CPU
    static float hrag_dot(const float* a, const float* b, size_t n) {
        hrag_lanes even = {0}, odd = {0};  // Two sums, for one waits for its last addition.
        size_t i = 0;
        for (; i + 32 <= n; i += 32) {
            even += *(const hrag_lanes*)(a + i) * *(const hrag_lanes*)(b + i);
            odd += *(const hrag_lanes*)(a + i + 16) * *(const hrag_lanes*)(b + i + 16);
        }
        for (; i + 16 <= n; i += 16)
            even += *(const hrag_lanes*)(a + i) * *(const hrag_lanes*)(b + i);
        even += odd;
        float sum = 0;
        for (int lane = 0; lane < 16; lane++) sum += even[lane];
        for (; i < n; i++) sum += a[i] * b[i];
        return sum;
    }

    static inline void hrag_prefetch(const void* at) { __builtin_prefetch(at); }

    // Of a vector its beginning: the CPU sees by then where the reading goes.
    static inline void hrag_prefetch_vector(const float* at, size_t n) {
        for (size_t i = 0; i < n && i < 64; i += 16) __builtin_prefetch(at + i);
    }
    """
    float hrag_dot(const float* a, const float* b, size_t n) noexcept nogil
    void hrag_prefetch(const void* at) noexcept nogil
    void hrag_prefetch_vector(const float* at, size_t n) noexcept nogil

ctypedef pair[float, uint32_t] Near

cdef enum:
    COUNT_MASK = 0xFFFF  # Of the word before a list of links; above it hnswlib keeps marks.
    MAX_LEVEL = 64  # Far above what a random level reaches.
    AHEAD = 4  # So many vectors ahead, a scan asks for the memory of one.


cdef struct Header:
    uint64_t level0_at
    uint64_t capacity
    uint64_t count
    uint64_t element_bytes
    uint64_t label_at
    uint64_t vector_at
    int32_t top_level
    uint32_t entry
    uint64_t max_links
    uint64_t max_links0
    uint64_t m
    double mult
    uint64_t ef_construction


cdef class Graph:
    """See `_graph.pyi`."""

    cdef const uint8_t[::1] file
    cdef const uint64_t[::1] upper_at
    cdef const uint32_t[::1] place_of
    cdef const uint8_t* elements
    cdef Header header
    cdef size_t dim
    cdef size_t level_bytes
    cdef list spare_marks

    def __init__(self, const uint8_t[::1] file not None):
        if <size_t>file.shape[0] < sizeof(Header):
            raise ValueError(f"{file.shape[0]} bytes are too few for an index")
        self.file = file
        memcpy(&self.header, &file[0], sizeof(Header))
        self.elements = &file[0] + sizeof(Header)
        self._check_header()
        self.dim = (self.header.label_at - self.header.vector_at) // sizeof(float)
        self.level_bytes = (self.header.max_links + 1) * sizeof(uint32_t)
        self.upper_at = self._find_upper_levels()
        self.place_of = self._find_items()
        cdef bint sound
        with nogil:
            sound = self.links_stay_inside()
        if not sound:
            raise ValueError("a link of the index leads out of it")
        self.spare_marks = []

    def _check_header(self):
        cdef Header* head = &self.header
        cdef size_t rest = <size_t>self.file.shape[0] - sizeof(Header)
        if (
            head.level0_at != 0
            or not 0 < head.max_links <= COUNT_MASK
            or not 0 < head.max_links0 <= COUNT_MASK
            or head.vector_at != (head.max_links0 + 1) * sizeof(uint32_t)
            or head.label_at <= head.vector_at
            or (head.label_at - head.vector_at) % sizeof(float)
            or head.element_bytes != head.label_at + sizeof(uint64_t)
            or not 0 <= head.top_level <= MAX_LEVEL
            or not 0 < head.count <= rest // head.element_bytes
            or head.entry >= head.count
        ):
            raise ValueError("the header is not one of an index of inner products")

    def _find_upper_levels(self):
        """Where each element's links above level 0 begin; 0 for those that have none."""
        places = np.zeros(self.header.count, np.uint64)
        cdef uint64_t[::1] out = places
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
        return places

    def _find_items(self):
        """Where each item lies; they are in the order in which threads inserted them."""
        places = np.full(self.header.count, self.header.count, np.uint32)
        cdef uint32_t[::1] out = places
        cdef uint64_t label
        cdef size_t i = 0
        with nogil:
            while i < self.header.count:
                memcpy(&label, self.element(i) + self.header.label_at, sizeof(label))
                if label >= self.header.count or out[label] != self.header.count:
                    break
                out[label] = <uint32_t>i
                i += 1
        if i != self.header.count:
            raise ValueError(f"its items are not numbered from 0 to {self.header.count - 1}")
        return places

    cdef bint links_stay_inside(self) noexcept nogil:
        cdef size_t i, level, levels
        cdef uint32_t length
        for i in range(self.header.count):
            if not self.list_stays_inside(self.element(i), self.header.max_links0, 0):
                return False
            levels = 0
            if self.upper_at[i]:
                memcpy(&length, &self.file[self.upper_at[i] - sizeof(uint32_t)], sizeof(uint32_t))
                if length % self.level_bytes:
                    return False
                levels = length // self.level_bytes
            if i == self.header.entry and levels < <size_t>self.header.top_level:
                return False
            for level in range(levels):
                if not self.list_stays_inside(
                    &self.file[self.upper_at[i] + level * self.level_bytes],
                    self.header.max_links,
                    level + 1,
                ):
                    return False
        return True

    cdef bint list_stays_inside(
        self, const uint8_t* place, size_t most, size_t level
    ) noexcept nogil:
        """Whether each link leads to an element that has this level."""
        cdef const uint32_t* links = <const uint32_t*>place
        cdef size_t count = links[0] & COUNT_MASK
        cdef size_t i
        cdef uint32_t length
        if count > most:
            return False
        for i in range(1, count + 1):
            if links[i] >= self.header.count:
                return False
            if level:
                if not self.upper_at[links[i]]:
                    return False
                memcpy(
                    &length, &self.file[self.upper_at[links[i]] - sizeof(uint32_t)], sizeof(uint32_t)
                )
                if length < level * self.level_bytes:
                    return False
        return True

    @property
    def dimension(self):
        return self.dim

    def __len__(self):
        return self.header.count

    def search(self, const float[::1] query not None, size_t count, size_t ef):
        self._check_query(query)
        count = min(count, <size_t>self.header.count)
        items, scores = np.empty(count, np.uint32), np.empty(count, np.float32)
        if not count:
            return items, scores
        try:
            marks = self.spare_marks.pop()
        except IndexError:
            marks = np.zeros(self.header.count + 1, np.uint16)
        cdef uint16_t[::1] marked = marks
        cdef uint32_t[::1] items_out = items
        cdef float[::1] scores_out = scores
        cdef size_t found
        with nogil:
            found = self.nearest(
                &query[0], count, max(ef, count), &marked[0], &items_out[0], &scores_out[0]
            )
        self.spare_marks.append(marks)
        return items[:found], scores[:found]

    def scores(self, const float[::1] query not None, const uint32_t[::1] items not None):
        self._check_query(query)
        cdef size_t count = items.shape[0]
        cdef size_t i = 0
        scores = np.empty(count, np.float32)
        cdef float[::1] out = scores
        with nogil:
            while i < count and items[i] < self.header.count:
                if i + AHEAD < count and items[i + AHEAD] < self.header.count:
                    hrag_prefetch(self.vector(self.place_of[items[i + AHEAD]]))
                out[i] = hrag_dot(&query[0], self.vector(self.place_of[items[i]]), self.dim)
                i += 1
        if i < count:
            raise IndexError(f"items[{i}] is {items[i]}; it must be below {self.header.count}")
        return scores

    def _check_query(self, const float[::1] query):
        if <size_t>query.shape[0] != self.dim:
            raise ValueError(f"query has {query.shape[0]} numbers; the index's have {self.dim}")

    cdef inline const uint8_t* element(self, size_t place) noexcept nogil:
        return self.elements + place * self.header.element_bytes

    cdef inline const float* vector(self, size_t place) noexcept nogil:
        return <const float*>(self.element(place) + self.header.vector_at)

    cdef inline float distance(self, const float* query, size_t place) noexcept nogil:
        return 1 - hrag_dot(query, self.vector(place), self.dim)

    cdef size_t nearest(
        self,
        const float* query,
        size_t count,
        size_t ef,
        uint16_t* marks,
        uint32_t* items,
        float* scores,
    ) noexcept nogil:
        """Algorithms 2 and 5 of Malkov and Yashunin, arXiv 1603.09320; ends as hnswlib does."""
        cdef uint16_t visit = self.next_visit(marks)
        cdef uint16_t* visited = marks + 1
        cdef uint32_t current = self.descend(query)
        cdef float bound = self.distance(query, current)
        cdef priority_queue[Near] best  # The farthest first.
        cdef priority_queue[Near] waiting  # The nearest first: its distances are negated.
        cdef vector[uint32_t] fresh  # Links of one element that were not visited yet.
        cdef size_t fresh_count, i
        cdef float distance
        fresh.resize(self.header.max_links0 + 1)
        best.push(Near(bound, current))
        waiting.push(Near(-bound, current))
        visited[current] = visit
        while not waiting.empty() and -waiting.top().first <= bound:
            fresh_count = self.visit_links(waiting.top().second, visited, visit, fresh.data())
            waiting.pop()
            for i in range(fresh_count):
                if i + 1 < fresh_count:
                    hrag_prefetch_vector(self.vector(fresh[i + 1]), self.dim)
                current = fresh[i]
                distance = self.distance(query, current)
                if best.size() < ef or distance < bound:
                    waiting.push(Near(-distance, current))
                    best.push(Near(distance, current))
                    if best.size() > ef:
                        best.pop()
                    bound = best.top().first
        return self.taken(best, count, items, scores)

    cdef size_t visit_links(
        self, size_t place, uint16_t* visited, uint16_t visit, uint32_t* fresh
    ) noexcept nogil:
        """Marks an element's links at level 0 and writes those that were not; how many.

        What takes a walk its time is waiting for memory. Here nothing waits for another, and
        what is read next is on its way already. `fresh` has room for one more than all.
        """
        cdef const uint32_t* links = <const uint32_t*>self.element(place)
        cdef size_t links_count = links[0] & COUNT_MASK
        cdef size_t i, fresh_count = 0
        for i in range(1, links_count + 1):
            hrag_prefetch(&visited[links[i]])
        for i in range(1, links_count + 1):
            fresh[fresh_count] = links[i]
            if visited[links[i]] != visit:
                visited[links[i]] = visit
                fresh_count += 1
                hrag_prefetch(self.vector(links[i]))
        return fresh_count

    cdef uint16_t next_visit(self, uint16_t* marks) noexcept nogil:
        """A mark that no element bears; the first word remembers the last one given."""
        cdef uint16_t visit = marks[0] + 1
        if visit == 0:
            memset(marks, 0, (self.header.count + 1) * sizeof(uint16_t))
            visit = 1
        marks[0] = visit
        return visit

    cdef uint32_t descend(self, const float* query) noexcept nogil:
        """The element at level 0 to begin from."""
        cdef uint32_t current = self.header.entry
        cdef float nearest = self.distance(query, current)
        cdef float distance
        cdef const uint32_t* links
        cdef size_t i
        cdef bint moved
        cdef int level = self.header.top_level
        while level > 0:
            moved = True
            while moved:
                moved = False
                links = <const uint32_t*>&self.file[
                    self.upper_at[current] + (level - 1) * self.level_bytes
                ]
                for i in range(1, (links[0] & COUNT_MASK) + 1):
                    distance = self.distance(query, links[i])
                    if distance < nearest:
                        nearest = distance
                        current = links[i]
                        moved = True
            level -= 1
        return current

    cdef size_t taken(
        self, priority_queue[Near]& best, size_t count, uint32_t* items, float* scores
    ) noexcept nogil:
        """Writes the `count` nearest, best first; returns how many there are."""
        cdef uint64_t label
        cdef size_t found, i
        while best.size() > count:
            best.pop()
        found = i = best.size()
        while i:
            i -= 1
            memcpy(&label, self.element(best.top().second) + self.header.label_at, sizeof(label))
            items[i] = <uint32_t>label
            scores[i] = 1 - best.top().first
            best.pop()
        return found
