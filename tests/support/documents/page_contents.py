"""Pages as the layout of PDFs gets them, made without a PDF.

Each character is half as wide as the font size, so a test can compute where a line ends.
"""

from collections.abc import Iterable, Sequence

from indexer_svc.parsers.pdf.layout.lines import TextLine, TextRow, rows_of
from indexer_svc.parsers.pdf.layout.words import Word, words_of
from indexer_svc.parsers.pdf.page_content import Font, GlyphRun, PageContent, RuledLine

REGULAR = Font("Serif")
BOLD = Font("Serif-Bold", is_bold=True)
ITALIC = Font("Serif-Italic", is_italic=True)
FIXED = Font("Mono", is_fixed=True)
WIDTH, HEIGHT = 600.0, 800.0
ADVANCE = 0.5


def run(
    text: str,
    x: float,
    y: float,
    *,
    size: float = 10.0,
    font: Font = REGULAR,
    angle: int = 0,
    mark: int = -1,
) -> GlyphRun:
    """Returns a run that begins at `x` and has its baseline at `y`."""
    advance = ADVANCE * size
    starts = [x + index * advance for index in range(len(text))]
    return GlyphRun(
        text,
        starts,
        [start + advance for start in starts],
        y - 0.8 * size,
        y + 0.2 * size,
        y,
        size,
        font,
        angle,
        mark,
    )


def page(runs: Iterable[GlyphRun], rules: Sequence[RuledLine] = ()) -> PageContent:
    """Returns a page of 600 by 800 points."""
    return PageContent(WIDTH, HEIGHT, list(runs), rules)


def words(runs: Iterable[GlyphRun]) -> list[Word]:
    """Returns the words of runs."""
    return words_of(list(runs))


def rows(runs: Iterable[GlyphRun]) -> list[TextRow]:
    """Returns the rows of runs."""
    return rows_of(words(runs))


def lines(runs: Iterable[GlyphRun]) -> list[TextLine]:
    """Returns one line for each row of runs."""
    return [TextLine(row.words) for row in rows(runs)]


def paragraph(
    texts: Iterable[str], x: float, y: float, *, pitch: float = 12.0, size: float = 10.0
) -> list[GlyphRun]:
    """Returns one run for each text, each `pitch` below the run before."""
    return [run(text, x, y + index * pitch, size=size) for index, text in enumerate(texts)]


def justified(
    texts: Iterable[str], x: float, right: float, y: float, *, pitch: float = 12.0
) -> list[GlyphRun]:
    """Returns one run for each word of lines whose equal spaces fill the width up to `right`."""
    runs = []
    for index, text in enumerate(texts):
        parts = text.split()
        free = right - x - sum(5.0 * len(part) for part in parts)
        left = x
        for part in parts:
            runs.append(run(part, left, y + index * pitch))
            left += 5.0 * len(part) + free / max(1, len(parts) - 1)
    return runs


def table(
    cells: Sequence[Sequence[str]], xs: Sequence[float], y: float, *, pitch: float = 14.0
) -> list[GlyphRun]:
    """Returns one run for each filled cell, in columns that begin at `xs`."""
    return [
        run(text, x, y + index * pitch)
        for index, row in enumerate(cells)
        for text, x in zip(row, xs, strict=True)
        if text
    ]


def grid(xs: Sequence[float], ys: Sequence[float]) -> list[RuledLine]:
    """Returns the lines of a grid."""
    across = [RuledLine(xs[0], y, xs[-1], y) for y in ys]
    return across + [RuledLine(x, ys[0], x, ys[-1]) for x in xs]
