"""The lines that were recognised in a picture of a page, as content that the layout understands.

The layout compares the sizes of lines to find headings. The box of a recognised line is higher if
the line has letters with descenders, and differs a little from line to line anyway. So lines whose
boxes are about as high as those of most of the text get the same size, and only lines that are
clearly larger or smaller keep a size of their own. The middle of a box is more exact than its lower
edge, so the baseline is computed from the middle.
"""

from collections.abc import Sequence

from indexer_svc.parsers.pdf.page_content import Font, FormValue, GlyphRun, PageContent
from indexer_svc.parsers.recognition import RecognisedLine, RecognisedPage

# The size in points that most of the text gets. The layout measures distances in points.
_BODY_SIZE = 10.0
# The height of the box of a line, relative to the size of its font. Measured on printed pages.
_BOX_HEIGHT = 1.35
# Lines that are less different than this from most of the text have its size.
_SMALLEST_BODY, _LARGEST_BODY = 0.7, 1.35
# The sizes of other lines are rounded to this part of the size of the text.
_SIZE_STEP = 0.25
# The distance from the middle of a line to its baseline, relative to the size of its font.
_MIDDLE_TO_BASELINE = 0.3
_FONT = Font("recognised")


def recognised_content(page: RecognisedPage, read: PageContent | None = None) -> PageContent:
    """Returns the content of a page whose text was recognised.

    The coordinates are scaled so that most of the text has the size of a usual text in print.
    `read` is the content that was read of the page, whose form values are kept. The mark of each
    run is the index of its line.
    """
    body = _body_height(page.lines)
    scale = _BODY_SIZE * _BOX_HEIGHT / body if body else 1.0
    runs = [
        _run(line, page, scale, body)._replace(mark=index) for index, line in enumerate(page.lines)
    ]
    width, height = page.width * scale, page.height * scale
    values = [] if read is None else _moved_values(read, width, height)
    return PageContent(width, height, runs, form_values=values)


def _moved_values(read: PageContent, width: float, height: float) -> list[FormValue]:
    """Returns the form values of a page that gets another width and height."""
    x, y = width / max(read.width, 1.0), height / max(read.height, 1.0)
    return [
        FormValue(value.text, value.left * x, value.top * y, value.right * x, value.bottom * y)
        for value in read.form_values
    ]


def _body_height(lines: Sequence[RecognisedLine]) -> float:
    """Returns the height of the box of the median character; 0 if there are no lines."""
    heights = sorted((_height(line), len(line.text)) for line in lines)
    chars = 0
    all_chars = sum(count for _, count in heights)
    for height, count in heights:
        chars += count
        if 2 * chars >= all_chars:
            return max(height, 1.0)
    return 0.0


def _height(line: RecognisedLine) -> float:
    """Returns the height of a line's box in the direction across its text."""
    return line.right - line.left if line.turn in (90, 270) else line.bottom - line.top


def _run(line: RecognisedLine, page: RecognisedPage, scale: float, body: float) -> GlyphRun:
    """Returns a line as a run whose characters have equal widths, as if upright."""
    left, top, right, bottom = (edge * scale for edge in _upright_box(line, page))
    ratio = _height(line) / body
    if _SMALLEST_BODY <= ratio <= _LARGEST_BODY:
        ratio = 1.0
    else:
        ratio = max(round(ratio / _SIZE_STEP), 1) * _SIZE_STEP
    size = _BODY_SIZE * ratio
    advance = (right - left) / len(line.text)
    edges = [left + advance * index for index in range(len(line.text) + 1)]
    baseline = (top + bottom) / 2 + _MIDDLE_TO_BASELINE * size
    return GlyphRun(line.text, edges[:-1], edges[1:], top, bottom, baseline, size, _FONT, line.turn)


def _upright_box(line: RecognisedLine, page: RecognisedPage) -> tuple[float, float, float, float]:
    """Returns the box of a line in the frame in which its text is upright."""
    left, top, right, bottom = line.left, line.top, line.right, line.bottom
    match line.turn:
        case 90:
            return page.height - bottom, left, page.height - top, right
        case 180:
            return page.width - right, page.height - bottom, page.width - left, page.height - top
        case 270:
            return top, page.width - right, bottom, page.width - left
        case _:
            return left, top, right, bottom
