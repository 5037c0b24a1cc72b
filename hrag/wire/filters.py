"""Converts filters to and from the messages of filter.proto, and to and from JSON."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp

from hrag.v1 import filter_pb2 as pb
from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.filters import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_DEPTH,
    AllOf,
    AnyOf,
    Bound,
    Exists,
    Filter,
    FilterSize,
    FilterValue,
    Match,
    NoneOf,
    Range,
    in_utc,
)
from hrag.values.ids import quoted
from hrag.wire.common import built

# A filter is refused while it is decoded if it has more than this many Filter messages. A valid
# filter never exceeds this limit: it has at most MAX_FILTER_CONDITIONS conditions, and each
# condition needs at most MAX_FILTER_DEPTH Filter messages, one for the condition and one for each
# list in which the condition is nested.
_MAX_MESSAGES = MAX_FILTER_DEPTH * MAX_FILTER_CONDITIONS
_BOUNDS = ("at_least", "above", "at_most", "below")

Typed = TypeVar("Typed", pb.FilterValue, pb.RangeBound)


def filter_from(message: pb.Filter) -> Filter:
    """Returns the filter that a message represents.

    Checks only the form and the size of the message; `hrag.values.filters.check_filter` checks all
    other rules. Raises InvalidArgument or TooLarge.
    """
    return _filter_from(message, _Parts())


def optional_filter_from(request: Any) -> Filter | None:
    """Returns the filter of a request; None if the request has no filter.

    Raises InvalidArgument or TooLarge if the filter is invalid.
    """
    return filter_from(request.filter) if request.HasField("filter") else None


def _filter_from(message: pb.Filter, parts: "_Parts") -> Filter:
    """Returns the filter that a message represents.

    `parts` counts the Filter messages and the conditions so far. Raises TooLarge if there are more
    than a valid filter may have.
    """
    parts.add_message()
    match message.WhichOneof("kind"):
        case "all_of":
            return AllOf(_filters_from(message.all_of, parts))
        case "any_of":
            return AnyOf(_filters_from(message.any_of, parts))
        case "none_of":
            return NoneOf(_filters_from(message.none_of, parts))
        case "match":
            parts.add(FilterSize(conditions=1, terms=1 + len(message.match.values)))
            values = map(_value_from, message.match.values)
            return Match(message.match.field, tuple(values))
        case "range":
            parts.add(FilterSize(conditions=1, ranges=1, terms=1))
            ranged = message.range
            bounds = {
                name: _value_from(getattr(ranged, name))
                for name in _BOUNDS
                if ranged.HasField(name)
            }
            return Range(ranged.field, **bounds)
        case "exists":
            parts.add(FilterSize(conditions=1, ranges=1, terms=1))
            return Exists(message.exists.field)
        case _:
            raise InvalidArgument(
                "filter is empty; set all_of, any_of, none_of, match, range or exists",
                field="filter",
            )


def _filters_from(message: pb.FilterList, parts: "_Parts") -> tuple[Filter, ...]:
    return tuple(_filter_from(inner, parts) for inner in message.filters)


class _Parts:
    """Counts the Filter messages and the conditions of a filter while it is decoded.

    So a filter that is far too large costs no more than the largest valid one.
    """

    def __init__(self) -> None:
        self._messages = 0
        self._size = FilterSize()

    def add_message(self) -> None:
        """Raises TooLarge if there are now more Filter messages than a valid filter may have."""
        self._messages += 1
        if self._messages > _MAX_MESSAGES:
            raise TooLarge(
                f"filter has more than {_MAX_MESSAGES} conditions and lists; at most "
                f"{MAX_FILTER_CONDITIONS} conditions are allowed, nested at most "
                f"{MAX_FILTER_DEPTH} deep",
                field="filter",
            )

    def add(self, condition: FilterSize) -> None:
        """Raises TooLarge if the conditions so far are beyond a limit."""
        self._size += condition
        self._size.check("filter has at least", "filter")


def _value_from(message: pb.FilterValue | pb.RangeBound) -> Any:
    kind = message.WhichOneof("value")
    if kind is None:
        raise InvalidArgument(
            "filter has a value without a type; set one of the fields of `value`", field="filter"
        )
    if kind == "timestamp":
        return _moment_from(message.timestamp)
    return getattr(message, kind)


def _moment_from(timestamp: Timestamp) -> datetime:
    try:
        return timestamp.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"filter has a timestamp of {timestamp.seconds} s and {timestamp.nanos} ns; "
            "it must be from the year 1 to 9999, with 0 to 999,999,999 ns",
            field="filter",
        ) from None


def optional_filter_message(condition: Filter | None) -> pb.Filter | None:
    """Returns the message of a filter; None if there is no filter.

    Raises InvalidArgument or TooLarge if the filter is invalid.
    """
    return None if condition is None else filter_message(condition)


def filter_json(condition: Filter) -> dict[str, Any]:
    """Returns a filter as JSON: the filter's message in protobuf's JSON format.

    Raises InvalidArgument or TooLarge if the filter is invalid.
    """
    return json_format.MessageToDict(filter_message(condition))


def filter_from_json(value: dict[str, Any]) -> Filter:
    """Returns the filter that `value` represents, which is JSON as `filter_json` returns it.

    Raises InvalidArgument or TooLarge if the filter is invalid.
    """
    try:
        message = json_format.ParseDict(value, pb.Filter())
    except json_format.ParseError as error:
        raise InvalidArgument(f"filter cannot be read: {error}", field="filter") from None
    return filter_from(message)


def filter_message(condition: Filter, depth: int = 1) -> pb.Filter:
    """Returns the protobuf message that represents a filter.

    The filter is at the nesting level `depth`; 1 is the outermost level.

    Raises InvalidArgument for a value of a wrong type, and TooLarge for nesting that is too deep.
    """
    # Protobuf's parsers limit the nesting of messages too, so MAX_FILTER_DEPTH could not be much
    # higher.
    if depth > MAX_FILTER_DEPTH:
        raise TooLarge(
            f"filter is nested over {MAX_FILTER_DEPTH} deep; at most {MAX_FILTER_DEPTH} levels are "
            "allowed",
            field="filter",
        )
    match condition:
        case AllOf(inner):
            return pb.Filter(all_of=_list_message(inner, depth))
        case AnyOf(inner):
            return pb.Filter(any_of=_list_message(inner, depth))
        case NoneOf(inner):
            return pb.Filter(none_of=_list_message(inner, depth))
        case Match(field, values):
            typed = [_typed(pb.FilterValue, value) for value in values]
            return pb.Filter(match=built(pb.FieldMatch, field=field, values=typed))
        case Range(field):
            bounds = {
                name: _typed(pb.RangeBound, getattr(condition, name))
                for name in _BOUNDS
                if getattr(condition, name) is not None
            }
            return pb.Filter(range=built(pb.FieldRange, field=field, **bounds))
        case Exists(field):
            return pb.Filter(exists=built(pb.FieldExists, field=field))
        case _:
            raise InvalidArgument(
                f"filter contains {quoted(str(condition))}; it may contain only AllOf, AnyOf, "
                "NoneOf, Match, Range and Exists of hrag.filters",
                field="filter",
            )


def _list_message(filters: Sequence[Filter], depth: int) -> pb.FilterList:
    return pb.FilterList(filters=[filter_message(inner, depth + 1) for inner in filters])


def _typed(message_type: type[Typed], value: FilterValue | Bound) -> Typed:
    match value:
        case bool():
            return built(message_type, flag=value)
        case int() | float():
            return built(message_type, number=value)
        case date():
            timestamp = Timestamp()
            timestamp.FromDatetime(in_utc(value))
            return built(message_type, timestamp=timestamp)
        case str() if message_type is pb.FilterValue:
            return built(message_type, text=value)
    allowed, hint = "a number, a datetime or a date", ""
    if message_type is pb.FilterValue:
        allowed = f"a text, True, False, {allowed}"
    elif isinstance(value, str):
        hint = "; datetime.fromisoformat converts a text"
    raise InvalidArgument(
        f"filter has the value {quoted(str(value))} of the type {type(value).__name__}; a value "
        f"must be {allowed}{hint}",
        field="filter",
    )
