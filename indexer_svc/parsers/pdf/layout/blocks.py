"""Joins the lines of a region into blocks: paragraphs, items of lists, code and headings.

A new block begins where the style or the distance of the lines changes, at the mark of an item, and
at the indented first line of a paragraph. A line that ends early, although the next word would have
fitted, ends a paragraph if it ends a sentence. Otherwise it is a line of its own in the paragraph,
as in an address. A line that begins with the rest of a word belongs to the line before, whatever
the style of most of its characters. So does a line below a full line that ends no sentence. A line
of code goes on with a sentence or a heading in this way too, although code is often smaller.

Lines in a font whose characters all have the same width are code. One or two empty lines do not
divide code. A single line is code if it stands apart from the text and does not look like words.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from indexer_svc.parsers.pdf.layout.lines import TextLine
from indexer_svc.parsers.pdf.layout.paragraphs import Vocabulary, ends_inside_word, joined

# The distance between two paragraphs is at least so much larger than that of two lines of one.
_PARAGRAPH_GAP = 1.28
_MAX_SIZE_DIFFERENCE = 0.08
# Words of code in a sentence have at least this share of its size. Browsers print them at 0.81.
_MIN_CODE_SIZE = 0.8
_MIN_INDENT = 0.7
_MAX_INDENT = 5.0
_BULLET = re.compile(
    r"(?:[\u2022\u25cf\u25cb\u25aa\u25a1\u25e6\u2023\u2043\u25a0\u25ba\u27a2\u2713\u2714\u00b7\u2219\uf0b7]|[-\u2013\u2014*](?=\s))\s*"
)
_ENUMERATION = re.compile(r"(?:\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)]|\[\w{1,12}\])(?=\s)")
_SECTION_NUMBER = re.compile(r"(?:\d{1,2}|[A-Z])(?:\.\d{1,2}){1,4}\.?\s+[^\W\d_]")
# These marks of items also occur in a sentence, and then at the start of a line by chance.
_WEAK_BULLET = re.compile(r"[-\u2013\u2014*]\s")
_SENTENCE_END = re.compile(r"[.!?:;\u3002\uff01\uff1f\uff1a][)\]\"'\u201d\u2019]*$")

# Lines of code with an empty line between them are at most so far apart, in font sizes, and lines
# without one at most half as far.
_MAX_CODE_GAP = 3.3
_MAX_PITCH = 1.5
_MAX_INDENT_SPACES, _MAX_INNER_SPACES = 80, 24
# A single line in the font of code is code if it has such characters, or if it has several words.
_CODE_SIGN = re.compile(r"[(){}\[\]<>=;$#|\\]")
# At least so many lines end at the right edge of a text.
_MIN_FULL_LINES, _MIN_FULL_SHARE = 4, 0.25
_SAME_EDGE = 1.5


class Block:
    """Lines that belong together. `is_code` and `is_item` say how the text is to be written.

    `heading_depth` is the depth of a heading, or 0. `marker` is the mark of an item.
    """

    __slots__ = ("heading_depth", "is_code", "is_footnote", "lines", "marker", "text")

    def __init__(self, lines: list[TextLine], text: str = "") -> None:
        self.lines = lines
        self.text = text
        self.marker = ""
        self.is_code = False
        self.is_footnote = False
        self.heading_depth = lines[0].heading_depth if lines else 0

    @property
    def first(self) -> TextLine:
        """The first line."""
        return self.lines[0]

    @property
    def styled(self) -> TextLine:
        """The line whose style is that of the block: the first one that is not code."""
        return next((line for line in self.lines if not line.is_fixed), self.lines[0])

    def __repr__(self) -> str:
        return f"Block({self.heading_depth}, {self.text!r})"


def blocks_of(lines: Sequence[TextLine], words: Vocabulary, *, fixed_is_code: bool) -> list[Block]:
    """Returns the blocks of the lines of one region.

    If `fixed_is_code`, lines in a font whose characters have the same width are code.
    """
    blocks: list[Block] = []
    if not lines:
        return blocks
    pitch = _typical_pitch(lines)
    right = _right_edge(lines)
    for index, line in enumerate(lines):
        if index and _continues(blocks[-1], line, pitch, right, fixed_is_code):
            blocks[-1].lines.append(line)
        else:
            blocks.append(Block([line]))
            blocks[-1].is_code = fixed_is_code
        blocks[-1].is_code &= line.is_fixed
    for block in blocks:
        _finish(block, right, words)
    return blocks


def _typical_pitch(lines: Sequence[TextLine]) -> float:
    """Returns the usual distance of the baselines of two lines, in font sizes."""
    pitches = [
        (after.baseline - line.baseline) / line.size
        for line, after in pairwise(lines)
        if abs(after.size - line.size) < 0.3
        and 0.8 < (after.baseline - line.baseline) / line.size < 2.6
    ]
    return sorted(pitches)[len(pitches) // 2] if pitches else 1.2


def _right_edge(lines: Sequence[TextLine]) -> float:
    """Returns the x at which full lines end.

    It is that of the longest line, unless many lines end at the same x: longer lines are then too
    long, because the typesetter found no place to break them.
    """
    edges = sorted((line.right for line in lines), reverse=True)
    least = max(_MIN_FULL_LINES, int(_MIN_FULL_SHARE * len(lines)))
    for edge, other in zip(edges, edges[least - 1 :], strict=False):
        if edge - other <= _SAME_EDGE:
            return edge
    return edges[0]


def _continues(
    block: Block, line: TextLine, pitch: float, right: float, fixed_is_code: bool
) -> bool:
    """Returns True if `line` belongs to the block before it."""
    before = block.lines[-1]
    if line.heading_number or before.heading_number:
        return line.heading_number == before.heading_number
    if not _begins_with_rest_of_word(before, line) and not _same_style(
        before, line, right, fixed_is_code
    ):
        return False
    distance = line.baseline - before.baseline
    size = max(line.size, before.size)
    is_code = block.is_code and line.is_fixed
    limit = _MAX_CODE_GAP if is_code else max(_PARAGRAPH_GAP * pitch, 1.05)
    if distance < -0.5 * size or distance > limit * size:
        return False
    if is_code:
        return True
    return not _starts_block(block, before, line, right)


def _begins_with_rest_of_word(before: TextLine, line: TextLine) -> bool:
    return (
        ends_inside_word(before.text)
        and line.text[0].islower()
        and abs(before.size - line.first_size) < _MAX_SIZE_DIFFERENCE * before.size
    )


def _same_style(before: TextLine, line: TextLine, right: float, fixed_is_code: bool) -> bool:
    """Returns True if the styles of two lines may occur in one block.

    A full line may be bold and the next one not, if the first words of a paragraph are bold.
    """
    is_same_size = _is_same_size(before, line)
    if fixed_is_code and before.is_fixed != line.is_fixed:
        code, text = (before, line) if before.is_fixed else (line, before)
        is_span = _MIN_CODE_SIZE * text.size <= code.size <= text.size
        return (is_span or is_same_size) and _runs_on(before, line, right)
    if not is_same_size:
        return False
    if fixed_is_code and before.is_fixed:
        return True
    if before.is_bold == line.is_bold or _runs_on(before, line, right):
        return True
    return before.is_bold and not _ends_early(before, line, right) and len(before.text) > 30


def _is_same_size(before: TextLine, line: TextLine) -> bool:
    larger = max(before.size, line.size)
    return abs(before.size - line.size) <= _MAX_SIZE_DIFFERENCE * larger


def _runs_on(before: TextLine, line: TextLine, right: float) -> bool:
    """Returns True if a line goes on with the sentence of the full line above it.

    A line with a capital letter may be a heading, unless a word is broken before it.
    """
    return (
        abs(before.left - line.left) < 0.5 * line.size
        and not _ends_early(before, line, right)
        and not _ends_sentence(before)
        and (not line.text[0].isupper() or ends_inside_word(before.text))
    )


def _starts_block(block: Block, before: TextLine, line: TextLine, right: float) -> bool:
    """Returns True if a line of the same style and distance begins a block."""
    first = block.first
    is_marked = bool(_BULLET.match(first.text) or _ENUMERATION.match(first.text))
    if not is_marked and _WEAK_BULLET.match(line.text) and _runs_on(before, line, right):
        return False
    if _begins_item(line, before, is_marked=is_marked, left=first.left):
        return True
    if _ends_sentence(before) and not line.text[0].islower() and _ends_early(before, line, right):
        return True
    indent = (line.left - before.left) / line.size
    is_first = len(block.lines) == 1
    if _MIN_INDENT < indent < _MAX_INDENT and not is_marked:
        if is_first:
            return _ends_sentence(before) and line.text[0].isupper()
        return abs(before.left - block.lines[-2].left) < 0.5 * line.size
    is_outside = indent < -_MIN_INDENT and not is_first
    return is_outside and not line.text[0].islower() and _ends_sentence(before)


def _begins_item(line: TextLine, before: TextLine, *, is_marked: bool, left: float) -> bool:
    """Returns True if a line begins with the mark of an item, or the number of a section.

    `is_marked` is True if the block before is an item, and `left` is the x at which it begins.
    """
    if _BULLET.match(line.text) or (line.is_bold and _SECTION_NUMBER.match(line.text)):
        return True
    is_outside = line.left <= left + 0.5 * line.size
    return bool(
        _ENUMERATION.match(line.text) and is_outside and (is_marked or _ends_sentence(before))
    )


def _ends_sentence(line: TextLine) -> bool:
    return bool(_SENTENCE_END.search(line.text))


def _ends_early(before: TextLine, line: TextLine, right: float) -> bool:
    """Returns True if the first word of `line` would have fitted on the line before."""
    return before.right + line.first_width + 0.6 * line.size < right


def _finish(block: Block, right: float, words: Vocabulary) -> None:
    """Sets the text of a block. `is_code` is True if all its lines are in the font of code."""
    lines = block.lines
    is_code, block.is_code = block.is_code, False
    if is_code and not block.heading_depth:
        block.is_code = len(lines) > 1 or _is_code_line(lines[0])
        block.text = _code(lines)
        return
    text = lines[0].text
    for before, line in pairwise(lines):
        is_own_line = (
            not block.heading_depth
            and _ends_early(before, line, right)
            and not line.text[0].islower()
            and before.text[-1] not in "-/,"
        )
        text = f"{text}\n{line.text}" if is_own_line else joined(text, line.text, words)
    bullet = _BULLET.match(text)
    if bullet and not block.heading_depth and any(map(str.isalnum, text[bullet.end() :])):
        block.marker = "*" if text[0] == "*" else "-"
        text = text[bullet.end() :]
    block.text = text


def _is_code_line(line: TextLine) -> bool:
    """Returns True if a single line in the font of code is code, and no word or address."""
    text = line.text
    return not line.is_bold and (" " in text or bool(_CODE_SIGN.search(text)))


def _code(lines: Sequence[TextLine]) -> str:
    """Returns lines of code with their indentation, the spaces inside them, and empty lines."""
    widths = sorted(
        (word.right - word.left) / len(word.text) for line in lines for word in line.words
    )
    width = max(widths[len(widths) // 2], 1.0)
    left = min(line.left for line in lines)
    distances = [after.baseline - line.baseline for line, after in pairwise(lines)]
    pitch = min([_MAX_PITCH * lines[0].size, *(one for one in distances if one > lines[0].size)])
    parts = []
    for line, distance in zip(lines, [0.0, *distances], strict=True):
        parts += [""] * (round(distance / pitch) - 1)
        indent = " " * min(_MAX_INDENT_SPACES, max(0, round((line.left - left) / width)))
        parts.append(indent + _spaced(line, width))
    return "\n".join(parts)


def _spaced(line: TextLine, width: float) -> str:
    """Returns the text of a line with as many spaces between its words as are as wide."""
    parts: list[str] = []
    end = 0
    for before, word in pairwise(line.words):
        start = line.text.find(word.text, end + len(before.text))
        between = line.text[end + len(before.text) : start]
        if start < 0 or between.strip():
            return line.text  # A script has a sign before it.
        spaces = min(_MAX_INNER_SPACES, round((word.left - before.right) / width))
        parts.append(before.text + " " * max(len(between), spaces))
        end = start
    return "".join(parts) + line.text[end:]
