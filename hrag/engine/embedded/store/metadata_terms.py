"""Terms, by which filters find documents: the keys of the database `terms`.

A term is one value of one field: collection u32, the field, the value's type, the value.
Terms of one type sort bytewise; numbers and times sort in their natural order. A field name
or text that is too long for a key is replaced by its BLAKE2b digest of 256 bits, with a type
of its own.

Under a term are the ordinals that have it. Ordinals have 44 bits; the other 20 bits of an entry
are a checksum of the ordinal and the term (Fibonacci hashing), which numpy checks for many
entries at once.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.checksums import seed_of
from hrag.engine.embedded.store.records import DocumentRecord
from hrag.filters import METADATA, SOURCE, TITLE, FilterValue, Range, in_utc, timestamp_of

_LONGEST_FIELD = 200  # LMDB keys have at most 511 bytes.
_LONGEST_TEXT = 200
_DIGEST_BYTES = 32
_HASHED_FIELD = 255  # Instead of a field's length.

_FLOAT = struct.Struct(">d")
_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_CHECK_BITS = schema.LEAF_BITS  # What an ordinal leaves of 64 bits.
_FACTOR = 0x9E3779B97F4A7C15  # 2 ** 64 divided by the golden ratio.

_NEXT = b"\0"  # A number's term with it sorts right after the term itself.
_ABOVE_NUMBERS = b"\xff" * 9
_ABOVE_TYPES = b"\xff"


class _Type(IntEnum):
    FLAG = 1
    NUMBER = 2
    TEXT = 3
    LONG_TEXT = 4
    TIME = 5
    OBJECT = 6


def field_prefix(collection: int, field: str) -> bytes:
    """The prefix of all terms of a field."""
    name = field.encode()
    if len(name) > _LONGEST_FIELD:
        return schema.u32(collection) + bytes([_HASHED_FIELD]) + _digest(name)
    return schema.u32(collection) + bytes([len(name)]) + name


def term(prefix: bytes, value: FilterValue) -> bytes:
    """The term of a value in the field of the prefix."""
    return prefix + _typed(value)


def all_terms(prefix: bytes) -> tuple[bytes, bytes]:
    """The half-open range of all terms of a field."""
    return prefix, prefix + _ABOVE_TYPES


def terms_between(prefix: bytes, given: Range) -> tuple[bytes, bytes]:
    """The half-open range of the terms within the bounds."""
    lower = given.above if given.at_least is None else given.at_least
    upper = given.below if given.at_most is None else given.at_most
    some = upper if lower is None else lower
    kind = prefix + bytes([_Type.TIME if isinstance(some, datetime) else _Type.NUMBER])
    start = kind if lower is None else term(prefix, lower)
    end = kind + _ABOVE_NUMBERS if upper is None else term(prefix, upper)
    after_start = given.above is not None
    after_end = given.at_most is not None
    return start + _NEXT * after_start, end + _NEXT * after_end


def term_seed(term: bytes) -> int:
    """The seed of the checksums under a term."""
    return seed_of(term, 0)


def term_entry(term: bytes, ordinal: int) -> bytes:
    """The entry of a document under a term that it has."""
    product = (ordinal ^ term_seed(term)) * _FACTOR & _ALL_BITS
    return schema.u64(ordinal << _CHECK_BITS | product >> (64 - _CHECK_BITS))


def ordinals_of_entries(
    entries: NDArray[np.uint64], seeds: NDArray[np.uint64] | np.uint64
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The ordinals of entries, and which of these are not what was stored.

    `seeds` is the seed of each entry's term, or that of all.
    """
    ordinals = entries >> np.uint64(_CHECK_BITS)
    products = (ordinals ^ seeds) * np.uint64(_FACTOR)
    products >>= np.uint64(64 - _CHECK_BITS)
    damaged = products != entries & np.uint64((1 << _CHECK_BITS) - 1)
    return ordinals, damaged


def terms_of(document: DocumentRecord) -> list[bytes]:
    """All terms of a document, sorted, each once."""
    found = set()
    for field, value in _values(document):
        found.add(field_prefix(document.collection, field) + value)
    return sorted(found)


def _values(document: DocumentRecord) -> Iterator[tuple[str, bytes]]:
    for field, text in ((TITLE, document.title), (SOURCE, document.source)):
        if text:
            yield field, _typed(text)
    yield from _values_in(METADATA, document.metadata)


def _values_in(prefix: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for key, value in metadata.items():
        yield from _values_at(prefix + key, value)


def _values_at(field: str, value: Any) -> Iterator[tuple[str, bytes]]:
    match value:
        case None:
            return
        case Mapping():
            yield field, bytes([_Type.OBJECT])
            yield from _values_in(f"{field}.", value)
        case list() | tuple():
            for each in value:
                yield from _values_at(field, each)
        case str():
            yield field, _typed(value)
            moment = timestamp_of(value)
            if moment is not None:
                yield field, _typed(moment)
        case _:
            yield field, _typed(value)


def _typed(value: FilterValue) -> bytes:
    match value:
        case bool():
            return bytes([_Type.FLAG, value])
        case int() | float():
            return bytes([_Type.NUMBER]) + schema.u64(_ordered(value))
        case datetime():
            return bytes([_Type.TIME]) + schema.u64((in_utc(value) - _BEGINNING) // _MICROSECOND)
        case str():
            text = value.encode()
            if len(text) > _LONGEST_TEXT:
                return bytes([_Type.LONG_TEXT]) + _digest(text)
            return bytes([_Type.TEXT]) + text


def _ordered(number: float) -> int:
    """The bits of a number, mapped so that they sort like the numbers; -0.0 is 0.0."""
    bits = schema.read_u64(_FLOAT.pack(number + 0.0))
    return bits ^ (_ALL_BITS if bits & _SIGN else _SIGN)


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
