"""Joins the lines of a region into blocks: paragraphs, items of lists, code and headings.

A new block begins where the style or the distance of the lines changes, at the mark of an item, and
at the indented first line of a paragraph. A line that ends early, although the next word would have
fitted, ends a paragraph if it ends a sentence. Otherwise it is a line of its own in the paragraph,
as in an address. A line that begins with the rest of a word belongs to the line before, whatever
the style of most of its characters.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from indexer_svc.parsers.pdf.layout.lines import TextLine
from indexer_svc.parsers.pdf.layout.paragraphs import Vocabulary, ends_inside_word, joined

# The distance between two paragraphs is at least so much larger than that of two lines of one.
_PARAGRAPH_GAP = 1.28
_MAX_SIZE_DIFFERENCE = 0.08
_MIN_INDENT = 0.7
_MAX_INDENT = 5.0
_BULLET = re.compile(
    r"(?:[\u2022\u25cf\u25cb\u25aa\u25a1\u25e6\u2023\u2043\u25a0\u25ba\u27a2\u2713\u2714\u00b7\u2219\uf0b7]|[-\u2013\u2014*](?=\s))\s*"
)
_ENUMERATION = re.compile(r"(?:\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)]|\[\w{1,12}\])(?=\s)")
_SECTION_NUMBER = re.compile(r"(?:\d{1,2}|[A-Z])(?:\.\d{1,2}){1,4}\.?\s+[^\W\d_]")
_SENTENCE_END = re.compile(r"[.!?:;\u3002\uff01\uff1f\uff1a][)\]\"'\u201d\u2019]*$")


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
        """The first line, whose style is that of the block."""
        return self.lines[0]

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
    right = max(line.right for line in lines)
    for index, line in enumerate(lines):
        if index and _continues(blocks[-1], line, pitch, right, fixed_is_code):
            blocks[-1].lines.append(line)
        else:
            blocks.append(Block([line]))
    for block in blocks:
        _finish(block, right, words, fixed_is_code)
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
    if distance < -0.5 * size or distance > max(_PARAGRAPH_GAP * pitch, 1.05) * size:
        return False
    if fixed_is_code and line.is_fixed:
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
    if abs(before.size - line.size) > _MAX_SIZE_DIFFERENCE * max(before.size, line.size):
        return False
    if fixed_is_code and before.is_fixed != line.is_fixed:
        return False
    if before.is_bold == line.is_bold:
        return True
    return before.is_bold and not _ends_early(before, line, right) and len(before.text) > 30


def _starts_block(block: Block, before: TextLine, line: TextLine, right: float) -> bool:
    """Returns True if a line of the same style and distance begins a block."""
    first = block.first
    is_marked = bool(_BULLET.match(first.text) or _ENUMERATION.match(first.text))
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


def _finish(block: Block, right: float, words: Vocabulary, fixed_is_code: bool) -> None:
    """Sets the text of a block."""
    lines = block.lines
    if fixed_is_code and not block.heading_depth and all(line.is_fixed for line in lines):
        block.is_code = len(lines) > 1
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
    if bullet and not block.heading_depth and text[bullet.end() :].strip():
        block.marker = "-"
        text = text[bullet.end() :]
    block.text = text


def _code(lines: Sequence[TextLine]) -> str:
    """Returns lines of code with their indentation."""
    widths = [(line.right - line.left) / len(line.text) for line in lines if len(line.text) >= 4]
    width = sorted(widths)[len(widths) // 2] if widths else lines[0].size * 0.6
    left = min(line.left for line in lines)
    return "\n".join(
        " " * min(80, max(0, round((line.left - left) / max(width, 1.0)))) + line.text
        for line in lines
    )
