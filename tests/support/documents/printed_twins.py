"""Documents that are printed as PDF in seeded layouts, with the place of each of their sentences.

A twin has one to three columns, ragged or justified, in a font and a size of its own, with
hyphenated words, headings, lists, tables, footnotes, running heads and page numbers, in English or
Chinese. The fonts declare the widths of their characters, so the places are known without a library
that reads PDFs.
"""

import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.documents.pdfs import written

WIDTH, HEIGHT = 595.0, 842.0
# The widths of the characters from the space to the tilde (Adobe's metrics of the standard fonts).
_TENTHS = {
    "Helvetica": """
        278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556
        556 556 556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833
        722 778 667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556
        556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334
        260 334 584
    """,
    "Times-Roman": """
        250 333 408 500 500 833 778 180 333 333 500 564 250 333 250 278 500 500 500 500 500 500 500
        500 500 500 278 278 564 564 564 444 921 722 667 667 722 611 556 722 722 333 389 722 611 889
        722 722 556 722 667 556 611 722 722 944 722 722 611 333 278 333 469 500 333 444 500 444 500
        444 333 500 500 278 278 500 278 778 500 500 500 500 333 389 278 500 500 722 500 500 444 480
        200 480 541
    """,
    "Courier": "600 " * 95,
}
_WORDS = """
    a an the river mountain keeper reports quickly between different machines winter harvest of in
    and never measures temperature gardens yellow carefully documents during evening storage with
    regular intervals engineers describe observations about pressure at every station pump valve
    reservoir membrane inspection committee department laboratory considerable independent
    preliminary transmission infrastructure neighbourhood apprentice supervisor
""".split()  # noqa: SIM905 - a list of words is read more easily
# 800 Chinese characters, which occur equally often.
_HANZI = [
    bytes((0xA1 + 15 + row, 0xA1 + cell)).decode("gb2312")
    for row in range(10)
    for cell in range(80)
]
_CHINESE_FONT = "Chinese"
_MARGIN, _GUTTER, _TOP, _BOTTOM = 52.0, 22.0, 70.0, 80.0
# The height of the space for notes above the lower margin, and how many have room there.
_NOTES, _MAX_NOTES = 56.0, 4


class Piece(NamedTuple):
    """A part of a printed line: its edges and baseline in points from the upper left corner.

    `line` is the number of the line in the document. `is_rest` is True for the end of a word that
    is broken at the end of the line before.
    """

    page: int
    line: int
    left: float
    right: float
    baseline: float
    size: float
    is_rest: bool = False


@dataclass(slots=True)
class PrintedText:
    """A sentence, a heading, an item, a note or the text of a cell, and where it is printed.

    `kind` is the name of one of these, or `head` for a running head or a page number.
    """

    kind: str
    words: list[str]
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PrintedTwin:
    """A document as PDF, with all its texts. `is_chinese` texts have a character in each word."""

    pdf: bytes
    texts: tuple[PrintedText, ...]
    is_chinese: bool


class _Word(NamedTuple):
    text: str
    owner: PrintedText
    is_rest: bool = False


class _Style(NamedTuple):
    font: str
    size: float
    leading: float


