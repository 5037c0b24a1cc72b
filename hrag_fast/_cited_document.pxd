# cython: language_level=3
"""Declares `CitedDocument`, and the functions that write its chunks and sentences."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

from hrag_fast._chunk_tree cimport Record
from hrag_fast._cited cimport TextRange
from hrag_fast._wire_writer cimport (
    NUMBER_BYTES,
    Writer,
    close,
    put_bytes,
    put_decimal,
    put_number,
)

cdef enum:  # Field numbers.
    SPAN_BYTE_START = 1
    SPAN_BYTE_END = 2
    SPAN_CHAR_START = 3
    SPAN_CHAR_END = 4

cdef enum:
    # Upper bounds of encoded lengths.
    SPAN_BYTES = 2 + 4 * NUMBER_BYTES
    POSITION_BYTES = 2 * 11  # "#", a level, "." and an index.
    SENTENCE_BYTES = 3 * NUMBER_BYTES + SPAN_BYTES  # A sentence without its section path.


cdef class CitedDocument:
    cdef bytes fields
    cdef bytes name
    cdef object section_path_of
    cdef dict section_paths  # The encoded field of a chunk for each section.
    cdef dict sentence_paths  # The encoded field of a sentence for each section.
    cdef const uint32_t[::1] page_numbers
    cdef const uint32_t[::1] page_starts
    cdef const uint32_t[::1] section_starts
    cdef object heading_end  # If it is None, passages have no sentence to cite.
    cdef const uint8_t[::1] recognised  # 1 for each recognised page; empty if there is none.

    cdef bytes section_path(self, uint32_t section, bint of_sentence)


cdef size_t chunk_capacity(CitedDocument document, const Record* record) noexcept
cdef size_t recognised_capacity(CitedDocument document, const Record* record) noexcept
cdef void put_chunk(
    Writer* writer,
    CitedDocument document,
    const Record* record,
    const uint8_t[::1] text,
    bytes section_path,
    size_t level,
    size_t index,
) noexcept
cdef void put_sentence(
    Writer* writer, CitedDocument document, const TextRange* sentence, bytes section_path
) noexcept


cdef inline Record record_of(const TextRange* sentence) noexcept:
    """Returns a record with the span of a sentence. The other fields of the record are 0."""
    cdef Record span
    memset(&span, 0, sizeof(Record))
    span.byte_start, span.byte_end = <uint32_t>sentence.byte_start, <uint32_t>sentence.byte_end
    span.char_start, span.char_end = sentence.char_start, sentence.char_end
    return span


cdef inline void put_span(Writer* writer, int field, const Record* record) noexcept:
    """Writes a field with the span of a chunk, or of another part of the text."""
    cdef const uint8_t* field_end = writer.at
    put_number(writer, SPAN_CHAR_END, record.char_end)
    put_number(writer, SPAN_CHAR_START, record.char_start)
    put_number(writer, SPAN_BYTE_END, record.byte_end)
    put_number(writer, SPAN_BYTE_START, record.byte_start)
    close(writer, field, field_end - writer.at)


cdef inline void put_id(
    Writer* writer, int field, bytes document_id, uint32_t level, uint32_t index
) noexcept:
    """Writes a chunk id, `<document_id>#<level>.<index>`, which hrag.values.ids defines."""
    cdef const uint8_t* field_end = writer.at
    put_decimal(writer, index)
    put_bytes(writer, b".", 1)
    put_decimal(writer, level)
    put_bytes(writer, b"#", 1)
    put_bytes(writer, PyBytes_AS_STRING(document_id), PyBytes_GET_SIZE(document_id))
    close(writer, field, field_end - writer.at)
