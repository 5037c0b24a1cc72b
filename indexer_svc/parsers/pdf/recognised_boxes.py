"""Finds the words that were recognised on a page, and the places of spans of the page's text.

The words are in pixels of the upright page, as the recogniser's lines are, so that the boxes of a
line are joined as on a printed page. Then the boxes are turned back to where the page lies on its
picture. If the page lies there crookedly, a long box would reach into the lines above and below; so
it is cut into pieces that do not.
"""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hrag.values.page_images import SpanBox
from indexer_svc.parsers.pdf.layout.words import Word
from indexer_svc.parsers.pdf.page_content import GlyphRun
from indexer_svc.parsers.pdf.recognised_content import recognised_content
from indexer_svc.parsers.pdf.span_boxes import CJK, ordered_words, span_boxes
from indexer_svc.parsers.recognised_words import (
    MAX_RECOGNISED_WORDS,
    Box,
    PrintedWord,
    RecognisedWords,
)
from indexer_svc.parsers.recognition import RecognisedLine, RecognisedPage, picture_point

# The place of a character is known to about this share of the height of its line. A box that is a
# little too wide is better than one that cuts a letter.
_MARGIN = 0.15
# A piece of a crooked line rises or falls by at most this share of the line's height.
_MAX_RISE = 0.25
# A line of a page at an angle of two degrees has about eight pieces. More would be too many boxes.
_MAX_PIECES = 12
# Chinese has no spaces. If each of its characters is a word, a box can begin at each of them.
_PIECE = re.compile(rf"[{CJK}]|[^{CJK}]+")


def recognised_words(page: RecognisedPage) -> RecognisedWords:
    """Returns the words of a page, in the order in which the layout reads them."""
    content = recognised_content(page)
    words = [
        part
        for word, line in ordered_words(content)
        for part in _parts(word, line, content.runs[word.mark], page.lines[word.mark])
    ]
    size = (page.height, page.width) if page.turn in (90, 270) else (page.width, page.height)
    return RecognisedWords(tuple(words[:MAX_RECOGNISED_WORDS]), page.turn, page.skew, *size)


def _parts(word: Word, line: int, run: GlyphRun, found: RecognisedLine) -> Iterator[PrintedWord]:
    """Yields the parts of a word of a run, with their places on the line that was found."""
    count = len(run.text)
    edges = found.edges or tuple(index / count for index in range(count + 1))
    # All characters of the run have the same width, so the place of the word says which they are.
    advance = (run.ends[-1] - run.starts[0]) / count
    first = round((word.left - run.starts[0]) / advance) if advance else 0
    width, margin = found.right - found.left, _MARGIN * (found.bottom - found.top)
    for match in _PIECE.finditer(word.text):
        start, end = (edges[min(first + offset, count)] for offset in match.span())
        left = max(found.left, found.left + start * width - margin)
        right = min(found.right, found.left + end * width + margin)
        yield PrintedWord(match.group(), (left, found.top, right, found.bottom), line)


def recognised_boxes(
    found: RecognisedWords, text: str, spans: Sequence[tuple[int, int]]
) -> Iterator[SpanBox]:
    """Yields the boxes of spans of a page's text, as fractions of the sides of its picture."""
    for index, lines in enumerate(span_boxes(text, spans, found.words)):
        for line in lines:
            for box in _on_picture(line, found):
                yield SpanBox(index, *(min(max(side, 0.0), 1.0) for side in box))


def _on_picture(line: Box, found: RecognisedWords) -> Iterator[Box]:
    """Yields the boxes that cover a box of the upright page on the picture."""
    left, top, right, bottom = line
    rise = abs(math.sin(math.radians(found.skew))) * (right - left)
    pieces = math.ceil(rise / max(_MAX_RISE * (bottom - top), 1.0))
    count = min(max(pieces, 1), _MAX_PIECES)
    edges = [left + (right - left) * number / count for number in range(count + 1)]
    for start, end in pairwise(edges):
        corners = ((start, top), (end, top), (end, bottom), (start, bottom))
        points = [
            picture_point(corner, found.turn, found.skew, found.width, found.height)
            for corner in corners
        ]
        x, y = zip(*points, strict=True)
        yield (
            *(min(x) / found.width, min(y) / found.height),
            *(max(x) / found.width, max(y) / found.height),
        )
