"""Joins pieces of text, some of which are superscripts, subscripts or marks of notes.

All functions are pure. `raised_text` decides how a piece is written. This module divides a text
into what it needs: the text before a piece, the piece, and the text after it.
"""

import re
from collections.abc import Iterable
from enum import Enum, auto

from indexer_svc.parsers import raised_text

# The functions of `raised_text` look at this many characters before a superscript.
_LOOKED_AT_CHARS = 40
_SLASHES = ("/", "⁄")
# Signs that change the direction of text, and signs without width. A search would not find a word
# that contains one.
_UNSEEN = re.compile("[\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")


class Placement(Enum):
    """How a piece of text is placed on its line."""

    NORMAL = auto()
    SUPERSCRIPT = auto()
    SUBSCRIPT = auto()
    NOTE = auto()
    """The mark of a note."""


Piece = tuple[str, Placement]


def joined(pieces: Iterable[Piece]) -> str:
    """Returns pieces of text as one text, with the signs of superscripts and subscripts.

    Each line has single spaces between its words, and empty lines are left out.
    """
    text = _UNSEEN.sub("", _with_signs(_groups(pieces)))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _groups(pieces: Iterable[Piece]) -> list[Piece]:
    """Returns the pieces, those with the same placement joined. Each mark of a note stays apart."""
    groups: list[tuple[list[str], Placement]] = []
    for text, placed in pieces:
        # White space has no placement of its own, except after text with the same placement.
        follows_same = bool(groups) and groups[-1][1] is placed
        placement = placed if text.strip() or follows_same else Placement.NORMAL
        if groups and groups[-1][1] is placement is not Placement.NOTE:
            groups[-1][0].append(text)
        else:
            groups.append(([text], placement))
    return [("".join(texts), placement) for texts, placement in groups]


def _with_signs(groups: list[Piece]) -> str:
    if len(groups) == 1 and groups[0][1] is not Placement.NOTE:
        return groups[0][0]
    parts: list[str] = []
    before = ""
    for index, (text, placement) in enumerate(groups):
        written = text
        if placement is not Placement.NORMAL:
            following = groups[index + 1][0] if index + 1 < len(groups) else ""
            if _is_numerator(groups, index):
                written = raised_text.numerator(before, text)
            else:
                written = _with_sign(before, text, placement)
            if raised_text.needs_space(before, written, following):
                written += " "
        parts.append(written)
        before = (before + written)[-_LOOKED_AT_CHARS:]
    return "".join(parts)


def _is_numerator(groups: list[Piece], index: int) -> bool:
    """Returns True if a group is the upper number of a fraction: a slash and a subscript follow."""
    following = groups[index + 1 : index + 3]
    return (
        groups[index][1] is Placement.SUPERSCRIPT
        and len(following) == 2
        and following[0][0] in _SLASHES
        and following[1][1] is Placement.SUBSCRIPT
    )


def _with_sign(before: str, text: str, placement: Placement) -> str:
    """Returns what the text gets for a superscript, a subscript or the mark of a note."""
    start = text[: len(text) - len(text.lstrip())]
    end = text[len(text.rstrip()) :]
    if placement is Placement.SUBSCRIPT:
        return start + raised_text.subscript(before + start, text) + end
    is_note = placement is Placement.NOTE
    return start + raised_text.superscript(before + start, text, is_note=is_note) + end
