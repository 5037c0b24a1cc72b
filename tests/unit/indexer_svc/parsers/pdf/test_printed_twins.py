"""The boxes of every sentence of seeded, printed pages cover its lines and nothing else.

The pages have one or two columns and words that are hyphenated at the ends of lines. They are set
in a font whose characters are 6 points wide, so the place of every character is known.
"""

import random

import pytest

from indexer_svc.parsers.pdf import page_image, parse_pdf
from tests.support.documents.pdfs import pdf_of_streams, shown_at

_CHAR_PT, _LEADING, _TOP, _HEIGHT = 6.0, 13.0, 60.0, 842.0
_MAX_PNG = 1 << 22

_WORDS = """
a an the river mountain keeper reports quickly between different machines winter harvest
of in and never measures temperature gardens yellow carefully documents during evening
storage with regular intervals engineers describe observations about pressure at every
station
""".split()  # noqa: SIM905 - a list of words is read more easily

Piece = tuple[int, float, float]
"""A part of a printed line: the number of the line, and its left and right edges in points."""


class _Page:
    """Sets sentences in columns, and remembers the lines of each sentence."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        columns = self.draw.choice((1, 2))
        self.lefts = (50.0, 310.0)[:columns]
        self.width = {1: 80, 2: 38}[columns]
        self.line, self.at = 0, 0
        self.stream: list[bytes] = []
        self.pieces: dict[str, list[Piece]] = {}

    def fill(self) -> None:
        while self.line < len(self.lefts) * 40 - 4:
            words = self.draw.choices(_WORDS, k=self.draw.randint(5, 16))
            text = f"{' '.join(words).capitalize()}."
            if text not in self.pieces:
                self._set(text)

    def _set(self, text: str) -> None:
        self.pieces[text] = []
        for word in text.split():
            left = self.width - self.at
            if len(word) <= left:
                self._show(text, word)
            elif left > 4 and len(word) > 7 and word.isalpha() and self.draw.random() < 0.7:
                self._show(text, f"{word[:3]}-")
                self._next_line()
                self._show(text, word[3:])
            else:
                self._next_line()
                self._show(text, word)

    def _next_line(self) -> None:
        self.line, self.at = self.line + 1, 0

    def _show(self, text: str, word: str) -> None:
        column, row = divmod(self.line, 40)
        x = self.lefts[column] + _CHAR_PT * self.at
        y = _HEIGHT - _TOP - _LEADING * row
        self.stream.append(shown_at(x, y, word, font="F3"))
        self.pieces[text].append((self.line, x, x + _CHAR_PT * len(word)))
        self.at += len(word) + 1

    def lines(self, text: str) -> list[Piece]:
        """Returns the lines of a sentence."""
        lines: dict[int, Piece] = {}
        for line, left, right in self.pieces[text]:
            lines[line] = line, lines.get(line, (line, left, right))[1], right
        return list(lines.values())


@pytest.mark.parametrize("seed", range(6))
def test_the_boxes_of_a_sentence_are_its_lines(seed: int) -> None:
    page = _Page(seed)
    page.fill()
    pdf = pdf_of_streams([b"".join(page.stream)])
    text = " ".join(parse_pdf(pdf, 1 << 20).text.split())
    sentences = [text_ for text_ in page.pieces if text_ in text]
    assert len(sentences) > 0.9 * len(page.pieces) > 20
    spans = [(text.index(one), text.index(one) + len(one)) for one in sentences]
    for start in range(0, len(spans), 64):
        image = page_image(pdf, 0, 36, text, spans[start : start + 64], _MAX_PNG)
        found: dict[int, list[Piece]] = {}
        for box in image.boxes:
            middle = (box.top + box.bottom) / 2 * _HEIGHT
            left, right = box.left * image.width_points, box.right * image.width_points
            row = round((middle - _TOP) / _LEADING)
            assert (box.bottom - box.top) * _HEIGHT < 1.1 * _LEADING
            column = len(page.lefts) > 1 and left >= page.lefts[-1] - 1
            found.setdefault(box.span, []).append((40 * column + row, left, right))
        for index, one in enumerate(sentences[start : start + 64]):
            expected = page.lines(one)
            assert [line for line, _, _ in found[index]] == [line for line, _, _ in expected], one
            for (_, *edges), (_, *printed) in zip(found[index], expected, strict=True):
                assert edges == pytest.approx(printed, abs=2.0), one
