"""A citation consists of a heading and pages."""

from dataclasses import replace

import pytest

from hrag.text.citations import heading, pages, pages_of, recognised_pages_of, short_pages
from hrag.types import Chunk, PageStart, Span
from hrag.values.read_report import PageUnit


def _chunk(first: int, last: int, *starts: PageStart, title: str = "Guide") -> Chunk:
    span = Span(100, 200, 100, 200)
    path = ("Guide", "Keys")
    return Chunk("d#0.0", "d", 0, 0, "", 1, span, path, first, last, title, "", {}, starts)


def test_a_heading_omits_a_first_section_that_repeats_the_title() -> None:
    assert heading(_chunk(0, 0)) == "Guide - Keys"
    assert heading(_chunk(0, 0, title="Other")) == "Other - Guide > Keys"
    assert heading(_chunk(0, 0, title="")) == "d - Guide > Keys"


def test_pages_are_shown_as_one_page_or_as_a_range() -> None:
    assert [pages(_chunk(*numbers)) for numbers in ((0, 0), (3, 3), (3, 4))] == [
        "",
        "page 3",
        "pages 3-4",
    ]


def test_rows_and_times_are_shown_as_such() -> None:
    cases = {
        (PageUnit.ROW, 5, 5): "row 5",
        (PageUnit.ROW, 5, 8): "rows 5-8",
        (PageUnit.ROW, 98, 3): "from row 98",
        (PageUnit.SECOND, 72, 72): "00:01:12",
        (PageUnit.SECOND, 72, 90): "00:01:12-00:01:30",
        (PageUnit.SECOND, 1, 90 * 3600): "00:00:01-90:00:00",
        (PageUnit.SECOND, 0, 0): "",
    }
    for (unit, first, last), text in cases.items():
        chunk = replace(_chunk(first, last), page_unit=unit)
        assert pages(chunk) == short_pages(chunk) == text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((1, 2, 3), "rows 1-3"), ((1, 2, 40, 1, 3), "from row 1"), ((3, 1, 3), "from row 3")],
)
def test_rows_of_several_sheets_are_not_shown_as_one_range(numbers, text) -> None:
    starts = (PageStart(number, 100 + at) for at, number in enumerate(numbers[1:], start=1))
    chunk = replace(_chunk(numbers[0], numbers[-1], *starts), page_unit=PageUnit.ROW)
    assert pages(chunk) == short_pages(chunk) == text
    assert pages(replace(chunk, page_unit=PageUnit.PAGE)).startswith("page")


def test_a_citation_of_recognised_text_says_so() -> None:
    chunk = replace(_chunk(3, 4), recognised_pages=(4,))
    assert (pages(chunk), short_pages(chunk)) == (
        "pages 3-4 (recognised)",
        "p. 3-4 (recognised)",
    )


def test_recognised_pages_of_a_span_are_those_that_it_touches() -> None:
    chunk = replace(_chunk(3, 9, *STARTS), recognised_pages=(3, 9))
    spans = [Span(at, end, at, end) for at, end in ((100, 110), (120, 150), (130, 151), (100, 200))]
    assert [recognised_pages_of(chunk, span) for span in spans] == [(3,), (), (9,), (3, 9)]


# Pages 4 and 9 begin inside a chunk that starts on page 3. Page numbers may have gaps.
STARTS = (PageStart(4, 120), PageStart(9, 150))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (100, 110, (3, 3)),
        (100, 120, (3, 3)),
        (110, 121, (3, 4)),
        (120, 150, (4, 4)),
        (100, 200, (3, 9)),
        (150, 200, (9, 9)),
        (120, 120, (4, 4)),
    ],
)
def test_a_span_is_on_the_pages_that_it_touches(
    start: int, end: int, expected: tuple[int, int]
) -> None:
    assert pages_of(_chunk(3, 9, *STARTS), Span(start, end, start, end)) == expected


def test_a_span_of_a_document_without_pages_is_on_no_page() -> None:
    assert pages_of(_chunk(0, 0), Span(100, 110, 100, 110)) == (0, 0)
