# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`FoldedText`: folds a text into UTF-8, and writes a class for each byte.

It reads the class and the folded form of a character from pages, which are tables for 256
characters each, and uses Python's `unicodedata` for characters that combine. `_folded_text.pyi` is
the documentation for callers; `tests/twins/analysis.py` has the plain twin, which defines the right
answer.

Threads: another thread may get the GIL while Python code is called, which happens if a page of
characters or a cluster is not cached. So pages never change once they are published.
"""

from cpython.mem cimport PyMem_Free
from cpython.unicode cimport (
    PyUnicode_1BYTE_DATA,
    PyUnicode_2BYTE_DATA,
    PyUnicode_4BYTE_DATA,
    PyUnicode_DecodeUTF8,
    PyUnicode_KIND,
    PyUnicode_Substring,
)
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from hrag_fast import _characters
from hrag_fast._characters import Folding, character_page, folded_bytes

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    // Returns 1 if all bytes are ASCII characters.
    static inline int hrag_is_ascii(const uint8_t* text, size_t size) {
        uint8_t bits = 0;
        for (size_t i = 0; i < size; i++) bits |= text[i];
        return bits < 0x80;
    }
    """
    bint hrag_is_ascii(const uint8_t* text, size_t size) noexcept nogil

assert (_characters.OTHER, _characters.WORD, _characters.CJK) == (OTHER, WORD, CJK)
assert (_characters.MARK, _characters.SPACE) == (MARK, SPACE)
assert (_characters.JOINER, _characters.SUFFIX) == (JOINER, SUFFIX)

cdef enum:
    CLUSTERS = 8192  # Each cache has at most this many clusters, about 200 bytes each.

cdef Py_ssize_t CLUSTER_LIMIT = _characters.MAX_CLUSTER

ctypedef fused Unit:
    # The types of a code point in the three kinds of str.
    uint8_t
    uint16_t
    uint32_t


cdef class Tables:
    """The pages and clusters of one folding."""

    def __cinit__(self, folding):
        self.folding = folding
        self.is_turkish = folding is Folding.TURKISH
        self.clusters = {}

    cdef Character* load_page(self, uint32_t number) except NULL:
        cdef bytes entries = character_page(number, self.folding)
        cdef Character* page
        if self.pages[number] is NULL:  # Another thread may have been faster.
            page = <Character*>calloc(256, sizeof(Character))
            if page is NULL:
                raise MemoryError
            memcpy(page, <const char*>entries, 256 * sizeof(Character))
            self.pages[number] = page
        return self.pages[number]

    cdef tuple folded_cluster(self, str text, Py_ssize_t start, Py_ssize_t end):
        cdef str cluster = PyUnicode_Substring(text, start, end)
        cdef tuple folded = self.clusters.get(cluster)
        if folded is None:
            folded = folded_bytes(cluster, self.folding)
            if len(self.clusters) >= CLUSTERS:
                self.clusters.clear()
            self.clusters[cluster] = folded
        return folded


cdef dict tables_of = {folding: Tables(folding) for folding in Folding}


cdef Tables tables_for(folding):
    """Returns the tables of a folding; see `_folded_text.pxd`."""
    return tables_of[folding]


cdef inline Character* character_of(Tables tables, uint32_t code_point) except NULL:
    cdef Character* page = tables.pages[code_point >> 8]
    if page is NULL:
        page = tables.load_page(code_point >> 8)
    return page + (code_point & 0xFF)


def fold(str text not None, folding=Folding.UNICODE, *, bint single_spaces=False):
    """Folds a text; see `_folded_text.pyi`."""
    cdef Tables tables = tables_for(folding)
    if PyUnicode_IS_ASCII(text) and not single_spaces and not tables.is_turkish:
        return text.lower()
    cdef FoldedText folded = FoldedText()
    folded.fold(text, tables)
    if single_spaces:
        folded.collapse_spaces()
    return PyUnicode_DecodeUTF8(<const char*>folded.bytes, folded.size, NULL)


