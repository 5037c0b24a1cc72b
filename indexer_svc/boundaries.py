"""The boundaries at which a text may be cut: the rank of each, and the ends of blocks.

All functions are pure. A boundary is a position before, between or after the n tokens of a text.
Boundary i has i tokens before it, 0 <= i <= n. The rank of a boundary says how good a cut at this
position is. The ranks from best to worst: section, paragraph, sentence, word, code point, and
forbidden (inside a code point or between the two characters of a CRLF).

A block is a range of tokens, and no leaf crosses the end of a block. A block is the text from
one heading to the next heading of any depth, except that tiny sections join their neighbours:

1. A tiny section joins the next section if the next one is deeper, because the tiny section
   introduces it.
2. Consecutive tiny sections form one block.
3. A block that is still tiny joins the block before it. If it is the first block, it joins the
   block after it.

So a leaf contains text of two sections only where one of them is tiny. A section, including
its heading, is tiny if it has less than an eighth of a leaf's tokens: less than 32 of 256
tokens, which is a heading and a sentence or two. If tiny sections were leaves, there would be
many more vectors and postings, and each tiny leaf would match by little more than its heading.
Text of a joined section is still cited correctly, because the matched sentence decides which
section a citation names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import hrag_fast
from hrag.values.reading import PageUnit
from hrag.values.tree import ParsedText

CUT_SECTION = hrag_fast.CUT_PARAGRAPH + 1  # The rank of the start of a section, the highest rank.

# The least rank of the start of a page, by what the pages are. A row of a table is like a sentence:
# a cut between two rows is better than a cut inside a row, but a paragraph that ends nearby is
# better still. The subtitles of a recording are only lines of its sentences, so the time at which
# one begins is no reason for a cut.
_PAGE_RANKS = {
    PageUnit.PAGE: hrag_fast.CUT_PARAGRAPH,
    PageUnit.ROW: hrag_fast.CUT_SENTENCE,
}
_TINY = 8  # A section is tiny if it has under 1/_TINY of a leaf's tokens.
_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]")
_UNDERLINES = tuple(b"=- ")  # The first byte of a heading's underline, or a space before it.


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The rank of each boundary, and the boundary at which each block ends.

    `ranks` has one byte for each boundary. `block_ends` is ascending, and its last value is
    the number of tokens.
    """

    ranks: bytes
    block_ends: list[int]


def boundaries_of(
    parsed: ParsedText, raw: bytes, offsets: NDArray[np.uint32], leaf_tokens: int
) -> Boundaries:
    """Returns the boundaries of `parsed.text`, whose UTF-8 is `raw`.

    `offsets` is `uint32[n + 1]`, the byte offset of each boundary. `leaf_tokens` is the
    largest number of tokens of a leaf. The start of a page has at least the rank of a paragraph,
    and the start of a row of a table at least the rank of a sentence. The start of a section has
    the highest rank, unless a tiny section introduces the section. A section that does not begin at
    a boundary counts as part of the section before it.
    """
    ranks = np.empty(len(offsets), np.uint8)
    ranks[0] = CUT_SECTION
    ranks[1:] = hrag_fast.boundary_ranks(raw, offsets[1:])
    # Many short texts have neither pages nor sections. For them, returning early saves numpy calls.
    page_rank = _PAGE_RANKS.get(parsed.page_unit)
    if parsed.pages and page_rank is not None:
        pages = [page.char_start for page in parsed.pages if page.char_start < len(parsed.text)]
        _, at = _match_boundaries(_byte_offsets(parsed.text, raw, pages), offsets)
        ranks[at] = np.maximum(ranks[at], page_rank)
    if not parsed.sections:
        return Boundaries(ranks.tobytes(), [len(offsets) - 1])
    headings = _headings(parsed, raw, offsets)
    _keep_with_text(ranks, raw, offsets, headings)
    tiny = leaf_tokens // _TINY
    borders = _borders(headings, len(offsets) - 1, tiny)
    ranks[borders[:-1]] = CUT_SECTION
    return Boundaries(ranks.tobytes(), _block_ends(borders, tiny))


@dataclass(frozen=True, slots=True)
class _HeadingBoundaries:
    """The boundaries at which sections begin, ascending, and the depths of the sections.

    Both arrays are `intp[headings]`.
    """

    starts: NDArray[np.intp]
    depths: NDArray[np.intp]


