"""The text of a recognised page: its lines in reading order, divided into paragraphs."""

from collections.abc import Iterator, Sequence
from statistics import median

from indexer_svc.parsers.recognition import RecognisedLine, RecognisedPage

# Two boxes are in one row if the middle of one is inside this part of the height of the other.
_ROW_PART = 0.5
# A paragraph begins after a gap of so many line heights. Lines of a paragraph are closer.
_PARAGRAPH_GAP = 0.75


def page_text(page: RecognisedPage) -> str:
    """Returns the paragraphs of a page, with a blank line between two of them."""
    return "\n\n".join(paragraphs(page))


def paragraphs(page: RecognisedPage) -> Iterator[str]:
    """Yields the paragraphs of a page. Text that is sideways on the page comes last."""
    yield from _paragraphs(_rows([line for line in page.lines if not line.turn]))
    yield from (line.text for line in page.lines if line.turn)


def _rows(lines: Sequence[RecognisedLine]) -> list[list[RecognisedLine]]:
    """Returns the lines in rows from top to bottom, each from left to right."""
    rows: list[list[RecognisedLine]] = []
    for line in sorted(lines, key=lambda line: line.top + line.bottom):
        middle = (line.top + line.bottom) / 2
        if rows:
            last = rows[-1][0]
            margin = (last.bottom - last.top) * (1 - _ROW_PART) / 2
            if last.top + margin <= middle <= last.bottom - margin:
                rows[-1].append(line)
                continue
        rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


def _paragraphs(rows: Sequence[Sequence[RecognisedLine]]) -> Iterator[str]:
    """Yields the text of each paragraph, with a line for each row."""
    if not rows:
        return
    height = median(row[0].bottom - row[0].top for row in rows)
    texts: list[str] = []
    bottom = rows[0][0].bottom
    for row in rows:
        if texts and row[0].top - bottom > _PARAGRAPH_GAP * height:
            yield "\n".join(texts)
            texts = []
        texts.append(" ".join(line.text for line in row))
        bottom = max(line.bottom for line in row)
    yield "\n".join(texts)
