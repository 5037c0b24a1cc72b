"""Hierarchical chunking: cuts a text into its chunk tree. Pure and deterministic.

The tree is built bottom-up over one token sequence.

* A block is one or more whole sections (`boundaries` defines blocks). The chunks of level 0 are the
  positions of a window that slides over each block. The window stops at the end of the block. It
  starts again at the beginning of the next block, without overlap.
* A chunk of a higher level consists of consecutive chunks of the next lower level, as many as fit.
  The end of the chunk is then extended until the chunk shares the level's overlap with the next
  chunk. If the next chunk begins with a heading, the end is not extended.

So every chunk below the top level has one parent and lies inside this parent, for any chunk sizes.
Leaves are the chunks of the embedded level, which may be a level above 0. No leaf crosses the end
of a block.

`boundaries` gives each position between two tokens a rank, which says how good a cut there is.
Every cut is made at the boundary of the highest rank near its target position.

Time and memory are linear in the text, apart from a few binary searches for each chunk.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import hrag_fast
from hrag.text import tokens
from hrag.values.collections import TreeSettings
from hrag.values.tree import CHUNK, NONE, ParsedText, Section, Tree, section_parents
from indexer_svc.boundaries import CUT_SECTION, Boundaries, boundaries_of

# To find a better boundary, a cut may be up to 1/_SNAP of the chunk size before its target
# position. A quarter of 256 tokens is two or three sentences, so this range nearly always contains
# the end of a sentence.
_SNAP = 4
# To find a better boundary, the overlap of two neighbouring chunks may differ from its target size
# by up to 1/_SNAP_OVERLAP of the target size.
_SNAP_OVERLAP = 4
# One code point may consist of at most this many tokens, because a code point has at most 4 bytes
# in UTF-8 and a token has at least one byte. This limit matters because a text must not be cut
# inside a code point.
_MAX_CODE_POINT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Level:
    """The chunk size, the overlap and the slack of one level of the tree, all in tokens.

    Two neighbouring chunks share `overlap` tokens. The overlap may be larger or smaller by up to
    `slack` tokens, so that the cut is at a better boundary.
    """

    size: int
    overlap: int
    slack: int

    @classmethod
    def of(cls, size: int, ratio: float) -> "Level":
        """Creates the Level for chunks of at most `size` tokens.

        Neighbouring chunks share about `ratio * size` tokens. `ratio` is from 0 to 0.5.
        """
        overlap = round(size * ratio)
        return cls(size, overlap, max(2, overlap // _SNAP_OVERLAP) if overlap else 0)


@dataclass(frozen=True, slots=True)
class _Spans:
    """The chunks of one level: the boundaries where they start and end, and their child counts.

    `child_counts` has the count of children of each chunk. Each of the three lists has one value
    for each chunk, in the order of the chunks in the text.
    """

    starts: list[int]
    ends: list[int]
    child_counts: list[int]


def build_tree(parsed: ParsedText, settings: TreeSettings) -> Tree:
    """Returns the chunk tree of `parsed.text`, which must not be empty.

    Chunks of level l have at most `settings.level_sizes[l]` tokens (cl100k_base). The same text
    and the same settings give the same tree, byte for byte. Raises no errors.
    """
    raw = parsed.text.encode()
    ends = tokens.byte_ends(tokens.encode(parsed.text))
    offsets = np.concatenate((np.zeros(1, np.uint32), ends))
    bounds = boundaries_of(parsed, raw, offsets, settings.leaf_tokens)
    smallest, *larger = (Level.of(size, settings.overlap_ratio) for size in settings.level_sizes)
    spans = [_slide_windows(bounds, smallest)]
    for level_index, level in enumerate(larger, start=1):
        in_blocks = level_index <= settings.embedding_level
        spans.append(_group_chunks(bounds, spans[-1], level, in_blocks=in_blocks))
    levels = [_pack_level(level, offsets) for level in spans]
    _add_char_offsets(levels, raw, ascii_only=len(raw) == len(parsed.text))
    _link(levels, spans)
    _add_sections(levels, parsed.sections)
    return Tree.from_levels(levels)


class _CharOffsets:
    """Maps byte offsets in a text in UTF-8 to code-point offsets.

    `offsets` are all byte offsets that will be looked up. None of them may be inside a code point.
    Duplicates are allowed.
    """

    def __init__(self, raw: bytes, offsets: NDArray[np.uint32]) -> None:
        self._known = np.unique(offsets)
        known = self._known.tolist()
        pieces = zip([0, *known], known, strict=False)
        lengths = [len(raw[start:end].decode()) for start, end in pieces]
        self._chars = np.cumsum(lengths, dtype=np.uint32)

    def of(self, offsets: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Returns the code-point offset of each byte offset, in the shape of `offsets`."""
        return self._chars[np.searchsorted(self._known, offsets)]


