# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`TermExtractor`: finds which terms a text has, and where. Every ingest and query uses it.

It makes three passes over flat buffers. The first pass folds the text into UTF-8, and writes a
class for each byte (`_folded_text.pyx`). The second pass finds the words, and requests their stems
from memory. The third pass finds joined runs and CJK terms, looks up stems, and hashes the rest.
`_analysis.pyi` is the documentation for callers; `tests/twins/analysis.py` has the plain twin,
which defines the right answer.

Threads: all code runs under the GIL. Another thread may get the GIL while Python code is called,
which happens if a stem, a page of characters or a cluster is not cached. So each call has separate
buffers, and no Python code runs while a set of stems is read or written.
"""

from collections import namedtuple

import numpy as np

from cpython.mem cimport PyMem_Free
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from hrag_fast._characters import Folding
from hrag_fast._folded_text cimport (
    CJK,
    JOINER,
    SUFFIX,
    WORD,
    FoldedText,
    Tables,
    larger,
    resized,
    tables_for,
)
from hrag_fast._occurrences cimport Occurrence, sort_hashes

cdef extern from "Python.h":
    void* PyEval_SaveThread() noexcept
    void PyEval_RestoreThread(void* state) noexcept

cdef extern from "<stdlib.h>":
    void* aligned_alloc(size_t alignment, size_t size)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "words are compared as little-endian integers"
    #endif

    static inline uint64_t hrag_load(const uint8_t* at) {
        uint64_t value;
        memcpy(&value, at, 8);
        return value;
    }

    // Returns the first place from `place` on whose class is 1, WORD, or `size` if there is none.
    static inline size_t hrag_word_start(const uint8_t* classes, size_t place, size_t size) {
        for (; place < size; place += 8) {
            uint64_t differing = hrag_load(classes + place) ^ 0x0101010101010101u;
            uint64_t equal = (differing - 0x0101010101010101u) & ~differing & 0x8080808080808080u;
            if (equal) return place + (__builtin_ctzll(equal) >> 3);
        }
        return size;
    }

    // Returns where a run of the class 1, WORD, ends: the first byte of another class.
    static inline size_t hrag_word_end(const uint8_t* classes, size_t place) {
        uint64_t differing;
        while (!(differing = hrag_load(classes + place) ^ 0x0101010101010101u)) place += 8;
        return place + (__builtin_ctzll(differing) >> 3);
    }

    // Returns the first `size` bytes, but at most 8, as an integer, padded with zeros.
    static inline uint64_t hrag_padded(const uint8_t* at, size_t size) {
        return size >= 8 ? hrag_load(at) : hrag_load(at) & (((uint64_t)1 << 8 * size) - 1);
    }
    """
    size_t hrag_word_start(const uint8_t* classes, size_t place, size_t size) noexcept nogil
    size_t hrag_word_end(const uint8_t* classes, size_t place) noexcept nogil
    void prefetch "__builtin_prefetch"(const void* at) noexcept nogil
    uint64_t hrag_padded(const uint8_t* at, size_t size) noexcept nogil

LeafTerms = namedtuple("LeafTerms", ("starts", "entries", "lengths"))
Matches = namedtuple("Matches", ("starts", "ends", "which"))
Token = namedtuple("Token", ("text", "is_word"))
Variant = namedtuple("Variant", ("text", "start", "end"))

cdef enum:
    WORDS_ONLY, WITH_JOINED, ALL_TERMS

cdef enum:
    FREQUENCY_LIMIT = 255
    STEMMED_CHARS = 64  # Longer words are not stemmed: they are data, not language.
    # The first cache of stems has 16,384 sets of 4 words: 65,536 words of up to 24 bytes, in 2 MB
    # for each language.
    STEM_SET_BITS = 14
    STEM_WAYS = 4
    STEM_WORD_BYTES = 24
    LONG_STEMS = 8192  # The second cache has at most this many words, about 150 bytes each.
    VARIANTS = 16384  # This cache has at most this many words and joined runs, 300 bytes each.
    # After each 256 KiB of text, which take about 3 ms, `leaf_terms` lets other threads have the
    # GIL.
    TEXT_BYTES_A_TURN = 1 << 18

MAX_FREQUENCY = FREQUENCY_LIMIT

cdef uint64_t VARIES = <uint64_t>1 << 56  # Set beside an id if the word may have variants.
cdef uint64_t ID_BITS = VARIES - 1
cdef uint32_t NO_WORD = 0xFFFFFFFF  # The start of the entry after the last word.
cdef uint64_t ALL_IDS = 0xFFFFFFFFFFFFFFFF  # See `Buffers.wanted`.

