# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`PassageEncoder`: encodes stored chunks as protobuf messages. It ends every search.

Each passage becomes a `hrag.v1.SearchResponse` with only this passage. The concatenation of these
messages is one message with all passages. `_cited_document.pyx` encodes the chunk of a passage and
the sentence to cite. The spans of leaves are copied from the binary tree, without Python objects in
between.

`_passages.pyi` is the documentation for callers. The right answer is what protobuf itself
encodes for the same values; a property test compares the two.
"""

from hrag_fast._sentences import MAX_SENTENCE_CHARS

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport SIZE_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr
from libcpp.vector cimport vector
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from hrag_fast._analysis cimport Match
from hrag_fast._chunk_tree cimport Level, Record, chunk_of, level_of, token_end
from hrag_fast._cited cimport Range, TextRange, add_spans, joined, sentence_of
from hrag_fast._cited_document cimport (
    POSITION_BYTES,
    SENTENCE_BYTES,
    SPAN_BYTES,
    CitedDocument,
    chunk_capacity,
    put_chunk,
    put_id,
    put_sentence,
    put_span,
    recognised_capacity,
    record_of,
)
from hrag_fast._term_matcher cimport TermMatcher
from hrag_fast._wire_writer cimport (
    NUMBER_BYTES,
    Writer,
    close,
    put_float,
    put_number,
    put_present_float,
)

cdef enum:  # Field numbers.
    RESPONSE_PASSAGES = 1
    PASSAGE_CHUNK = 1
    PASSAGE_SCORE = 2
    PASSAGE_MATCHED_CHILDREN = 3
    PASSAGE_MERGED_CHUNK_IDS = 4
    PASSAGE_LEXICAL_SCORE = 5
    PASSAGE_DENSE_SCORE = 6
    PASSAGE_TERM_SPANS = 7
    PASSAGE_MATCHED_SENTENCE = 8
    TERM_CHAR_START = 1
    TERM_CHAR_END = 2
    CHILD_CHUNK_ID = 1
    CHILD_SCORE = 2
    CHILD_SPAN = 3
    CHILD_LEXICAL_SCORE = 4
    CHILD_DENSE_SCORE = 5

# Up to this many bytes before and after a leaf may be read to find the sentence to cite.
cdef size_t REACH_BYTES = 4 * MAX_SENTENCE_CHARS

cdef enum:
    LEAF_INDEX_BITS = 20
    # A call of Python that checks a deadline takes as long as encoding a passage. So it is made
    # once in this time: most searches make one.
    CHECK_NS = 1_000_000
    # Upper bounds of encoded lengths.
    CHILD_BYTES = 5 * NUMBER_BYTES + SPAN_BYTES + POSITION_BYTES
    MERGED_BYTES = NUMBER_BYTES + POSITION_BYTES
    TERM_SPAN_BYTES = 2 + 2 * NUMBER_BYTES
    # This is a lower bound: the first span may begin at 0, and a field that is 0 is left out.
    LEAST_TERM_SPAN_BYTES = 2 + 2


cdef class PassageDocument:
    """A document from which passages are encoded; see `_passages.pyi`."""

    cdef CitedDocument cited
    cdef const uint8_t[::1] tree
    cdef const uint8_t[::1] text
    cdef bytearray checked  # One byte for each block of the text; None if nothing is known.
    cdef size_t block_bytes

    def __cinit__(
        self,
        CitedDocument cited not None,
        const uint8_t[::1] tree not None,
        const uint8_t[::1] text not None,
        bytearray checked=None,
        size_t block_bytes=1,
    ):
        if not block_bytes:
            raise ValueError("block_bytes is 0; it must be at least 1")
        self.cited, self.tree, self.text = cited, tree, text
        self.checked, self.block_bytes = checked, block_bytes

    cdef int require(self, object verify, object ordinal, size_t start, size_t end) except -1:
        """Calls `verify` for a part of the text, if not all blocks of the part are checked."""
        cdef size_t first, last
        if verify is None:
            return 0
        if self.checked is not None:
            first = start // self.block_bytes
            last = min(
                (end + self.block_bytes - 1) // self.block_bytes,
                <size_t>PyByteArray_GET_SIZE(self.checked),
            )
            if first < last and not memchr(
                PyByteArray_AS_STRING(self.checked) + first, 0, last - first
            ):
                return 0
        verify(ordinal, start, end)
        return 0


cdef struct Placed:  # A chunk that becomes a passage.
    PyObject* document  # A PassageDocument.
    PyObject* ordinal
    size_t level
    size_t index
    Record span  # The span of the chunk, without the text that better passages have.


cdef class PassageEncoder:
    """Encodes the passages of one search; see `_passages.pyi`."""

    cdef const uint64_t[::1] labels
    cdef const uint64_t[::1] keys
    cdef const float[::1] scores
    cdef const uint32_t[::1] starts
    cdef const uint32_t[::1] children
    cdef const float[::1] child_scores
    cdef const float[::1] lexical
    cdef const float[::1] dense
    cdef bint has_lexical
    cdef bint has_dense
    cdef uint32_t leaf_level
    cdef TermMatcher terms  # None if the query has no terms.
    cdef bint spans

    def __cinit__(
        self,
        labels,
        groups,
        uint32_t leaf_level,
        lexical=None,
        dense=None,
        TermMatcher terms=None,
        bint spans=False,
    ):
        self.labels = labels
        keys, scores, starts, children, child_scores = groups
        self.keys, self.scores, self.starts, self.children = keys, scores, starts, children
        self.child_scores = child_scores
        self.leaf_level = leaf_level
        self.has_lexical = lexical is not None
        self.has_dense = dense is not None
        # If only one source was searched, its scores are the same array as `child_scores`.
        self.lexical = self.child_scores
        if self.has_lexical and lexical is not child_scores:
            self.lexical = lexical
        self.dense = self.child_scores
        if self.has_dense and dense is not child_scores:
            self.dense = dense
        self.terms = terms
        self.spans = spans
        for name, count in (
            ("child_scores", self.child_scores.shape[0]),
            ("lexical", self.lexical.shape[0]),
            ("dense", self.dense.shape[0]),
        ):
            if self.children.shape[0] != count:
                raise ValueError(
                    f"{name} has {count} entries; it must have {self.children.shape[0]}, "
                    "as children"
                )

    def passage(
        self,
        PassageDocument document not None,
        size_t level,
        size_t index,
        size_t group,
        record=None,
        merged=(),
        size_t max_bytes=SIZE_MAX,
        verify=None,
        ordinal=0,
    ):
        """Returns one passage as an encoded SearchResponse; see `_passages.pyi`."""
        cdef Record chunk = chunk_of(document.tree, level, index)
        if record is not None:
            (
                chunk.byte_start, chunk.byte_end, chunk.char_start, chunk.char_end,
                chunk.token_start, chunk.token_count, chunk.parent, chunk.first_child,
                chunk.child_count, chunk.section,
            ) = record
        self.check_group(group)
        return self.passage_of(
            document, level, index, group, &chunk, merged, max_bytes, verify, ordinal
        )

    def passages(
        self,
        size_t level,
        merged not None,
        size_t limit,
        bint keep_overlap,
        open_document,
        verify=None,
        check=None,
        size_t max_bytes=SIZE_MAX,
    ):
        """Returns the passages of the best groups, or None; see `_passages.pyi`."""
        cdef size_t count = min(limit, <size_t>self.keys.shape[0]), group
        cdef Placed* placed = <Placed*>malloc((count + 1) * sizeof(Placed))
        cdef Placed* at
        cdef int64_t check_ns = 0
        cdef bytes passage
        if placed == NULL:
            raise MemoryError
        encoded, referenced = [], []
        try:
            for group in range(count):
                if check is not None and now_ns() >= check_ns:
                    check("reading passages")
                    check_ns = now_ns() + CHECK_NS
                self.check_group(group)
                at = &placed[group]
                self.place(placed, group, level, merged, open_document, referenced)
                if not keep_overlap and not self.is_trimmed(placed, group, verify):
                    return None
                try:
                    passage = self.passage_of(
                        <PassageDocument>at.document, at.level, at.index, group, &at.span, (),
                        max_bytes, verify, <object>at.ordinal,
                    )
                except OverflowError:
                    return None
                encoded.append(passage)
                max_bytes -= PyBytes_GET_SIZE(passage)
            return tuple(encoded)
        finally:
            free(placed)

    cdef int place(
        self,
        Placed* placed,
        size_t group,
        size_t level,
        merged,
        open_document,
        list referenced,
    ) except -1:
        """Writes the document, the position and the whole span of the chunk of a group."""
        cdef uint64_t key = self.keys[group]
        cdef size_t better
        cdef object ordinal
        cdef Placed* at = &placed[group]
        at.level, at.index = level, leaf_of(key)
        if merged:
            chunk = merged.get(key)
            if chunk is not None:
                at.level, at.index = chunk[0]
        for better in range(group):
            if self.keys[better] >> LEAF_INDEX_BITS == key >> LEAF_INDEX_BITS:
                at.document, at.ordinal = placed[better].document, placed[better].ordinal
                break
        else:
            ordinal = key >> LEAF_INDEX_BITS
            document = <PassageDocument?>open_document(ordinal)
            referenced += (ordinal, document)
            at.document, at.ordinal = <PyObject*>document, <PyObject*>ordinal
        at.span = chunk_of((<PassageDocument>at.document).tree, at.level, at.index)
        return 0

    cdef bint is_trimmed(self, Placed* placed, size_t group, verify) except -1:
        """Removes the text of better passages from the span of a chunk.

        A passage touches the chunk if they overlap, or if one ends where the other begins. Returns
        False if a passage touches the chunk, and the remaining text is empty or blank or has no
        leaf of the group. Then the chunk is perhaps no passage.
        """
        cdef Placed* at = &placed[group]
        cdef uint64_t start = at.span.token_start, end = token_end(&at.span), least = 0
        cdef Placed* other = next_touched(placed, group, start, end, least)
        if other == NULL:
            return True
        while other != NULL:
            if other.span.token_start > at.span.token_start:
                if not is_part_before(&at.span, &other.span):
                    return False
                break
            if not is_part_after(&at.span, &other.span):
                return False
            least = <uint64_t>other.span.token_start + 1
            other = next_touched(placed, group, start, end, least)
        return (
            self.has_leaf(<PassageDocument>at.document, group, &at.span)
            and has_visible(<PassageDocument>at.document, &at.span, verify, <object>at.ordinal)
        )

    cdef bint has_leaf(
        self, PassageDocument document, size_t group, const Record* span
    ) except -1:
        """Returns True if a part of a leaf of the group lies in a span."""
        cdef Level leaves = level_of(document.tree, self.leaf_level)
        cdef size_t child
        cdef Record part
        for child in range(self.starts[group], self.starts[group + 1]):
            if self.part_of_child(span, leaves, child, &part):
                return True
        return False

    cdef int check_group(self, size_t group) except -1:
        """Raises IndexError if the group or its children do not exist."""
        if group + 1 >= <size_t>self.starts.shape[0] or group >= <size_t>self.scores.shape[0]:
            raise IndexError(
                f"group is {group}; it must be below {self.scores.shape[0]}, the number of groups"
            )
        if not self.starts[group] <= self.starts[group + 1] <= <size_t>self.children.shape[0]:
            raise IndexError(
                f"group {group} has children {self.starts[group]} to {self.starts[group + 1]}; "
                f"they must ascend and be at most {self.children.shape[0]}, the number of children"
            )
        return 0

    cdef bytes passage_of(
        self,
        PassageDocument document,
        size_t level,
        size_t index,
        size_t group,
        Record* chunk,
        merged,
        size_t max_bytes,
        verify,
        ordinal,
    ):
        """Returns one passage as an encoded SearchResponse. `chunk` has the span of the passage."""
        cdef CitedDocument cited = document.cited
        cdef const uint8_t[::1] text = document.text
        cdef Level leaves = level_of(document.tree, self.leaf_level)
        if not chunk.byte_start <= chunk.byte_end <= <size_t>text.shape[0]:
            raise ValueError(
                f"the chunk has bytes {chunk.byte_start} to {chunk.byte_end}; they must ascend and "
                f"be at most {text.shape[0]}, the length of the text"
            )
        check_size(chunk.byte_end - chunk.byte_start + PyBytes_GET_SIZE(cited.fields), max_bytes)
        document.require(
            verify,
            ordinal,
            max(chunk.byte_start, REACH_BYTES) - REACH_BYTES,
            chunk.byte_end + REACH_BYTES,
        )
        cdef TextRange sentence
        cdef const TextRange* to_cite = NULL
        term_spans = ()
        if cited.heading_end is not None:
            to_cite = &sentence
            term_spans = self.cite(cited, chunk, text, leaves, group, &sentence, max_bytes)
            chunk.section = sentence.section
        return self.encoded(
            cited,
            chunk,
            text,
            leaves,
            level,
            index,
            group,
            merged,
            term_spans,
            to_cite,
            max_bytes,
        )

    cdef object cite(
        self,
        CitedDocument document,
        const Record* chunk,
        const uint8_t[::1] text,
        Level leaves,
        size_t group,
        TextRange* sentence,
        size_t max_bytes,
    ):
        """Writes the sentence to cite in the best leaf. Returns the term spans in all leaves."""
        cdef size_t i, span_bytes = 0
        cdef Record part
        cdef TextRange leaf
        cdef vector[Match] matches
        cdef vector[Range] spans
        cdef const float[::1] weights = None
        if self.terms is not None:
            weights = self.terms.weights
        for i in range(self.starts[group], self.starts[group + 1]):
            if not self.part_of_child(chunk, leaves, i, &part):
                continue
            if self.terms is not None:
                if part.byte_start > part.byte_end:
                    raise ValueError(
                        f"a leaf has bytes {part.byte_start} to {part.byte_end}; they must ascend"
                    )
                self.terms.find(
                    &text[part.byte_start], part.byte_end - part.byte_start, matches
                )
                if self.spans:
                    span_bytes += matches.size() * <size_t>LEAST_TERM_SPAN_BYTES
                    check_size(span_bytes, max_bytes)
                    add_spans(
                        matches.data(), matches.size(), part.char_start, chunk.char_start,
                        chunk.char_end, spans,
                    )
            if sentence != NULL:
                leaf.byte_start, leaf.byte_end = part.byte_start, part.byte_end
                leaf.char_start, leaf.char_end = part.char_start, part.char_end
                leaf.section = part.section
                sentence[0] = sentence_of(
                    text, &leaf, document.section_starts, document.heading_end, matches.data(),
                    matches.size(), weights,
                )
                sentence = NULL
            if self.terms is None or not self.spans:
                break
        if sentence != NULL:
            raise ValueError(f"no leaf of group {group} lies in the passage, so none can be cited")
        return joined(spans) if self.spans else ()

    cdef bytes encoded(
        self,
        CitedDocument document,
        const Record* chunk,
        const uint8_t[::1] text,
        Level leaves,
        size_t level,
        size_t index,
        size_t group,
        merged,
        term_spans,
        const TextRange* sentence,
        size_t max_bytes,
    ):
        """Returns the encoded passage. `sentence` is the sentence to cite, or NULL."""
        cdef bytes section_path = document.section_path(chunk.section, False)
        cdef bytes sentence_path = b""
        if sentence != NULL:
            sentence_path = document.section_path(sentence.section, True)
        cdef size_t name = PyBytes_GET_SIZE(document.name)
        check_size(
            chunk.byte_end - chunk.byte_start + PyBytes_GET_SIZE(document.fields)
            + PyBytes_GET_SIZE(section_path) + PyBytes_GET_SIZE(sentence_path)
            + len(term_spans) * <size_t>LEAST_TERM_SPAN_BYTES,
            max_bytes,
        )
        cdef size_t capacity = (
            5 * NUMBER_BYTES + chunk_capacity(document, chunk) + PyBytes_GET_SIZE(section_path)
            + (self.starts[group + 1] - self.starts[group]) * (CHILD_BYTES + name)
            + len(merged) * (MERGED_BYTES + name)
            + len(term_spans) * TERM_SPAN_BYTES
            + SENTENCE_BYTES + PyBytes_GET_SIZE(sentence_path)
            + recognised_capacity(document, chunk)
        )
        cdef Record cited
        if sentence != NULL:
            cited = record_of(sentence)
            capacity += recognised_capacity(document, &cited)
        cdef uint8_t* buffer = <uint8_t*>malloc(capacity)
        if buffer == NULL:
            raise MemoryError
        cdef Writer writer
        cdef const uint8_t* chunk_end
        writer.at = writer.end = buffer + capacity
        try:
            if sentence != NULL:
                put_sentence(&writer, document, sentence, sentence_path)
                close(&writer, PASSAGE_MATCHED_SENTENCE, writer.end - writer.at)
            put_term_spans(&writer, term_spans)
            self.put_best(&writer, group)
            for merged_level, merged_index in reversed(merged):
                put_id(
                    &writer, PASSAGE_MERGED_CHUNK_IDS, document.name, merged_level, merged_index
                )
            self.put_children(&writer, chunk, document.name, leaves, group)
            put_float(&writer, PASSAGE_SCORE, self.scores[group])
            chunk_end = writer.at
            put_chunk(&writer, document, chunk, text, section_path, level, index)
            close(&writer, PASSAGE_CHUNK, chunk_end - writer.at)
            close(&writer, RESPONSE_PASSAGES, writer.end - writer.at)
            check_size(writer.end - writer.at, max_bytes)
            return PyBytes_FromStringAndSize(<char*>writer.at, writer.end - writer.at)
        finally:
            free(buffer)

    cdef void put_best(self, Writer* writer, size_t group) noexcept:
        """Writes the dense and the lexical score of the group's best leaf, its first child."""
        cdef size_t best = self.starts[group]
        if best < self.starts[group + 1]:
            if self.has_dense:
                put_present_float(writer, PASSAGE_DENSE_SCORE, self.dense[best])
            if self.has_lexical:
                put_present_float(writer, PASSAGE_LEXICAL_SCORE, self.lexical[best])

    cdef int put_children(
        self,
        Writer* writer,
        const Record* inside,
        bytes document_id,
        Level leaves,
        size_t group,
    ) except -1:
        """Writes the group's leaves, cut to the span of `inside`.

        Leaves outside of this span are left out.
        """
        cdef size_t i, leaf
        cdef Record part
        cdef const uint8_t* end_of_child
        for i in range(self.starts[group + 1], self.starts[group], -1):
            if not self.part_of_child(inside, leaves, i - 1, &part):
                continue
            end_of_child = writer.at
            if self.has_dense:
                put_present_float(writer, CHILD_DENSE_SCORE, self.dense[i - 1])
            if self.has_lexical:
                put_present_float(writer, CHILD_LEXICAL_SCORE, self.lexical[i - 1])
            put_span(writer, CHILD_SPAN, &part)
            put_float(writer, CHILD_SCORE, self.child_scores[i - 1])
            leaf = leaf_of(self.labels[self.children[i - 1]])
            put_id(writer, CHILD_CHUNK_ID, document_id, self.leaf_level, leaf)
            close(writer, PASSAGE_MATCHED_CHILDREN, end_of_child - writer.at)
        return 0

    cdef bint part_of_child(
        self, const Record* inside, Level leaves, size_t child, Record* part
    ) except -1:
        """Writes the part of a child inside the span of `inside`.

        Returns False if this part is empty.
        """
        cdef size_t row = self.children[child], leaf
        if row >= <size_t>self.labels.shape[0]:
            raise IndexError(
                f"children[{child}] is row {row}; it must be below {self.labels.shape[0]}, the "
                "number of labels"
            )
        leaf = leaf_of(self.labels[row])
        if leaf >= leaves.count:
            raise IndexError(
                f"labels[{row}] names leaf {leaf}; it must be below {leaves.count}, the number of "
                "leaves of the document"
            )
        part[0] = leaves.first[leaf]
        if part.char_end <= inside.char_start or inside.char_end <= part.char_start:
            return False
        part.byte_start = max(part.byte_start, inside.byte_start)
        part.byte_end = min(part.byte_end, inside.byte_end)
        part.char_start = max(part.char_start, inside.char_start)
        part.char_end = min(part.char_end, inside.char_end)
        return True