def _best_cut(ranks: bytes, low: int, high: int, near: int, floor: int) -> int:
    """Returns the boundary with the highest rank from `low` to `high`, the best one for a cut.

    If several boundaries have this rank, returns the boundary nearest to `near`. If all boundaries
    from `low` to `high` are forbidden, returns the last boundary before `low` and after `floor`
    that is not forbidden.
    """
    best = max(ranks[low : high + 1])
    if best == hrag_fast.CUT_FORBIDDEN:
        return next(at for at in range(low - 1, floor, -1) if ranks[at])
    before = ranks.rfind(best, low, near + 1)
    after = ranks.find(best, near, high + 1)
    if before < 0 or (0 <= after < 2 * near - before):
        return after
    return before


def _slide_windows(bounds: Boundaries, level: Level) -> _Spans:
    """Returns the chunks of level 0: windows that slide over each block of the text.

    No window crosses the end of a block. Inside a block, each window starts about `level.overlap`
    tokens before the end of the previous window. A block of at most `level.size` tokens is one
    window. In a longer block, the window before the last one ends early enough that the last window
    has about 1/_SNAP of `level.size` tokens or more.
    """
    ranks = bounds.ranks
    starts, ends = list[int](), list[int]()
    start = end = 0
    least_new = max(0, level.size // _SNAP - level.overlap)
    for block_end in bounds.block_ends:
        while block_end - start > level.size:
            limit = min(start + level.size, block_end - least_new)
            end = _best_cut(ranks, max(limit - level.size // _SNAP, end + 1), limit, limit, end)
            starts.append(start)
            ends.append(end)
            start = _next_start(ranks, end, level)
        starts.append(start)
        ends.append(block_end)
        start = end = block_end
    return _Spans(starts, ends, [0] * len(starts))


def _next_start(ranks: bytes, end: int, level: Level) -> int:
    """Returns the boundary at which the next chunk begins, after a chunk that ends at `end`.

    Without an overlap, this boundary is `end`. With an overlap, it is about `level.overlap` tokens
    before `end`. Exception: if sections begin within the overlap, the next chunk begins where the
    last of these sections begins.
    """
    if not level.overlap:
        return end
    near = end - level.overlap
    low, high = near - level.slack, min(near + level.slack, end)
    heading = ranks.rfind(CUT_SECTION, low, end + 1)
    if heading >= 0:
        return heading
    return _best_cut(ranks, low, high, near, low - _MAX_CODE_POINT_TOKENS)


def _group_chunks(bounds: Boundaries, below: _Spans, level: Level, *, in_blocks: bool) -> _Spans:
    """Returns the chunks of a level. `below` has the chunks of the next lower level.

    Each chunk consists of as many consecutive chunks of `below` as fit into `level.size` tokens.
    The end of the chunk is then extended, so that the chunk overlaps the next chunk. With
    `in_blocks`, no chunk crosses the end of a block.
    """
    starts, ends, counts = list[int](), list[int](), list[int]()
    stops = bounds.block_ends if in_blocks else bounds.block_ends[-1:]
    first, end = 0, 0
    while first < len(below.starts):
        stop = stops[bisect.bisect_left(stops, below.ends[first])]
        last = _last_that_fits(bounds.ranks, below, first, level, stop)
        end = _group_end(bounds.ranks, below, range(first, last + 1), level, end, stop)
        starts.append(below.starts[first])
        ends.append(end)
        counts.append(last - first + 1)
        first = last + 1
    return _Spans(starts, ends, counts)


def _last_that_fits(ranks: bytes, below: _Spans, first: int, level: Level, stop: int) -> int:
    """Returns the index, in `below`, of the last child of a parent chunk.

    `first` is the index of its first child. The children end at the boundary `stop` or before it,
    and fit into `level.size` tokens. If the last child that fits ends at `stop`, it is the result.
    Otherwise, if chunks that begin with a heading follow children that end in the last 1/_SNAP of
    these tokens, the next parent begins with the last of these chunks. Otherwise, the parent has as
    many children as leave room for the overlap with the next parent, but at least one.
    """
    limit = below.starts[first] + level.size
    last = bisect.bisect_right(below.ends, min(limit, stop)) - 1
    if below.ends[last] == stop:
        return last
    for at in range(last, first - 1, -1):
        if below.ends[at] < limit - level.size // _SNAP:
            break
        if ranks[below.starts[at + 1]] == CUT_SECTION:
            return at
    last_start = limit - max(0, level.overlap - level.slack)
    return max(first, min(last, bisect.bisect_right(below.starts, last_start) - 2))


def _group_end(
    ranks: bytes, below: _Spans, run: range, level: Level, previous_end: int, stop: int
) -> int:
    """Returns the boundary at which a parent chunk ends.

    The children of the parent are the chunks of `below` with the indices in `run`. The parent ends
    with its last child in two cases: the last child ends at `stop`, or the next parent begins with
    a heading. Otherwise the end of the parent is moved forward until the parent shares about
    `level.overlap` tokens with the next parent. The parent has at most `level.size` tokens.
    """
    run_end, next_start = below.ends[run[-1]], below.starts[run[-1] + 1 : run[-1] + 2]
    if run_end == stop:
        return run_end
    if ranks[next_start[0]] == CUT_SECTION and run_end > previous_end:
        return run_end
    near = next_start[0] + level.overlap
    floor = max(run_end, previous_end + 1)
    high = min(below.starts[run[0]] + level.size, near + level.slack, stop - 1)
    low = min(max(floor, near - level.slack), high)
    return _best_cut(ranks, low, high, min(max(near, low), high), floor - 1)


def _pack_level(spans: _Spans, boundaries: NDArray[np.uint32]) -> NDArray[np.void]:
    """Returns the chunks of one level as an array of CHUNK records.

    `boundaries` is `uint32[n + 1]`, the byte offset of each boundary. The fields for parents,
    children, sections and code-point offsets are not set by this function.
    """
    level = np.zeros(len(spans.starts), CHUNK)
    starts, ends = np.array(spans.starts), np.array(spans.ends)
    level["token_start"] = starts
    level["token_count"] = ends - starts
    level["byte_start"] = boundaries[starts]
    level["byte_end"] = boundaries[ends]
    level["parent"] = NONE
    level["section"] = NONE
    return level


def _add_char_offsets(levels: Sequence[NDArray[np.void]], raw: bytes, *, ascii_only: bool) -> None:
    """Sets `char_start` and `char_end`, in code points, of the chunks of all levels.

    If several chunks start or end at the same offset, this offset is converted only once.
    """
    if ascii_only:
        for level in levels:
            level["char_start"], level["char_end"] = level["byte_start"], level["byte_end"]
        return
    used = [level[side] for level in levels for side in ("byte_start", "byte_end")]
    chars = _CharOffsets(raw, np.concatenate(used))
    for level in levels:
        level["char_start"] = chars.of(level["byte_start"])
        level["char_end"] = chars.of(level["byte_end"])


def _link(levels: Sequence[NDArray[np.void]], spans: Sequence[_Spans]) -> None:
    """Sets `parent`, `first_child` and `child_count` of the chunks of all levels."""
    for children, parents, span in zip(levels, levels[1:], spans[1:], strict=False):
        counts = np.array(span.child_counts)
        parents["child_count"] = counts
        parents["first_child"] = counts.cumsum() - counts
        children["parent"] = np.arange(len(counts)).repeat(counts)


def _add_sections(levels: Sequence[NDArray[np.void]], sections: Sequence[Section]) -> None:
    """Sets `section` of each chunk to the index of the section that contains most of the chunk.

    If no section contains more than half of a chunk, its `section` stays NONE.
    """
    if not sections:
        return
    table = _SectionTable(sections, int(levels[0]["char_end"][-1]))
    for level in levels:
        level["section"] = table.containing_most_of(level["char_start"], level["char_end"])


class _SectionTable:
    """Finds the section that contains most of a chunk. All offsets count code points."""

    def __init__(self, sections: Sequence[Section], text_end: int) -> None:
        self._starts = np.array([section.char_start for section in sections], np.int64)
        self._parents = np.array(section_parents(sections), np.int64)
        self._ends = np.array(_extents(sections, text_end), np.int64)

    def containing_most_of(
        self, starts: NDArray[np.uint32], ends: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """Returns the index of the innermost section that contains more than half of each span.

        The index is NONE if there is no such section. A span is the range of a chunk in the text.
        `starts`, `ends` and the result are `uint32[spans]`. A section that contains more than half
        of a span contains the middle of the span. So only the innermost section at the middle of
        the span, and the ancestors of this section, are examined.
        """
        low, high = starts.astype(np.int64), ends.astype(np.int64)
        sections = np.searchsorted(self._starts, (low + high) // 2, side="right") - 1
        sections[sections < 0] = NONE
        while True:
            known = sections != NONE
            at = np.where(known, sections, 0)
            inside = np.minimum(high, self._ends[at]) - np.maximum(low, self._starts[at])
            too_small = known & (2 * inside <= high - low)
            if not too_small.any():
                return sections.astype(np.uint32)
            sections[too_small] = self._parents[at[too_small]]


def _extents(sections: Sequence[Section], text_end: int) -> list[int]:
    """Returns the offset at which each section ends.

    A section ends at the start of the next section of the same or a smaller depth. If there is no
    such section, it ends at `text_end`.
    """
    ends = [text_end] * len(sections)
    open_sections: list[int] = []
    for index, section in enumerate(sections):
        while open_sections and sections[open_sections[-1]].depth >= section.depth:
            ends[open_sections.pop()] = section.char_start
        open_sections.append(index)
    return ends