def _byte_offsets(text: str, raw: bytes, chars: Sequence[int]) -> NDArray[np.uint32]:
    """Returns the byte offset in `raw` of each code-point offset of `text`.

    `raw` is the UTF-8 of `text`. `chars` are code-point offsets, ascending. The result is
    `uint32[len(chars)]`.
    """
    if len(raw) == len(text):
        return np.array(chars, np.uint32)
    pieces = zip((0, *chars), chars, strict=False)
    lengths = [len(text[start:end].encode()) for start, end in pieces]
    return np.cumsum(lengths, dtype=np.uint32)


def _match_boundaries(
    targets: NDArray[np.uint32], offsets: NDArray[np.uint32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns which of the `targets` are boundaries: their indices in `targets` and in `offsets`.

    `targets` are byte offsets. `offsets` are the byte offsets of all boundaries, ascending.
    """
    at = np.searchsorted(offsets, targets)
    exact = np.flatnonzero(offsets[at] == targets)
    return exact, at[exact]


def _headings(parsed: ParsedText, raw: bytes, offsets: NDArray[np.uint32]) -> _HeadingBoundaries:
    """Returns the sections that begin at a boundary before the end of the text.

    If several sections begin at the same boundary, only the last of them is returned.
    """
    chars = [section.char_start for section in parsed.sections]
    exact, at = _match_boundaries(_byte_offsets(parsed.text, raw, chars), offsets)
    is_last = at < np.append(at[1:], len(offsets) - 1)
    depths = np.array([section.depth for section in parsed.sections], np.intp)
    return _HeadingBoundaries(at[is_last], depths[exact[is_last]])


def _keep_with_text(
    ranks: NDArray[np.uint8], raw: bytes, offsets: NDArray[np.uint32], headings: _HeadingBoundaries
) -> None:
    """Lowers the rank of the end of each heading, or of its underline, to CUT_CODE_POINT.

    Then a cut prefers the end of the first sentence below the heading, or the end of any word
    in this sentence. So the heading stays in one chunk with the text below it.
    """
    sentence_ends = np.flatnonzero(ranks >= hrag_fast.CUT_SENTENCE)
    at = np.searchsorted(sentence_ends, headings.starts, side="right")
    at = at[at < len(sentence_ends) - 1]  # The text may end with a heading.
    ranks[sentence_ends[at]] = hrag_fast.CUT_CODE_POINT
    below = np.frombuffer(raw, np.uint8)[offsets[sentence_ends[at]]]
    for index in at[np.isin(below, _UNDERLINES)].tolist():
        start, end = sentence_ends[index : index + 2].tolist()
        if not _WORD.search(raw, offsets[start], offsets[end]):
            ranks[end] = hrag_fast.CUT_CODE_POINT


def _borders(headings: _HeadingBoundaries, count: int, tiny: int) -> NDArray[np.intp]:
    """Returns the boundaries at which sections begin, then `count`: `intp[borders]`.

    Leaves out sections that a tiny section introduces. A section of fewer than `tiny` tokens is
    tiny. The first border is 0, because text before the first heading counts as a section above
    all others. The last border is `count`, the number of tokens.
    """
    starts, depths = headings.starts, headings.depths
    lengths_before = np.diff(starts, prepend=0)
    is_deeper = np.diff(depths, prepend=0) > 0
    section_starts = starts[(starts > 0) & ~((lengths_before < tiny) & is_deeper)]
    return np.concatenate(([0], section_starts, [count]))


def _block_ends(borders: NDArray[np.intp], tiny: int) -> list[int]:
    """Returns the boundaries at which blocks end, ascending.

    `borders` are the boundaries at which sections begin, then the number of tokens. A section
    of fewer than `tiny` tokens is tiny.
    """
    is_tiny = np.diff(borders) < tiny
    # A tiny section directly after another tiny section continues the same block.
    is_continuation = np.append(False, is_tiny[1:] & is_tiny[:-1])
    starts = [*borders[:-1][~is_continuation].tolist(), int(borders[-1])]
    ends: list[int] = []
    block_start = 0
    for start, end in pairwise(starts):
        if min(end - start, start - block_start) >= tiny:
            ends.append(start)
            block_start = start
    return [*ends, starts[-1]]
