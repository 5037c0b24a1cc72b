# cython: language_level=3
"""Declares `FoldedText`, in whose bytes `_analysis.pyx` finds terms."""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    # The classes of characters; `_characters.py` describes them.
    OTHER, WORD, CJK, MARK, SPACE, JOINER, SUFFIX

cdef enum:
    PAGES = 0x1100  # Pages of 256 characters cover all code points of Unicode.
    PADDING = 24  # This many bytes may be read past the end of a text.


cdef struct Character:
    # An entry of `character_page`.
    uint8_t class_
    uint8_t may_combine
    uint8_t size
    uint8_t unused
    uint8_t folded[4]


cdef class Tables:
    # Pages are published one by one, and never changed or freed. A page has 2 KB; all pages
    # together have 9 MB.
    cdef Character* pages[PAGES]
    cdef dict clusters
    cdef object folding
    cdef bint is_turkish

    cdef Character* load_page(self, uint32_t number) except NULL
    cdef tuple folded_cluster(self, str text, Py_ssize_t start, Py_ssize_t end)


cdef Tables tables_for(folding)
# Returns the tables of a `Folding`, which all texts share.


cdef class FoldedText:
    cdef:
        uint8_t* bytes  # The folded text, and after it PADDING bytes of class OTHER.
        uint8_t* classes
        bint keeps_places
        bint is_ascii  # True if the text was folded as ASCII, so it has no character of class CJK.
        # For each byte, the start and the end of its cluster in the original text. NULL after an
        # ASCII text, whose characters keep their places.
        uint32_t* places
        uint32_t* places_memory
        size_t size
        size_t capacity

    cdef int reserve(self, size_t needed) except -1
    cdef int fold(self, str text, Tables tables) except -1
    cdef int fold_utf8(self, const uint8_t* text, size_t size, Tables tables) except -1
    cdef void pad(self) noexcept
    cdef void collapse_spaces(self) noexcept


cdef inline void* resized(void* memory, size_t size) except NULL:
    """Returns memory of this size with the content of `memory`, which is freed or reused."""
    memory = PyMem_Realloc(memory, size)
    if memory is NULL:
        raise MemoryError
    return memory


cdef inline size_t larger(size_t capacity, size_t needed) noexcept nogil:
    """Returns a capacity of at least `needed`, and of at least half more than `capacity`."""
    return max(needed, capacity + capacity // 2)
