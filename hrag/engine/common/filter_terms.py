"""Filter terms: the keys by which filters find documents, one for each value of a field.

A term consists of the name of a field, the type of a value and the value. Numbers and times are
encoded so that the bytewise order of their terms is the natural order of the values. If a field
name or a text is too long for a key, the term contains the BLAKE2b digest (256 bits) of the name or
text instead. A byte before the digest says that a digest follows, so a digest is never mistaken for
a short name or text. Engines store the terms of each document and find documents by these terms. In
the keys of its index, an engine may put a prefix before the term.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from typing import Any, TypeAlias

from hrag.engine.common.records import DocumentRecord
from hrag.values.filters import (
    FORMAT_FIELDS,
    METADATA,
    MIME_TYPE,
    SOURCE,
    TITLE,
    FilterValue,
    Match,
    Range,
    format_in,
    in_utc,
    timestamp_of,
)

# Field names and texts of more than this many bytes of UTF-8 are replaced by their digests, because
# an LMDB key has at most 511 bytes.
_LONGEST_FIELD = 200
_LONGEST_TEXT = 200
_DIGEST_BYTES = 32
# A term begins with one byte, the length of the field's name. If this byte is _HASHED_FIELD, the
# digest of the name follows in place of the name.
_HASHED_FIELD = 255

TermRange: TypeAlias = tuple[bytes, bytes]
"""A half-open range of filter terms: its first term, and the first term after the range."""

_FLOAT = struct.Struct(">d")
_U64 = struct.Struct(">Q")
_SIGN = 1 << 63
_ALL_BITS = (1 << 64) - 1
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# If this byte is appended to the term of a number or a time, the result sorts directly after the
# term.
_NEXT = b"\0"
# These bytes sort after the 8 bytes of every number and of every time.
_ABOVE_NUMBERS = b"\xff" * 9
# In a term, a byte for the type of the value follows the name of the field. _ABOVE_TYPES sorts
# after the byte of every type.
_ABOVE_TYPES = b"\xff"


class _Type(IntEnum):
    FLAG = 1
    NUMBER = 2
    TEXT = 3
    LONG_TEXT = 4
    TIME = 5
    OBJECT = 6


def field_prefix(field: str) -> bytes:
    """Returns the bytes with which all terms of a field begin.

    `field` is the field's path as in a filter, for example `title` or `metadata.author.name`.
    """
    name = field.encode()
    if len(name) > _LONGEST_FIELD:
        return bytes([_HASHED_FIELD]) + _digest(name)
    return bytes([len(name)]) + name


_FORMAT_PREFIX = field_prefix(MIME_TYPE)


def term(prefix: bytes, value: FilterValue) -> bytes:
    """Returns the filter term of a value: the key by which filters find documents with this value.

    `prefix` identifies the field; `field_prefix` returns it.
    """
    return prefix + _typed(value)


def format_term(mime_type: str) -> bytes:
    """Returns the filter term of a document's format, which nearly all documents share."""
    return term(_FORMAT_PREFIX, mime_type)


def is_format_term(term: bytes) -> bool:
    """Returns True if a filter term is that of a document's format."""
    return term.startswith(_FORMAT_PREFIX)


def matching_terms(match: Match) -> set[bytes]:
    """Returns the filter terms of the values of `match`. A document with one of them passes.

    The caller has checked that the filter is valid. The field is not `document_id`, of which there
    are no terms. The terms of `format` are those of the MIME types of the named formats.
    """
    if match.field not in FORMAT_FIELDS:
        prefix = field_prefix(match.field)
        return {term(prefix, value) for value in match.values}
    formats = (format_in(match.field, str(value)) for value in match.values)
    return {format_term(known.mime_type) for known in formats if known is not None}


def all_terms(prefix: bytes) -> TermRange:
    """Returns the range of keys that contains all filter terms of a field: its start and its end.

    The start is included, the end is excluded. `prefix` identifies the field.
    """
    return prefix, prefix + _ABOVE_TYPES


def terms_between(prefix: bytes, bounds: Range) -> TermRange:
    """Returns the range of keys that contains the filter terms of all values within `bounds`.

    The result is the start of the range, which is included, and its end, which is excluded.
    `prefix` identifies the field.
    """
    lower = bounds.above if bounds.at_least is None else bounds.at_least
    upper = bounds.below if bounds.at_most is None else bounds.at_most
    any_bound = upper if lower is None else lower
    type_prefix = prefix + bytes([_Type.TIME if isinstance(any_bound, date) else _Type.NUMBER])
    start = type_prefix if lower is None else term(prefix, lower)
    end = type_prefix + _ABOVE_NUMBERS if upper is None else term(prefix, upper)
    after_start = bounds.above is not None
    after_end = bounds.at_most is not None
    return start + _NEXT * after_start, end + _NEXT * after_end


def merged_ranges(ranges: Iterable[TermRange]) -> Iterator[TermRange]:
    """Yields the union of ranges of terms, in ascending order and without empty ranges."""
    start, end = b"", b""
    for first, after in sorted(bounds for bounds in ranges if bounds[0] < bounds[1]):
        if first > end:
            if start < end:
                yield start, end
            start, end = first, after
        end = max(end, after)
    if start < end:
        yield start, end


def terms_of(document: DocumentRecord) -> list[bytes]:
    """Returns all filter terms of a document, sorted, without duplicates.

    They are the terms of its title, its source, its MIME type and each value in its metadata.
    """
    return sorted({field_prefix(field) + value for field, value in _values(document)})


def _values(document: DocumentRecord) -> Iterator[tuple[str, bytes]]:
    described = (
        (TITLE, document.title),
        (SOURCE, document.source),
        (MIME_TYPE, document.mime_type),
    )
    for field, text in described:
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
            for element in value:
                yield from _values_at(field, element)
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
            return bytes([_Type.NUMBER]) + _U64.pack(_ordered(value))
        case date():
            return bytes([_Type.TIME]) + _U64.pack((in_utc(value) - _BEGINNING) // _MICROSECOND)
        case str():
            text = value.encode()
            if len(text) > _LONGEST_TEXT:
                return bytes([_Type.LONG_TEXT]) + _digest(text)
            return bytes([_Type.TEXT]) + text


def _ordered(number: float) -> int:
    """Converts a number into an unsigned integer of 64 bits. The integers sort like the numbers.

    The integer is made from the bits of the number as a float64. -0.0 and 0.0 result in the same
    integer.
    """
    bits: int = _U64.unpack(_FLOAT.pack(number + 0.0))[0]
    return bits ^ (_ALL_BITS if bits & _SIGN else _SIGN)


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()
