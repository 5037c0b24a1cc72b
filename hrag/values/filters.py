"""Filters: which documents a search may return passages from.

A filter is a tree of conditions on a document's fields. A field is `document_id`, `title`,
`source` or `metadata.<key>`, where the key of an object inside an object is joined by dots:
`metadata.author.name`. A list in the metadata has each of its elements as a value. Text is
compared exactly; a text that is an ISO 8601 date or time is a timestamp too.

Making a filter raises InvalidArgument where a sequence is needed and there is none.
`check_filter` checks all else.
"""

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TypeAlias

from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.ids import quoted

MAX_FILTER_DEPTH = 16
MAX_FILTER_TERMS = 10_000  # Ids of all documents that a user may read fit in.

DOCUMENT_ID = "document_id"
TITLE = "title"
SOURCE = "source"
METADATA = "metadata."

FilterValue: TypeAlias = str | float | bool | datetime
Bound: TypeAlias = float | datetime

_TEXTS = (str, bytes, bytearray)
# Dates and times as RFC 3339 and most of ISO 8601 write them; not "2026", nor "20261121".
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"([Tt ]([01]\d|2[0-3]):\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Each of these holds."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_sequence(self.filters, "AllOf.filters")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these holds."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_sequence(self.filters, "AnyOf.filters")


@dataclass(frozen=True, slots=True)
class NoneOf:
    """None of these holds."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_sequence(self.filters, "NoneOf.filters")


@dataclass(frozen=True, slots=True)
class Match:
    """The field has one of these values, of the same type."""

    field: str
    values: tuple[FilterValue, ...]

    def __post_init__(self) -> None:
        _check_sequence(self.values, "Match.values")


@dataclass(frozen=True, slots=True)
class Range:
    """The field has a number, or a timestamp, within these bounds, all of one type."""

    field: str
    at_least: Bound | None = None
    above: Bound | None = None
    at_most: Bound | None = None
    below: Bound | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value: it is there, not null, not an empty list; not an empty text
    where it is title or source.
    """

    field: str


def _check_sequence(given: object, name: str) -> None:
    """Raises InvalidArgument for what is no sequence, and for a text, one of characters."""
    if isinstance(given, _TEXTS) or not isinstance(given, Sequence):
        raise InvalidArgument(
            f"{name} is {quoted(str(given))}; it must be a tuple or a list, also of one",
            field="filter",
        )


Filter: TypeAlias = AllOf | AnyOf | NoneOf | Match | Range | Exists
"""A condition on a document, or several that are combined."""