cdef uint64_t FNV_BASIS = 0xCBF29CE484222325
cdef uint64_t FNV_PRIME = 0x100000001B3


cdef struct Stem:
    uint64_t word[3]  # UTF-8, padded with zeros, which no word contains.
    uint64_t id  # With the bit VARIES.

cdef struct Word:
    Stem key  # As in the cache of stems, without an id, and cut to STEM_WORD_BYTES.
    uint32_t start  # An offset in bytes of the folded text, like `end`.
    uint32_t end
    uint32_t stem_set  # The index of the set in which the word's stem is cached.


cdef struct StemSet:
    # The words that have the same bits of a hash, in two cache lines. A word that is looked up
    # moves one place to the front, so frequent words are in the first line. A new word evicts the
    # last one.
    Stem stems[STEM_WAYS]


cdef inline uint64_t fnv(uint64_t state, const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t i
    for i in range(size):
        state = (state ^ data[i]) * FNV_PRIME
    return state


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    x = (x ^ (x >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    x = (x ^ (x >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return x ^ (x >> 33)


cdef inline uint64_t hashed(const uint8_t* term, size_t size) noexcept nogil:
    return mixed(fnv(FNV_BASIS, term, size)) >> 8


def term_id(str term not None):
    """Returns the id of a term; see `_analysis.pyi`."""
    cdef bytes encoded = term.encode()
    return hashed(<const uint8_t*><const char*>encoded, len(encoded))


cdef class Buffers(FoldedText):
    """The memory of one call: a folded text and its terms. Each text of the call reuses it."""

    cdef:
        # A term occurs in `occurrences` only if the bit for the lowest 6 bits of its id is set. So
        # nearly all terms that nobody looks for are left out.
        uint64_t wanted
        Word* words  # The words of the text, in order, and an entry with the start NO_WORD.
        size_t word_count
        size_t words_capacity
        Occurrence* occurrences
        size_t occurrence_count
        size_t variant_count  # How many of the occurrences are variants.
        size_t occurrence_capacity
        Match* matches
        uint64_t* ids  # The ids of `occurrences`, sorted.
        uint32_t* offsets
        size_t ids_capacity

    def __cinit__(self):
        self.wanted = ALL_IDS

    def __dealloc__(self):
        PyMem_Free(self.words)
        PyMem_Free(self.occurrences)
        PyMem_Free(self.matches)
        PyMem_Free(self.ids)
        PyMem_Free(self.offsets)

    cdef Word* words_for(self, size_t needed) except NULL:
        """Returns `words` with capacity for `needed` entries."""
        cdef size_t capacity = larger(self.words_capacity, needed)
        if needed > self.words_capacity:
            self.words = <Word*>resized(self.words, capacity * sizeof(Word))
            self.words_capacity = capacity
        return self.words

    cdef inline int emit(self, uint64_t term, size_t start, size_t end) except -1:
        if not self.wanted >> (term & 63) & 1:
            return 0
        if self.occurrence_count == self.occurrence_capacity:
            self.grow_occurrences()
        self.occurrences[self.occurrence_count] = Occurrence(term, <uint32_t>start, <uint32_t>end)
        self.occurrence_count += 1
        return 0

    cdef int grow_occurrences(self) except -1:
        cdef size_t capacity = larger(self.occurrence_capacity, 256)
        self.occurrences = <Occurrence*>resized(self.occurrences, capacity * sizeof(Occurrence))
        self.occurrence_capacity = capacity
        return 0

    cdef int sort(self) except -1:
        """Writes the sorted ids of occurrences to `ids`.

        Ids are hashes, so their first bits distribute them evenly to buckets.
        """
        cdef size_t n = self.occurrence_count
        cdef int bits = 4
        while (<size_t>1 << bits) < 2 * n and bits < 24:
            bits += 1
        cdef size_t needed = max(n, <size_t>1 << bits)
        if needed > self.ids_capacity:
            self.ids = <uint64_t*>resized(self.ids, needed * sizeof(uint64_t))
            self.offsets = <uint32_t*>resized(self.offsets, needed * sizeof(uint32_t))
            self.ids_capacity = needed
        sort_hashes(self.occurrences, n, bits, self.ids, self.offsets)
        return 0

    cdef size_t match(self, const uint64_t* wanted, size_t n) except? 0:
        """Fills `matches` with the sorted occurrences of `wanted` ids. Returns their count.

        Occurrences are almost sorted already: only joined runs come after their words, and all
        characters of a cluster have the span of the cluster. So insertion sort takes linear time.
        """
        cdef size_t i, place, which, size = 0
        cdef Match match
        cdef Occurrence occurrence
        self.matches = <Match*>resized(self.matches, (self.occurrence_count + 1) * sizeof(Match))
        for i in range(self.occurrence_count):
            occurrence = self.occurrences[i]
            which = lower_bound(wanted, n, occurrence.id)
            if which == n or wanted[which] != occurrence.id:
                continue
            match.start, match.end = occurrence.start, occurrence.end
            if self.places is not NULL:
                match.start = self.places[2 * <size_t>occurrence.start]
                match.end = self.places[2 * <size_t>occurrence.end - 1]
            match.which = <uint32_t>which
            place = size
            while place > 0 and is_before(match, self.matches[place - 1]):
                self.matches[place] = self.matches[place - 1]
                place -= 1
            self.matches[place] = match
            size += 1
        return size


cdef class TermExtractor:
    """Finds the terms of texts; see `_analysis.pyi`."""

    cdef:
        object stem
        bint ascii_only
        Tables tables
        object variants
        StemSet* stems
        dict long_stems
        dict known_variants

    def __cinit__(
        self, stem, *, bint ascii_only=False, folding=Folding.UNICODE, variants=None
    ):
        self.stem = stem
        self.ascii_only = ascii_only
        self.tables = tables_for(folding)
        self.variants = variants
        self.long_stems = {}
        self.known_variants = {}
        self.stems = <StemSet*>aligned_alloc(sizeof(StemSet), sizeof(StemSet) << STEM_SET_BITS)
        if self.stems is NULL:
            raise MemoryError
        memset(self.stems, 0, sizeof(StemSet) << STEM_SET_BITS)

    def __dealloc__(self):
        free(self.stems)

    def terms(self, str text not None):
        cdef Buffers buffers = Buffers()
        buffers.fold(text, self.tables)
        self.scan(buffers, ALL_TERMS)
        cdef size_t i
        ids = np.empty(buffers.occurrence_count, np.uint64)
        cdef uint64_t[::1] out = ids
        for i in range(buffers.occurrence_count):
            out[i] = buffers.occurrences[i].id
        return ids

    def word_ids(self, str text not None):
        cdef Buffers buffers = Buffers()
        buffers.fold(text, self.tables)
        self.scan(buffers, WORDS_ONLY)
        buffers.sort()
        cdef size_t i, size = 0
        for i in range(buffers.occurrence_count):
            if i == 0 or buffers.ids[i] != buffers.ids[i - 1]:
                buffers.ids[size] = buffers.ids[i]
                size += 1
        return copied(buffers.ids, size)

    def leaf_terms(self, texts not None):
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of str, not one str")
        cdef list leaves = list(texts)
        cdef Py_ssize_t i, n = len(leaves)
        cdef size_t turn = 0
        starts = np.zeros(n + 1, np.int64)
        lengths = np.empty(n, np.uint32)
        cdef int64_t[::1] starts_out = starts
        cdef uint32_t[::1] lengths_out = lengths
        cdef Buffers buffers = Buffers()
        cdef Entries entries = Entries()
        cdef str text
        for i in range(n):
            text = leaves[i]
            if text is None:
                raise TypeError(f"texts[{i}] is None; it must be a str")
            buffers.fold(text, self.tables)
            self.scan(buffers, ALL_TERMS)
            buffers.sort()
            entries.extend(buffers.ids, buffers.occurrence_count)
            starts_out[i + 1] = entries.size
            lengths_out[i] = buffers.occurrence_count - buffers.variant_count
            turn += buffers.size
            if turn >= TEXT_BYTES_A_TURN:
                turn = 0
                PyEval_RestoreThread(PyEval_SaveThread())
        return LeafTerms(starts, copied(entries.values, entries.size), lengths)

    def matches(self, str text not None, const uint64_t[::1] ids not None):
        cdef size_t i, n = ids.shape[0]
        for i in range(1, n):
            if ids[i - 1] > ids[i]:
                raise ValueError(f"ids must ascend; ids[{i}] is {ids[i]}, after {ids[i - 1]}")
        cdef Buffers buffers = Buffers(True)
        buffers.fold(text, self.tables)
        cdef size_t size = self.find(buffers, &ids[0] if n > 0 else NULL, n)
        cdef const Match* matches = buffers.matches
        starts, ends, which = (np.empty(size, np.uint32) for _ in range(3))
        cdef uint32_t[::1] starts_out = starts, ends_out = ends, which_out = which
        for i in range(size):
            starts_out[i] = matches[i].start
            ends_out[i] = matches[i].end
            which_out[i] = matches[i].which
        return Matches(starts, ends, which)

    cdef size_t find(self, Buffers buffers, const uint64_t* ids, size_t n) except? 0:
        """Fills `buffers.matches` with the ids that occur in the folded text; see `match`."""
        cdef size_t i
        buffers.wanted = 0
        for i in range(n):
            buffers.wanted |= <uint64_t>1 << (ids[i] & 63)
        self.scan(buffers, ALL_TERMS)
        return buffers.match(ids, n)

    def tokens(self, str text not None):
        cdef Buffers buffers = Buffers()
        cdef Occurrence occurrence
        cdef size_t i
        cdef list result = []
        buffers.fold(text, self.tables)
        self.scan(buffers, WITH_JOINED)
        for i in range(buffers.occurrence_count):
            occurrence = buffers.occurrences[i]
            text = PyUnicode_DecodeUTF8(
                <const char*>buffers.bytes + occurrence.start,
                occurrence.end - occurrence.start,
                NULL,
            )
            # `Token(...)` would call a function in Python.
            result.append(tuple.__new__(
                Token, (text, is_word(buffers.classes, occurrence.start, occurrence.end))
            ))
        return result

    def term(self, token not None):
        text, is_word = token
        cdef bytes word = text.encode()
        if is_word and self.is_stemmed(<const uint8_t*><const char*>word, len(word)):
            return self.stem(word).decode() or text
        return text

    cdef int scan(self, Buffers buffers, int kinds) except -1:
        """Fills `buffers.occurrences` with the terms of the folded text.

        `kinds` is WORDS_ONLY (words and CJK terms), WITH_JOINED or ALL_TERMS (also variants).
        """
        cdef size_t place = 0, end, word = 0
        buffers.occurrence_count = buffers.variant_count = 0
        self.find_words(buffers)
        while True:
            end = buffers.words[word].start if word < buffers.word_count else buffers.size
            while place < end and not buffers.is_ascii:
                if buffers.classes[place] == CJK:
                    place = scan_cjk(buffers, place)
                else:
                    place += 1
            if word == buffers.word_count:
                return 0
            word = self.scan_run(buffers, word, kinds)
            place = buffers.words[word - 1].end

    cdef int find_words(self, Buffers buffers) except -1:
        """Fills `buffers.words`, and requests the stems of the words from memory.

        Most of the cache of stems is in distant memory, so the stems arrive while other words are
        found.
        """
        cdef size_t start = 0, end, count = 0
        cdef const uint8_t* classes = buffers.classes
        cdef Word* word
        cdef Word* words = buffers.words_for(buffers.size // 2 + 2)
        while True:
            start = hrag_word_start(classes, start, buffers.size)
            if start >= buffers.size:
                break
            end = hrag_word_end(classes, start)
            word = words + count
            word.start, word.end = <uint32_t>start, <uint32_t>end
            key_of(buffers.bytes + start, end - start, &word.key)
            word.stem_set = set_of(&word.key)
            prefetch(self.stems + word.stem_set)
            count += 1
            start = end
        words[count].start = NO_WORD
        buffers.word_count = count
        return 0

    cdef size_t scan_run(self, Buffers buffers, size_t first, int kinds) except 0:
        """Adds the words of a run, then the whole run if it has more than one word or a suffix.

        `first` is the index of the first word. Returns the index of the first word after the run.
        """
        cdef const uint8_t* classes = buffers.classes
        cdef const Word* word = buffers.words + first
        cdef size_t start = word.start, first_end = word.end, end
        cdef bint varied = kinds == ALL_TERMS and self.variants is not None
        cdef uint64_t term
        while True:
            term = self.word_term(buffers.bytes, word)
            buffers.emit(term & ID_BITS, word.start, word.end)
            if varied and term & VARIES:
                self.add_variants(buffers, term & ID_BITS, word.start, word.end)
            end = word.end
            while classes[end] >= JOINER:
                end += 1
            if end != word[1].start:
                break
            word += 1
        end = word.end
        while classes[end] == SUFFIX:
            end += 1
        if kinds >= WITH_JOINED and end > first_end:
            term = hashed(buffers.bytes + start, end - start)
            buffers.emit(term, start, end)
            if varied:
                self.add_variants(buffers, term, start, end)
        return word + 1 - buffers.words

    cdef int add_variants(self, Buffers buffers, uint64_t term, size_t start, size_t end) except -1:
        """Adds the variants of the word or joined run that has this term."""
        if end - start > 4 * STEMMED_CHARS:
            return 0
        cdef bytes key = buffers.bytes[start:end]
        cdef tuple known = self.known_variants.get(key)
        if known is None:
            known = self.variants_of(key, term)
            if len(self.known_variants) >= VARIANTS:
                self.known_variants.clear()
            self.known_variants[key] = known
        cdef size_t i
        for i in range(0, len(known), 3):
            buffers.emit(known[i], start + <size_t>known[i + 1], start + <size_t>known[i + 2])
            buffers.variant_count += 1
        return 0

    cdef tuple variants_of(self, bytes key, uint64_t term):
        """Returns the id of each variant, and its start and end in bytes of `key`, in one tuple."""
        cdef str text = key.decode()
        cdef list found = []
        cdef bytes encoded
        cdef uint64_t id
        for variant, start, end in self.variants(text):
            encoded = variant.encode()
            id = self.stemmed(<const uint8_t*><const char*>encoded, len(encoded))
            if id != term:
                found += (id, len(text[:start].encode()), len(text[:end].encode()))
        return tuple(found)

    cdef inline uint64_t word_term(self, const uint8_t* data, const Word* word) except? 0:
        """Returns the id of a word's stem, or of the word if it is not stemmed.

        The bit VARIES is set, too, if the word may have variants. `data` is the folded text.
        """
        cdef Stem* ways = self.stems[word.stem_set].stems
        cdef Stem found
        cdef int i
        if word.end - word.start <= STEM_WORD_BYTES:
            for i in range(STEM_WAYS):
                if is_same(ways + i, &word.key):
                    found = ways[i]
                    if i > 0:
                        ways[i] = ways[i - 1]
                        ways[i - 1] = found
                    return found.id
        return self.new_word_term(data + word.start, word)

    cdef uint64_t new_word_term(self, const uint8_t* text, const Word* word) except? 0:
        """Returns the same for a word that is not in the first cache of stems."""
        cdef size_t size = word.end - word.start
        cdef Stem* ways = self.stems[word.stem_set].stems
        cdef Stem added = word.key
        cdef int i = STEM_WAYS - 1
        if self.stem is None:
            return hashed(text, size) | varying(text, size)
        if size > STEM_WORD_BYTES:
            return self.long_word_term(text, size) | varying(text, size)
        added.id = self.stemmed(text, size) | varying(text, size)
        while i > 0 and ways[i - 1].word[0] == 0:  # The place is free.
            i -= 1
        ways[i] = added
        return added.id

    cdef uint64_t long_word_term(self, const uint8_t* word, size_t size) except? 0:
        # A character has at most 4 bytes, so a word of more bytes is too long to be stemmed.
        if size > 4 * STEMMED_CHARS:
            return hashed(word, size)
        cdef bytes key = word[:size]
        term = self.long_stems.get(key)
        if term is None:
            term = self.stemmed(word, size)
            if len(self.long_stems) >= LONG_STEMS:
                self.long_stems.clear()
            self.long_stems[key] = term
        return term

    cdef uint64_t stemmed(self, const uint8_t* word, size_t size) except? 0:
        cdef bytes stem
        if self.is_stemmed(word, size):
            stem = self.stem(word[:size])
            if stem:
                return hashed(<const uint8_t*><const char*>stem, len(stem))
        return hashed(word, size)

    cdef inline bint is_stemmed(self, const uint8_t* word, size_t size) noexcept:
        cdef size_t i, chars = 0
        if self.stem is None:
            return False
        for i in range(size):
            chars += word[i] & 0xC0 != 0x80  # Other bytes continue a character.
        return chars <= STEMMED_CHARS and (chars == size or not self.ascii_only)


cdef uint64_t varying(const uint8_t* word, size_t size) noexcept nogil:
    """Returns 0 for a word of ASCII letters alone or of ASCII digits alone, otherwise VARIES."""
    cdef size_t i, digits = 0
    for i in range(size):
        if word[i] >= 0x80:
            return VARIES
        digits += b"0" <= word[i] <= b"9"
    return VARIES if 0 < digits < size else 0


cdef inline void key_of(const uint8_t* word, size_t size, Stem* key) noexcept nogil:
    key.word[0] = hrag_padded(word, size)
    key.word[1] = hrag_padded(word + 8, size - 8) if size > 8 else 0
    key.word[2] = hrag_padded(word + 16, size - 16) if size > 16 else 0


cdef inline uint32_t set_of(const Stem* key) noexcept nogil:
    cdef uint64_t mix = key.word[0] * <uint64_t>0x9E3779B97F4A7C15
    mix = (mix ^ (mix >> 32) ^ key.word[1]) * <uint64_t>0xD6E8FEB86659FD93
    mix = (mix ^ (mix >> 32) ^ key.word[2]) * <uint64_t>0xD6E8FEB86659FD93
    return <uint32_t>(mix >> (64 - STEM_SET_BITS))


cdef inline bint is_same(const Stem* a, const Stem* b) noexcept nogil:
    return a.word[0] == b.word[0] and a.word[1] == b.word[1] and a.word[2] == b.word[2]


cdef size_t scan_cjk(Buffers buffers, size_t place) except 0:
    """Adds the characters and bigrams of a run of class CJK. Returns the end of the run."""
    cdef const uint8_t* data = buffers.bytes
    cdef const uint8_t* classes = buffers.classes
    cdef size_t end = next_character(data, place), after
    while True:
        buffers.emit(hashed(data + place, end - place), place, end)
        if classes[end] != CJK:
            return end
        after = next_character(data, end)
        buffers.emit(hashed(data + place, after - place), place, after)
        place = end
        end = after


cdef inline size_t next_character(const uint8_t* data, size_t place) noexcept nogil:
    """Returns the end of a character of class CJK, which has at least three bytes."""
    return place + (4 if data[place] >= 0xF0 else 3)


cdef bint is_word(const uint8_t* classes, size_t start, size_t end) noexcept nogil:
    cdef size_t i
    for i in range(start, end):
        if classes[i] != WORD:
            return False
    return True


cdef size_t find_terms(
    object extractor,
    object buffers,
    const uint8_t* text,
    size_t size,
    const uint64_t* ids,
    size_t n,
    const Match** matches,
) except? 0:
    """Finds terms in a text; see `_analysis.pxd`."""
    cdef TermExtractor finder = <TermExtractor?>extractor
    cdef Buffers memory = <Buffers?>buffers
    memory.fold_utf8(text, size, finder.tables)
    cdef size_t count = finder.find(memory, ids, n)
    matches[0] = memory.matches
    return count


cdef object new_buffers():
    """Returns the memory for calls of `find_terms`; see `_analysis.pxd`."""
    return Buffers(True)


cdef class Entries:
    """A growing array of the entries of leaves: `LeafTerms.entries`."""

    cdef:
        uint64_t* values
        size_t size
        size_t capacity

    def __dealloc__(self):
        PyMem_Free(self.values)

    cdef int extend(self, const uint64_t* ids, size_t n) except -1:
        """Appends one entry for each different id, with its frequency. `ids` must be sorted."""
        cdef size_t i, start = 0, last = self.size
        if self.size + n > self.capacity:
            self.capacity = larger(self.capacity, self.size + n)
            self.values = <uint64_t*>resized(self.values, self.capacity * sizeof(uint64_t))
        for i in range(n):  # The loop has no branch: a CPU cannot predict if an id repeats.
            last += i > 0 and ids[i] != ids[i - 1]
            start = i if i == 0 or ids[i] != ids[i - 1] else start
            self.values[last] = ids[i] << 8 | min(i + 1 - start, <size_t>FREQUENCY_LIMIT)
        self.size = last + (n > 0)
        return 0


cdef object copied(const uint64_t* values, size_t size):
    """Returns a copy of the values as a new array, uint64[size]."""
    result = np.empty(size, np.uint64)
    cdef uint64_t[::1] out = result
    if size > 0:
        memcpy(&out[0], values, size * sizeof(uint64_t))
    return result


cdef inline bint is_before(Match a, Match b) noexcept nogil:
    if a.start != b.start:
        return a.start < b.start
    if a.end != b.end:
        return a.end < b.end
    return a.which < b.which


cdef inline size_t lower_bound(const uint64_t* ids, size_t n, uint64_t value) noexcept nogil:
    cdef size_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
