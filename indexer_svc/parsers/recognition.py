"""Text recognition: the lines of text in a picture of a page, and the pages that may be recognised.

A recogniser is a function that gets a picture and returns the lines that it finds, each with its
text and its box. The parsers know only this function. `indexer_svc.parsers.rapid_ocr` has the
recogniser of the extra `ocr`. This module imports no library of it, so that every parser can
import it.

How a page is recognised:

1. The recogniser finds the lines, wherever they are and however they are turned, and reads each of
   them upright. It says for each line how its text is turned on the picture.
2. `upright_page` turns the page: the turn of most of the text is the turn of the page. So a
   scan that lay on its side or upside down becomes a page like any other. Then `upright_page` turns
   the page by the few degrees by which it lay crookedly, because the order of lines depends on it.
3. `PageRecogniser` counts the pages. A file may have more pages than the service is willing to
   recognise, because one page takes seconds.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Picture: TypeAlias = NDArray[np.uint8]
else:  # Parsers that recognise nothing need no numpy.
    Picture = Any

# Only lines of at least this many characters show how crooked a page is. The boxes of shorter lines
# are too irregular.
_MIN_SKEW_CHARS = 8
# Pages that are more crooked than this are not scans of pages, and their lines stay as they are.
_MAX_SKEW_DEGREES = 10.0

Point = tuple[float, float]


class FoundLine(NamedTuple):
    """A line of text as a recogniser finds it on a picture.

    `corners` are the corners of its box in pixels, clockwise on the picture; the first one is
    nearest to the top left corner of the picture. `turn` says by how many degrees the text is
    turned counterclockwise: 0 if it is upright, 90 if it runs upwards, 180 if it is upside down,
    and 270 if it runs downwards. `score` is from 0 to 1. `edges` are the places at which the
    characters begin and end, along the line from 0 to 1: one more than there are characters. It is
    empty if the recogniser does not know them.
    """

    text: str
    corners: tuple[Point, Point, Point, Point]
    turn: int
    score: float
    edges: tuple[float, ...] = ()


class RecognisedLine(NamedTuple):
    """A line of text on an upright page. Its box is in pixels; y grows downwards.

    `turn` has the meaning of `FoundLine.turn`, on the upright page. It is not 0 for a text that is
    written sideways on the page. `edges` has the meaning of `FoundLine.edges`.
    """

    text: str
    left: float
    top: float
    right: float
    bottom: float
    turn: int = 0
    score: float = 1.0
    edges: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RecognisedPage:
    """The lines of a page, in no particular order, and the size of the upright page in pixels.

    `turn` and `skew` say how the page lay on the picture: turned counterclockwise by `turn`
    degrees, in steps of 90, and then clockwise by `skew` degrees.
    """

    lines: tuple[RecognisedLine, ...]
    width: float
    height: float
    turn: int = 0
    skew: float = 0.0


Recognise = Callable[[Picture], Sequence[FoundLine]]
"""Finds the lines of a picture, `uint8[height, width, 3]` with the colours blue, green, red.

Only one thread at a time may call it.
"""


class PageRecogniser:
    """Recognises the pages of one file, up to a number of pages."""

    def __init__(
        self,
        recognise: Recognise,
        max_pages: int,
        on_page: Callable[[int], None] = lambda _page_count: None,
    ) -> None:
        """Calls `on_page` with the count of the pages so far before each page is recognised."""
        self._recognise = recognise
        self._max_pages = max_pages
        self._on_page = on_page
        self._page_count = 0

    @property
    def is_exhausted(self) -> bool:
        """True if no further page may be recognised."""
        return self._page_count >= self._max_pages

    def page(self, picture: Picture) -> RecognisedPage:
        """Returns the text of a picture. The caller must check `is_exhausted` before.

        The picture must be small enough for the recogniser, because it is not made smaller.
        """
        self._on_page(self._page_count)
        self._page_count += 1
        height, width = picture.shape[:2]
        return upright_page(self._recognise(picture), width, height)


def upright_page(lines: Sequence[FoundLine], width: int, height: int) -> RecognisedPage:
    """Returns a page with these lines, turned so that most of its text is upright.

    `width` and `height` are the size of the picture on which the lines were found.
    """
    turn = _turn_of(lines)
    skew = _skew_of([line for line in lines if line.turn == turn], turn)
    size = (height, width) if turn in (90, 270) else (width, height)
    upright = []
    for line in lines:
        corners = [_rotated(_turned(corner, turn, width, height), -skew) for corner in line.corners]
        horizontal, vertical = zip(*corners, strict=True)
        upright.append(
            RecognisedLine(
                line.text,
                min(horizontal),
                min(vertical),
                max(horizontal),
                max(vertical),
                (line.turn - turn) % 360,
                line.score,
                line.edges,
            )
        )
    return RecognisedPage(tuple(upright), *size, turn, skew)


def picture_point(point: Point, turn: int, skew: float, width: float, height: float) -> Point:
    """Returns where a point of an upright page is on the picture.

    `turn` and `skew` are those of the `RecognisedPage`; `width` and `height` are the size of the
    picture.
    """
    x, y = _rotated(point, skew)
    match turn:
        case 90:
            return y, height - x
        case 180:
            return width - x, height - y
        case 270:
            return width - y, x
        case _:
            return x, y


def _turn_of(lines: Sequence[FoundLine]) -> int:
    """Returns the turn of most characters; 0 if there are none."""
    chars: Counter[int] = Counter()
    for line in lines:
        chars[line.turn] += len(line.text)
    # With equal counts, a page stays as it is.
    return max(chars, key=lambda turn: (chars[turn], -turn), default=0)


def _skew_of(lines: Sequence[FoundLine], turn: int) -> float:
    """Returns by how many degrees the lines go down to the right, after they were turned.

    It is the median of the long lines. Returns 0 if there are no long lines, or if they are so
    steep that they are not the lines of a page.
    """
    angles = []
    for line in lines:
        if len(line.text) >= _MIN_SKEW_CHARS:
            first, second, third, fourth = (_turned(corner, turn, 0, 0) for corner in line.corners)
            edges = ((first, second), (second, third), (third, fourth), (fourth, first))
            (left, top), (right, bottom) = max(edges, key=lambda edge: math.dist(*edge))
            angle = math.degrees(math.atan2(bottom - top, right - left))
            angles.append((angle + 90) % 180 - 90)
    if not angles:
        return 0.0
    median = sorted(angles)[len(angles) // 2]
    return median if abs(median) <= _MAX_SKEW_DEGREES else 0.0


def _turned(point: Point, turn: int, width: float, height: float) -> Point:
    """Returns where a point is after the page has been turned back by `turn`."""
    x, y = point
    match turn:
        case 90:
            return height - y, x
        case 180:
            return width - x, height - y
        case 270:
            return y, width - x
        case _:
            return x, y


def _rotated(point: Point, degrees: float) -> Point:
    """Returns a point after the page has been rotated around its upper left corner, clockwise."""
    if not degrees:
        return point
    x, y = point
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return x * cosine - y * sine, x * sine + y * cosine
