# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`PassageEncoder`, at the end of every search: stored chunks to the messages that are sent.

Writes `hrag.v1.Passage` in protobuf's wire format, by the field numbers of `protos/`: content
goes from LMDB's pages into the message, spans of leaves from the packed tree, and no value is
made of any part. Fields that are 0 or empty are left out, as protobuf does. It writes from
the end to the beginning, so that a length is known when its turn comes.

The plain twin are the values of `Snapshot.passages` made messages by `hrag.wire`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:  # Kinds of field.
    VARINT = 0
    BYTES = 2
    FIXED32 = 5

cdef enum:  # Numbers of fields.
    CHUNK_ID = 1
    CHUNK_LEVEL = 3
    CHUNK_INDEX = 4
    CHUNK_CONTENT = 5
    CHUNK_TOKEN_COUNT = 6
    CHUNK_SPAN = 7
    CHUNK_SECTION_PATH = 8
    CHUNK_FIRST_PAGE = 9
    CHUNK_LAST_PAGE = 10
    CHUNK_PAGE_STARTS = 14
    PAGE_NUMBER = 1
    PAGE_CHAR_START = 2
    SPAN_BYTE_START = 1
    SPAN_BYTE_END = 2
    SPAN_CHAR_START = 3
    SPAN_CHAR_END = 4
    PASSAGE_CHUNK = 1
    PASSAGE_SCORE = 2
    PASSAGE_MATCHED_CHILDREN = 3
    PASSAGE_MERGED_CHUNK_IDS = 4
    CHILD_CHUNK_ID = 1
    CHILD_SCORE = 2
    CHILD_SPAN = 3

cdef enum:
    LEAF_INDEX_BITS = 20
    NUMBER_BYTES = 1 + 5  # A field of 32 bits at its longest; all field numbers are below 16.
    SPAN_BYTES = 2 + 4 * NUMBER_BYTES
    PLACE_BYTES = 2 * 11  # "#", a level, "." and an index.
    # Without the bytes of variable length in them.
    CHUNK_BYTES = 7 * NUMBER_BYTES + SPAN_BYTES + PLACE_BYTES
    CHILD_BYTES = 3 * NUMBER_BYTES + SPAN_BYTES + PLACE_BYTES
    PAGE_BYTES = 3 * NUMBER_BYTES
    MERGED_BYTES = NUMBER_BYTES + PLACE_BYTES


cdef packed struct Record:  # hrag.tree.CHUNK.
    uint32_t byte_start
    uint32_t byte_end
    uint32_t char_start
    uint32_t char_end
    uint32_t token_start
    uint32_t token_count
    uint32_t parent
    uint32_t first_child
    uint32_t child_count
    uint32_t section


cdef class PassageEncoder:
    """Encodes passages of one search."""

    cdef const uint64_t[::1] labels
    cdef const uint32_t[::1] children
    cdef const float[::1] child_scores
    cdef uint32_t leaf_level

    def __init__(self, labels, children, child_scores, uint32_t leaf_level):
        self.labels = labels
        self.children = children
        self.child_scores = child_scores
        self.leaf_level = leaf_level
        if self.children.shape[0] != self.child_scores.shape[0]:
            raise ValueError(
                f"{self.children.shape[0]} children, {self.child_scores.shape[0]} scores"
            )

    def passage(
        self,
        bytes document not None,
        bytes document_id not None,
        uint32_t level,
        uint32_t index,
        record,
        const uint8_t[::1] text not None,
        const uint8_t[::1] leaves not None,
        size_t start,
        size_t end,
        float score,
        section_path=(),
        pages=(0, 0),
        page_starts=(),
        merged=(),
    ):
        cdef Record own
        (
            own.byte_start, own.byte_end, own.char_start, own.char_end, own.token_start,
            own.token_count, own.parent, own.first_child, own.child_count, own.section,
        ) = record
        if not own.byte_start <= own.byte_end <= <size_t>text.shape[0]:
            raise ValueError(
                f"bytes {own.byte_start} to {own.byte_end} of a text of {text.shape[0]}"
            )
        if not start <= end <= <size_t>self.children.shape[0]:
            raise IndexError(f"children {start} to {end} of {self.children.shape[0]}")
        cdef list titles = [(<str?>title).encode() for title in section_path]
        cdef size_t name = PyBytes_GET_SIZE(document_id)
        cdef size_t room = (
            2 * NUMBER_BYTES + CHUNK_BYTES + PyBytes_GET_SIZE(document) + name
            + own.byte_end - own.byte_start
            + len(page_starts) * <size_t>PAGE_BYTES
            + (end - start) * (CHILD_BYTES + name)
            + len(merged) * (MERGED_BYTES + name)
        )
        for title in titles:
            room += NUMBER_BYTES + PyBytes_GET_SIZE(title)
        cdef uint8_t* buffer = <uint8_t*>malloc(room)
        if buffer == NULL:
            raise MemoryError
        cdef Writer writer
        writer.at = writer.end = buffer + room
        try:
            for place in reversed(merged):
                put_id(&writer, PASSAGE_MERGED_CHUNK_IDS, document_id, place[0], place[1])
            self.put_children(&writer, &own, document_id, leaves, start, end)
            put_float(&writer, PASSAGE_SCORE, score)
            inside = writer.at
            for page in reversed(page_starts):
                put_page(&writer, page.number, page.char_start)
            put_number(&writer, CHUNK_LAST_PAGE, pages[1])
            put_number(&writer, CHUNK_FIRST_PAGE, pages[0])
            for title in reversed(titles):
                put_bytes(&writer, PyBytes_AS_STRING(title), PyBytes_GET_SIZE(title))
                close(&writer, CHUNK_SECTION_PATH, PyBytes_GET_SIZE(title))
            put_span(&writer, CHUNK_SPAN, &own)
            put_number(&writer, CHUNK_TOKEN_COUNT, own.token_count)
            if own.byte_end > own.byte_start:
                put_bytes(&writer, <const char*>&text[own.byte_start], own.byte_end - own.byte_start)
                close(&writer, CHUNK_CONTENT, own.byte_end - own.byte_start)
            put_number(&writer, CHUNK_INDEX, index)
            put_number(&writer, CHUNK_LEVEL, level)
            put_id(&writer, CHUNK_ID, document_id, level, index)
            put_bytes(&writer, PyBytes_AS_STRING(document), PyBytes_GET_SIZE(document))
            close(&writer, PASSAGE_CHUNK, inside - writer.at)
            return PyBytes_FromStringAndSize(<char*>writer.at, writer.end - writer.at)
        finally:
            free(buffer)

    cdef int put_children(
        self,
        Writer* writer,
        const Record* inside,
        bytes document_id,
        const uint8_t[::1] leaves,
        size_t start,
        size_t end,
    ) except -1:
        """The leaves as far as they lie inside."""
        cdef size_t i, row, leaf, count = leaves.shape[0] // sizeof(Record)
        cdef const Record* own
        cdef Record part
        cdef const uint8_t* behind
        for i in range(end, start, -1):
            row = self.children[i - 1]
            if row >= <size_t>self.labels.shape[0]:
                raise IndexError(f"row {row} of {self.labels.shape[0]}")
            leaf = self.labels[row] & ((<uint64_t>1 << LEAF_INDEX_BITS) - 1)
            if leaf >= count:
                raise IndexError(f"leaf {leaf} of {count}")
            own = <const Record*>&leaves[leaf * sizeof(Record)]
            if own.char_end <= inside.char_start or inside.char_end <= own.char_start:
                continue
            part.byte_start = max(own.byte_start, inside.byte_start)
            part.byte_end = min(own.byte_end, inside.byte_end)
            part.char_start = max(own.char_start, inside.char_start)
            part.char_end = min(own.char_end, inside.char_end)
            behind = writer.at
            put_span(writer, CHILD_SPAN, &part)
            put_float(writer, CHILD_SCORE, self.child_scores[i - 1])
            put_id(writer, CHILD_CHUNK_ID, document_id, self.leaf_level, leaf)
            close(writer, PASSAGE_MATCHED_CHILDREN, behind - writer.at)
        return 0


