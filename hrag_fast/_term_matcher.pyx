# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`TermMatcher`: finds the terms of a query in texts. Searches cite and mark what it finds.

It reads the UTF-8 of a document without Python objects in between, and reuses its memory for all
texts of a search. `_term_matcher.pyi` is the documentation for callers.
"""

from libc.stdint cimport uint8_t, uint64_t
from libcpp.vector cimport vector

from hrag_fast._analysis cimport Match, find_terms, new_buffers


cdef class TermMatcher:
    """Finds the terms of one query in texts; see `_term_matcher.pyi`."""

    def __cinit__(self, extractor not None, ids not None, weights not None):
        self.extractor = extractor
        self.ids_array = ids
        self.ids = ids
        self.weights = weights
        cdef size_t i
        if self.ids.shape[0] != self.weights.shape[0]:
            raise ValueError(
                f"there are {self.ids.shape[0]} ids and {self.weights.shape[0]} weights; the "
                "numbers must be equal"
            )
        for i in range(1, <size_t>self.ids.shape[0]):
            if self.ids[i - 1] > self.ids[i]:
                raise ValueError(
                    f"ids must ascend; ids[{i}] is {self.ids[i]}, after {self.ids[i - 1]}"
                )

    def matches(self, text):
        """Returns where the terms occur in a text; see `_term_matcher.pyi`."""
        return self.extractor.matches(text, self.ids_array)

    cdef int find(self, const uint8_t* text, size_t size, vector[Match]& matches) except -1:
        cdef const Match* found = NULL
        cdef size_t count = self.ids.shape[0]
        # A stemmer in Python may let another thread run, which must not use the same memory.
        buffers, self.buffers = self.buffers, None
        if buffers is None:
            buffers = new_buffers()
        if count > 0:
            count = find_terms(self.extractor, buffers, text, size, &self.ids[0], count, &found)
        matches.assign(found, found + count)
        self.buffers = buffers
        return 0
