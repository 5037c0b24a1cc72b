"""Images of pages, with the boxes of parts of the page's text."""

from dataclasses import dataclass
from typing import NamedTuple

from hrag.values.errors import InvalidArgument

MIN_DPI, DEFAULT_DPI, MAX_DPI = 36, 110, 300
"""The resolutions of page images, in dots per inch. At 110, print of 8 points is easy to read."""
MAX_PAGE_SPANS = 64
"""A request may name at most this many spans. A passage of an answer has one or a few."""
MAX_PAGE_BOXES = 12_000
"""A page image has at most this many boxes: one for each line of each span, or more on a page that
was scanned crookedly. A page has some hundred lines."""


class SpanBox(NamedTuple):
    """The place of a printed line of a span, as fractions of the page's sides, from 0 to 1.

    `span` is the index of the span in the request. `left` and `top` are less than `right` and
    `bottom`; y grows downwards.
    """

    span: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class PageImage:
    """An image of a page as PNG, as a reader sees the page.

    `width_points` and `height_points` are the size of the page in points, of 1/72 inch. The longer
    side of a picture counts as 842 points. `boxes` has one box for each printed line of each span,
    in the order of the spans; on a page that was scanned crookedly, several for each line.
    `boxes_note` says in words why text of a span has no boxes. It is empty if all text has boxes.
    """

    png: bytes
    width_pixels: int
    height_pixels: int
    width_points: float
    height_points: float
    boxes: tuple[SpanBox, ...] = ()
    boxes_note: str = ""


def check_page_request(dpi: int, span_count: int) -> None:
    """Raises InvalidArgument if the resolution or the count of spans is out of range."""
    if not MIN_DPI <= dpi <= MAX_DPI:
        raise InvalidArgument(f"dpi is {dpi}; it must be from {MIN_DPI} to {MAX_DPI}", field="dpi")
    if span_count > MAX_PAGE_SPANS:
        raise InvalidArgument(
            f"there are {span_count} spans; at most {MAX_PAGE_SPANS} are allowed", field="spans"
        )
