"""Divides rows of text into pieces: words that stand close together, with wide gaps between them.

A line of justified text is one piece, however wide its spaces are (`justified_lines`). Dots that
lead to the next column belong to no piece.
"""

import re
from collections.abc import Sequence

from indexer_svc.parsers.pdf.layout.justified_lines import even_space
from indexer_svc.parsers.pdf.layout.lines import TextRow
from indexer_svc.parsers.pdf.layout.words import Word

# A gap of this many font sizes divides a row into pieces.
PIECE_GAP = 0.95
# Two edges that differ by less than this many font sizes are at the same place.
SAME_EDGE = 0.5
# So many rows above and below say whether a row with equal spaces is a line of text.
_NEIGHBOURS = 2
_MIN_LEADER_DOTS = 3
# Lines of text are at least this many font sizes apart.
MIN_PITCH = 0.85
# A continuation line of a cell is at most this many font sizes below the line before.
MAX_LEADING = 1.45
# A number with its signs, its currency or its unit, or a sign that stands for a missing one.
NUMBER = re.compile(
    r"[-+\u2212\u2013\u2014(<>~\u2248\u00b1]*[$\u20ac\u00a3\u00a5]?\s?[-+\u2212(]?\d[\d.,:/'\u2019\u2009\u00a0]*"
    r"(?:[eE][-+]?\d+)?\s?[)%\u2030*\u00b0\u2020]*|[-\u2212\u2013\u2014]+%?|[nN]/?[aA]|[$\u20ac\u00a3\u00a5%)(]"
)
_DOTS = re.compile(r"[.\u2026\u00b7_]+")


class Piece:
    """Words of a row that stand close together, or above each other."""

    __slots__ = ("left", "right", "words")

    def __init__(self, words: list[Word]) -> None:
        self.words = words
        self.left = words[0].left
        self.right = max(word.right for word in words)


class TableRow:
    """Rows whose baselines are closer than those of two lines of text.

    They are one row of a table, whose cells are centred and have different numbers of lines.
    `start` and `end` are the indexes of its rows in the region. `space` is the width of its spaces
    if it has wide ones and all are equal, or 0.
    """

    __slots__ = ("end", "first", "last", "pieces", "rows", "size", "space", "start")

    def __init__(self, rows: Sequence[TextRow], start: int) -> None:
        self.rows = rows
        self.start, self.end = start, start + len(rows)
        self.size = max(row.size for row in rows)
        self.first, self.last = rows[0].baseline, rows[-1].baseline
        self.pieces = _pieces(rows)
        is_wide = len(rows) == 1 and len(self.pieces) > 1
        self.space = even_space(rows[0].words) if is_wide else 0.0

    @property
    def is_code(self) -> bool:
        """True if all characters have the same width."""
        return all(word.font.is_fixed for row in self.rows for word in row.words)

    @property
    def words(self) -> list[Word]:
        return [word for row in self.rows for word in row.words]


def as_table_rows(rows: Sequence[TextRow]) -> list[TableRow]:
    """Returns the rows of a region, with those joined that are too close to be lines of text."""
    table_rows = []
    start = 0
    for index in range(1, len(rows) + 1):
        if index < len(rows):
            row, before = rows[index], rows[index - 1]
            if row.baseline - before.baseline < MIN_PITCH * min(row.size, before.size):
                continue
        table_rows.append(TableRow(rows[start:index], start))
        start = index
    lines = [row for at, row in enumerate(table_rows) if _is_justified(table_rows, at)]
    for line in lines:
        line.pieces = [Piece(line.words)]
    return table_rows


def _is_justified(rows: Sequence[TableRow], at: int) -> bool:
    """Returns True if a row is a line of justified text, whose spaces may be wide.

    Its spaces are equal, and those of most wide rows above it or below it are, too. Cells of the
    same width have equal gaps, but stand below each other. A row of two words has only one space,
    so it is such a line if a row next to it is.
    """
    row = rows[at]
    if len(row.pieces) == 2 and len(row.words) == 2 and not NUMBER.fullmatch(row.words[1].text):
        near = [index for index in (at - 1, at + 1) if 0 <= index < len(rows)]
        return any(
            _are_lines(rows[index], row)
            and (_is_full_line(rows[index], row) or _is_even_line(rows, index))
            for index in near
        )
    return _is_even_line(rows, at)


