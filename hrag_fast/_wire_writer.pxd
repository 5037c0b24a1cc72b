# cython: language_level=3
"""Writes fields in protobuf's wire format (https://protobuf.dev/programming-guides/encoding).

A message is written from its end to its beginning, as in protobuf's upb, because the length of a
field stands before its content and is known only afterwards. Fields that are 0 or empty are left
out, as in protobuf. The caller provides enough memory: nothing is checked here.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum:  # Wire types.
    VARINT = 0
    BYTES = 2
    FIXED32 = 5

cdef enum:
    # The most bytes of a field with an integer of 32 bits. All field numbers are below 16, so a tag
    # takes one byte.
    NUMBER_BYTES = 1 + 5


cdef struct Writer:
    uint8_t* at  # The start of the bytes that have been written.
    uint8_t* end  # The end of these bytes, which never changes.


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
    """Turns the `count` bytes written last into a field: writes their length and a tag before."""
    put_varint(writer, count)
    put_tag(writer, field, BYTES)


cdef inline void put_number(Writer* writer, int field, uint32_t value) noexcept:
    if value:
        put_varint(writer, value)
        put_tag(writer, field, VARINT)


cdef inline void put_float(Writer* writer, int field, float value) noexcept:
    cdef uint32_t bits
    memcpy(&bits, &value, sizeof(bits))
    if bits:  # -0.0 is written, as in protobuf.
        put_bytes(writer, <const char*>&bits, sizeof(bits))
        put_tag(writer, field, FIXED32)


cdef inline void put_present_float(Writer* writer, int field, float value) noexcept:
    """Writes a field that has presence, even if it is 0."""
    put_bytes(writer, <const char*>&value, sizeof(value))
    put_tag(writer, field, FIXED32)


cdef inline void put_decimal(Writer* writer, uint32_t value) noexcept:
    while True:
        writer.at -= 1
        writer.at[0] = <uint8_t>(48 + value % 10)
        value //= 10
        if value == 0:
            return
