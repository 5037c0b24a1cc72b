"""A recognised page is turned upright, and only so many pages of a file are recognised."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer_svc.parsers.recognition import (
    FoundLine,
    PageRecogniser,
    RecognisedPage,
    upright_page,
)

WIDTH, HEIGHT = 1200, 1700
# The lines of an upright page: text, left, top, right, bottom.
LINES = (
    ("The first line of a page", 100, 100, 900, 130),
    ("and the second line", 100, 140, 700, 170),
    ("12", 600, 1600, 630, 1630),
)


def corners_of(left: float, top: float, right: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def turned(point: tuple[float, float], turn: int) -> tuple[float, float]:
    """Returns where a point of the upright page is after the page was turned counterclockwise."""
    x, y = point
    return {
        0: (x, y),
        90: (y, WIDTH - x),
        180: (WIDTH - x, HEIGHT - y),
        270: (HEIGHT - y, x),
    }[turn]


def crooked(point: tuple[float, float], degrees: float) -> tuple[float, float]:
    """Returns where a point is after the page was rotated clockwise around its corner."""
    angle = math.radians(degrees)
    x, y = point
    return (
        x * math.cos(angle) - y * math.sin(angle),
        x * math.sin(angle) + y * math.cos(angle),
    )


def scan(turn: int, degrees: float = 0.0) -> list[FoundLine]:
    """Returns the lines of the page as they are found on a scan of it."""
    return [
        FoundLine(
            text,
            tuple(turned(crooked(corner, degrees), turn) for corner in corners_of(*box)),
            turn,
            0.9,
        )
        for text, *box in LINES
    ]


def size_of_scan(turn: int) -> tuple[int, int]:
    return (HEIGHT, WIDTH) if turn in (90, 270) else (WIDTH, HEIGHT)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("degrees", [0.0, 2.5, -4.0])
def test_a_page_that_was_scanned_in_any_direction_and_crookedly_is_upright(turn, degrees):
    page = upright_page(scan(turn, degrees), *size_of_scan(turn))
    assert (page.width, page.height) == (WIDTH, HEIGHT)
    for line, (text, *box) in zip(page.lines, LINES, strict=True):
        assert (line.text, line.turn, line.score) == (text, 0, 0.9)
        # A crooked page is rotated around a corner of the page after it was turned.
        assert line[1:5] == pytest.approx(box, abs=1e-6 if turn == 0 or not degrees else 150)
    tops = [line.top for line in page.lines]
    assert tops == sorted(tops)
    assert page.lines[0].bottom - page.lines[0].top == pytest.approx(30)


def test_text_that_is_sideways_on_the_page_keeps_its_turn():
    sideways = FoundLine("published yearly", tuple(corners_of(1150, 200, 1180, 600)), 90, 0.8)
    page = upright_page([*scan(0), sideways], WIDTH, HEIGHT)
    assert [line.turn for line in page.lines] == [0, 0, 0, 90]
    assert page.lines[-1][1:5] == (1150, 200, 1180, 600)


def test_steep_lines_are_no_crooked_page():
    steep = scan(0, 40.0)
    page = upright_page(steep, WIDTH, HEIGHT)
    x, y = zip(*steep[0].corners, strict=True)
    assert page.lines[0][1:5] == (min(x), min(y), max(x), max(y))


def test_a_page_without_lines_has_the_size_of_its_picture():
    assert upright_page([], 30, 20) == RecognisedPage((), 30, 20)


@given(
    st.lists(
        st.builds(
            FoundLine,
            st.text(min_size=1, max_size=12),
            st.tuples(*[st.tuples(st.integers(0, WIDTH), st.integers(0, HEIGHT))] * 4),
            st.sampled_from([0, 90, 180, 270]),
            st.floats(0, 1),
        ),
        max_size=8,
    )
)
def test_no_line_is_lost_and_most_of_the_text_is_upright(lines):
    page = upright_page(lines, WIDTH, HEIGHT)
    assert [line.text for line in page.lines] == [line.text for line in lines]
    chars = dict.fromkeys((0, 90, 180, 270), 0)
    for line in page.lines:
        assert line.left <= line.right
        assert line.top <= line.bottom
        chars[line.turn] += len(line.text)
    assert chars[0] == max(chars.values())


class Picture:
    """A picture of which only the shape is used."""

    shape = (HEIGHT, WIDTH, 3)


def test_only_so_many_pages_are_recognised_and_each_is_announced():
    announced: list[int] = []
    recogniser = PageRecogniser(lambda _picture: scan(0), 2, announced.append)
    for _ in range(2):
        assert not recogniser.is_exhausted
        assert len(recogniser.page(Picture()).lines) == len(LINES)
    assert recogniser.is_exhausted
    assert announced == [0, 1]
    assert PageRecogniser(lambda _picture: (), 0).is_exhausted
