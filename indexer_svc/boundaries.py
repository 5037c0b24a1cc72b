"""Where a text may be cut: the rank of each boundary, and blocks of sections. Pure.

A boundary is a position between tokens, numbered by the tokens before it, 0 to n. Each has a
rank: section, paragraph, sentence, word, code point, or forbidden (inside a code point).

No leaf crosses the end of a block. A block is the text from a heading to the next one of any
depth, except that tiny sections join their neighbours:

1. A tiny section joins the next one if that is deeper, because it introduces it.
2. Tiny sections in a row are one block.
3. A block that is still tiny joins the block before it; the first one joins the next.

So a leaf holds text of two sections only where one of them is tiny. Tiny is under an eighth
of a leaf with its heading: 32 of 256 tokens, a heading and a sentence or two. Leaves of that
size would multiply vectors and postings, and each would match by little more than its
heading. Whatever joins them is still cited rightly, by the matched sentence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import hrag_fast
from hrag.values.tree import ParsedText

CUT_SECTION = hrag_fast.CUT_PARAGRAPH + 1

_TINY = 8  # A section is tiny if it has under 1/_TINY of a leaf's tokens.
_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]")
_UNDERLINES = tuple(b"=- ")  # What an underline, or the space before it, begins with.


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The rank of each boundary, one byte each, and the boundary at which each block ends.

    `block_ends` is ascending; the last one is the number of tokens.
    """

    ranks: bytes
    block_ends: list[int]


def boundaries_of(
    parsed: ParsedText, raw: bytes, offsets: NDArray[np.uint32], leaf_tokens: int
) -> Boundaries:
    """Returns the boundaries of `parsed.text`, whose UTF-8 is `raw`.

    `offsets` is `uint32[n + 1]`, the byte offset of each boundary. Starts of pages rank as
    paragraphs. Starts of sections rank highest, except those that a tiny section introduces.
    A section that does not begin at a boundary counts as part of the one before it.
    """
    ranks = np.empty(len(offsets), np.uint8)
    ranks[0] = CUT_SECTION
    ranks[1:] = hrag_fast.boundary_ranks(raw, offsets[1:])
    # Many texts are short and have neither; numpy's calls take time.
    if parsed.pages:
        pages = [page.char_start for page in parsed.pages if page.char_start < len(parsed.text)]
        _, at = _exact(_byte_offsets(parsed.text, raw, pages), offsets)
        ranks[at] = hrag_fast.CUT_PARAGRAPH
    if not parsed.sections:
        return Boundaries(ranks.tobytes(), [len(offsets) - 1])
    headings = _headings(parsed, raw, offsets)
    _keep_with_text(ranks, raw, offsets, headings)
    tiny = leaf_tokens // _TINY
    borders = _borders(headings, len(offsets) - 1, tiny)
    ranks[borders[:-1]] = CUT_SECTION
    return Boundaries(ranks.tobytes(), _block_ends(borders, tiny))


@dataclass(frozen=True, slots=True)
class _Headings:
    """Where sections begin, as ascending boundaries, and their depths: `intp[headings]`."""

    starts: NDArray[np.intp]
    depths: NDArray[np.intp]


def _byte_offsets(text: str, raw: bytes, chars: Sequence[int]) -> NDArray[np.uint32]:
    """Byte offsets in `raw` of ascending code-point offsets of `text`: `uint32[len(chars)]`."""
    if len(raw) == len(text):
        return np.array(chars, np.uint32)
    pieces = zip((0, *chars), chars, strict=False)
    lengths = [len(text[start:end].encode()) for start, end in pieces]
    return np.cumsum(lengths, dtype=np.uint32)


def _exact(
    targets: NDArray[np.uint32], offsets: NDArray[np.uint32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which of the byte offsets `targets` are boundaries, as indices, and those boundaries."""
    at = np.searchsorted(offsets, targets)
    found = np.flatnonzero(offsets[at] == targets)
    return found, at[found]


def _headings(parsed: ParsedText, raw: bytes, offsets: NDArray[np.uint32]) -> _Headings:
    """Sections that begin at a boundary before the end; of several at one, the last."""
    chars = [section.char_start for section in parsed.sections]
    found, at = _exact(_byte_offsets(parsed.text, raw, chars), offsets)
    is_last = at < np.append(at[1:], len(offsets) - 1)
    depths = np.array([section.depth for section in parsed.sections], np.intp)
    return _Headings(at[is_last], depths[found[is_last]])


def _keep_with_text(
    ranks: NDArray[np.uint8], raw: bytes, offsets: NDArray[np.uint32], headings: _Headings
) -> None:
    """Ranks the end of each heading, or of its underline, below the end of a word.

    So a cut prefers the end of the first sentence below, and of any of its words.
    """
    good = np.flatnonzero(ranks >= hrag_fast.CUT_SENTENCE)
    at = np.searchsorted(good, headings.starts, side="right")
    at = at[at < len(good) - 1]  # The text may end with a heading.
    ranks[good[at]] = hrag_fast.CUT_CODE_POINT
    below = np.frombuffer(raw, np.uint8)[offsets[good[at]]]
    for index in at[np.isin(below, _UNDERLINES)].tolist():
        start, end = good[index : index + 2].tolist()
        if not _WORD.search(raw, offsets[start], offsets[end]):
            ranks[end] = hrag_fast.CUT_CODE_POINT


def _borders(headings: _Headings, count: int, tiny: int) -> NDArray[np.intp]:
    """Where sections begin, except those that a tiny one introduces: `intp[borders]`.

    The first is 0, for text before the first heading counts as a section above all others;
    the last is `count`, the number of tokens.
    """
    starts, depths = headings.starts, headings.depths
    lengths_before = np.diff(starts, prepend=0)
    is_deeper = np.diff(depths, prepend=0) > 0
    kept = starts[(starts > 0) & ~((lengths_before < tiny) & is_deeper)]
    return np.concatenate(([0], kept, [count]))


def _block_ends(borders: NDArray[np.intp], tiny: int) -> list[int]:
    """Where blocks end, given the borders of the sections that they consist of."""
    is_tiny = np.diff(borders) < tiny
    goes_on = np.append(False, is_tiny[1:] & is_tiny[:-1])  # In a row of tiny ones.
    rows = [*borders[:-1][~goes_on].tolist(), int(borders[-1])]
    ends: list[int] = []
    block_start = 0
    for start, end in pairwise(rows):
        if min(end - start, start - block_start) >= tiny:
            ends.append(start)
            block_start = start
    return [*ends, rows[-1]]