class _Printer:
    """Sets texts in the columns of pages, line by line."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"twin {seed}")
        draw = self.draw
        self.is_chinese = draw.random() < 0.12
        columns = draw.choice((1, 1, 2, 2, 2) if self.is_chinese else (1, 1, 2, 2, 2, 3, 3))
        # Columns of characters of one width are read as tables.
        fonts = tuple(_TENTHS) if columns == 1 else ("Helvetica", "Times-Roman")
        font = _CHINESE_FONT if self.is_chinese else draw.choice(fonts)
        size = draw.choice((8.0, 9.0, 9.5, 10.0, 11.0, 12.0)) if columns < 3 else 8.0
        self.body = _Style(font, size, size * draw.choice((1.15, 1.2, 1.3, 1.45)))
        self.is_justified = draw.random() < 0.5
        self.is_hyphenated = not self.is_chinese and draw.random() < 0.7
        self.width = (WIDTH - 2 * _MARGIN - (columns - 1) * _GUTTER) / columns
        self.lefts = [_MARGIN + index * (self.width + _GUTTER) for index in range(columns)]
        self.texts: list[PrintedText] = []
        self.streams: list[list[bytes]] = []
        self.line_count = 0
        self.notes: list[PrintedText] = []
        self._turn_page()

    # These methods move from line to line, from column to column, and from page to page.

    def _turn_page(self) -> None:
        self.streams.append([])
        self.column, self.y, self.bottom = 0, _TOP, HEIGHT - _BOTTOM - _NOTES

    @property
    def page(self) -> int:
        return len(self.streams) - 1

    def _feed(self, height: float) -> None:
        """Moves down by a height, if needed to the next column or page."""
        if self.y + height > self.bottom:
            if self.column + 1 < len(self.lefts):
                self.column, self.y = self.column + 1, _TOP
            else:
                self._print_notes()
                self._turn_page()
        self.y += height

    # These methods write words.

    def show(self, words: Sequence[_Word], left: float, style: _Style, space: float) -> None:
        """Writes words from `left` on the current line, each a part of its text."""
        self.line_count += 1
        x = left
        for word in words:
            width = _width(word.text, style)
            place = (self.page, self.line_count, x, x + width, self.y, style.size)
            piece = Piece(*place, word.is_rest)
            word.owner.pieces.append(piece)
            self.streams[-1].append(_shown(x, self.y, word.text, style))
            x += width + space

    def paragraph(self, words: Iterable[_Word], style: _Style, indent: float = 0.0) -> None:
        """Sets words in lines of the column."""
        space = 0.0 if self.is_chinese else _width(" ", style)
        limit = self.width - indent
        line: list[_Word] = []
        used = 0.0
        for word in words:
            rest = word
            if line and used + space + _width(word.text, style) > limit:
                rest = self._hyphenated(line, word, limit - used - space, style)
                self._set(line, style, indent, space)
                line, used = [], 0.0
            used += _width(rest.text, style) + (space if line else 0.0)
            line.append(rest)
        self._set(line, style, indent, space, is_last=True)

    def _hyphenated(self, line: list[_Word], word: _Word, room: float, style: _Style) -> _Word:
        """Puts the beginning of a word on a line if it fits there; returns the rest."""
        text = word.text
        if self.is_hyphenated and len(text) > 7 and text.isalpha() and self.draw.random() < 0.8:
            at = self.draw.randint(3, len(text) - 3)
            if _width(f"{text[:at]}-", style) <= room:
                line.append(word._replace(text=f"{text[:at]}-"))
                return word._replace(text=text[at:], is_rest=True)
        return word

    def _set(
        self,
        line: Sequence[_Word],
        style: _Style,
        indent: float,
        space: float,
        *,
        is_last: bool = False,
    ) -> None:
        self._feed(style.leading)
        if self.is_justified and not is_last and len(line) > 2:
            left_over = self.width - indent - sum(_width(word.text, style) for word in line)
            space = left_over / (len(line) - 1)
        self.show(line, self.lefts[self.column] + indent, style, space)

    def text(self, kind: str, words: list[str]) -> PrintedText:
        """Returns a new text of the document."""
        text = PrintedText(kind, words)
        self.texts.append(text)
        return text

    def sentence(self, kind: str = "sentence") -> list[_Word]:
        """Returns the words of a new sentence."""
        count = self.draw.randint(5, 18)
        if self.is_chinese:
            words = [*self.draw.choices(_HANZI, k=2 * count), "。"]
        else:
            words = self.draw.choices(_WORDS, k=count)
            words.insert(self.draw.randrange(1, count), str(self.draw.randint(1000, 99999)))
            words[0] = words[0].capitalize()
            words[-1] += "."
        owner = self.text(kind, words)
        return [_Word(word, owner) for word in words]

    # These methods write the blocks of a document.

    def sentences(self) -> None:
        words = [word for _ in range(self.draw.randint(2, 6)) for word in self.sentence()]
        is_first_indented = self.draw.random() < 0.2
        self.paragraph(words, self.body, 10.0 if is_first_indented else 0.0)
        if self.draw.random() < 0.15 and not self.is_chinese:
            self._note()
        self.y += self.body.leading * 0.6

    def _note(self) -> None:
        """Puts a mark after the last word, and keeps a note for the foot of the page."""
        piece = self.texts[-1].pieces[-1]
        mark = str(len(self.notes) + 1)
        if piece.page != self.page or len(self.notes) == _MAX_NOTES:
            return
        raised = _Style(self.body.font, self.body.size * 0.6, 0.0)
        at = piece.baseline - 0.33 * self.body.size
        self.streams[-1].append(_shown(piece.right + 0.3, at, mark, raised))
        note = self.text("note", self.draw.choices(_WORDS, k=4))
        note.words[0] = note.words[0].capitalize()
        note.words[-1] += f" {self.draw.randint(1000, 9999)}."
        self.notes.append(note)

    def _print_notes(self) -> None:
        """Prints the notes of a page at its foot, below a line, and the head and the number."""
        if self.notes:
            style = _Style(self.body.font, min(7.0, self.body.size * 0.8), 11.0)
            self.y = HEIGHT - _BOTTOM - 11.0 * (len(self.notes) - 1)
            self.streams[-1].append(b"%d %d m 140 %d l S\n" % (_MARGIN, *[HEIGHT - self.y + 8] * 2))
            for number, note in enumerate(self.notes, start=1):
                raised = style._replace(size=style.size * 0.65)
                self.streams[-1].append(_shown(_MARGIN, self.y - 2.4, str(number), raised))
                words = [_Word(word, note) for word in note.words]
                self.show(words, _MARGIN + 5.0, style, _width(" ", style))
                self.y += style.leading
            self.notes = []
        for y, text in ((42.0, "Regular report on machines"), (HEIGHT - 40, str(self.page + 1))):
            self.y = y
            style = self.body._replace(size=8.0, font="Helvetica")
            words = text.split()
            owner = PrintedText("head", words)
            self.texts.append(owner)
            self.show([_Word(word, owner) for word in words], _MARGIN, style, 3.0)

    def heading(self) -> None:
        size = self.body.size * self.draw.choice((1.3, 1.5, 1.7))
        font = "Helvetica-Bold" if not self.is_chinese else _CHINESE_FONT
        style = _Style(font, size, size * 1.25)
        if self.y + 4 * style.leading > self.bottom:
            return
        if self.is_chinese:
            words = self.draw.choices(_HANZI, k=6)
        else:
            words = [word.capitalize() for word in self.draw.choices(_WORDS, k=3)]
            words.append(str(self.draw.randint(100, 999)))
        owner = self.text("heading", words)
        self.y += self.body.leading
        justified, self.is_justified = self.is_justified, False
        self.paragraph([_Word(word, owner) for word in words], style)
        self.is_justified = justified
        self.y += self.body.leading * 0.4

    def items(self) -> None:
        is_numbered = self.draw.random() < 0.5
        for number in range(1, self.draw.randint(3, 6)):
            if self.y + 6 * self.body.leading > self.bottom:
                break
            # The mark stands on the line that the paragraph begins.
            mark = f"{number}." if is_numbered else "-"
            y = self.y + self.body.leading
            self.streams[-1].append(_shown(self.lefts[self.column], y, mark, self.body))
            self.paragraph(self.sentence("item"), self.body, 2.2 * self.body.size)
        self.y += self.body.leading * 0.6

    def table(self) -> None:
        rows = self.draw.randint(3, 6)
        columns = min(3, int(self.width / (_width("Garden 99999", self.body) + 12)))
        if columns < 2:
            return
        pitch = self.body.leading * 1.5
        if self.y + pitch * (rows + 2) > self.bottom:
            return
        is_ruled = self.draw.random() < 0.6
        self.y += pitch
        cell_width = self.width / columns
        left, top = self.lefts[self.column], self.y - pitch * 0.7
        for _row in range(rows):
            for column in range(columns):
                name = self.draw.choice(("Pump", "Valve", "River", "Garden"))
                words = [name, str(self.draw.randint(10000, 99999))]
                owner = self.text("cell", words)
                at = left + 3.0 + cell_width * column
                self.show(
                    [_Word(word, owner) for word in words], at, self.body, _width(" ", self.body)
                )
            self.y += pitch
        if is_ruled:
            self._rules(left, top, rows, columns, pitch, cell_width)
        self.y += self.body.leading * 0.6

    def _rules(
        self, left: float, top: float, rows: int, columns: int, pitch: float, width: float
    ) -> None:
        for row in range(rows + 1):
            y = HEIGHT - top - row * pitch
            self.streams[-1].append(b"%g %g m %g %g l S\n" % (left, y, left + columns * width, y))
        for column in range(columns + 1):
            x = left + column * width
            ends = (x, HEIGHT - top, x, HEIGHT - top - rows * pitch)
            self.streams[-1].append(b"%g %g m %g %g l S\n" % ends)


def printed_twin(seed: int, pages: int = 2) -> PrintedTwin:
    """Returns the twin with this number, of at least `pages` full pages."""
    printer = _Printer(seed)
    blocks = [printer.sentences] * 6 + [printer.heading] * 2
    if not printer.is_chinese:
        blocks += [printer.items, printer.table]
    while len(printer.streams) <= pages:
        printer.draw.choice(blocks)()
    printer._print_notes()
    return PrintedTwin(_file(printer.streams), tuple(printer.texts), printer.is_chinese)


def _file(streams: Sequence[Sequence[bytes]]) -> bytes:
    pages = range(_FIRST_PAGE, _FIRST_PAGE + 2 * len(streams), 2)
    kids = b" ".join(b"%d 0 R" % number for number in pages)
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(streams)),
        **_font_objects(),
    }
    fonts = b" ".join(b"/T%d %d 0 R" % (at, _FIRST_FONT + at) for at in range(len(_FONTS)))
    for number, stream in zip(pages, streams, strict=True):
        content = zlib.compress(b"".join(stream))
        objects[number] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Contents %d 0 R"
            b" /Resources << /Font << %s >> >> >>" % (WIDTH, HEIGHT, number + 1, fonts)
        )
        objects[number + 1] = b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (
            len(content),
            content,
        )
    return written(objects)


_FONTS = (*_TENTHS, "Helvetica-Bold", _CHINESE_FONT)
_FIRST_FONT, _FIRST_PAGE = 3, 20
_WIDTHS = {name: [int(number) for number in text.split()] for name, text in _TENTHS.items()}
_WIDTHS["Helvetica-Bold"] = _WIDTHS["Helvetica"]


def _width(text: str, style: _Style) -> float:
    if style.font == _CHINESE_FONT:
        return style.size * len(text)
    widths = _WIDTHS[style.font]
    return style.size * sum(widths[ord(character) - 32] for character in text) / 1000


def _shown(x: float, y: float, text: str, style: _Style) -> bytes:
    """Returns the part of a content stream that writes a text; `y` grows downwards."""
    number = _FONTS.index(style.font)
    encoded = text.encode("utf-16-be") if style.font == _CHINESE_FONT else text.encode("ascii")
    place = (number, style.size, x, HEIGHT - y, encoded.hex().encode())
    return b"BT /T%d %g Tf %.3f %.3f Td <%s> Tj ET\n" % place


def _font_objects() -> dict[int, bytes]:
    objects: dict[int, bytes] = {}
    for number, name in enumerate(_FONTS):
        if name != _CHINESE_FONT:
            widths = b" ".join(b"%d" % width for width in _WIDTHS[name])
            objects[_FIRST_FONT + number] = (
                b"<< /Type /Font /Subtype /Type1 /BaseFont /%s /Encoding /WinAnsiEncoding"
                b" /FirstChar 32 /LastChar 126 /Widths [%s] >>" % (name.encode(), widths)
            )
    chinese = _FIRST_FONT + _FONTS.index(_CHINESE_FONT)
    objects[chinese] = (
        b"<< /Type /Font /Subtype /Type0 /BaseFont /SimSun /Encoding /UniGB-UCS2-H"
        b" /DescendantFonts [%d 0 R] >>" % (chinese + 1)
    )
    objects[chinese + 1] = (
        b"<< /Type /Font /Subtype /CIDFontType0 /BaseFont /SimSun /DW 1000"
        b" /CIDSystemInfo << /Registry (Adobe) /Ordering (GB1) /Supplement 4 >>"
        b" /FontDescriptor << /Type /FontDescriptor /FontName /SimSun /Flags 4 /ItalicAngle 0"
        b" /FontBBox [0 -200 1000 900] /Ascent 880 /Descent -120 /CapHeight 700 /StemV 80 >> >>"
    )
    return objects
