"""Filters: conditions on the documents whose passages a search may return.

A filter is a tree of conditions on a document's fields. A field is `document_id`, `title`,
`source`, `mime_type`, `format` or `metadata.<key>`. The keys of nested objects are joined by dots:
`metadata.author.name`. If a metadata value is a list, each of its elements is a value of the field.
Text is compared exactly. A text that is an ISO 8601 date or time is also a timestamp. `mime_type`
and `format` are two names for the format of a document, so their values must name known formats.

Creating a filter raises InvalidArgument if `filters` or `values` is not a tuple or a list.
`check_filter` checks everything else.
"""

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from hashlib import blake2b
from typing import TypeAlias

from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.formats import FORMATS, Format, format_named, format_of, plain_mime_type
from hrag.values.ids import quoted

MAX_FILTER_DEPTH = 16
# A filter has at most this many conditions and values together. This limit allows a filter that
# lists the ids of all documents that a user may read.
MAX_FILTER_TERMS = 10_000
# A filter has at most this many conditions: Match, Range and Exists. Each of them is looked up on
# its own, and may select every document. A list of values needs only one condition.
MAX_FILTER_CONDITIONS = 256
# At most this many conditions of a filter are Range or Exists. Such a condition reads every value
# of its field within the range, about 2,000 values in 1 ms.
MAX_FILTER_RANGES = 32

DOCUMENT_ID = "document_id"
TITLE = "title"
SOURCE = "source"
MIME_TYPE = "mime_type"
FORMAT = "format"
METADATA = "metadata."
DOCUMENT_FIELDS = (DOCUMENT_ID, TITLE, SOURCE, MIME_TYPE, FORMAT)
"""The fields that are not in the metadata. Their values are texts."""
FORMAT_FIELDS = (MIME_TYPE, FORMAT)
"""The fields whose values name the format of a document. Every document has one format."""
MISSING_KEY = f"a key is missing: it must be {', '.join(DOCUMENT_FIELDS)} or a metadata key"
"""The error for a condition without a key: the key is empty, or only the prefix `metadata.`."""

FilterValue: TypeAlias = str | float | bool | date
Bound: TypeAlias = float | date

_TEXTS = (str, bytes, bytearray)
# Matches dates and times in the forms of RFC 3339 and in most forms of ISO 8601. It does not match
# "2026" and "20261121", which are also ordinary numbers.
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"([Tt ]([01]\d|2[0-3]):\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if each of these filters is true."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_sequence(self.filters, "AllOf.filters")


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if at least one of these filters is true."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_sequence(self.filters, "AnyOf.filters")


@dataclass(frozen=True, slots=True)
class NoneOf:
    """True if none of these filters is true."""

    filters: tuple["Filter", ...]

    def __post_init__(self) -> None:
        _check_sequence(self.filters, "NoneOf.filters")


@dataclass(frozen=True, slots=True)
class Match:
    """True if the field has one of these values. Values of different types are never equal.

    A date is its midnight in UTC. A value of `mime_type` is a MIME type, and a value of `format` is
    a name of a format as people use it: an extension such as pdf or markdown, text, or a MIME type.
    """

    field: str
    values: tuple[FilterValue, ...]

    def __post_init__(self) -> None:
        _check_sequence(self.values, "Match.values")


@dataclass(frozen=True, slots=True)
class Range:
    """True if the field has a number or a timestamp within these bounds.

    The bounds are either all numbers or all timestamps. A date is its midnight in UTC.
    """

    field: str
    at_least: Bound | None = None
    above: Bound | None = None
    at_most: Bound | None = None
    below: Bound | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """True if the field has a value: it is not missing, not null and not an empty list.

    An empty text is a value in metadata, but not in `title` and `source`. The field is neither
    `mime_type` nor `format`, because every document has a format.
    """

    field: str


def _check_sequence(value: object, name: str) -> None:
    """Raises InvalidArgument if `value` is not a tuple, a list or another sequence of elements.

    A text is refused although it is a sequence of characters, because a caller who passes a text
    means one element.
    """
    if isinstance(value, _TEXTS) or not isinstance(value, Sequence):
        raise InvalidArgument(
            f"{name} is {quoted(str(value))}; it must be a tuple or a list, even for one element",
            field="filter",
        )


Filter: TypeAlias = AllOf | AnyOf | NoneOf | Match | Range | Exists
"""A condition on a document, or a combination of conditions."""


