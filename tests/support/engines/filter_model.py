"""A plain model of filters, and strategies that draw metadata and filters.

The strategies draw from few fields and few values. So a filter matches some documents, but not all.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from hrag.engine import PreparedDocument
from hrag.filters import AllOf, AnyOf, Exists, Filter, Match, NoneOf, Range
from hrag.values.formats import format_named

LONG = "long " * 100
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
# The keys are texts of dates or times. Each value is the moment that the text names.
MOMENTS = {
    "2026-01-01": NEW_YEAR,
    "2026-01-01T01:00:00+01:00": NEW_YEAR,
    "2026-01-01 00:00:00.25Z": NEW_YEAR + timedelta(milliseconds=250),
    "2025-12-31T23:59": NEW_YEAR - timedelta(minutes=1),
    "0001-01-01t00:00:00z": datetime.min.replace(tzinfo=UTC),
}
_TEXTS = ["", "x", "X", "ü", "1", "true", "20260101", "2026", LONG, LONG + "x", *MOMENTS]
_NUMBERS = [0, -0.0, 1, 1.0, -1, 0.5, -1.5, 1e300, -1e300, 5e-324, 2**53]
_KEYS = ["a", "b", "c.d", "", "k" * 300]
_FIELDS = ["a", "b", "o", "o.a", "o.o.b", "c.d", "", "k" * 300, "missing"]

_scalars = st.sampled_from([None, True, False, *_TEXTS, *_NUMBERS])
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*_KEYS, "o"]), inner)
    ),
    max_leaves=4,
)
METADATA = st.dictionaries(st.sampled_from([*_KEYS, "o"]), _values, max_size=4)

_ELSEWHERE = NEW_YEAR.astimezone(timezone(timedelta(hours=5)))
_moments = st.sampled_from([*MOMENTS.values(), _ELSEWHERE, NEW_YEAR.replace(tzinfo=None)])
_numbers = st.sampled_from(_NUMBERS)
_metadata_fields = st.sampled_from(_FIELDS).map("metadata.{}".format)
_matches = st.builds(
    Match,
    _metadata_fields,
    st.lists(_moments | st.sampled_from([True, False, *_TEXTS, *_NUMBERS]), min_size=1).map(tuple),
) | st.builds(
    Match,
    st.sampled_from(["document_id", "title", "source"]),
    st.lists(
        st.sampled_from(
            ["d0", "d1", "", "Title of d1", "https://example.org/d2", "x" * 2000, "🙂" * 128]
        ),
        min_size=1,
    ).map(tuple),
)
_formats = st.sampled_from(["text/plain", "text/html", "TEXT/X-Markdown"])
_format_matches = st.builds(
    Match,
    st.sampled_from(["mime_type", "format"]),
    st.lists(_formats, min_size=1).map(tuple),
)


def _ranges(bounds: st.SearchStrategy[Any]) -> st.SearchStrategy[Range]:
    pairs = [(lower, upper) for lower in ("at_least", "above") for upper in ("at_most", "below")]
    limits_by_name = st.sampled_from(pairs).flatmap(
        lambda pair: (
            st.fixed_dictionaries({pair[0]: bounds}, optional={pair[1]: bounds})
            | st.fixed_dictionaries({pair[1]: bounds})
        )
    )
    return st.builds(lambda field, limits: Range(field, **limits), _metadata_fields, limits_by_name)


_exists = st.builds(Exists, _metadata_fields | st.sampled_from(["document_id", "title", "source"]))
FILTERS: st.SearchStrategy[Filter] = st.recursive(
    _matches | _format_matches | _ranges(_numbers) | _ranges(_moments) | _exists,
    lambda inner: st.builds(
        lambda kind, filters: kind(tuple(filters)),
        st.sampled_from([AllOf, AnyOf, NoneOf]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=5,
)

_AN_OBJECT = object()


def passes(filter: Filter, document: PreparedDocument) -> bool:
    """Returns True if the document passes the filter. Evaluates one condition after the other."""
    match filter:
        case AllOf(filters):
            return all(passes(inner, document) for inner in filters)
        case AnyOf(filters):
            return any(passes(inner, document) for inner in filters)
        case NoneOf(filters):
            return not any(passes(inner, document) for inner in filters)
        case Match(field, wanted):
            if field in ("mime_type", "format"):
                wanted = tuple(map(_mime_type, wanted))
            return any(_same(a, b) for a in values_of(document, field) for b in wanted)
        case Range(field):
            return any(_is_within(value, filter) for value in values_of(document, field))
        case Exists(field):
            return bool(values_of(document, field))


def _mime_type(name: Any) -> str:
    """Returns the MIME type of the format that a MIME type, an alias or an extension names."""
    known_format = format_named(name.partition(";")[0])
    assert known_format is not None
    return known_format.mime_type


def values_of(document: PreparedDocument, field: str) -> list[Any]:
    match field:
        case "document_id":
            return [document.document_id]
        case "mime_type" | "format":
            return [document.mime_type]
        case "title" | "source":
            return [value] if (value := getattr(document, field)) else []
        case _:
            values = _values_in(document.metadata, "metadata.")
            return [value for path, value in values if path == field]


def _values_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        yield from _values_at(inner, path + key)


def _values_at(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield path, _AN_OBJECT
        yield from _values_in(value, f"{path}.")
    elif isinstance(value, list):
        for element in value:
            yield from _values_at(element, path)
    elif value is not None:
        yield path, value


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _same(stored: Any, expected: Any) -> bool:
    if isinstance(expected, datetime):
        return _moment(stored) == _utc(expected)
    return _kind(stored) is _kind(expected) and bool(stored == expected)


def _is_within(stored: Any, condition: Range) -> bool:
    bounds = {name: getattr(condition, name) for name in ("at_least", "above", "at_most", "below")}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    if any(isinstance(bound, datetime) for bound in bounds.values()):
        stored, bounds = _moment(stored), {name: _utc(bound) for name, bound in bounds.items()}
        if stored is None:
            return False
    elif _kind(stored) is not float:
        return False
    holds = {
        "at_least": lambda bound: stored >= bound,
        "above": lambda bound: stored > bound,
        "at_most": lambda bound: stored <= bound,
        "below": lambda bound: stored < bound,
    }
    return all(holds[name](bound) for name, bound in bounds.items())


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"[12]\d{3}-\d\d-\d\d", value):
        return datetime(*map(int, value.split("-")), tzinfo=UTC)
    return MOMENTS.get(value)


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
