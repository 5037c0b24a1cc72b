"""Arrays as parameters of statements, in PostgreSQL's binary format, made as whole buffers.

A statement that inserts many rows takes each column as one array, with `unnest`. psycopg would
convert the elements one by one and choose the type by their size; numpy writes all at once, and
the type does not depend on the values.
"""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import psycopg
from numpy.typing import ArrayLike, NDArray
from psycopg import pq
from psycopg.adapt import Dumper

from hrag.models.embedding import Vectors

# One dimension, no nulls, the type of the elements; how many there are, numbered from 1.
_HEADER = struct.Struct(">iiIii")
_EMPTY = struct.Struct(">iiI")
_LENGTH = struct.Struct(">i")
_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _REAL = 16, 17, 20, 23, 25, 700


class _Array(bytes):
    """An encoded array; its class says which type it has."""


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
    """Of a type without a fixed number: the statement casts it."""


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


def _register(kind: type[_Array], oid: int) -> None:
    dumper = type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": oid})
    psycopg.adapters.register_dumper(kind, dumper)


_register(_BoolArray, 1000)
_register(_ByteaArray, 1001)
_register(_Int4Array, 1007)
_register(_TextArray, 1009)
_register(_Int8Array, 1016)
_register(_RealArray, 1021)
_register(_OtherArray, 0)


def bigints(values: ArrayLike) -> bytes:
    """Returns a parameter of type bigint[]."""
    return _Int8Array(_encoded(_INT8, _fixed(values, ">i8")))


def integers(values: ArrayLike) -> bytes:
    """Returns a parameter of type integer[]."""
    return _Int4Array(_encoded(_INT4, _fixed(values, ">i4")))


def reals(values: ArrayLike) -> bytes:
    """Returns a parameter of type real[]."""
    return _RealArray(_encoded(_REAL, _fixed(values, ">f4")))


def booleans(values: ArrayLike) -> bytes:
    """Returns a parameter of type boolean[]."""
    return _BoolArray(_encoded(_BOOL, _fixed(values, "?")))


def binaries(values: Sequence[bytes]) -> bytes:
    """Returns a parameter of type bytea[]."""
    return _ByteaArray(_of_any_length(_BYTEA, values))


def texts(values: Sequence[str]) -> bytes:
    """Returns a parameter of type text[]; no text may hold NUL."""
    return _TextArray(_of_any_length(_TEXT, [each.encode() for each in values]))


def halfvecs(vectors: Vectors, oid: int) -> bytes:
    """Returns a parameter for `::halfvec[]`, rounded to half precision.

    `oid` is the number of the type halfvec in the database.
    """
    count, dimension = vectors.shape
    element = np.dtype([("dimension", ">i2"), ("unused", ">i2"), ("values", ">f2", (dimension,))])
    elements = np.zeros(count, element)
    elements["dimension"] = dimension
    elements["values"] = vectors
    return _OtherArray(_encoded(oid, elements))


def bigints_in(value: bytes | None) -> NDArray[np.int64]:
    """Returns the elements of an array of type bigint[] as the server sends it; none for NULL."""
    if value is None or len(value) <= _EMPTY.size:
        return np.empty(0, np.int64)
    packed = np.dtype([("length", ">i4"), ("value", ">i8")])
    return np.frombuffer(value, packed, offset=_HEADER.size)["value"].astype(np.int64)


def _fixed(values: ArrayLike, kind: str) -> NDArray[np.generic]:
    return np.asarray(values).astype(kind)


def _encoded(oid: int, elements: NDArray[np.generic]) -> bytes:
    if not len(elements):
        return _EMPTY.pack(0, 0, oid)
    packed = np.empty(len(elements), np.dtype([("length", ">i4"), ("value", elements.dtype)]))
    packed["length"] = elements.dtype.itemsize
    packed["value"] = elements
    return _HEADER.pack(1, 0, oid, len(elements), 1) + packed.tobytes()


def _of_any_length(oid: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, oid)
    header = _HEADER.pack(1, 0, oid, len(values), 1)
    return b"".join([header, *_with_lengths(values)])


def _with_lengths(values: Iterable[bytes]) -> Iterable[bytes]:
    for each in values:
        yield _LENGTH.pack(len(each))
        yield each