def timestamp_of(text: str) -> datetime | None:
    """Returns the moment that a text names, in UTC, or None; no time zone means UTC."""
    if not _TIMESTAMP.fullmatch(text):
        return None
    try:
        return in_utc(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        return None


def in_utc(moment: datetime) -> datetime:
    """Returns the moment in UTC; no time zone means UTC. Raises OverflowError."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def check_filter(given: Filter) -> None:
    """Raises InvalidArgument, or TooLarge past a limit, naming the path in the filter."""
    terms = sum(_checked(given, "filter", 1))
    if terms > MAX_FILTER_TERMS:
        raise TooLarge(
            f"filter has {terms} conditions and values; at most {MAX_FILTER_TERMS} are allowed",
            field="filter",
        )


def filter_digest(given: Filter) -> bytes:
    """Returns 32 bytes that identify the filter, for keys of caches.

    BLAKE2b of an encoding in which every part has its type and length. So filters have one
    digest only if they are written alike: 1, 1.0 and True differ, as do equal moments in
    different time zones.
    """
    digest = blake2b(digest_size=32)
    for part in _encoded(given):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _encoded(given: Filter) -> Iterator[bytes]:
    yield type(given).__name__.encode()
    match given:
        case AllOf(inner) | AnyOf(inner) | NoneOf(inner):
            yield str(len(inner)).encode()
            for each in inner:
                yield from _encoded(each)
        case Match():
            yield _utf8(given.field)
            yield from _encoded_values(given.values)
        case Range():
            yield _utf8(given.field)
            bounds = (given.at_least, given.above, given.at_most, given.below)
            for bound in bounds:
                yield from _encoded_values(() if bound is None else (bound,))
        case Exists():
            yield _utf8(given.field)


def _encoded_values(values: Sequence[FilterValue]) -> Iterator[bytes]:
    """Three parts, so that ten thousand values cost a few calls: types, lengths, contents."""
    kinds = "".join(map(_kind, values))
    texts = [value if isinstance(value, str) else _written(value) for value in values]
    yield kinds.encode()
    yield array("Q", map(len, texts)).tobytes()
    yield _utf8("".join(texts))


def _kind(value: FilterValue) -> str:
    if isinstance(value, str):
        return "s"
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int):
        return "i"
    return "f" if isinstance(value, float) else "t"


def _written(value: float | bool | datetime) -> str:
    """In a form in which different values of a type differ."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.hex() if isinstance(value, float) else str(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _checked(given: Filter, path: str, depth: int) -> Iterator[int]:
    """Checks a filter; yields numbers that sum to its count of conditions and values."""
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(
            f"filter is nested over {MAX_FILTER_DEPTH} deep, which is the most allowed",
            field="filter",
        )
    match given:
        case AllOf(inner) | AnyOf(inner) | NoneOf(inner):
            name = {AllOf: "all_of", AnyOf: "any_of", NoneOf: "none_of"}[type(given)]
            if not inner:
                raise InvalidArgument(
                    f"{path}.{name} is empty; it must hold a filter", field=f"{path}.{name}"
                )
            for number, each in enumerate(inner):
                yield from _checked(each, f"{path}.{name}.filters[{number}]", depth + 1)
        case Match():
            _check_match(given, f"{path}.match")
            yield 1 + len(given.values)
        case Range():
            _check_range(given, f"{path}.range")
            yield 1
        case Exists():
            _check_field(given.field, f"{path}.exists")
            yield 1


def _check_match(match: Match, path: str) -> None:
    _check_field(match.field, path)
    if not match.values:
        raise InvalidArgument(
            f"{path}.values is empty; it must hold a value", field=f"{path}.values"
        )
    for value in match.values:
        _check_value(value, f"{path}.values")
        if not (isinstance(value, str) or match.field.startswith(METADATA)):
            raise InvalidArgument(
                f"{path}.values holds {value!r}; {match.field} is a text", field=f"{path}.values"
            )


def _check_range(given: Range, path: str) -> None:
    _check_field(given.field, path)
    if not given.field.startswith(METADATA):
        raise InvalidArgument(
            f"{path}.field is {given.field!r}; only metadata has numbers and timestamps",
            field=f"{path}.field",
        )
    names = ("at_least", "above", "at_most", "below")
    bounds = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if not bounds:
        raise InvalidArgument(f"{path} has no bound; give one at least", field=path)
    for first, second in (("at_least", "above"), ("at_most", "below")):
        if first in bounds and second in bounds:
            raise InvalidArgument(
                f"{path} has both {first} and {second}; give one", field=f"{path}.{second}"
            )
    for name, bound in bounds.items():
        _check_value(bound, f"{path}.{name}")
        if isinstance(bound, bool | str):
            raise InvalidArgument(
                f"{path}.{name} is {bound!r}; it must be a number or a timestamp",
                field=f"{path}.{name}",
            )
    if len({isinstance(bound, datetime) for bound in bounds.values()}) > 1:
        raise InvalidArgument(
            f"{path} has a number and a timestamp; bounds must be of one type", field=path
        )


def _check_field(field: str, path: str) -> None:
    if field not in (DOCUMENT_ID, TITLE, SOURCE) and not field.startswith(METADATA):
        raise InvalidArgument(
            f"{path}.field is {quoted(field)}; it must be document_id, title, source "
            "or metadata.<key>",
            field=f"{path}.field",
        )


def _check_value(value: FilterValue, path: str) -> None:
    if isinstance(value, int | float) and not math.isfinite(value):
        raise InvalidArgument(f"{path} holds {value}; numbers must be finite", field=path)
