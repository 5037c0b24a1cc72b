# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Writes small protobuf messages from values, and takes a vector out of an encoded message.

`encode_fields` writes what a search returns beside its passages. `split_vector` reads a request
that consists of a vector and a few options.

`_message_fields.pyi` is the documentation for callers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t, uint64_t

import numpy as np

from libc.string cimport memcpy

from hrag_fast._wire_writer cimport BYTES, VARINT, Writer, close, put_bytes, put_tag, put_varint

cdef enum:
    # A varint has at most 10 bytes. So a tag and a length, or a tag and a number, have at most 20.
    FIELD_BYTES = 20
    FIXED64 = 1
    FIXED32 = 5
    FLOAT_BYTES = 4

cdef object new_array = np.empty
cdef object FLOAT32 = np.dtype(np.float32)


def encode_fields(tuple values not None):
    """Returns an encoded message with these values; see `_message_fields.pyi`."""
    cdef Writer writer
    cdef Py_ssize_t most = 0, field
    cdef object value, message
    for value in values:
        if type(value) is tuple:
            for message in <tuple>value:
                most += bytes_of(message)
        else:
            most += bytes_of(value)
    cdef bytes space = PyBytes_FromStringAndSize(NULL, most)
    writer.end = <uint8_t*>PyBytes_AS_STRING(space) + most
    writer.at = writer.end
    for field in range(len(values), 0, -1):
        value = values[field - 1]
        if type(value) is tuple:
            for message in reversed(<tuple>value):
                put_value(&writer, field, message)
        else:
            put_value(&writer, field, value)
    return PyBytes_FromStringAndSize(<char*>writer.at, writer.end - writer.at)


cdef Py_ssize_t bytes_of(object value) except -1:
    """Returns an upper bound of the size of a field with this value."""
    cdef Py_ssize_t count = 0
    if isinstance(value, str):
        PyUnicode_AsUTF8AndSize(value, &count)
    elif isinstance(value, bytes):
        count = PyBytes_GET_SIZE(value)
    elif value is not None and not PyIndex_Check(value):
        raise TypeError(f"a field must be an int, a str, bytes or None, not {type(value).__name__}")
    return FIELD_BYTES + count


cdef int put_value(Writer* writer, int field, object value) except -1:
    cdef Py_ssize_t count
    cdef const char* text
    cdef uint64_t number
    if value is None:
        return 0
    if isinstance(value, str):
        text = PyUnicode_AsUTF8AndSize(value, &count)
        if count:
            put_bytes(writer, text, count)
            close(writer, field, count)
    elif isinstance(value, bytes):
        count = PyBytes_GET_SIZE(value)
        put_bytes(writer, PyBytes_AS_STRING(value), count)
        close(writer, field, count)
    else:
        number = <uint64_t>PyNumber_Index(value)  # A number of numpy becomes an int.
        if number:
            put_varint(writer, number)
            put_tag(writer, field, VARINT)
    return 0


def split_vector(bytes message not None, int field, int refused):
    """Returns the other fields and the vector of a message; see `_message_fields.pyi`."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(message)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(message)
    cdef const uint8_t* at = start
    cdef const uint8_t* field_start
    cdef const uint8_t* first = NULL  # The start of the field with the vector, and its end.
    cdef const uint8_t* last = NULL
    cdef const uint8_t* numbers = NULL
    cdef uint64_t tag, count, vector_bytes = 0
    cdef int kind
    cdef bytes rest
    cdef float[::1] vector
    while at < end:
        field_start = at
        if not read_varint(&at, end, &tag):
            return None
        kind = tag & 7
        if tag >> 3 == <uint64_t>refused:
            return None
        if kind == VARINT:
            if not read_varint(&at, end, &count):
                return None
            count = 0
        elif kind == BYTES:
            if not read_varint(&at, end, &count):
                return None
        elif kind == FIXED32:
            count = 4
        elif kind == FIXED64:
            count = 8
        else:
            return None
        if count > <uint64_t>(end - at):
            return None
        if tag >> 3 == <uint64_t>field:
            # A tag of more than one byte, and a number of more than five bytes, are left to
            # protobuf, because it may refuse them.
            if first != NULL or kind != BYTES or field_start[0] >= 0x80 or at - field_start > 6:
                return None
            numbers = packed_floats(at, at + count, &vector_bytes)
            if numbers == NULL:
                return None
            first, last = field_start, at + count
        at += count
    if first == NULL:
        return None
    rest = PyBytes_FromStringAndSize(NULL, (first - start) + (end - last))
    memcpy(PyBytes_AS_STRING(rest), start, first - start)
    memcpy(PyBytes_AS_STRING(rest) + (first - start), last, end - last)
    array = new_array(vector_bytes // FLOAT_BYTES, FLOAT32)
    vector = array
    memcpy(&vector[0], numbers, vector_bytes)
    return rest, array


cdef const uint8_t* packed_floats(
    const uint8_t* at, const uint8_t* end, uint64_t* size_bytes
) noexcept:
    """Returns the numbers of a message whose field 1 has packed floats, and nothing else.

    Sets `size_bytes` to their size. Returns NULL for any other message, and if it has no number.
    """
    cdef const uint8_t* start
    if at == end or at[0] != (1 << 3 | BYTES):
        return NULL
    at += 1
    start = at
    if not read_varint(&at, end, size_bytes) or at - start > 5:
        return NULL
    if size_bytes[0] != <uint64_t>(end - at) or size_bytes[0] % FLOAT_BYTES or at == end:
        return NULL
    return at


cdef bint read_varint(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept:
    """Reads a number. Returns False if there is none, or if it has more than 10 bytes."""
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end and shift < 70:
        byte = at[0][0]
        at[0] += 1
        value[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return True
        shift += 7
    return False
