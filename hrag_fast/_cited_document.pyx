# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`CitedDocument`: what all passages of a document share, and how their chunks are encoded.

It writes the fields of chunks and of sentences to cite, with the field numbers of `protos/`. The
content of a chunk is copied from LMDB's pages into the message, without Python objects in between.
`_cited_document.pyi` is the documentation for callers.
"""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hrag_fast._chunk_tree cimport Record
from hrag_fast._cited cimport TextRange, count_before
from hrag_fast._wire_writer cimport (
    NUMBER_BYTES,
    Writer,
    close,
    put_bytes,
    put_number,
    put_varint,
)

cdef enum:  # Field numbers.
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
    CHUNK_RECOGNISED_PAGES = 15
    PAGE_NUMBER = 1
    PAGE_CHAR_START = 2
    SENTENCE_SPAN = 1
    SENTENCE_SECTION_PATH = 2
    SENTENCE_FIRST_PAGE = 3
    SENTENCE_LAST_PAGE = 4
    SENTENCE_RECOGNISED_PAGES = 5

cdef enum:
    # Upper bounds of encoded lengths. This is a chunk without document id, section path, pages and
    # content.
    CHUNK_BYTES = 7 * NUMBER_BYTES + SPAN_BYTES + POSITION_BYTES
    PAGE_BYTES = 3 * NUMBER_BYTES

cdef uint32_t NO_SECTION = 0xFFFFFFFF  # The section of a chunk that is in no section.


cdef class CitedDocument:
    """The encoded data that all passages of one document share; see `_cited_document.pyi`."""

    def __cinit__(
        self,
        bytes fields not None,
        bytes document_id not None,
        section_path,
        page_numbers=(),
        page_starts=(),
        section_starts=(),
        heading_end=None,
        recognised=(),
    ):
        self.fields = fields
        self.name = document_id
        self.section_path_of = section_path
        self.section_paths = {NO_SECTION: b""}
        self.sentence_paths = {NO_SECTION: b""}
        self.page_numbers = array("I", page_numbers)
        self.page_starts = array("I", page_starts)
        self.section_starts = array("I", section_starts)
        self.heading_end = heading_end
        self.recognised = array("B", recognised)
        if self.page_numbers.shape[0] != self.page_starts.shape[0]:
            raise ValueError(
                f"page_starts has {self.page_starts.shape[0]} entries; it must have "
                f"{self.page_numbers.shape[0]}, as page_numbers"
            )
        if self.recognised.shape[0] not in (0, self.page_numbers.shape[0]):
            raise ValueError(
                f"recognised has {self.recognised.shape[0]} entries; it must have "
                f"{self.page_numbers.shape[0]}, as page_numbers, or none"
            )

    cdef bytes section_path(self, uint32_t section, bint of_sentence):
        """Returns the encoded path of a section, as a field of a sentence or of a chunk.

        Each path is encoded only once.
        """
        cdef dict encoded = self.sentence_paths if of_sentence else self.section_paths
        cdef int field = SENTENCE_SECTION_PATH if of_sentence else CHUNK_SECTION_PATH
        path = encoded.get(section)
        if path is None:
            titles = [(<str?>title).encode() for title in self.section_path_of(section)]
            path = b"".join([section_title_field(field, title) for title in titles])
            encoded[section] = path
        return path


cdef bytes section_title_field(int field, bytes title):
    """Returns one encoded value of a repeated field `section_path`, with its tag."""
    cdef uint8_t head[NUMBER_BYTES]
    cdef Writer writer
    writer.at = writer.end = head + NUMBER_BYTES
    close(&writer, field, PyBytes_GET_SIZE(title))
    return writer.at[: writer.end - writer.at] + title


cdef size_t chunk_capacity(CitedDocument document, const Record* record) noexcept:
    """Returns how many bytes the fields of a chunk can take at most, without its section path."""
    cdef size_t first = first_page_end(document, record)
    cdef size_t end = count_before(document.page_starts, record.char_end)
    return (
        CHUNK_BYTES + PyBytes_GET_SIZE(document.fields) + PyBytes_GET_SIZE(document.name)
        + record.byte_end - record.byte_start
        + (end - first if end > first else 0) * <size_t>PAGE_BYTES
    )


cdef void put_chunk(
    Writer* writer,
    CitedDocument document,
    const Record* record,
    const uint8_t[::1] text,
    bytes section_path,
    size_t level,
    size_t index,
) noexcept:
    """Writes the fields of a `hrag.v1.Chunk`, without a length and a tag before them."""
    cdef size_t content = record.byte_end - record.byte_start
    put_pages(writer, document, record)
    put_bytes(writer, PyBytes_AS_STRING(section_path), PyBytes_GET_SIZE(section_path))
    put_span(writer, CHUNK_SPAN, record)
    put_number(writer, CHUNK_TOKEN_COUNT, record.token_count)
    if content:
        put_bytes(writer, <const char*>&text[record.byte_start], content)
        close(writer, CHUNK_CONTENT, content)
    put_number(writer, CHUNK_INDEX, index)
    put_number(writer, CHUNK_LEVEL, level)
    put_id(writer, CHUNK_ID, document.name, level, index)
    put_bytes(writer, PyBytes_AS_STRING(document.fields), PyBytes_GET_SIZE(document.fields))


cdef inline size_t first_page_end(CitedDocument document, const Record* record) noexcept:
    """Returns how many pages begin at or before a span's start.

    The span begins on the last of these pages.
    """
    return count_before(document.page_starts, <uint64_t>record.char_start + 1)


cdef inline void put_pages(
    Writer* writer, CitedDocument document, const Record* record
) noexcept:
    """Writes the page fields of a span: its first page, its last page, and the starts of pages.

    These are the starts of the pages that begin inside the span, after its first page.
    """
    cdef size_t first = first_page_end(document, record)
    cdef size_t end = count_before(document.page_starts, record.char_end)
    cdef size_t page = end
    if not document.page_starts.shape[0]:
        return
    put_recognised(writer, CHUNK_RECOGNISED_PAGES, document, record)
    while page > first:
        page -= 1
        put_page(writer, document.page_numbers[page], document.page_starts[page])
    put_number(writer, CHUNK_LAST_PAGE, last_page(document, record))
    put_number(writer, CHUNK_FIRST_PAGE, first_page(document, record))


cdef void put_sentence(
    Writer* writer, CitedDocument document, const TextRange* sentence, bytes section_path
) noexcept:
    """Writes the fields of a `hrag.v1.MatchedSentence`, without a length and a tag before them."""
    cdef Record span = record_of(sentence)
    if document.page_starts.shape[0]:
        put_recognised(writer, SENTENCE_RECOGNISED_PAGES, document, &span)
        put_number(writer, SENTENCE_LAST_PAGE, last_page(document, &span))
        put_number(writer, SENTENCE_FIRST_PAGE, first_page(document, &span))
    put_bytes(writer, PyBytes_AS_STRING(section_path), PyBytes_GET_SIZE(section_path))
    put_span(writer, SENTENCE_SPAN, &span)


cdef inline uint32_t first_page(CitedDocument document, const Record* record) noexcept:
    """Returns the page on which a span begins. The document must have pages."""
    return document.page_numbers[first_page_index(document, record)]


cdef inline uint32_t last_page(CitedDocument document, const Record* record) noexcept:
    """Returns the page on which a span ends. The document must have pages."""
    return document.page_numbers[last_page_index(document, record)]


cdef inline size_t first_page_index(CitedDocument document, const Record* record) noexcept:
    """Returns the index of the page on which a span begins."""
    cdef size_t pages = first_page_end(document, record)
    return pages - 1 if pages else 0


cdef inline size_t last_page_index(CitedDocument document, const Record* record) noexcept:
    """Returns the index of the page on which a span ends."""
    cdef size_t pages = count_before(document.page_starts, record.char_end)
    return pages - 1 if pages else 0


cdef size_t recognised_capacity(CitedDocument document, const Record* record) noexcept:
    """Returns how many bytes `put_recognised` can write at most."""
    cdef size_t first, last
    if not document.recognised.shape[0]:
        return 0
    first, last = first_page_index(document, record), last_page_index(document, record)
    return NUMBER_BYTES + (last - first + 1 if last >= first else 0) * <size_t>NUMBER_BYTES


cdef inline void put_recognised(
    Writer* writer, int field, CitedDocument document, const Record* record
) noexcept:
    """Writes the numbers of a span's recognised pages, as a packed repeated field."""
    cdef const uint8_t* field_end = writer.at
    cdef size_t first, page
    if not document.recognised.shape[0]:
        return
    first, page = first_page_index(document, record), last_page_index(document, record) + 1
    while page > first:
        page -= 1
        if document.recognised[page]:
            put_varint(writer, document.page_numbers[page])
    if writer.at != field_end:
        close(writer, field, field_end - writer.at)


cdef inline void put_page(Writer* writer, uint32_t number, uint32_t char_start) noexcept:
    cdef const uint8_t* field_end = writer.at
    put_number(writer, PAGE_CHAR_START, char_start)
    put_number(writer, PAGE_NUMBER, number)
    close(writer, CHUNK_PAGE_STARTS, field_end - writer.at)