def _is_even_line(rows: Sequence[TableRow], at: int) -> bool:
    """Returns True if a row has equal spaces, and so have most wide rows above it or below it."""
    return rows[at].space > 0 and any(_votes(rows, at, step) > 0 for step in (-1, 1))


def _votes(rows: Sequence[TableRow], at: int, step: int) -> int:
    """Returns how many more rows above or below are lines of text than rows of a table.

    A line with narrow spaces ends the search. It counts if it is as long as the row.
    """
    row = rows[at]
    votes = 0
    for near in range(at + step, at + step * (_NEIGHBOURS + 1), step):
        if not 0 <= near < len(rows) or not _are_lines(rows[near], rows[near - step]):
            break
        other = rows[near]
        if len(other.pieces) == 1:
            return votes + _is_full_line(other, row)
        if other.space and not _are_below_each_other(row, other):
            votes += 1
        elif len(other.words) > 2 or _are_below_each_other(row, other):
            votes -= 1
    return votes


def _are_lines(row: TableRow, other: TableRow) -> bool:
    """Returns True if two rows have the same size and are as close as the lines of a text."""
    size = row.size
    return abs(other.size - size) < 0.05 * size and abs(other.last - row.last) <= 2 * size


def _is_full_line(row: TableRow, other: TableRow) -> bool:
    """Returns True if a row is a line with narrow spaces from one side of the text to the other."""
    left, right = other.pieces[0].left, other.pieces[-1].right
    words = row.words
    return (
        len(row.pieces) == 1
        and len(words) > 2
        and abs(words[0].left - left) < row.size
        and abs(words[-1].right - right) < SAME_EDGE * row.size
    )


def _are_below_each_other(row: TableRow, other: TableRow) -> bool:
    """Returns True if the words of two rows begin or end at the same places."""
    words, others = row.words, other.words
    return len(words) == len(others) and all(
        min(abs(word.left - beside.left), abs(word.right - beside.right)) < 0.1 * row.size
        for word, beside in zip(words, others, strict=True)
    )


def _pieces(rows: Sequence[TextRow]) -> list[Piece]:
    """Returns the pieces of a row. Dots that lead to the next column are left out."""
    if len(rows) == 1:
        words, breaks = without_leaders(rows[0])
    else:
        words = sorted((word for row in rows for word in row.words), key=_left)
        breaks = set()
    pieces: list[Piece] = []
    current: list[Word] = []
    right = 0.0
    for word in words:
        if current and (word.left - right > PIECE_GAP * word.size or id(word) in breaks):
            pieces.append(Piece(current))
            current = []
        right = max(right, word.right) if current else word.right
        current.append(word)
    if current:
        pieces.append(Piece(current))
    return pieces


def _left(word: Word) -> float:
    return word.left


def without_leaders(row: TextRow) -> tuple[list[Word], set[int]]:
    """Returns the words of a row without dots that lead to the next column.

    The second value has the identities of the words to which dots lead.
    """
    words = row.words
    if not any(word.text[0] in ".\u2026\u00b7_" for word in words):
        return words, set()
    kept: list[Word] = []
    breaks = set()
    dots: list[Word] = []
    for word in [*words, None]:
        if word is not None and _DOTS.fullmatch(word.text):
            dots.append(word)
            continue
        if sum(len(dot.text) for dot in dots) >= _MIN_LEADER_DOTS:
            if word is not None:
                breaks.add(id(word))
        else:
            kept += dots
        dots = []
        if word is not None:
            kept.append(word)
    return kept, breaks


def is_number(text: str) -> bool:
    """Returns True if all words of a text are numbers."""
    words = text.split()
    return bool(words) and all(NUMBER.fullmatch(word) for word in words)
