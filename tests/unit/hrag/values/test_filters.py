"""Filters are validated, and timestamps are parsed from strings."""

import math
from datetime import UTC, datetime

import pytest

from hrag.errors import HragError, InvalidArgument, TooLarge
from hrag.filters import (
    MAX_FILTER_CONDITIONS,
    MAX_FILTER_RANGES,
    MAX_FILTER_TERMS,
    AllOf,
    AnyOf,
    Exists,
    Filter,
    Match,
    NoneOf,
    Range,
    check_filter,
    timestamp_of,
)

TITLE = Match("title", ("x",))
AGES = Range("metadata.age", above=1)


def nested_filter(depth: int) -> Filter:
    """Returns a filter of `depth` conditions, each inside the one before."""
    condition: Filter = TITLE
    for _ in range(depth - 1):
        condition = NoneOf((condition,))
    return condition


@pytest.mark.parametrize(
    "filter",
    [
        TITLE,
        Match("document_id", ("a", "")),
        Match("metadata.", (True, 1, 0.5, "x", datetime(2026, 1, 1))),
        Range("metadata.a.b", at_least=1, below=2.5),
        Range("metadata.a", above=datetime(2026, 1, 1), at_most=datetime(2025, 1, 1, tzinfo=UTC)),
        nested_filter(16),
        Match("source", ("x",) * (MAX_FILTER_TERMS - 1)),
        AnyOf((TITLE,) * MAX_FILTER_CONDITIONS),
        AllOf((AGES,) * MAX_FILTER_RANGES),
        Match("mime_type", ("text/html", "Application/XHTML+xml; charset=utf-8")),
        Match("format", ("pdf", ".PDF", "markdown", "html", "docx", "text", "text/x-python")),
        Match("format", ("text/html; charset=utf-8", "Application/XHTML+xml;charset=utf-8")),
        Exists("metadata.format"),
        Range("metadata.mime_type", above=1),
    ],
)
def test_valid_filters_are_allowed(filter):
    check_filter(filter)


@pytest.mark.parametrize(
    ("filter", "field", "message"),
    [
        (AllOf(()), "filter.all_of", "is empty"),
        (AnyOf((TITLE, NoneOf(()))), "filter.any_of.filters[1].none_of", "is empty"),
        (
            Exists("lang"),
            "filter.exists.field",
            "is 'lang'; it must be document_id, title, source, mime_type, format or metadata.<key>",
        ),
        (
            Match("mime_type", ("text/html", "text/nothing")),
            "filter.match.values",
            "contains 'text/nothing'; mime_type must be text/plain, text/markdown, application/pdf",
        ),
        (Match("mime_type", ("pdf",)), "filter.match.values", "'pdf'; mime_type must be"),
        (Match("mime_type", ("",)), "filter.match.values", "metadata.mime_type is the key"),
        (Match("mime_type", (1,)), "filter.match.values", "mime_type is a text"),
        (Match("format", (True,)), "filter.match.values", "format is a text"),
        (
            Match("format", ("A4",)),
            "filter.match.values",
            "contains 'A4'; format must be txt, md, pdf, html, docx",
        ),
        (Match("format", ("",)), "filter.match.values", "metadata.format is the key"),
        (Match("format", ("x" * 999,)), "filter.match.values", "999 characters"),
        (Exists("format"), "filter.exists.field", "every document has one; metadata.format is"),
        (Exists("mime_type"), "filter.exists.field", "is 'mime_type'; every document has one"),
        (Range("format", above=1), "filter.range.field", "only metadata"),
        (Exists(""), "filter.exists.field", "is ''"),
        (Match("x" * 999, ("a",)), "filter.match.field", "999 characters"),
        (Match("title", ()), "filter.match.values", "is empty"),
        (Match("title", (1,)), "filter.match.values", "title is a text"),
        (Match("metadata.n", (math.nan,)), "filter.match.values", "finite"),
        (Range("metadata.n"), "filter.range", "no bound"),
        (Range("title", above=1), "filter.range.field", "only metadata"),
        (Range("metadata.n", above=math.inf), "filter.range.above", "finite"),
        (Range("metadata.n", above=1, at_least=1), "filter.range.above", "both"),
        (Range("metadata.n", below=1, at_most=1), "filter.range.below", "both"),
        (Range("metadata.n", above=1, below=datetime(2026, 1, 1)), "filter.range", "one type"),
        (Range("metadata.n", below="x"), "filter.range.below", "number or a timestamp"),
        (Range("metadata.n", below=True), "filter.range.below", "number or a timestamp"),
    ],
)
def test_the_refusal_of_an_invalid_filter_names_the_field(filter, field, message):
    with pytest.raises(InvalidArgument) as caught:
        check_filter(filter)
    assert caught.value.field == field
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (nested_filter(17), "nested over 16 deep"),
        (nested_filter(900), "nested over 16 deep"),
        (Match("source", ("x",) * MAX_FILTER_TERMS), "10001 conditions and values"),
        (AnyOf((TITLE,) * (MAX_FILTER_CONDITIONS + 1)), r"257 conditions .*at most 256 are"),
        (AnyOf((AGES,) * (MAX_FILTER_RANGES + 1)), r"33 conditions .*range .*at most 32 are"),
        (NoneOf((Exists("title"),) * (MAX_FILTER_RANGES + 1)), "33 conditions"),
    ],
)
def test_the_refusal_of_a_filter_that_is_too_large_names_the_limit(filter, message):
    with pytest.raises(TooLarge, match=message) as caught:
        check_filter(filter)
    assert isinstance(caught.value, HragError)
    assert caught.value.field == "filter"


