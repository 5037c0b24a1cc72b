# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`json_size`: counts the values of a JSON document before a value is built. Every request uses it.

It makes one pass over the bytes. `_json_scan.pyi` is the documentation for callers.
`tests/twins/json_scan.py` has the plain twin, which defines the right answer.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t


def json_size(bytes raw not None):
    """Returns the count of values and the depth of a JSON document; see `_json_scan.pyi`."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(raw)
    cdef const uint8_t *end = start + PyBytes_GET_SIZE(raw)
    cdef size_t values = 0, deepest = 0
    with nogil:
        scan(start, end, &values, &deepest)
    return values, deepest


cdef void scan(
    const uint8_t *at, const uint8_t *end, size_t *values, size_t *deepest
) noexcept nogil:
    cdef size_t depth = 0
    cdef uint8_t byte
    while at < end:
        byte = at[0]
        at += 1
        if byte == b'"':
            at = after_string(at, end)
        elif byte == b",":
            values[0] += 1
        elif byte == b"[" or byte == b"{":
            values[0] += 1
            depth += 1
            deepest[0] = max(deepest[0], depth)
        elif (byte == b"]" or byte == b"}") and depth:
            depth -= 1


cdef const uint8_t *after_string(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Returns the byte after the string whose first byte is at `at`; `end` if it does not end."""
    while at < end:
        if at[0] == b'"':
            return at + 1
        # A backslash and the byte after it belong together. The backslash may be the last byte.
        at += 2 if at[0] == b"\\" and end - at > 1 else 1
    return end
