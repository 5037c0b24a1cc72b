# distutils: language = c++
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`JsonSchema`: converts encoded protobuf messages to JSON. Every reply over HTTP uses it.

It reads protobuf's wire format (https://protobuf.dev/programming-guides/encoding) and writes
ProtoJSON (https://protobuf.dev/programming-guides/json) in one pass, without a Python value for
each field. Serialisers write the values of a repeated field directly after each other, and a
singular field once. So the kernel writes each value at once, and rejects other encodings.

`_protojson.pyi` is the documentation for callers. The right answer is what protobuf's own
`json_format` reads as the same message; a property test compares the two.
"""

from binascii import b2a_base64

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.conversion cimport PyOS_double_to_string, PyOS_string_to_double
from cpython.mem cimport PyMem_Free
from libc.math cimport isfinite, isnan, signbit
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.string cimport string


# Only the versions of `to_chars` for integers are used. The versions for floats are newer, and many
# machines do not have them.
cdef extern from "<charconv>" namespace "std" nogil:
    cdef struct to_chars_result:
        char *ptr
    to_chars_result to_chars(char *first, char *last, int32_t value)
    to_chars_result to_chars(char *first, char *last, uint32_t value)
    to_chars_result to_chars(char *first, char *last, int64_t value)
    to_chars_result to_chars(char *first, char *last, uint64_t value)


cdef enum:  # Wire types.
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5

cdef enum:  # Kinds of fields, as google/protobuf/descriptor.proto numbers them.
    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    BOOL = 8
    STRING = 9
    MESSAGE = 11
    RAW = 12  # `bytes`.
    UINT32 = 13
    ENUM = 14

cdef dict WIRE_TYPES = {
    DOUBLE: FIXED64,
    FLOAT: FIXED32,
    **dict.fromkeys((INT64, UINT64, INT32, BOOL, UINT32, ENUM), VARINT),
    **dict.fromkeys((STRING, MESSAGE, RAW), BYTES),
}

cdef enum:
    # The highest field number: a word of 64 bits has one bit for each field that was read.
    MAX_NUMBER = 63
    MAX_DEPTH = 100  # The limit of protobuf's parsers.
    NUMBER_CHARS = 32


cdef struct Input:
    const uint8_t *at
    const uint8_t *end


cdef class Field:
    """One field of a message."""

    cdef bytes key  # The JSON `"name":`.
    cdef int kind
    cdef int wire_type
    cdef bint is_repeated
    cdef bint has_presence
    cdef object inner


cdef class JsonSchema:
    """The fields of a message, by their numbers; see `_protojson.pyi`."""

    cdef list fields

    def __cinit__(self):
        self.fields = [None] * (MAX_NUMBER + 1)

    def add(self, int number, str name not None, int kind, bint is_repeated, bint has_presence,
            inner=None):
        if not 1 <= number <= MAX_NUMBER:
            raise ValueError(f"{name} has the number {number}; it must be 1 to {MAX_NUMBER}")
        if kind not in WIRE_TYPES:
            raise ValueError(f"{name} has the kind {kind}, which is not known here")
        cdef Field field = Field.__new__(Field)
        field.key = f'"{name}":'.encode()
        field.kind = kind
        field.wire_type = WIRE_TYPES[kind]
        field.is_repeated = is_repeated
        field.has_presence = has_presence
        field.inner = inner
        self.fields[number] = field

    def write(self, bytes encoded not None):
        cdef Input source
        cdef string out
        source.at = <const uint8_t *> PyBytes_AS_STRING(encoded)
        source.end = source.at + PyBytes_GET_SIZE(encoded)
        out.reserve(2 * PyBytes_GET_SIZE(encoded))
        write_message(self, &source, out, 1)
        return PyBytes_FromStringAndSize(out.data(), out.size())


cdef int write_message(JsonSchema schema, Input *source, string &out, int depth) except -1:
    """Writes a message as a JSON object. The whole source is the message."""
    cdef uint64_t tag, written = 0
    # `in_array` is the field number of the JSON array that is open; 0 if no array is open.
    cdef uint32_t number, in_array = 0
    cdef Field field
    cdef size_t start
    cdef Input values
    if depth > MAX_DEPTH:
        raise ValueError(f"messages are nested more than {MAX_DEPTH} deep")
    out.push_back(b"{")
    while source.at < source.end:
        tag = varint(source)
        number = <uint32_t> min(tag >> 3, MAX_NUMBER + 1)
        if number > MAX_NUMBER or schema.fields[number] is None:
            skip(source, tag & 7)
            continue
        field = <Field> schema.fields[number]
        if in_array and in_array != number:
            out.push_back(b"]")
            in_array = 0
        if in_array != number and written & (<uint64_t> 1 << number):
            raise ValueError(
                f"field {number} occurs again; a single value may occur once, and the values of a "
                "repeated field must follow each other"
            )
        if not field.is_repeated:
            expect(field.wire_type, tag & 7)
            start = out.size()
            begin_field(field, written, out)
            if write_value(field, source, out, depth) or field.has_presence:
                written |= <uint64_t> 1 << number
            else:
                out.resize(start)  # A default value is left out.
            continue
        if field.wire_type != BYTES and tag & 7 == BYTES:  # The values are packed.
            values = part(source)
        else:
            expect(field.wire_type, tag & 7)
            values = source[0]
        while values.at < values.end:
            if in_array == number:
                out.push_back(b",")
            else:
                begin_field(field, written, out)
                out.push_back(b"[")
                in_array = number
                written |= <uint64_t> 1 << number
            write_value(field, &values, out, depth)
            if field.wire_type == BYTES or tag & 7 != BYTES:
                source.at = values.at
                break
    if in_array:
        out.push_back(b"]")
    out.push_back(b"}")
    return 0


cdef int begin_field(Field field, uint64_t written, string &out) except -1:
    if written:
        out.push_back(b",")
    out.append(PyBytes_AS_STRING(field.key), PyBytes_GET_SIZE(field.key))
    return 0


cdef int write_value(Field field, Input *source, string &out, int depth) except -1:
    """Writes the next value. Returns 0 if the value is the default of its kind, 1 otherwise."""
    if field.wire_type == VARINT:
        return write_varint(field, varint(source), out)
    if field.kind == FLOAT:
        return write_float(source, out)
    if field.kind == DOUBLE:
        return write_double(source, out)
    cdef Input value = part(source)
    cdef bint is_set = value.at < value.end
    if field.kind == STRING:
        write_string(value, out)
    elif isinstance(field.inner, JsonSchema):
        write_message(<JsonSchema> field.inner, &value, out, depth + 1)
    else:
        write_converted(field, value, out)
    return is_set


cdef int write_varint(Field field, uint64_t value, string &out) except -1:
    cdef char digits[NUMBER_CHARS]
    cdef char *end = digits + NUMBER_CHARS
    if field.kind == BOOL:
        if value:
            out.append(b"true", 4)
        else:
            out.append(b"false", 5)
    elif field.kind == UINT32:
        out.append(digits, to_chars(digits, end, <uint32_t> value).ptr - digits)
    elif field.kind == INT32:
        out.append(digits, to_chars(digits, end, <int32_t> value).ptr - digits)
    elif field.kind == ENUM:
        write_bytes((<dict> field.inner).get(<int32_t> value) or b"%d" % <int32_t> value, out)
    else:  # An integer of 64 bits is written in quotes, because JavaScript would round it.
        out.push_back(b'"')
        if field.kind == INT64:
            out.append(digits, to_chars(digits, end, <int64_t> value).ptr - digits)
        else:
            out.append(digits, to_chars(digits, end, value).ptr - digits)
        out.push_back(b'"')
    return value != 0


cdef int write_float(Input *source, string &out) except -1:
    cdef bytes digits
    cdef float value
    cdef uint32_t bits
    take(source, &bits, sizeof(bits))
    memcpy(&value, &bits, sizeof(bits))
    if not has_digits(value):
        write_without_digits(value, out)
        return bits != 0
    digits = digits_of(value, b"g", 8)
    if <float> PyOS_string_to_double(digits, NULL, NULL) != value:
        digits = digits_of(value, b"g", 9)  # 9 digits distinguish all floats of 32 bits.
    write_bytes(digits, out)
    return 1


cdef int write_double(Input *source, string &out) except -1:
    cdef double value
    cdef uint64_t bits
    take(source, &bits, sizeof(bits))
    memcpy(&value, &bits, sizeof(bits))
    if has_digits(value):
        write_bytes(digits_of(value, b"r", 0), out)
    else:
        write_without_digits(value, out)
    return bits != 0


cdef bytes digits_of(double value, char form, int precision):
    """Returns a number as Python writes it.

    The form `r` is its `repr`. The form `g` has at most `precision` digits.
    """
    cdef char *digits = PyOS_double_to_string(value, form, precision, 0, NULL)
    try:
        return digits
    finally:
        PyMem_Free(digits)


cdef inline bint has_digits(double value) noexcept:
    return isfinite(value) and (value != 0 or not signbit(value))


cdef int write_without_digits(double value, string &out) except -1:
    """Writes a negative zero, NaN or infinity.

    Not every parser reads `-0` as a negative zero, so `-0.0` is written. JSON has no numbers for
    NaN and infinity.
    """
    if value == 0:
        write_bytes(b"-0.0", out)
    elif isnan(value):
        write_bytes(b'"NaN"', out)
    else:
        write_bytes(b'"Infinity"' if value > 0 else b'"-Infinity"', out)
    return 0


cdef int write_string(Input value, string &out) except -1:
    """Writes text. Runs of bytes that need no escape are copied; other bytes are escaped."""
    cdef const uint8_t *run = value.at
    out.push_back(b'"')
    while value.at < value.end:
        if value.at[0] >= 0x20 and value.at[0] != b'"' and value.at[0] != b"\\":
            value.at += 1
            continue
        out.append(<const char *> run, value.at - run)
        write_bytes(ESCAPES[value.at[0]], out)
        value.at += 1
        run = value.at
    out.append(<const char *> run, value.at - run)
    out.push_back(b'"')
    return 0


cdef dict ESCAPES = {
    **{code: b"\\u%04x" % code for code in range(0x20)},
    **{ord(char): b"\\" + char for char in (b'"', b"\\")},
    **{ord(char): b"\\" + short for char, short in zip(
        (b"\b", b"\t", b"\n", b"\f", b"\r"), (b"b", b"t", b"n", b"f", b"r"))},
}


cdef int write_converted(Field field, Input value, string &out) except -1:
    cdef bytes encoded = PyBytes_FromStringAndSize(<const char *> value.at, value.end - value.at)
    if field.kind == RAW:
        write_bytes(b'"%b"' % b2a_base64(encoded, newline=False), out)
    else:
        write_bytes(field.inner(encoded), out)
    return 0


cdef int write_bytes(bytes text, string &out) except -1:
    out.append(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0


# The functions below read the wire format.


cdef uint64_t varint(Input *source) except? 0:
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while source.at < source.end and shift < 64:
        byte = source.at[0]
        source.at += 1
        value |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    raise ValueError("the message ends inside a number, or a number has over 64 bits")


cdef int take(Input *source, void *target, size_t size) except -1:
    if <size_t> (source.end - source.at) < size:
        raise ValueError("the message ends inside a number")
    memcpy(target, source.at, size)
    source.at += size
    return 0


cdef Input part(Input *source) except *:
    """Reads a length and the value after it. Returns the bytes of the value."""
    cdef uint64_t size = varint(source)
    cdef Input value
    if size > <uint64_t> (source.end - source.at):
        raise ValueError("the message ends inside a value")
    value.at = source.at
    value.end = source.at + size
    source.at = value.end
    return value


cdef int skip(Input *source, int wire_type) except -1:
    """Skips the value of a field that the schema does not have."""
    cdef uint64_t bits
    if wire_type == VARINT:
        varint(source)
    elif wire_type == BYTES:
        part(source)
    elif wire_type == FIXED32:
        take(source, &bits, 4)
    elif wire_type == FIXED64:
        take(source, &bits, 8)
    else:
        raise ValueError(f"a field has the wire type {wire_type}, which is not known here")
    return 0


cdef int expect(int wire_type, int actual) except -1:
    if actual != wire_type:
        raise ValueError(f"a field has the wire type {actual}; it must be {wire_type}")
    return 0
