# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`matched_sentence`: finds the sentence that a citation points to. Every passage uses it.

The kernel cuts a leaf, with some of the text before and after it, into sentences and headings, as
far as the rule needs them. Then it adds up the weights of the terms in each sentence. `_cited.pyi`
is the documentation for callers; `tests/twins/cited_places.py` has the plain twin, which defines
the right answer.
"""

from cpython.unicode cimport Py_UNICODE_ISALNUM, Py_UNICODE_ISSPACE, PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.algorithm cimport sort, upper_bound
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from hrag_fast._sentences import MAX_SENTENCE_CHARS

from hrag_fast._analysis cimport Match
from hrag_fast._sentences cimport Cut, cut_sentences

cdef extern from *:
    """
    #include <algorithm>
    #include <vector>
    // This wrapper exists because std::unique is awkward to declare in Cython.
    template <typename T> static void hrag_sort_unique(std::vector<T>& values) {
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
    }
    """
    void hrag_sort_unique[T](vector[T]& values) except +

# First, this many characters are read on either side of a leaf to complete a sentence that the
# leaf's edge cuts. This is nearly always enough, because most leaves begin and end with whole
# sentences. If it is not enough, MAX_SENTENCE_CHARS characters are read.
REACH = MAX_SENTENCE_CHARS // 8

# If several sections begin at the same character, at most this many of them are searched for a
# heading: a page to which thousands of bookmarks lead must not be read thousands of times. The
# first sections are tried, because the first one is the most likely to have a heading there: a
# bookmark whose title the indexer cannot find gets the position of the bookmark before it, so it
# comes later among the sections.
MAX_SECTIONS_TRIED = 16

cdef uint32_t NONE = 0xFFFFFFFF
cdef size_t MOST_CHARS = 0xFFFFFFFF  # Offsets in code points have 32 bits.
cdef size_t MOST_TRIED = MAX_SECTIONS_TRIED
cdef size_t SHORT_REACH = REACH
cdef size_t LONG_REACH = MAX_SENTENCE_CHARS

cdef enum:
    WORD_BYTES = 8  # The bytes whose characters are counted at once.
cdef uint64_t LOWEST_BITS = 0x0101010101010101


cdef struct Weighed:
    size_t sentence
    double weight


def matched_sentence(
    const uint8_t[::1] text not None,
    leaf not None,
    const uint32_t[::1] section_starts not None,
    heading_end not None,
    matches=None,
    const float[::1] weights=None,
):
    """Returns the sentence of a leaf that a citation points to; see `_cited.pyi`."""
    cdef TextRange span, sentence
    cdef vector[Match] terms
    (
        span.byte_start, span.byte_end, span.char_start, span.char_end, _, _, _, _, _, span.section
    ) = leaf
    if matches is not None:
        read_matches(matches, terms)
    sentence = sentence_of(
        text, &span, section_starts, heading_end, terms.data(), terms.size(), weights
    )
    return sentence.byte_start, sentence.byte_end, sentence.char_start, sentence.char_end


cdef int read_matches(matches, vector[Match]& terms) except -1:
    """Copies the arrays of `Matches`."""
    cdef const uint32_t[::1] starts = matches.starts, ends = matches.ends, which = matches.which
    cdef size_t i
    if not starts.shape[0] == ends.shape[0] == which.shape[0]:
        raise ValueError(
            f"matches have {starts.shape[0]} starts, {ends.shape[0]} ends and "
            f"{which.shape[0]} terms; the numbers must be equal"
        )
    for i in range(<size_t>starts.shape[0]):
        terms.push_back(Match(starts[i], ends[i], which[i]))
    return 0


cdef TextRange sentence_of(
    const uint8_t[::1] text,
    const TextRange* leaf,
    const uint32_t[::1] section_starts,
    object heading_end,
    const Match* matches,
    size_t count,
    const float[::1] weights,
) except *:
    """Returns the sentence of a leaf to cite; see `matched_sentence` in `_cited.pyi`."""
    if not (
        leaf.byte_start < leaf.byte_end <= <size_t>text.shape[0]
        and leaf.char_start < leaf.char_end
    ):
        raise ValueError(
            f"the leaf has bytes {leaf.byte_start} to {leaf.byte_end} and characters "
            f"{leaf.char_start} to {leaf.char_end}; it must not be empty, and must lie in the text "
            f"of {text.shape[0]} bytes"
        )
    if leaf.section != NONE and leaf.section >= <size_t>section_starts.shape[0]:
        raise IndexError(
            f"the leaf has section {leaf.section}; it must be below {section_starts.shape[0]}"
        )
    # As arguments, the buffers would become objects of Python.
    cdef Excerpt excerpt = Excerpt.__new__(Excerpt)
    excerpt.data = text
    excerpt.section_starts = section_starts
    excerpt.heading_end = heading_end
    excerpt.read(leaf[0], SHORT_REACH)
    cdef size_t best = excerpt.best(leaf[0], matches, count, weights)
    if not excerpt.is_whole(best):
        excerpt.read(leaf[0], LONG_REACH)
        best = excerpt.best(leaf[0], matches, count, weights)
    return excerpt.span(leaf[0], best)


cdef inline size_t starts_in_word(const uint8_t* text) noexcept:
    """Returns in how many of the next WORD_BYTES bytes a character begins.

    These are the bytes that are not of the form 10xxxxxx.
    """
    cdef uint64_t word
    memcpy(&word, text, WORD_BYTES)
    word = (~word >> 7 | word >> 6) & LOWEST_BITS
    return <size_t>(word * LOWEST_BITS >> 56)  # The product adds up the bytes.


cdef class Excerpt:
    """A leaf with some of the text before and after it, cut into sentences.

    Sentence i is from `borders[i]` to `borders[i + 1]`, in code points of the document. `borders`
    has all borders up to the last one that was found; `is_cut` is True if it has all borders of the
    excerpt. `cut_to` finds more. `headings` has the start and the end of the heading of each
    section that begins in the excerpt; both are equal if the section has no heading.
    """

    cdef const uint8_t[::1] data
    cdef const uint32_t[::1] section_starts
    cdef object heading_end
    cdef str text
    cdef size_t byte_start
    cdef size_t byte_end
    cdef uint32_t char_start
    cdef Cut cut
    cdef bint is_cut
    cdef vector[uint32_t] ends  # The ends of sentences, without headings, counted from the excerpt.
    cdef vector[uint32_t] borders
    cdef vector[Range] headings

    cdef int read(self, const TextRange& leaf, size_t reach) except -1:
        """Reads the leaf with up to `reach` code points before and after it."""
        cdef size_t before = self.extend_back(leaf.byte_start, reach)
        cdef size_t after = self.extend_forward(leaf.byte_end, reach)
        self.text = PyUnicode_DecodeUTF8(
            <const char*>&self.data[self.byte_start], self.byte_end - self.byte_start, NULL
        )
        if before > leaf.char_start or (
            before + leaf.char_end - leaf.char_start + after != <size_t>len(self.text)
        ):
            raise ValueError(
                f"the leaf's bytes {leaf.byte_start} to {leaf.byte_end} are not its characters "
                f"{leaf.char_start} to {leaf.char_end} of the text"
            )
        if <size_t>leaf.char_end + after > MOST_CHARS:
            raise ValueError(
                f"the leaf ends at character {leaf.char_end}, {after} characters before the "
                f"excerpt does; the excerpt must end at {MOST_CHARS} or before"
            )
        self.char_start = <uint32_t>(leaf.char_start - before)
        self.cut.at = self.cut.start = 0
        self.is_cut = False
        self.ends.clear()
        self.borders.assign(1, self.char_start)
        self.find_headings()
        return 0

    cdef int cut_to(self, size_t char) except -1:
        """Finds the borders up to the first one at or after a code point, or up to the last one."""
        cdef size_t until, found = self.ends.size()
        while not self.is_cut and self.borders.back() < char:
            # The length doubles, so that all calls together take time linear in the excerpt.
            until = max(char - self.char_start, 2 * <size_t>self.cut.start)
            self.is_cut = cut_sentences(self.text, &self.cut, self.ends, until)
            if self.headings.empty():
                for end in range(found, self.ends.size()):
                    self.borders.push_back(self.char_start + self.ends[end])
                found = self.ends.size()
            else:
                self.join_headings()
        return 0

    cdef size_t extend_back(self, size_t byte, size_t reach) noexcept:
        """Sets `byte_start`. Returns how many code points lie between it and `byte`."""
        cdef const uint8_t* data = &self.data[0]
        cdef size_t chars = 0
        while byte >= WORD_BYTES and chars + WORD_BYTES <= reach:
            byte -= WORD_BYTES
            chars += starts_in_word(&data[byte])
        while byte and chars < reach:
            byte -= 1
            chars += data[byte] & 0xC0 != 0x80
        self.byte_start = byte
        return chars

    cdef size_t extend_forward(self, size_t byte, size_t reach) noexcept:
        """Sets `byte_end`. Returns how many code points lie between `byte` and `byte_end`."""
        cdef const uint8_t* data = &self.data[0]
        cdef size_t chars = 0, size = self.data.shape[0]
        while byte + WORD_BYTES <= size and chars + WORD_BYTES <= reach:
            chars += starts_in_word(&data[byte])
            byte += WORD_BYTES
        while byte < size and (chars < reach or data[byte] & 0xC0 == 0x80):
            chars += data[byte] & 0xC0 != 0x80
            byte += 1
        self.byte_end = byte
        return chars

    cdef size_t place(self, size_t char) noexcept:
        """Returns the index of the last border at or before a code point; at least 0."""
        return (
            upper_bound(self.borders.begin(), self.borders.end(), char) - self.borders.begin() - 1
        )

    cdef size_t sections_up_to(self, uint64_t char) noexcept:
        """Returns how many sections begin at or before a code point."""
        return count_before(self.section_starts, char + 1)

    cdef int find_headings(self) except -1:
        cdef size_t section, end_char = self.char_start + len(self.text)
        cdef size_t first = count_before(self.section_starts, self.char_start)
        cdef size_t tried = 0  # How many sections at the same start were searched for a heading.
        cdef uint32_t start, end
        self.headings.clear()
        for section in range(first, count_before(self.section_starts, end_char)):
            start = self.section_starts[section]
            if self.headings.empty() or self.headings.back().first != start:
                self.headings.push_back(Range(start, start))
                tried = 0
            if tried == MOST_TRIED:
                continue
            tried += 1
            end = self.char_start + <uint32_t>self.heading_end(
                self.text, start - self.char_start, section
            )
            self.headings.back().second = max(self.headings.back().second, end)
        return 0

    cdef int join_headings(self) except -1:
        """Sets `borders` to those of sentences and of headings, without those inside a heading."""
        cdef uint32_t border, end, last = self.char_start + self.ends.back()
        cdef Range heading
        cdef size_t before = 0  # How many headings begin before the border.
        self.borders.assign(1, self.char_start)
        for end in self.ends:
            border = self.char_start + end
            while before < self.headings.size() and self.headings[before].first < border:
                before += 1
            if before == 0 or self.headings[before - 1].second <= border:
                self.borders.push_back(border)
        for heading in self.headings:
            self.borders.push_back(heading.first)
            self.borders.push_back(heading.second)
        hrag_sort_unique(self.borders)
        if not self.is_cut:  # Between the headings after the last end, ends are missing.
            while self.borders.back() > last:
                self.borders.pop_back()
        return 0

    cdef bint is_heading(self, size_t sentence) noexcept:
        cdef Range heading
        for heading in self.headings:
            if heading.first == self.borders[sentence]:
                return heading.second == self.borders[sentence + 1]
        return False

    cdef bint is_known(self, size_t border) noexcept:
        """Returns False if a border exists only because the excerpt begins or ends there."""
        cdef bint ends_text = self.byte_end == <size_t>self.data.shape[0]
        return (border > 0 or self.byte_start == 0) and (
            border + 1 < self.borders.size() or not self.is_cut or ends_text
        )

    cdef bint is_whole(self, size_t sentence) noexcept:
        return self.is_known(sentence) and self.is_known(sentence + 1)

    cdef size_t best(
        self, const TextRange& leaf, const Match* matches, size_t count, const float[::1] weights
    ) except? 0:
        """Returns the index of the sentence to cite."""
        cdef vector[Weighed] weighed
        if count > 0:
            self.weigh(leaf, matches, count, weights, weighed)
        return self.first(leaf) if weighed.empty() else self.heaviest(weighed)

    cdef int weigh(
        self,
        const TextRange& leaf,
        const Match* matches,
        size_t count,
        const float[::1] weights,
        vector[Weighed]& sums,
    ) except -1:
        """Writes the sentences that have terms with a weight, in order, with the sums of weights.

        Weights are added in the order of the terms' indexes. So sentences with the same terms have
        exactly the same sum.
        """
        cdef vector[pair[size_t, uint32_t]] pairs
        cdef pair[size_t, uint32_t] item
        cdef Weighed weighed
        cdef Match match
        cdef size_t i, sentence, last = 0
        for i in range(count):
            last = max(last, <size_t>matches[i].end)
        self.cut_to(leaf.char_start + last + 1)
        for i in range(count):
            match = matches[i]
            if match.which >= <size_t>weights.shape[0]:
                raise IndexError(
                    f"which[{i}] is {match.which}; it must be below {weights.shape[0]}, the number "
                    "of weights"
                )
            sentence = self.place(<size_t>leaf.char_start + match.start)
            if (
                weights[match.which] > 0
                and sentence + 1 < self.borders.size()
                and <size_t>leaf.char_start + match.end <= self.borders[sentence + 1]
            ):
                pairs.push_back(pair[size_t, uint32_t](sentence, match.which))
        hrag_sort_unique(pairs)
        for item in pairs:
            if sums.empty() or sums[sums.size() - 1].sentence != item.first:
                weighed.sentence, weighed.weight = item.first, 0
                sums.push_back(weighed)
            sums[sums.size() - 1].weight += weights[item.second]
        return 0

    cdef size_t heaviest(self, vector[Weighed]& weighed) noexcept:
        """Returns the index of the first sentence that has the highest weight.

        If this sentence is a heading, and another sentence of the same section has the same weight,
        returns the index of the other sentence.
        """
        cdef Weighed candidate, best
        cdef size_t section
        best.weight = 0
        for candidate in weighed:
            if candidate.weight > best.weight:
                best = candidate
        if not self.is_heading(best.sentence):
            return best.sentence
        section = self.sections_up_to(self.borders[best.sentence])
        for candidate in weighed:
            if (
                candidate.weight == best.weight
                and not self.is_heading(candidate.sentence)
                and self.sections_up_to(self.borders[candidate.sentence]) == section
            ):
                return candidate.sentence
        return best.sentence

    cdef size_t first(self, const TextRange& leaf) except? 0:
        """Returns the index of the sentence to cite if no sentence has a weighted term.

        It is the first sentence with a word in the section that has most of the leaf. A heading is
        returned only if there is no other sentence with a word.
        """
        cdef size_t start = self.first_of_section(leaf), sentence = start
        cdef size_t heading = start
        cdef bint has_heading = False
        while self.borders[sentence] < leaf.char_end:
            self.cut_to(<size_t>self.borders[sentence] + 1)
            if self.has_word(leaf, sentence):
                if not self.is_heading(sentence):
                    return sentence
                if not has_heading:
                    heading, has_heading = sentence, True
            sentence += 1
        return heading

    cdef size_t first_of_section(self, const TextRange& leaf) except? 0:
        """Returns the index of the first sentence of the leaf in the section that has most of it.

        If no sentence begins in this section, returns the index of the leaf's first sentence.
        """
        cdef size_t start, section_start
        self.cut_to(leaf.char_start)
        start = self.place(leaf.char_start)
        if leaf.section == NONE:
            return start
        section_start = self.section_starts[leaf.section]
        if section_start >= leaf.char_end:
            return start
        self.cut_to(section_start)
        while self.borders[start] < section_start:
            start += 1
        return start if self.borders[start] < leaf.char_end else self.place(leaf.char_start)

    cdef bint has_word(self, const TextRange& leaf, size_t sentence) noexcept:
        """Returns True if the part of a sentence inside the leaf has a letter or digit."""
        cdef size_t at = max(self.borders[sentence], leaf.char_start) - self.char_start
        cdef size_t end = min(self.borders[sentence + 1], leaf.char_end) - self.char_start
        for at in range(at, end):
            if Py_UNICODE_ISALNUM(self.text[at]) or self.text[at] == u"_":
                return True
        return False

    cdef TextRange span(self, const TextRange& leaf, size_t sentence) noexcept:
        """Returns the span of a sentence, without the white space around it.

        If a border of the sentence is not known, the leaf's start or end replaces it.
        """
        cdef TextRange result
        cdef size_t start = self.borders[sentence] if self.is_known(sentence) else leaf.char_start
        cdef size_t end = (
            self.borders[sentence + 1] if self.is_known(sentence + 1) else leaf.char_end
        )
        # A leaf whose characters do not match its bytes may end after the text.
        cdef size_t last = min(end - self.char_start, <size_t>len(self.text))
        cdef size_t first = min(start - self.char_start, last)
        while first < last and Py_UNICODE_ISSPACE(self.text[first]):
            first += 1
        if first < last:
            while Py_UNICODE_ISSPACE(self.text[last - 1]):
                last -= 1
        else:
            first = min(start - self.char_start, last)
        result.char_start = <uint32_t>(self.char_start + first)
        result.char_end = <uint32_t>(self.char_start + last)
        result.byte_start = self.bytes_of(self.byte_start, first)
        result.byte_end = self.bytes_of(result.byte_start, last - first)
        # For a sentence before the first section, this is NONE.
        result.section = <uint32_t>self.sections_up_to(result.char_start) - 1
        return result

    cdef size_t bytes_of(self, size_t byte, size_t chars) noexcept:
        """Returns the offset in bytes that is `chars` code points after the offset `byte`."""
        if <size_t>len(self.text) == self.byte_end - self.byte_start:
            return byte + chars
        while chars and byte < self.byte_end:
            byte += 1
            chars -= byte == self.byte_end or self.data[byte] & 0xC0 != 0x80
        return byte


def merged_spans(parts, uint32_t first, uint32_t end):
    """Returns the spans of matches, joined if they overlap; see `_cited.pyi`."""
    cdef vector[Range] spans
    cdef vector[Match] terms
    cdef uint32_t char_start
    for char_start, matches in parts:
        terms.clear()
        read_matches(matches, terms)
        add_spans(terms.data(), terms.size(), char_start, first, end, spans)
    return joined(spans)


cdef int add_spans(
    const Match* matches,
    size_t count,
    uint32_t char_start,
    uint32_t first,
    uint32_t end,
    vector[Range]& spans,
) except -1:
    """Appends the spans of matches between `first` and `end`; see `_cited.pxd`."""
    cdef Range span
    cdef size_t i
    for i in range(count):
        span = Range(char_start + matches[i].start, char_start + matches[i].end)
        if first <= span.first and span.second <= end:
            spans.push_back(span)
    return 0


cdef list joined(vector[Range]& spans):
    """Sorts spans, and returns them in order; spans that overlap are joined."""
    cdef uint32_t last_start, last_end
    cdef size_t i
    cdef list result
    sort(spans.begin(), spans.end())
    result = []
    if spans.empty():
        return result
    last_start, last_end = spans[0].first, spans[0].second
    for i in range(1, spans.size()):
        if spans[i].first < last_end:
            last_end = max(last_end, spans[i].second)
        else:
            result.append((last_start, last_end))
            last_start, last_end = spans[i].first, spans[i].second
    result.append((last_start, last_end))
    return result
