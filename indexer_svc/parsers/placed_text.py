"""Joins pieces of text, some of which are superscripts, subscripts or marks of notes.

All functions are pure. `raised_text` has the rules for a single piece: it decides how a piece is
written after the text before it. This module applies the rules to all pieces of a text.
"""

from collections.abc import Iterable
from enum import Enum, auto

from indexer_svc.parsers import raised_text
from indexer_svc.parsers.raised_text import FRACTION_SLASHES, LOOKED_AT_CHARS, UNSEEN
from indexer_svc.parsers.text_lines import filled_lines


class Placement(Enum):
    """How a piece of text is placed on its line."""

    NORMAL = auto()
    SUPERSCRIPT = auto()
    SUBSCRIPT = auto()
    NOTE = auto()
    """The mark of a note."""


Piece = tuple[str, Placement]


def joined_pieces(pieces: Iterable[Piece]) -> str:
    """Returns pieces of text as one text, with the signs of superscripts and subscripts.

    All white space is kept.
    """
    groups = _groups(pieces)
    if len(groups) == 1 and groups[0][1] is not Placement.NOTE:
        return groups[0][0]
    parts: list[str] = []
    before = ""
    for index, (text, placement) in enumerate(groups):
        written = text
        if placement is not Placement.NORMAL:
            if _is_numerator(groups, index):
                written = raised_text.numerator(before, text)
            else:
                written = _with_sign(before, text, placement)
            if raised_text.needs_space(before, written, _normal_text(groups, index + 1)):
                written += " "
        parts.append(written)
        before = (before + written)[-LOOKED_AT_CHARS:]
    return "".join(parts)


def tidied_pieces(pieces: Iterable[Piece]) -> str:
    """Returns the text of `joined_pieces` with single spaces, without empty lines.

    Characters that are not seen, for example those that change the direction of text, are left out.
    """
    return "\n".join(filled_lines(UNSEEN.sub("", joined_pieces(pieces))))


def _groups(pieces: Iterable[Piece]) -> list[Piece]:
    """Joins consecutive pieces with the same placement. Each mark of a note stays separate."""
    groups: list[tuple[list[str], Placement]] = []
    for text, placed in pieces:
        # White space counts as NORMAL, except after text with the same placement.
        follows_same = bool(groups) and groups[-1][1] is placed
        placement = placed if text.strip() or follows_same else Placement.NORMAL
        if groups and groups[-1][1] is placement is not Placement.NOTE:
            groups[-1][0].append(text)
        else:
            groups.append(([text], placement))
    return [("".join(texts), placement) for texts, placement in groups]


def _normal_text(groups: list[Piece], index: int) -> str:
    """Returns the text of a group; empty if there is no such group, or if it has a sign."""
    text, placement = groups[index] if index < len(groups) else ("", Placement.NORMAL)
    return text if placement is Placement.NORMAL else ""


def _is_numerator(groups: list[Piece], index: int) -> bool:
    """Returns True if a group is the upper number of a fraction: a slash and a subscript follow."""
    following = groups[index + 1 : index + 3]
    return (
        groups[index][1] is Placement.SUPERSCRIPT
        and len(following) == 2
        and following[0][0] in FRACTION_SLASHES
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
