# cython: language_level=3
"""Declares the HNSW index and its searches, which other kernels use without Python objects."""

cimport cython
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from hrag_fast._graph_file cimport GraphFile, Header
from hrag_fast._vector_file cimport VectorFile

ctypedef pair[float, uint32_t] Candidate
ctypedef pair[float, uint32_t] Scored  # A negated score and an index.


cdef struct Query:
    const float* vector
    const int16_t* codes


cdef float product(const float* a, const float* b, size_t count) noexcept nogil


@cython.final
cdef class Graph:
    cdef GraphFile file  # All arrays that the pointers below point into.
    cdef Header header
    cdef const uint8_t* links
    cdef size_t links_bytes
    cdef const uint8_t* upper
    cdef const uint64_t* upper_offsets
    cdef size_t level_bytes
    cdef const uint32_t* items
    cdef const uint32_t* internal_ids
    cdef size_t vector_size
    cdef const float* vectors  # NULL if the vectors stay in the file.
    cdef VectorFile stored  # The vectors in the file, or None.
    cdef object source  # Returns vectors that cannot be read from the file; see `_graph.pyi`.
    cdef int path
    cdef const float* scales  # The scale of the codes of each internal id.
    cdef double mean_length  # The length of the mean that was subtracted from the vectors.
    cdef const uint8_t* rows  # The codes, or the vectors, that are compared to follow links.
    cdef size_t row_bytes
    cdef list spare_visited  # Arrays of tags (see `next_tag`) that no search is using now.

    cdef int scan(
        self,
        const float* query,
        const vector[uint32_t]& internal_ids,
        size_t count,
        vector[Scored]& best,
    ) except -1 nogil
    cdef int _read_items(
        self, const uint32_t[::1] items, vector[uint32_t]& internal_ids
    ) except -1
    cdef float round_query(
        self, const float* query, vector[int16_t]& codes
    ) except? -1 nogil
    cdef int choose(
        self,
        const Query* query,
        float unit,
        const vector[uint32_t]& internal_ids,
        size_t count,
        vector[Scored]& chosen,
    ) except -1 nogil
    cdef float error_share(self, const float* query, float unit, float* least) noexcept nogil
    cdef int choose_by_distances(
        self,
        const Query* query,
        float unit,
        const vector[uint32_t]& internal_ids,
        const vector[float]& distances,
        size_t count,
        vector[Scored]& chosen,
    ) except -1 nogil
    cdef int score_chosen(
        self, const float* query, const vector[uint32_t]& internal_ids, vector[Scored]& chosen
    ) except -1 nogil
    cdef int check_query(self, const float[::1] query) except -1
    cdef const float* vector(self, size_t internal_id) noexcept nogil
    cdef const uint8_t* row(self, size_t internal_id) noexcept nogil
    cdef float distance(self, const Query* query, size_t internal_id) noexcept nogil
    cdef int score(
        self, const float* query, const uint32_t* internal_ids, size_t count, float* scores
    ) except -1 nogil
    cdef int score_stored(
        self, const float* query, const uint32_t* internal_ids, size_t count, float* scores
    ) except -1 nogil
    cdef int score_from_source(
        self,
        const float* query,
        const uint32_t* internal_ids,
        float* scores,
        const vector[uint32_t]& indexes,
        int problem,
    ) except -1
    cdef size_t visit_links(
        self, size_t internal_id, uint16_t* visited, uint16_t tag, uint32_t* unvisited
    ) noexcept nogil
    cdef uint32_t descend(self, const Query* query) noexcept nogil


@cython.final
cdef class GraphSearch:
    cdef Graph graph
    cdef const float[::1] vector
    cdef vector[int16_t] codes
    cdef float unit  # The value that the code 1 of the query stands for.
    cdef Query query  # Pointers to `vector` and `codes`.
    cdef size_t ef
    # The array that `tagged` points into. No other search uses it at the same time.
    cdef object visited
    cdef uint16_t* tagged
    cdef uint16_t tag
    cdef vector[Candidate] nearest_heap  # The `ef` nearest elements, the farthest first.
    cdef vector[Candidate] frontier  # A heap, the nearest first, because distances are negated.
    # All other elements that were compared, with the flag IN_FRONTIER if they are or were in
    # `frontier`.
    cdef vector[Candidate] farther

    cdef void start_over(self) noexcept
    cdef size_t find(
        self, Graph graph, size_t count, uint32_t* items, float* scores
    ) except -1 nogil
    cdef int begin(self, Graph graph) except -1 nogil
    cdef int widen(self) except -1 nogil
    cdef int search_layer(self, Graph graph) except -1 nogil
    cdef size_t write_nearest(
        self, Graph graph, size_t count, uint32_t* items, float* scores
    ) except -1 nogil
