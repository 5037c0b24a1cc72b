# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`boundary_ranks`: ranks how well a text can be cut at each of some offsets. Ingests use it.

It checks its arguments, then runs one C loop without Python objects. `_boundaries.pyi` is the
documentation for callers; `tests/twins/boundaries.py` has the plain twin, which defines the right
answer.
"""

import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    FORBIDDEN, CODE_POINT, WORD, SENTENCE, PARAGRAPH

CUT_FORBIDDEN = FORBIDDEN
CUT_CODE_POINT = CODE_POINT
CUT_WORD = WORD
CUT_SENTENCE = SENTENCE
CUT_PARAGRAPH = PARAGRAPH

cdef enum:
    # This many bytes of white space are read at most, so that the time stays linear for a text
    # that has only white space.
    BLANK_LOOK_BACK = 64
    # At most this many bytes of closing quotes and brackets are read. Five CJK ones fit into them,
    # and sentences end with fewer.
    CLOSER_LOOK_BACK = 16


def boundary_ranks(bytes text not None, const uint32_t[::1] ends not None):
    """Ranks cuts of a text; see `_boundaries.pyi`."""
    cdef size_t size = len(text)
    cdef size_t count = ends.shape[0]
    cdef size_t i
    for i in range(count):
        if not 0 < ends[i] <= size:
            raise IndexError(
                f"ends[{i}] is {ends[i]}; it must be from 1 to {size}, the text's bytes"
            )
    ranks = np.empty(count, np.uint8)
    cdef uint8_t[::1] out = ranks
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(text)
    with nogil:
        for i in range(count):
            out[i] = rank_cut(start, size, ends[i])
    return ranks


cdef uint8_t rank_cut(const uint8_t* text, size_t size, size_t end) noexcept nogil:
    if end == size:
        return PARAGRAPH
    if is_continuation(text[end]) or (text[end - 1] == b"\r" and text[end] == b"\n"):
        return FORBIDDEN
    cdef size_t bare = before_blanks(text, end)
    cdef int newlines = count_newlines(text, bare, end)
    if newlines >= 2:
        return PARAGRAPH
    cdef bint blank_after = is_blank(code_point_at(text, size, end))
    if newlines == 1 or ends_sentence(text, bare, bare < end or blank_after):
        return SENTENCE
    if bare < end or blank_after:
        return WORD
    if is_cjk(code_point_before(text, end)) or is_cjk(code_point_at(text, size, end)):
        return WORD
    return CODE_POINT


cdef size_t before_blanks(const uint8_t* text, size_t end) noexcept nogil:
    """Returns where the white space before `end` begins; reads at most BLANK_LOOK_BACK bytes."""
    cdef size_t limit = end - BLANK_LOOK_BACK if end > BLANK_LOOK_BACK else 0
    cdef size_t start
    while end > limit:
        start = start_before(text, end)
        if start < limit or not is_blank(decode(text, start, end)):
            break
        end = start
    return end


cdef int count_newlines(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Counts newlines in white space: \\n, \\r\\n and lone \\r are one each, a form feed two."""
    cdef size_t i
    cdef int newlines = 0
    for i in range(start, end):
        if text[i] == b"\n":
            newlines += 1
        elif text[i] == b"\r":
            newlines += not (i + 1 < end and text[i + 1] == b"\n")
        elif text[i] == b"\f":
            newlines += 2
    return newlines


cdef bint ends_sentence(const uint8_t* text, size_t end, bint next_to_blank) noexcept nogil:
    """Returns True if a sentence ends at `end`, perhaps with closing quotes or brackets."""
    cdef size_t limit = end - CLOSER_LOOK_BACK if end > CLOSER_LOOK_BACK else 0
    cdef size_t start
    cdef uint32_t last
    while end > limit:
        start = start_before(text, end)
        if start < limit or not is_closer(decode(text, start, end)):
            break
        end = start
    if end == 0:
        return False
    last = code_point_before(text, end)
    return is_cjk_sentence_end(last) or (next_to_blank and is_sentence_end(last))


cdef inline uint32_t code_point_before(const uint8_t* text, size_t end) noexcept nogil:
    return decode(text, start_before(text, end), end)


cdef inline uint32_t code_point_at(
    const uint8_t* text, size_t size, size_t start
) noexcept nogil:
    cdef size_t end = start + 1
    while end < size and end - start < 4 and is_continuation(text[end]):
        end += 1
    return decode(text, start, end)


cdef inline size_t start_before(const uint8_t* text, size_t end) noexcept nogil:
    cdef size_t start = end - 1
    while start > 0 and end - start < 4 and is_continuation(text[start]):
        start -= 1
    return start


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef inline uint32_t decode(const uint8_t* text, size_t start, size_t end) noexcept nogil:
    """Decodes the code point in `text[start:end]`."""
    cdef uint32_t code_point = text[start]
    cdef size_t i
    if end - start == 1:
        return code_point
    code_point &= 0xFF >> (end - start + 1)  # The lead byte's high bits are its length.
    for i in range(start + 1, end):
        code_point = code_point << 6 | (text[i] & 0x3F)
    return code_point


cdef inline bint is_blank(uint32_t c) noexcept nogil:
    return c == 0x20 or 0x09 <= c <= 0x0D or c == 0x3000  # 09 to 0D: \t \n \v \f \r.


cdef inline bint is_closer(uint32_t c) noexcept nogil:
    if c < 0x80:
        return c == 0x22 or c == 0x27 or c == 0x29 or c == 0x5D or c == 0x7D  # " ' ) ] }
    return (
        c == 0x201D or c == 0x2019  # ” ’
        or c == 0x300D or c == 0x300F  # 」 』
        or c == 0xFF09 or c == 0x300B or c == 0x3011  # ） 》 】
    )


cdef inline bint is_sentence_end(uint32_t c) noexcept nogil:
    return c == 0x2E or c == 0x21 or c == 0x3F  # . ! ?


cdef inline bint is_cjk_sentence_end(uint32_t c) noexcept nogil:
    return (
        c == 0x3002 or c == 0xFF01 or c == 0xFF1F or c == 0xFF1B  # 。 ！ ？ ；
        or c == 0x2026 or c == 0xFF0E or c == 0xFF61  # … ． ｡
    )


cdef inline bint is_cjk(uint32_t c) noexcept nogil:
    return (
        0x3000 <= c <= 0x303F  # Punctuation.
        or 0x3040 <= c <= 0x30FF  # Kana.
        or 0x3400 <= c <= 0x4DBF or 0x4E00 <= c <= 0x9FFF  # Ideographs.
        or 0xAC00 <= c <= 0xD7AF  # Hangul.
        or 0xF900 <= c <= 0xFAFF  # Compatibility ideographs.
        or 0xFF00 <= c <= 0xFFEF  # Full-width forms.
        or 0x20000 <= c <= 0x3FFFF  # Ideographs beyond the basic plane.
    )
