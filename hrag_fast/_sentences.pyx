# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`sentence_ends`: finds where the sentences of a text end. Every cited passage uses it.

It makes one pass over the characters. `_sentences.pyi` is the documentation for callers.
`tests/twins/sentences.py` has the plain twin, whose regular expressions define the right answer.
`_ENDS` and `_is_end` in the docstrings of this module are names in the twin.
"""

import re

from cpython.unicode cimport (
    Py_UNICODE_ISDECIMAL,
    Py_UNICODE_ISLOWER,
    Py_UNICODE_ISSPACE,
    PyUnicode_1BYTE_DATA,
    PyUnicode_2BYTE_DATA,
    PyUnicode_4BYTE_DATA,
    PyUnicode_KIND,
)
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libcpp.vector cimport vector

cdef extern from *:
    """
    #include <stdint.h>

    // Returns true if a match of `_ENDS` may begin with this character: one of the characters
    // below U+0040, or a stop of full width. Nearly all characters end nothing.
    static inline bool hrag_may_end(uint32_t character) {
        const uint64_t narrow = 1ull << '\\n' | 1ull << '\\f' | 1ull << '!' | 1ull << '#'
            | 1ull << '.' | 1ull << '?';
        if (character < 64) return narrow >> character & 1;
        if (character < 0x2026) return false;
        switch (character) {
            case 0x2026: case 0x3002: case 0xFF01: case 0xFF0E:
            case 0xFF1B: case 0xFF1F: case 0xFF61: return true;
        }
        return false;
    }

    // Returns the offset of the first character from `at` on that may end a sentence, or `size`.
    template <typename Unit>
    static size_t hrag_next_end(const Unit* text, size_t at, size_t size) {
        while (at < size && !hrag_may_end(text[at])) at++;
        return at;
    }
    """
    size_t hrag_next_end[Unit](const Unit* text, size_t at, size_t size) noexcept

cdef enum:
    MAX_CHARS = 1000  # A longer sentence is cut.
    HEADING_DEPTH = 6
    ITEM_INDENT = 8
    ITEM_DIGITS = 3
    LONGEST_WORD = 6  # The longest abbreviation in lower case is `approx`.
    LONGEST_NAME = 4  # The longest abbreviation with a capital letter is `Prof`.
    ABBREVIATION_REACH = 16  # An abbreviation with the character before it has at most this length.

MAX_SENTENCE_CHARS = MAX_CHARS

# This expression is tried for few full stops, because `may_abbreviate` rules out most of them.
cdef object ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Mt|No|Nos|Fig|Figs|Eq|Sec|Ch|Vol|pp?|"
    r"vs|cf|al|ca|approx|resp|e\.g|i\.e|a\.m|p\.m|U\.S|U\.K|[A-Z](?:\.[A-Z])+)\.$"
)


def sentence_ends(str text not None):
    """Returns the end of each sentence; see `_sentences.pyi`."""
    cdef Cut cut = Cut(0, 0)
    cdef vector[uint32_t] ends
    cut_sentences(text, &cut, ends, len(text) + 1)
    return ends


cdef bint cut_sentences(
    str text, Cut* cut, vector[uint32_t]& ends, size_t until
) except -1:
    """Appends the ends of further sentences; see `_sentences.pxd`."""
    cdef Py_ssize_t size = len(text), end
    cdef int kind = PyUnicode_KIND(text)
    while True:
        if kind == 1:
            cut.at = hrag_next_end(<const uint8_t*>PyUnicode_1BYTE_DATA(text), cut.at, size)
        elif kind == 2:
            cut.at = hrag_next_end(<const uint16_t*>PyUnicode_2BYTE_DATA(text), cut.at, size)
        else:
            cut.at = hrag_next_end(<const uint32_t*>PyUnicode_4BYTE_DATA(text), cut.at, size)
        if cut.at >= size:
            break
        end = match_end(text, cut.at, size)
        if not end:
            cut.at += 1
            continue
        if not is_end(text, cut.at, end, size):
            cut.at = end
            continue
        add(ends, text, cut.start, end)
        cut.at = cut.start = end
        # If the next sentence does not begin with white space, it is not blank, so it cannot become
        # a part of the sentence that ends here.
        if <size_t>end >= until and end < size and not Py_UNICODE_ISSPACE(text[end]):
            return False
    if cut.start < size:
        add(ends, text, cut.start, size)
        cut.start = size
    return True


cdef int add(vector[uint32_t]& ends, str text, Py_ssize_t start, Py_ssize_t end) except -1:
    """Adds the end of a sentence; cuts the sentence into parts if it is too long.

    A blank sentence becomes part of the sentence before it.
    """
    cdef Py_ssize_t cut
    while end - start > MAX_CHARS:
        cut = cut_of(text, start)
        add_part(ends, text, start, cut)
        start = cut
    add_part(ends, text, start, end)
    return 0


cdef Py_ssize_t cut_of(str text, Py_ssize_t start) except -1:
    """Returns where a sentence that is too long is cut: after a line, after a word, or anywhere."""
    cdef Py_ssize_t end = start + MAX_CHARS, half = start + MAX_CHARS // 2
    cdef Py_ssize_t cut = text.rfind("\n", half, end) + 1
    if not cut:
        cut = text.rfind(" ", half, end) + 1
    return cut if cut else end


cdef int add_part(
    vector[uint32_t]& ends, str text, Py_ssize_t start, Py_ssize_t end
) except -1:
    if not ends.empty() and after_space(text, start, end) == end:
        ends[ends.size() - 1] = <uint32_t>end
    else:
        ends.push_back(<uint32_t>end)
    return 0


cdef inline bint is_wide_stop(Py_UCS4 character) noexcept:
    return character in u"。！？；…．｡"


cdef inline bint is_stop(Py_UCS4 character) noexcept:
    return character in u".!?"


cdef inline bint is_closer(Py_UCS4 character) noexcept:
    return character in u"\"')]}”’」』）》】"


cdef Py_ssize_t after_space(str text, Py_ssize_t at, Py_ssize_t size) except -1:
    while at < size and Py_UNICODE_ISSPACE(text[at]):
        at += 1
    return at


cdef Py_ssize_t after_closers(str text, Py_ssize_t at, Py_ssize_t size) except -1:
    while at < size and is_closer(text[at]):
        at += 1
    return at


cdef Py_ssize_t match_end(str text, Py_ssize_t at, Py_ssize_t size) except -1:
    """Returns the end of the match of `_ENDS` that begins at `at`; 0 if no match begins there."""
    cdef Py_UCS4 first = text[at]
    cdef Py_ssize_t closed, end = at + 1
    if is_wide_stop(first):
        while end < size and is_wide_stop(text[end]):
            end += 1
        return after_space(text, after_closers(text, end, size), size)
    if is_stop(first):
        if at and is_stop(text[at - 1]):
            return 0
        while end < size and is_stop(text[end]):
            end += 1
        closed = after_closers(text, end, size)
        end = after_space(text, closed, size)
        return end if end > closed else 0
    if first == u"\n":
        while end < size and text[end] != u"\n" and Py_UNICODE_ISSPACE(text[end]):
            end += 1
        if end < size and text[end] == u"\n":
            return after_space(text, end + 1, size)
        return at + 1 if is_item(text, at + 1, size) else 0
    if first == u"\f":
        return after_space(text, end, size)
    return heading_end(text, at, size)


cdef bint is_item(str text, Py_ssize_t at, Py_ssize_t size) except -1:
    """Returns True if a line begins a list item, a heading or a row of a table."""
    cdef Py_ssize_t first = at
    while at < size and at - first < ITEM_INDENT and text[at] in u" \t":
        at += 1
    if at == size:
        return False
    if text[at] == u"|":
        return True
    first = at
    if text[at] in u"-*+•":
        at += 1
    elif text[at] == u"#":
        while at < size and at - first < HEADING_DEPTH and text[at] == u"#":
            at += 1
    else:
        while at < size and at - first < ITEM_DIGITS and Py_UNICODE_ISDECIMAL(text[at]):
            at += 1
        if at == first or at == size or text[at] not in u".)":
            return False
        at += 1
    return at < size and text[at] == u" "


cdef Py_ssize_t heading_end(str text, Py_ssize_t at, Py_ssize_t size) except -1:
    """Returns the end of a heading that begins at the `#` at `at`, with the white space after it.

    Returns 0 if no heading begins there.
    """
    cdef Py_ssize_t end = at
    if at and text[at - 1] != u"\n":
        return 0
    while end < size and end - at < HEADING_DEPTH and text[end] == u"#":
        end += 1
    if end == size or text[end] != u" ":
        return 0
    while end < size and text[end] != u"\n":
        end += 1
    return after_space(text, end + 1, size) if end < size else 0


cdef bint is_end(str text, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size) except -1:
    """Returns True if the match of `_ENDS` from `at` to `end` ends a sentence, like `_is_end`."""
    if text[at] != u"." or end == size:
        return True
    if has_blank_line(text, at, end):
        return True
    if Py_UNICODE_ISLOWER(text[end]):
        return False
    return not (may_abbreviate(text, at) and ends_abbreviation(text, at))


cdef bint has_blank_line(str text, Py_ssize_t at, Py_ssize_t end) except -1:
    for at in range(at, end - 1):
        if text[at] == u"\n" and text[at + 1] == u"\n":
            return True
    return False


cdef bint may_abbreviate(str text, Py_ssize_t stop) except -1:
    """Returns False if the full stop at `stop` certainly ends no abbreviation.

    The result is False for the full stops after nearly all words.
    """
    cdef Py_ssize_t at = stop
    while at and stop - at <= LONGEST_WORD and is_ascii_letter(text[at - 1]):
        at -= 1
    if stop - at == 1:  # Examples are `p.`, `e.g.` and `U.S.`.
        return True
    if u"A" <= text[at] <= u"Z":
        return 2 <= stop - at <= LONGEST_NAME
    return (stop - at == 2 and text[at] in u"acpv") or (
        stop - at == LONGEST_WORD and text[at] == u"a"
    )


cdef bint ends_abbreviation(str text, Py_ssize_t stop) except -1:
    """Returns True if the full stop at `stop` ends an abbreviation."""
    return ABBREVIATION.search(text[max(0, stop + 1 - ABBREVIATION_REACH) : stop + 1]) is not None


cdef inline bint is_ascii_letter(Py_UCS4 character) noexcept:
    return u"a" <= character <= u"z" or u"A" <= character <= u"Z"
