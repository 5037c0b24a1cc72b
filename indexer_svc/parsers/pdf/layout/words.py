"""Divides runs of characters into words.

White space divides words, and so does a gap between two characters that is wider than characters of
one word ever stand apart. Many files draw each cell of a table, or each word of a line, without any
white space.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import sub

from indexer_svc.parsers.pdf.page_content import Font, FormValue, GlyphRun

# Two characters whose distance is more than this share of the font size are in different words. A
# space is a quarter of the font size wide, and in tightly set lines at least a sixth. Kerning and
# the spacing of single letters stay below.
WORD_GAP = 0.17
# The width of a character of a form value, relative to its size. Only the field's box is known.
_VALUE_ADVANCE = 0.5
# These characters stand for glyphs whose character is unknown.
_NOISE = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ue000-\uf8ff\ufffd\uffff]")
# Word processors often map ligatures to letters of African languages that look similar.
_LIGATURES = {"\u019f": "ti", "\u01a9": "tt"}
_WRONG_LIGATURE = re.compile("(?<=[a-z])[\u019f\u01a9]|[\u019f\u01a9](?=[a-z])")
_TOKEN = re.compile(r"\S+")


class Word:
    """Characters of one run without a gap between them.

    `is_glued` is True if no white space was drawn before the word, so that only its distance
    decides whether it continues the word before. `mark` is the number of the marked content.
    """

    __slots__ = (
        *("text", "left", "top", "right", "bottom", "baseline", "size", "font", "mark", "is_glued"),
    )

    def __init__(
        self,
        text: str,
        left: float,
        top: float,
        right: float,
        bottom: float,
        baseline: float,
        size: float,
        font: Font,
        mark: int = -1,
        is_glued: bool = False,
    ) -> None:
        self.text = text
        self.left = left
        self.top = top
        self.right = right
        self.bottom = bottom
        self.baseline = baseline
        self.size = size
        self.font = font
        self.mark = mark
        self.is_glued = is_glued

    def __repr__(self) -> str:
        return f"Word({self.text!r}, {self.left:.1f}, {self.baseline:.1f}, {self.right:.1f})"


def words_of(runs: Sequence[GlyphRun]) -> list[Word]:
    """Returns the words of runs that have the same angle, in the order of the runs.

    Characters that stand for unknown glyphs are left out, and so are runs without any extent.
    """
    return [word for run in runs for word in _words_of_run(run)]


def noise_share(runs: Sequence[GlyphRun]) -> float:
    """Returns the share of visible characters that stand for glyphs whose character is unknown."""
    visible = noise = 0
    for run in runs:
        visible += len(run.text) - run.text.count(" ")
        noise += len(_NOISE.findall(run.text))
    return noise / visible if visible else 0.0


def words_of_values(values: Sequence[FormValue], size: float, font: Font) -> Iterator[Word]:
    """Yields the values of a form as words, one for each line of a value.

    A value gets the baseline that text of the size `size` has in the field, so that it stands on
    the line of its label.
    """
    for value in values:
        lines = value.text.splitlines()
        height = (value.bottom - value.top) / len(lines) if lines else 0.0
        for index, text in enumerate(lines):
            middle = value.top + height * (index + 0.5)
            words = " ".join(text.split())
            if words:
                right = min(value.right, value.left + _VALUE_ADVANCE * size * len(words))
                yield Word(
                    *(words, value.left, middle - size / 2, right, middle + size / 2),
                    *(middle + 0.3 * size, size, font),
                )


def _words_of_run(run: GlyphRun) -> Iterator[Word]:
    text, starts, ends = run.text, run.starts, run.ends
    limit = run.size * WORD_GAP
    is_noisy = bool(_NOISE.search(text))
    has_ligatures = "\u019f" in text or "\u01a9" in text
    for match in _TOKEN.finditer(text):
        first, after = match.span()
        is_glued = first == 0
        cuts = [first]
        if after - first > 1:
            gaps = list(map(sub, starts[first + 1 : after], ends[first : after - 1]))
            if max(gaps) > limit:
                cuts += _cuts(gaps, first, limit)
        cuts.append(after)
        for begin, end in pairwise(cuts):
            piece = text[begin:end]
            if is_noisy:
                piece = _NOISE.sub("", piece)
            if has_ligatures:
                piece = _WRONG_LIGATURE.sub(lambda match: _LIGATURES[match.group()], piece)
            if piece:
                left, right = starts[begin], ends[end - 1]
                yield Word(
                    *(piece, left, run.top, max(left, right), run.bottom, run.baseline, run.size),
                    *(run.font, run.mark, is_glued),
                )
            is_glued = False


def _cuts(gaps: Sequence[float], first: int, limit: float) -> list[int]:
    """Returns the indexes at which words begin after gaps.

    If nearly all characters of a word stand apart by the same distance, its letters are spaced, and
    the distance does not divide words.
    """
    wide = [gap for gap in gaps if gap > limit]
    if len(gaps) >= 3 and len(wide) >= 0.8 * len(gaps):
        limit = max(limit, 1.6 * sorted(gaps)[len(gaps) // 2])
    return [first + index + 1 for index, gap in enumerate(gaps) if gap > limit]