def timestamp_of(text: str) -> datetime | None:
    """Returns the moment that a text describes, in UTC; None if the text is not a timestamp.

    A text without a time zone is regarded as UTC.
    """
    if not _TIMESTAMP.fullmatch(text):
        return None
    try:
        return in_utc(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        return None


def in_utc(moment: date) -> datetime:
    """Converts a datetime to UTC. Without a time zone, it is regarded as UTC.

    A date becomes its midnight in UTC. Raises OverflowError if the result is out of range.
    """
    if not isinstance(moment, datetime):
        return datetime.combine(moment, time(), UTC)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class FilterSize:
    """The size of a filter, or of several filters together.

    `conditions` counts Match, Range and Exists; `ranges` counts only Range and Exists. `terms` is
    the count of conditions and of their values.
    """

    conditions: int = 0
    ranges: int = 0
    terms: int = 0

    def __add__(self, other: "FilterSize") -> "FilterSize":
        return FilterSize(
            self.conditions + other.conditions,
            self.ranges + other.ranges,
            self.terms + other.terms,
        )

    def check(self, subject: str, field: str) -> None:
        """Raises TooLarge if the size is above a limit. The message begins with `subject`."""
        for count, limit, counted in (
            (self.conditions, MAX_FILTER_CONDITIONS, "conditions (one match may have many values)"),
            (self.ranges, MAX_FILTER_RANGES, "conditions of the kinds range and exists"),
            (self.terms, MAX_FILTER_TERMS, "conditions and values"),
        ):
            if count > limit:
                raise TooLarge(
                    f"{subject} {count} {counted}; at most {limit} are allowed", field=field
                )


def check_filter(filter: Filter) -> None:
    """Raises InvalidArgument if a filter is invalid, or TooLarge if it exceeds a limit.

    The message contains the path from the root of the filter to the wrong condition.
    """
    size_of(filter).check("filter has", "filter")


def size_of(filter: Filter) -> FilterSize:
    """Returns the size of a filter, which may be above the limits.

    Raises InvalidArgument if the filter is invalid, or TooLarge if it is nested too deep.
    """
    conditions = ranges = values = 0
    for condition in _conditions(filter, "filter", 1):
        conditions += 1
        if isinstance(condition, Match):
            values += len(condition.values)
        else:
            ranges += 1
    return FilterSize(conditions, ranges, conditions + values)


def field_named(key: str) -> str:
    """Returns the field for a key that a person or a framework gives without its prefix.

    The names of `DOCUMENT_FIELDS` are fields themselves, and so is `metadata.<key>`. Any other key
    is a key of the metadata.
    """
    return key if key in DOCUMENT_FIELDS or key.startswith(METADATA) else METADATA + key


def format_in(field: str, value: str) -> Format | None:
    """Returns the format that a value of `mime_type` or `format` names; None if it names none."""
    name = plain_mime_type(value)
    return format_of(name) if field == MIME_TYPE else format_named(name)


def only_document(filter: Filter, document_id: str) -> Filter:
    """Returns a filter that only this document can pass, and only if it passes `filter`."""
    return AllOf((Match(DOCUMENT_ID, (document_id,)), filter))


def filter_digest(filter: Filter) -> bytes:
    """Returns 32 bytes that identify the filter, for keys of caches.

    The bytes are the BLAKE2b digest of an encoding that contains the type and the length of every
    part of the filter. So filters with equal values may have different digests: for example, 1, 1.0
    and True result in different digests, and so does the same moment in different time zones.
    """
    digest = blake2b(digest_size=32)
    for part in _encoding(filter):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _encoding(filter: Filter) -> Iterator[bytes]:
    """Yields the byte strings whose digest identifies a filter."""
    yield type(filter).__name__.encode()
    match filter:
        case AllOf(inner) | AnyOf(inner) | NoneOf(inner):
            yield str(len(inner)).encode()
            for child in inner:
                yield from _encoding(child)
        case Match():
            yield _utf8(filter.field)
            yield from _value_encoding(filter.values)
        case Range():
            yield _utf8(filter.field)
            bounds = (filter.at_least, filter.above, filter.at_most, filter.below)
            for bound in bounds:
                yield from _value_encoding(() if bound is None else (bound,))
        case Exists():
            yield _utf8(filter.field)


def _value_encoding(values: Sequence[FilterValue]) -> Iterator[bytes]:
    """Yields three byte strings: the types, the lengths and the contents of all values.

    Because the values are joined, computing the digest of a filter with ten thousand values needs
    only a few updates of the digest, and not one update for each value.
    """
    kinds = "".join(map(_kind, values))
    texts = [value if isinstance(value, str) else _distinct_text(value) for value in values]
    yield kinds.encode()
    yield array("Q", map(len, texts)).tobytes()
    yield _utf8("".join(texts))


def _kind(value: FilterValue) -> str:
    """Returns a letter that stands for the type of a value."""
    if isinstance(value, str):
        return "s"
    if isinstance(value, bool):
        return "b"
    if isinstance(value, int):
        return "i"
    return "f" if isinstance(value, float) else "t"


def _distinct_text(value: float | bool | date) -> str:
    """Converts a value into a text. Different values of one type result in different texts."""
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, float) else str(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _conditions(filter: Filter, path: str, depth: int) -> Iterator[Match | Range | Exists]:
    """Checks a filter. Yields its conditions without AllOf, AnyOf and NoneOf, after their checks.

    `filter` may be a part of a larger filter. `path` is the position of `filter` in the larger
    filter, for error messages. `depth` is the nesting level of `filter`; the outermost filter has
    level 1.
    """
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(
            f"filter is nested over {MAX_FILTER_DEPTH} deep; at most {MAX_FILTER_DEPTH} levels are "
            "allowed",
            field="filter",
        )
    match filter:
        case AllOf(inner) | AnyOf(inner) | NoneOf(inner):
            name = {AllOf: "all_of", AnyOf: "any_of", NoneOf: "none_of"}[type(filter)]
            if not inner:
                raise InvalidArgument(
                    f"{path}.{name} is empty; it must contain a filter", field=f"{path}.{name}"
                )
            for index, child in enumerate(inner):
                yield from _conditions(child, f"{path}.{name}.filters[{index}]", depth + 1)
        case Match():
            _check_match(filter, f"{path}.match")
            yield filter
        case Range():
            _check_range(filter, f"{path}.range")
            yield filter
        case Exists():
            _check_exists(filter, f"{path}.exists")
            yield filter


def _check_match(match: Match, path: str) -> None:
    _check_field(match.field, path)
    if not match.values:
        raise InvalidArgument(
            f"{path}.values is empty; it must contain a value", field=f"{path}.values"
        )
    for value in match.values:
        _check_value(value, f"{path}.values")
        if not (isinstance(value, str) or match.field.startswith(METADATA)):
            raise InvalidArgument(
                f"{path}.values contains {value!r}; {match.field} is a text, so each value must "
                "be a text",
                field=f"{path}.values",
            )
        if match.field in FORMAT_FIELDS and format_in(match.field, str(value)) is None:
            names = (kind.mime_type if match.field == MIME_TYPE else kind.name for kind in FORMATS)
            raise InvalidArgument(
                f"{path}.values contains {quoted(str(value))}; {match.field} must be "
                f"{', '.join(names)}; {_metadata_hint(match.field)}",
                field=f"{path}.values",
            )


def _metadata_hint(field: str) -> str:
    """Returns the end of an error message for a caller who means a metadata key of this name."""
    return f"{METADATA}{field} is the key of this name in the metadata"


def _check_exists(exists: Exists, path: str) -> None:
    _check_field(exists.field, path)
    if exists.field in FORMAT_FIELDS:
        raise InvalidArgument(
            f"{path}.field is {exists.field!r}; every document has one; "
            f"{_metadata_hint(exists.field)}",
            field=f"{path}.field",
        )


def _check_range(range_: Range, path: str) -> None:
    _check_field(range_.field, path)
    if not range_.field.startswith(METADATA):
        raise InvalidArgument(
            f"{path}.field is {range_.field!r}; a range needs a field metadata.<key>, because "
            "only metadata has numbers and timestamps",
            field=f"{path}.field",
        )
    names = ("at_least", "above", "at_most", "below")
    bounds = {name: getattr(range_, name) for name in names if getattr(range_, name) is not None}
    if not bounds:
        raise InvalidArgument(
            f"{path} has no bound; set at_least, above, at_most or below", field=path
        )
    for first, second in (("at_least", "above"), ("at_most", "below")):
        if first in bounds and second in bounds:
            raise InvalidArgument(
                f"{path} has both {first} and {second}; set only one of them",
                field=f"{path}.{second}",
            )
    for name, bound in bounds.items():
        _check_value(bound, f"{path}.{name}")
        if isinstance(bound, bool | str):
            raise InvalidArgument(
                f"{path}.{name} is {bound!r}; it must be a number or a timestamp",
                field=f"{path}.{name}",
            )
    if len({isinstance(bound, date) for bound in bounds.values()}) > 1:
        raise InvalidArgument(
            f"{path} has a number and a timestamp; bounds must be of one type", field=path
        )


def _check_field(field: str, path: str) -> None:
    if field not in DOCUMENT_FIELDS and not field.startswith(METADATA):
        raise InvalidArgument(
            f"{path}.field is {quoted(field)}; it must be {', '.join(DOCUMENT_FIELDS)} "
            "or metadata.<key>",
            field=f"{path}.field",
        )


def _check_value(value: FilterValue, path: str) -> None:
    if isinstance(value, int | float) and not math.isfinite(value):
        raise InvalidArgument(f"{path} contains {value}; numbers must be finite", field=path)