cdef struct Writer:
    uint8_t* at  # What is written begins here,
    uint8_t* end  # and ends here.


cdef inline void put_bytes(Writer* writer, const char* first, size_t count) noexcept:
    writer.at -= count
    memcpy(writer.at, first, count)


cdef inline void put_varint(Writer* writer, uint64_t value) noexcept:
    cdef uint64_t rest = value >> 7
    cdef uint8_t* at
    writer.at -= 1
    while rest:
        writer.at -= 1
        rest >>= 7
    at = writer.at
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        at += 1
        value >>= 7
    at[0] = <uint8_t>value


cdef inline void put_tag(Writer* writer, int field, int kind) noexcept:
    put_varint(writer, field << 3 | kind)


cdef inline void close(Writer* writer, int field, size_t count) noexcept:
    """Makes the `count` bytes written last a field."""
    put_varint(writer, count)
    put_tag(writer, field, BYTES)


cdef inline void put_number(Writer* writer, int field, uint32_t value) noexcept:
    if value:
        put_varint(writer, value)
        put_tag(writer, field, VARINT)


cdef inline void put_float(Writer* writer, int field, float value) noexcept:
    cdef uint32_t bits
    memcpy(&bits, &value, sizeof(bits))
    if bits:  # -0.0 is written, as protobuf does.
        put_bytes(writer, <const char*>&bits, sizeof(bits))
        put_tag(writer, field, FIXED32)


cdef inline void put_span(Writer* writer, int field, const Record* record) noexcept:
    cdef const uint8_t* behind = writer.at
    put_number(writer, SPAN_CHAR_END, record.char_end)
    put_number(writer, SPAN_CHAR_START, record.char_start)
    put_number(writer, SPAN_BYTE_END, record.byte_end)
    put_number(writer, SPAN_BYTE_START, record.byte_start)
    close(writer, field, behind - writer.at)


cdef inline void put_page(Writer* writer, uint32_t number, uint32_t char_start) noexcept:
    cdef const uint8_t* behind = writer.at
    put_number(writer, PAGE_CHAR_START, char_start)
    put_number(writer, PAGE_NUMBER, number)
    close(writer, CHUNK_PAGE_STARTS, behind - writer.at)


cdef inline void put_id(
    Writer* writer, int field, bytes document_id, uint32_t level, uint32_t index
) noexcept:
    """`<document_id>#<level>.<index>`, see hrag.ids."""
    cdef const uint8_t* behind = writer.at
    put_decimal(writer, index)
    put_bytes(writer, b".", 1)
    put_decimal(writer, level)
    put_bytes(writer, b"#", 1)
    put_bytes(writer, PyBytes_AS_STRING(document_id), PyBytes_GET_SIZE(document_id))
    close(writer, field, behind - writer.at)


cdef inline void put_decimal(Writer* writer, uint32_t value) noexcept:
    while True:
        writer.at -= 1
        writer.at[0] = <uint8_t>(48 + value % 10)
        value //= 10
        if value == 0:
            return