cdef inline int64_t now_ns() noexcept:
    """Returns monotonic nanoseconds."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef inline int check_size(size_t size, size_t max_bytes) except -1:
    if size > max_bytes:
        raise OverflowError(
            f"the passage has {size} bytes or more; at most {max_bytes} are allowed"
        )
    return 0


cdef inline size_t leaf_of(uint64_t label) noexcept:
    return label & ((<uint64_t>1 << LEAF_INDEX_BITS) - 1)


cdef Placed* next_touched(
    Placed* placed, size_t group, uint64_t start, uint64_t end, uint64_t least
) noexcept:
    """Returns the first passage of a group's document that touches a range of tokens, or NULL.

    Only passages of better groups that begin at the token `least` or after it count.
    """
    cdef Placed* first = NULL
    cdef Placed* other
    cdef size_t better
    for better in range(group):
        other = &placed[better]
        if (
            other.ordinal == placed[group].ordinal
            and least <= other.span.token_start <= end
            and token_end(&other.span) >= start
            and (first == NULL or other.span.token_start < first.span.token_start)
        ):
            first = other
    return first


cdef inline bint is_part_after(Record* span, const Record* before) noexcept:
    """Removes everything up to the end of another span. Returns False if no token remains."""
    cdef uint64_t end = token_end(span)
    if end <= token_end(before):
        return False
    span.byte_start, span.char_start = before.byte_end, before.char_end
    span.token_start = <uint32_t>token_end(before)
    span.token_count = <uint32_t>(end - token_end(before))
    return True


cdef inline bint is_part_before(Record* span, const Record* after) noexcept:
    """Removes everything from the start of another span. Returns False if no token remains."""
    if after.token_start <= span.token_start:
        return False
    span.byte_end, span.char_end = after.byte_start, after.char_start
    span.token_count = after.token_start - span.token_start
    return True


cdef bint has_visible(
    PassageDocument document, const Record* span, verify, ordinal
) except -1:
    """Returns True if a span of the text has a character that is certainly no white space.

    White space begins with an ASCII byte up to 0x20, with 0xC2 or 0xE2, or is U+1680 or U+3000. A
    sentence nearly always has other characters.
    """
    cdef size_t i
    cdef uint8_t byte, next_byte
    if not span.byte_start <= span.byte_end <= <size_t>document.text.shape[0]:
        return False
    document.require(verify, ordinal, span.byte_start, span.byte_end)
    for i in range(span.byte_start, span.byte_end):
        byte = document.text[i]
        next_byte = document.text[i + 1] if i + 1 < span.byte_end else 0
        if (
            0x21 <= byte <= 0x7E
            or 0xC3 <= byte <= 0xE0
            or 0xE4 <= byte <= 0xF4
            or (byte == 0xE1 and next_byte > 0x9A)
            or (byte == 0xE3 and next_byte > 0x80)
        ):
            return True
    return False


cdef int put_term_spans(Writer* writer, term_spans) except -1:
    """Writes a repeated field of spans. A span is a pair of character offsets."""
    cdef const uint8_t* end_of_span
    cdef uint32_t char_start, char_end
    for char_start, char_end in reversed(term_spans):
        end_of_span = writer.at
        put_number(writer, TERM_CHAR_END, char_end)
        put_number(writer, TERM_CHAR_START, char_start)
        close(writer, PASSAGE_TERM_SPANS, end_of_span - writer.at)
    return 0