# The following tests cover timestamps.


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21", datetime(2026, 11, 21)),
        ("2026-11-21T10:20", datetime(2026, 11, 21, 10, 20)),
        ("2026-11-21 10:20:30", datetime(2026, 11, 21, 10, 20, 30)),
        ("2026-11-21t10:20:30z", datetime(2026, 11, 21, 10, 20, 30)),
        ("2026-11-21T10:20:30.5+02:30", datetime(2026, 11, 21, 7, 50, 30, 500_000)),
        ("2026-11-21T10:20:30,123456789Z", datetime(2026, 11, 21, 10, 20, 30, 123_456)),
    ],
)
def test_a_valid_timestamp_is_read(text, moment):
    assert timestamp_of(text) == moment.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026", "20261121", "2026-11", "2026-W47-6", "2026-11-31", "2026-11-21T24:00"),
        *("2026-11-21T10", "2026-11-21T10:61", "2026-11-21T10:20:30.", " 2026-11-21"),
        *("2026-11-21T10:20:60", "２０２６-11-21", "2026-11-21\n", "9999-12-31T23:00-05:00"),
        *("0001-01-01T00:00+01:00", "0000-01-01", "yesterday"),
    ],
)
def test_an_invalid_timestamp_is_read_as_none(text):
    assert timestamp_of(text) is None


@pytest.mark.parametrize("values", ["ab", b"ab", bytearray(b"ab"), {"ab"}, iter(("ab",)), 5, None])
def test_values_that_are_not_a_tuple_or_a_list_are_refused(values):
    with pytest.raises(InvalidArgument, match=r"Match.values is .* must be a tuple or a list"):
        Match("document_id", values)


@pytest.mark.parametrize("kind", [AllOf, AnyOf, NoneOf])
@pytest.mark.parametrize("filters", ["ab", TITLE, None])
def test_filters_that_are_not_a_tuple_or_a_list_are_refused(kind, filters):
    with pytest.raises(InvalidArgument, match=f"{kind.__name__}.filters is .* a tuple or a list"):
        kind(filters)


def test_lists_are_allowed_instead_of_tuples():
    check_filter(AllOf([Match("document_id", ["a", "b"])]))
