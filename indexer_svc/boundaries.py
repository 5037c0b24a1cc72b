"""Finds the boundaries at which a text may be cut into chunks, and ranks them.

All functions are pure. A boundary is a position before, between or after the n tokens of a text.
Boundary i has i tokens before it, 0 <= i <= n. The rank of a boundary says how good a cut at this
position is. The ranks from best to worst: section, paragraph, sentence, word, code point, and
forbidden (inside a code point or between the two characters of a CRLF).

The text is also divided into blocks, and no leaf crosses the end of a block. A block is the text
from one heading to the next heading of any depth, except that tiny sections join their neighbours:

1. A tiny section joins the next section if the next one is deeper, because the tiny section
   introduces it.
2. Consecutive tiny sections form one block.
3. A block that is still tiny joins the previous block. If the first block is tiny, it joins the
   next block.

So a leaf contains text of two sections only if one of the sections is tiny. A section, including
its heading, is tiny if it has less than an eighth of the maximum tokens of a leaf: for leaves of
256 tokens, less than 32 tokens, which is a heading and a sentence or two. If tiny sections were
leaves, there would be many more vectors and postings, and each tiny leaf would match by little
more than its heading. Text of a joined section is still cited correctly, because the matched
sentence decides which section a citation names.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import hrag_fast
from hrag.values.read_report import PageUnit
from hrag.values.tree import ParsedText

# The rank of a boundary at which a section starts. It is the highest rank: the best place for a
# cut.
CUT_SECTION = hrag_fast.CUT_PARAGRAPH + 1

# The least rank of the start of a page, by what the pages are. A row of a table is like a sentence:
# a cut between two rows is better than a cut inside a row, but a paragraph that ends nearby is
# better still. The subtitles of a recording are only lines of its sentences, so the time at which
# one begins is no reason for a cut.
_PAGE_RANKS = {
    PageUnit.PAGE: hrag_fast.CUT_PARAGRAPH,
    PageUnit.ROW: hrag_fast.CUT_SENTENCE,
}
# A section is tiny if it has less than 1/_TINY of the maximum tokens of a leaf.
_TINY = 8
_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]")
# If the line below a heading is an underline, it begins with one of these bytes.
_UNDERLINES = tuple(b"=- ")


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The rank of each boundary of a text, and the boundaries at which blocks end.

    `ranks` has one byte for each boundary; a higher rank is a better position for a cut. No leaf
    crosses the end of a block. `block_ends` is ascending, and its last value is the number of
    tokens.
    """

    ranks: bytes
    block_ends: list[int]


def boundaries_of(
    parsed: ParsedText, raw: bytes, offsets: NDArray[np.uint32], leaf_tokens: int
) -> Boundaries:
    """Returns the ranks of the boundaries of `parsed.text`, and the ends of its blocks.

    `raw` is the text in UTF-8. `offsets` is `uint32[n + 1]`, the byte offset of each boundary.
    `leaf_tokens` is the maximum count of tokens of a leaf. The rank of a boundary says how good a
    cut at this position is. No leaf crosses the end of a block.

    The start of a page has at least the rank of a paragraph, and the start of a row of a table at
    least the rank of a sentence. The start of a section has the highest rank. Exception: if the
    section before it is tiny and less deep (for example a chapter heading with one sentence), the
    two sections are joined, and the boundary between them does not get the highest rank. A section
    is tiny if it has fewer than `leaf_tokens // _TINY` tokens. A section that does not begin at a
    boundary is treated as part of the previous section.
    """
    ranks = np.empty(len(offsets), np.uint8)
    ranks[0] = CUT_SECTION
    ranks[1:] = hrag_fast.boundary_ranks(raw, offsets[1:])
    # Many short texts have neither pages nor sections. For these texts, the calls of numpy below
    # are skipped to save time.
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

    `starts` and `depths` are `intp[headings]`.
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
    """Finds the byte offsets in `targets` that are also in `offsets`, the offsets of boundaries.

    Returns two arrays: the indices of these byte offsets in `targets`, and their indices in
    `offsets`. `offsets` are the byte offsets of all boundaries, ascending.
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
    """Lowers the rank of the boundary after each heading to CUT_CODE_POINT.

    This makes the boundary a bad position for a cut. If the heading has an underline, the rank of
    the boundary after the underline is lowered too. Then the end of the first sentence below the
    heading, or the end of any word in this sentence, is a better position. So the heading stays in
    one chunk with the text below the heading.
    """
    sentence_ends = np.flatnonzero(ranks >= hrag_fast.CUT_SENTENCE)
    at = np.searchsorted(sentence_ends, headings.starts, side="right")
    # If the text ends with a heading, the last boundary keeps its rank.
    at = at[at < len(sentence_ends) - 1]
    ranks[sentence_ends[at]] = hrag_fast.CUT_CODE_POINT
    below = np.frombuffer(raw, np.uint8)[offsets[sentence_ends[at]]]
    for index in at[np.isin(below, _UNDERLINES)].tolist():
        start, end = sentence_ends[index : index + 2].tolist()
        if not _WORD.search(raw, offsets[start], offsets[end]):
            ranks[end] = hrag_fast.CUT_CODE_POINT


def _borders(headings: _HeadingBoundaries, count: int, tiny: int) -> NDArray[np.intp]:
    """Returns the boundaries at which sections begin and the last section ends: `intp[borders]`.

    `count` is the count of tokens of the text, so it is the boundary at which the last section
    ends. A section of fewer than `tiny` tokens is tiny. If the section directly before a section is
    tiny and less deep, the two sections are joined, so the boundary between them is left out. The
    first border is 0, because text before the first heading is treated as a section that is less
    deep than all others.
    """
    starts, depths = headings.starts, headings.depths
    lengths_before = np.diff(starts, prepend=0)
    is_deeper = np.diff(depths, prepend=0) > 0
    section_starts = starts[(starts > 0) & ~((lengths_before < tiny) & is_deeper)]
    return np.concatenate(([0], section_starts, [count]))


def _block_ends(borders: NDArray[np.intp], tiny: int) -> list[int]:
    """Returns the boundaries at which blocks end, ascending.

    A block is one or more whole sections; no leaf crosses the end of a block. `borders` is the
    result of `_borders`: the boundary at which each section begins, and at last the boundary at the
    end of the text. Sections and blocks of fewer than `tiny` tokens are joined with their
    neighbours.
    """
    is_tiny = np.diff(borders) < tiny
    # Consecutive tiny sections form one block. So no block begins at a tiny section whose previous
    # section is tiny.
    is_continuation = np.append(False, is_tiny[1:] & is_tiny[:-1])
    starts = [*borders[:-1][~is_continuation].tolist(), int(borders[-1])]
    ends: list[int] = []
    block_start = 0
    for start, end in pairwise(starts):
        if min(end - start, start - block_start) >= tiny:
            ends.append(start)
            block_start = start
    return [*ends, starts[-1]]
