"""Translates a condition in a filter of LlamaIndex or Haystack to a filter of hrag.

In these frameworks, a condition consists of a key, an operator and a value. If hrag cannot express
a condition, this module raises an error that names the condition. Without the error, a filter that
is only partly translated would show documents that it should hide.

In a condition on metadata, a text that is an ISO 8601 date or time also means this point in time:
"equal" accepts the same text and the same timestamp, and "less" or "greater" compares timestamps.
"""

from collections.abc import Sequence
from datetime import datetime

from hrag.values.errors import InvalidArgument
from hrag.values.filters import (
    DOCUMENT_FIELDS,
    METADATA,
    AllOf,
    AnyOf,
    Bound,
    Exists,
    Filter,
    FilterValue,
    Match,
    NoneOf,
    Range,
    field_named,
    timestamp_of,
)
from hrag.values.ids import quoted

_BOUNDS = {">": "above", ">=": "at_least", "<": "below", "<=": "at_most"}
# These keys of the dictionary that `citation` returns describe a passage, not a document. Filters
# apply to documents, so a filter by one of these keys is refused.
_PASSAGE_KEYS = (
    *("heading", "chunk_id", "section_path", "first_page", "last_page"),
    *("page_unit", "is_recognised"),
    *("char_start", "char_end", "score"),
)


def field_of(key: str, path: str) -> str:
    """Returns the name of the field in hrag's filters for a key in a framework's filter.

    `key` is the name of a field of documents, or a key of a document's metadata; see `field_named`.
    Raises InvalidArgument for a key that describes a passage, because filters apply to documents.
    """
    if key in _PASSAGE_KEYS:
        raise InvalidArgument(
            f"{path} is {key!r}, which describes a passage; filters apply to documents: filter "
            f"by {', '.join(DOCUMENT_FIELDS)} or a key of the document's metadata",
            field=path,
        )
    return field_named(key)


def condition(field: str, operator: object, value: object, path: str) -> Filter:
    """Returns the filter of hrag for one condition; `path` names the condition in error messages.

    Raises InvalidArgument for an operator or a value that hrag cannot express.
    """
    match operator:
        case ">" | ">=" | "<" | "<=":
            return Range(field, **{_BOUNDS[operator]: _bound(value, path)})
        case "==":
            return _equal(field, value, path)
        case "!=":
            return NoneOf((_equal(field, value, path),))
        case "in":
            return _one_of(field, value, path)
        case "not in":
            return NoneOf((_one_of(field, value, path),))
        case "all":
            return AllOf(tuple(_equal(field, element, path) for element in _listed(value, path)))
    raise InvalidArgument(
        f"{path}.operator is {quoted(str(operator))}, which hrag cannot express",
        field=f"{path}.operator",
    )


def _equal(field: str, value: object, path: str) -> Filter:
    if value is None:
        return NoneOf((Exists(field),))
    return Match(field, _values(field, (value,), path))


def _one_of(field: str, value: object, path: str) -> Filter:
    values = _listed(value, path)
    present = tuple(element for element in values if element is not None)
    absent = NoneOf((Exists(field),))
    if len(present) < len(values):
        return AnyOf((absent, Match(field, _values(field, present, path)))) if present else absent
    return Match(field, _values(field, present, path))


def _listed(value: object, path: str) -> Sequence[object]:
    if not isinstance(value, list | tuple | set | frozenset) or not value:
        raise InvalidArgument(
            f"{path}.value is {quoted(str(value))}; it must be a list with at least one value",
            field=f"{path}.value",
        )
    return tuple(value)


def _values(field: str, values: Sequence[object], path: str) -> tuple[FilterValue, ...]:
    for value in values:
        if not isinstance(value, str | int | float | datetime):
            raise _invalid(value, "a text, a number, true, false or a time", path)
    texts = [value for value in values if isinstance(value, str)]
    moments = [timestamp_of(text) for text in texts] if field.startswith(METADATA) else []
    return (*values, *(moment for moment in moments if moment is not None))  # type: ignore[arg-type]


def _bound(value: object, path: str) -> Bound:
    bound = timestamp_of(value) if isinstance(value, str) else value
    if isinstance(bound, bool) or not isinstance(bound, int | float | datetime):
        raise _invalid(value, "a number or an ISO 8601 date or time", path)
    return bound


def _invalid(value: object, allowed: str, path: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path}.value is {quoted(str(value))}; it must be {allowed}", field=f"{path}.value"
    )
