"""Filters: which documents a search may return passages of.

A filter is a tree of conditions on a document's fields. A field is `document_id`, `title`,
`source` or `metadata.<key>`, where the key of an object inside an object is joined by dots:
`metadata.author.name`. A list in the metadata has each of its elements as a value. Text is
compared exactly; a text that is an ISO 8601 date or time is a timestamp too.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from hrag.errors import InvalidArgument, TooLarge
from hrag.ids import quoted

MAX_FILTER_DEPTH = 16
MAX_FILTER_TERMS = 10_000  # Ids of all documents that a user may read fit in.

DOCUMENT_ID = "document_id"
TITLE = "title"
SOURCE = "source"
METADATA = "metadata."

FilterValue: TypeAlias = str | float | bool | datetime
Bound: TypeAlias = float | datetime

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


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these holds."""

    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    """None of these holds."""

    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Match:
    """The field has one of these values, of the same type."""

    field: str
    values: tuple[FilterValue, ...]


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


Filter: TypeAlias = AllOf | AnyOf | NoneOf | Match | Range | Exists


def timestamp_of(text: str) -> datetime | None:
    """The moment a text names, in UTC, or None; UTC where it names no zone."""
    if not _TIMESTAMP.fullmatch(text):
        return None
    try:
        return in_utc(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        return None


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC, which it is in already if it names no zone; OverflowError."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def check_filter(given: Filter) -> None:
    """Raises InvalidArgument, or TooLarge past a limit, naming the place in the filter."""
    terms = sum(_checked(given, "filter", 1))
    if terms > MAX_FILTER_TERMS:
        raise TooLarge(
            f"filter has {terms} conditions and values; at most {MAX_FILTER_TERMS} are allowed",
            field="filter",
        )


def _checked(given: Filter, place: str, depth: int) -> Iterator[int]:
    """Checks a filter; the numbers it yields add up to that of conditions and values."""
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
                    f"{place}.{name} is empty; it must hold a filter", field=f"{place}.{name}"
                )
            for number, each in enumerate(inner):
                yield from _checked(each, f"{place}.{name}.filters[{number}]", depth + 1)
        case Match():
            _check_match(given, f"{place}.match")
            yield 1 + len(given.values)
        case Range():
            _check_range(given, f"{place}.range")
            yield 1
        case Exists():
            _check_field(given.field, f"{place}.exists")
            yield 1


def _check_match(match: Match, place: str) -> None:
    _check_field(match.field, place)
    if not match.values:
        raise InvalidArgument(
            f"{place}.values is empty; it must hold a value", field=f"{place}.values"
        )
    for value in match.values:
        _check_value(value, f"{place}.values")
        if not (isinstance(value, str) or match.field.startswith(METADATA)):
            raise InvalidArgument(
                f"{place}.values holds {value!r}; {match.field} is a text", field=f"{place}.values"
            )


def _check_range(given: Range, place: str) -> None:
    _check_field(given.field, place)
    if not given.field.startswith(METADATA):
        raise InvalidArgument(
            f"{place}.field is {given.field!r}; only metadata has numbers and timestamps",
            field=f"{place}.field",
        )
    names = ("at_least", "above", "at_most", "below")
    bounds = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    if not bounds:
        raise InvalidArgument(f"{place} has no bound; give one at least", field=place)
    for first, second in (("at_least", "above"), ("at_most", "below")):
        if first in bounds and second in bounds:
            raise InvalidArgument(
                f"{place} has both {first} and {second}; give one", field=f"{place}.{second}"
            )
    for name, bound in bounds.items():
        _check_value(bound, f"{place}.{name}")
        if isinstance(bound, bool | str):
            raise InvalidArgument(
                f"{place}.{name} is {bound!r}; it must be a number or a timestamp",
                field=f"{place}.{name}",
            )
    if len({isinstance(bound, datetime) for bound in bounds.values()}) > 1:
        raise InvalidArgument(
            f"{place} has a number and a timestamp; bounds must be of one type", field=place
        )


def _check_field(field: str, place: str) -> None:
    if field not in (DOCUMENT_ID, TITLE, SOURCE) and not field.startswith(METADATA):
        raise InvalidArgument(
            f"{place}.field is {quoted(field)}; it must be document_id, title, source "
            "or metadata.<key>",
            field=f"{place}.field",
        )


def _check_value(value: FilterValue, place: str) -> None:
    if isinstance(value, int | float) and not math.isfinite(value):
        raise InvalidArgument(f"{place} holds {value}; numbers must be finite", field=place)
