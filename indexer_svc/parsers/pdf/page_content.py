"""The content of one page of a PDF, as the layout needs it.

All coordinates are in points, in the frame of the page's text: most of the text of the page is
upright in it, x grows to the right, and y grows downwards from the upper edge. So the layout need
not know whether the page, or the text on it, is turned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Font(NamedTuple):
    """The style of a font. `is_fixed` is True if all its characters have the same width."""

    name: str
    is_bold: bool = False
    is_italic: bool = False
    is_fixed: bool = False


class GlyphRun(NamedTuple):
    """Characters that were drawn together: they have one font, size, direction and baseline.

    `text` has one character for each element of `starts` and `ends`, which say where the advance
    of the character begins and ends in the direction of the text. `top`, `bottom` and `baseline`
    are the same for all characters. `angle` is 0 if the text is upright, 90 if it runs upwards, 180
    if it is upside down, and 270 if it runs downwards. If it is not 0, the coordinates are those of
    a frame that is turned by the angle, so that the run is upright in it. `mark` is the number of
    the marked content that the run belongs to, by which the tags of a page refer to it, or -1.
    """

    text: str
    starts: Sequence[float]
    ends: Sequence[float]
    top: float
    bottom: float
    baseline: float
    size: float
    font: Font
    angle: int = 0
    mark: int = -1


class RuledLine(NamedTuple):
    """A horizontal or vertical line on the page, or an edge of a drawn rectangle."""

    left: float
    top: float
    right: float
    bottom: float


class FormValue(NamedTuple):
    """The value that was filled into a field of a form, and the box of the field."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


class Tag(NamedTuple):
    """The part of a tagged PDF's structure tree to which a marked content belongs.

    `heading_depth` is the depth of the heading that the content belongs to, from 1, or 0. `element`
    is a number that all contents of the same heading have.
    """

    heading_depth: int = 0
    element: int = 0


@dataclass(frozen=True, slots=True)
class PageContent:
    """Everything on a page that the layout uses.

    `tags` maps the number of a marked content to its tag. `has_pictures` is True if the page shows
    pictures, or so many drawn shapes that they may be text. `slanted_texts` are the texts that run
    in a slanted direction, such as watermarks. They are no part of the runs. `direction` is the
    number of quarter turns to the left of the frame of the text, in the coordinates of the file.
    `has_places` is False if there is so much text that the places of its characters were not read.
    """

    width: float
    height: float
    runs: Sequence[GlyphRun] = ()
    rules: Sequence[RuledLine] = ()
    form_values: Sequence[FormValue] = ()
    tags: Mapping[int, Tag] | None = None
    has_pictures: bool = False
    slanted_texts: Sequence[str] = ()
    direction: int = 0
    has_places: bool = True


class Bookmark(NamedTuple):
    """An entry of a PDF's outline. `depth` counts from 1, and the page index `page` from 0."""

    title: str
    depth: int
    page: int