cdef class FoldedText:
    """The memory of a folded text. Each text that is folded into it replaces the one before."""

    def __cinit__(self, bint keeps_places=False):
        self.keeps_places = keeps_places

    def __dealloc__(self):
        PyMem_Free(self.bytes)
        PyMem_Free(self.classes)
        PyMem_Free(self.places_memory)

    cdef int reserve(self, size_t needed) except -1:
        """Ensures capacity for `needed` bytes of folded text in total, and for the padding."""
        needed += PADDING
        if needed <= self.capacity:
            return 0
        if needed > <size_t>0xFFFFFFFF:
            raise OverflowError("the folded text must be below 4 GiB")
        needed = larger(self.capacity, needed)
        self.bytes = <uint8_t*>resized(self.bytes, needed)
        self.classes = <uint8_t*>resized(self.classes, needed)
        if self.keeps_places:
            self.places_memory = <uint32_t*>resized(
                self.places_memory, 2 * needed * sizeof(uint32_t)
            )
            self.places = self.places_memory
        self.capacity = needed
        return 0

    cdef int fold(self, str text, Tables tables) except -1:
        """Fills `bytes`, `classes` and, with `keeps_places`, `places`."""
        cdef int kind = PyUnicode_KIND(text)
        cdef const uint8_t* ones
        if kind == 1:
            ones = <const uint8_t*>PyUnicode_1BYTE_DATA(text)
            if PyUnicode_IS_ASCII(text) and not tables.is_turkish:
                return fold_ascii(self, tables, ones, len(text))
            fold_units(self, tables, text, ones, len(text))
        elif kind == 2:
            fold_units(self, tables, text, <const uint16_t*>PyUnicode_2BYTE_DATA(text), len(text))
        else:
            fold_units(self, tables, text, <const uint32_t*>PyUnicode_4BYTE_DATA(text), len(text))
        self.pad()
        return 0

    cdef int fold_utf8(self, const uint8_t* text, size_t size, Tables tables) except -1:
        """Does the same for a text in UTF-8."""
        if hrag_is_ascii(text, size) and not tables.is_turkish:
            return fold_ascii(self, tables, text, size)
        return self.fold(PyUnicode_DecodeUTF8(<const char*>text, size, NULL), tables)

    cdef void pad(self) noexcept:
        memset(self.bytes + self.size, 0, PADDING)
        memset(self.classes + self.size, OTHER, PADDING)

    cdef void collapse_spaces(self) noexcept:
        """Replaces each run of white space in `bytes` by one space; at both ends, removes it."""
        cdef size_t i, size = 0
        cdef bint is_space, follows_space = True
        for i in range(self.size):
            is_space = self.classes[i] == SPACE
            self.bytes[size] = b" " if is_space else self.bytes[i]
            size += not (is_space and follows_space)
            follows_space = is_space
        self.size = size - (size > 0 and follows_space)


cdef inline void append(
    FoldedText text,
    const uint8_t* data,
    uint32_t size,
    uint8_t class_,
    uint32_t start,
    uint32_t end,
) noexcept:
    """Appends a folded character of up to 4 bytes, for which there is capacity."""
    cdef size_t i, place = text.size
    text.size = place + size  # It is stored first: the next call needs it at once.
    if class_ == MARK:
        class_ = WORD if place > 0 and text.classes[place - 1] == WORD else OTHER
    memcpy(text.bytes + place, data, 4)
    memset(text.classes + place, class_, 4)
    if text.keeps_places:
        for i in range(place, place + size):
            text.places[2 * i] = start
            text.places[2 * i + 1] = end


cdef int fold_ascii(
    FoldedText folded_text, Tables tables, const uint8_t* text, size_t size
) except -1:
    cdef const Character* page = character_of(tables, 0)
    cdef uint8_t* folded
    cdef uint8_t* classes
    cdef size_t i
    folded_text.size = 0
    folded_text.reserve(size)
    folded_text.places = NULL
    folded_text.is_ascii = True
    folded, classes = folded_text.bytes, folded_text.classes
    for i in range(size):
        folded[i] = text[i] | 0x20 if b"A" <= text[i] <= b"Z" else text[i]
    for i in range(size):
        classes[i] = page[text[i]].class_
    folded_text.size = size
    folded_text.pad()
    return 0


cdef int fold_units(
    FoldedText folded_text, Tables tables, str text, const Unit* units, Py_ssize_t size
) except -1:
    cdef Py_ssize_t start = 0, end
    cdef Character* first
    folded_text.size = 0
    folded_text.reserve(4 * size)
    folded_text.places = folded_text.places_memory
    folded_text.is_ascii = False
    while start < size:
        first = character_of(tables, units[start])
        end = start + 1
        while (
            end < size
            and units[end] >= 0x80
            and end - start < CLUSTER_LIMIT
            and character_of(tables, units[end]).may_combine
        ):
            end += 1
        if end == start + 1 and first.size > 0:
            append(folded_text, first.folded, first.size, first.class_, start, end)
        else:
            append_cluster(folded_text, tables.folded_cluster(text, start, end), start, end)
            folded_text.reserve(folded_text.size + 4 * (size - end))
        start = end
    return 0


cdef int append_cluster(
    FoldedText folded_text, tuple folded, Py_ssize_t start, Py_ssize_t end
) except -1:
    cdef bytes encoded = folded[0]
    cdef bytes classes = folded[1]
    cdef const uint8_t* data = <const uint8_t*><const char*>encoded
    cdef const uint8_t* classes_of = <const uint8_t*><const char*>classes
    cdef uint8_t byte[4]  # `append` reads 4 bytes, but uses only the first one here.
    cdef size_t i, size = len(encoded)
    folded_text.reserve(folded_text.size + size)
    for i in range(size):
        byte[0] = data[i]
        append(folded_text, byte, 1, classes_of[i], start, end)
    return 0
