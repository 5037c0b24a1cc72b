"""The boxes of every sentence of printed documents cover it wholly, and no other line.

The documents are printed by `printed_twins`, in seeded layouts, so the place of every word is
known.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from hrag.values.page_images import MAX_PAGE_SPANS, SpanBox
from indexer_svc.parsers.parsed_file import ParsedFile
from indexer_svc.parsers.pdf import page_image, parse_pdf
from tests.support.documents.printed_twins import (
    HEIGHT,
    WIDTH,
    Piece,
    PrintedText,
    PrintedTwin,
    printed_twin,
)

TWINS, FAST_TWINS = 100, 4
MAX_PNG = 1 << 23
# A box may end so many points before or after the edge of a word.
EDGE = 1.5
# The ascent and the descent of letters, in font sizes; Chinese characters have less below the line.
ASCENT, DESCENT, CHINESE_DESCENT = 0.7, 0.2, 0.1
# The part of a line that no box of another line may touch: most of the height of small letters.
INK_TOP = 0.5
DPI = 36


@dataclass
class Count:
    """What was found in the documents."""

    printed: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    checked_pages: int = 0

    @property
    def share(self) -> float:
        return self.read.total() / self.printed.total()


def check(twin: PrintedTwin, count: Count) -> None:
    """Checks the boxes of all texts of a document that are read as they were printed."""
    parsed = parse_pdf(twin.pdf, 1 << 22)
    spans = []
    for text in twin.texts:
        if text.kind != "head":
            found = [match.span() for match in re.finditer(pattern(twin, text), parsed.text)]
            count.printed[text.kind] += 1
            count.read[text.kind] += len(found) == 1
            spans += [(text, *found[0])] if len(found) == 1 else []
    for index in range(len(parsed.pages)):
        count.checked_pages += 1
        for text, boxes in boxes_on(twin, parsed, index, spans):
            pieces = [piece for piece in text.pieces if piece.page == index]
            for line in lines_of(pieces):
                assert any(covers(box, line, twin) for box in boxes), (line, boxes, text.words)
            for other in twin.texts:
                if other is not text:
                    touched = [
                        piece
                        for piece in other.pieces
                        if piece.page == index and any(touches(box, piece) for box in boxes)
                    ]
                    assert not touched, (touched, boxes, text.words, other.words)


def pattern(twin: PrintedTwin, text: PrintedText) -> str:
    return (r"\s*" if twin.is_chinese else r"\s+").join(map(re.escape, text.words))


def boxes_on(
    twin: PrintedTwin, parsed: ParsedFile, index: int, spans: list[tuple[PrintedText, int, int]]
) -> Iterator[tuple[PrintedText, list[SpanBox]]]:
    """Yields the texts on a page with their boxes in points."""
    place = parsed.pages[index]
    page_text = parsed.text[place.char_start : place.char_end]
    length = len(page_text)
    on_page = [
        (text, max(0, start - place.char_start), min(length, end - place.char_start))
        for text, start, end in spans
        if start < place.char_end
        and end > place.char_start
        and any(piece.page == index for piece in text.pieces)
    ]
    for first in range(0, len(on_page), MAX_PAGE_SPANS):
        part = on_page[first : first + MAX_PAGE_SPANS]
        bounds = [(start, end) for _, start, end in part]
        image = page_image(twin.pdf, index, DPI, page_text, bounds, MAX_PNG)
        for number, (text, _, _) in enumerate(part):
            yield text, [in_points(box) for box in image.boxes if box.span == number]


def in_points(box: SpanBox) -> SpanBox:
    return SpanBox(
        box.span, box.left * WIDTH, box.top * HEIGHT, box.right * WIDTH, box.bottom * HEIGHT
    )


def lines_of(pieces: list[Piece]) -> list[Piece]:
    """Returns the lines of a text on a page, each from its first to its last word.

    The end of a word that is broken at the end of the page before belongs to the text of that page,
    so it is left out.
    """
    if pieces[0].is_rest:
        pieces = pieces[1:]
    lines: dict[int, Piece] = {}
    for piece in pieces:
        line = lines.get(piece.line, piece)
        left, right = min(line.left, piece.left), max(line.right, piece.right)
        lines[piece.line] = line._replace(left=left, right=right)
    return list(lines.values())


def covers(box: SpanBox, line: Piece, twin: PrintedTwin) -> bool:
    descent = CHINESE_DESCENT if twin.is_chinese else DESCENT
    return (
        box.left <= line.left + EDGE
        and box.right >= line.right - EDGE
        and box.top <= line.baseline - ASCENT * line.size
        and box.bottom >= line.baseline + descent * line.size
    )


def touches(box: SpanBox, piece: Piece) -> bool:
    return (
        box.left < piece.right - EDGE
        and box.right > piece.left + EDGE
        and box.top < piece.baseline
        and box.bottom > piece.baseline - INK_TOP * piece.size
    )


@pytest.mark.parametrize("seed", range(FAST_TWINS))
def test_the_boxes_of_a_text_cover_it_and_no_other_line(seed: int) -> None:
    count = Count()
    check(printed_twin(seed, pages=1), count)
    assert count.share > 0.9
    assert count.printed.total() > 20


@pytest.mark.slow
def test_the_boxes_of_a_hundred_documents_cover_their_texts_and_no_other_line(
    record_property: Callable[[str, object], None],
) -> None:
    """In one to three columns, with tables, lists, notes, headings and hyphens, also in Chinese."""
    count = Count()
    for seed in range(TWINS):
        check(printed_twin(seed), count)
    record_property("texts", dict(count.printed))
    record_property("read", dict(count.read))
    record_property("pages", count.checked_pages)
    assert count.share > 0.95
    assert min(count.printed.values()) > 100
