"""Encodes arrays as statement parameters in PostgreSQL's binary format.

A statement that inserts many rows receives each column as one array and expands it with
`unnest`. psycopg would convert the elements one by one, and would choose the type of the array by
the size of its values. Here numpy encodes all elements at once, and the type does not depend on
the values.
"""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import psycopg
from numpy.typing import ArrayLike, NDArray
from psycopg import pq
from psycopg.adapt import Dumper

from hrag.models.embedding import Vectors

# The header of an array has the count of dimensions (1), a flag for null elements (0), the OID of
# the element type, the count of elements, and the index of the first element (1).
_HEADER = struct.Struct(">iiIii")
# An array without elements has no dimensions, so its header ends after the element type.
_EMPTY = struct.Struct(">iiI")
# The length of each element, in bytes, precedes the element.
_LENGTH = struct.Struct(">i")
# The OIDs of the built-in element types.
_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _REAL = 16, 17, 20, 23, 25, 700


class _Array(bytes):
    """An encoded array; the subclass determines its PostgreSQL type."""


class _Int8Array(_Array):
    pass


class _Int4Array(_Array):
    pass


class _RealArray(_Array):
    pass


class _BoolArray(_Array):
    pass


class _ByteaArray(_Array):
    pass


class _TextArray(_Array):
    pass


class _OtherArray(_Array):
    """An encoded array whose type has no fixed OID; the statement must cast it to the type."""


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


def _register(kind: type[_Array], oid: int) -> None:
    dumper = type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": oid})
    psycopg.adapters.register_dumper(kind, dumper)


# Each class is registered with the OID of its array type. With the OID 0, a cast in the statement
# determines the type.
_register(_BoolArray, 1000)
_register(_ByteaArray, 1001)
_register(_Int4Array, 1007)
_register(_TextArray, 1009)
_register(_Int8Array, 1016)
_register(_RealArray, 1021)
_register(_OtherArray, 0)


def bigints(values: ArrayLike) -> bytes:
    """Encodes integers as a parameter of type bigint[]."""
    return _Int8Array(_encode_fixed_size(_INT8, _to_dtype(values, ">i8")))


def integers(values: ArrayLike) -> bytes:
    """Encodes integers as a parameter of type integer[]."""
    return _Int4Array(_encode_fixed_size(_INT4, _to_dtype(values, ">i4")))


def reals(values: ArrayLike) -> bytes:
    """Encodes numbers as a parameter of type real[]."""
    return _RealArray(_encode_fixed_size(_REAL, _to_dtype(values, ">f4")))


def booleans(values: ArrayLike) -> bytes:
    """Encodes truth values as a parameter of type boolean[]."""
    return _BoolArray(_encode_fixed_size(_BOOL, _to_dtype(values, "?")))


def binaries(values: Sequence[bytes]) -> bytes:
    """Encodes byte strings as a parameter of type bytea[]."""
    return _ByteaArray(_encode_variable_size(_BYTEA, values))


def texts(values: Sequence[str]) -> bytes:
    """Encodes texts, none of which may contain NUL, as a parameter of type text[]."""
    return _TextArray(_encode_variable_size(_TEXT, [text.encode() for text in values]))


def halfvecs(vectors: Vectors, oid: int) -> bytes:
    """Encodes vectors as a parameter that the statement must cast with `::halfvec[]`.

    The values are rounded to half precision. `oid` is the OID of the type halfvec in the database.
    """
    count, dimension = vectors.shape
    element = np.dtype([("dimension", ">i2"), ("unused", ">i2"), ("values", ">f2", (dimension,))])
    elements = np.zeros(count, element)
    elements["dimension"] = dimension
    elements["values"] = vectors
    return _OtherArray(_encode_fixed_size(oid, elements))


def bigints_in(value: bytes | None) -> NDArray[np.int64]:
    """Decodes an array of type bigint[] that the server sent in binary format.

    Returns `int64[n]`. If `value` is None, which stands for NULL, the result has no elements.
    """
    if value is None or len(value) <= _EMPTY.size:
        return np.empty(0, np.int64)
    packed = np.dtype([("length", ">i4"), ("value", ">i8")])
    return np.frombuffer(value, packed, offset=_HEADER.size)["value"].astype(np.int64)


def _to_dtype(values: ArrayLike, kind: str) -> NDArray[np.generic]:
    return np.asarray(values).astype(kind)


def _encode_fixed_size(oid: int, elements: NDArray[np.generic]) -> bytes:
    if not len(elements):
        return _EMPTY.pack(0, 0, oid)
    packed = np.empty(len(elements), np.dtype([("length", ">i4"), ("value", elements.dtype)]))
    packed["length"] = elements.dtype.itemsize
    packed["value"] = elements
    return _HEADER.pack(1, 0, oid, len(elements), 1) + packed.tobytes()


def _encode_variable_size(oid: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, oid)
    header = _HEADER.pack(1, 0, oid, len(values), 1)
    return b"".join([header, *_prefix_lengths(values)])


def _prefix_lengths(values: Iterable[bytes]) -> Iterable[bytes]:
    for value in values:
        yield _LENGTH.pack(len(value))
        yield value
