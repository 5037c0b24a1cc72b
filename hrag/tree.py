"""The chunk tree as packed arrays: layout, bytes, look-ups.

A tree is one little-endian array of fixed structs, level 0 first, behind a short header
of level counts, so that it is stored, read in place and compared as bytes. A chunk is a
span of its document's text; its content is sliced out on read. What holds for every tree
is checked by `Tree.check`; how one is cut from text is `indexer_svc.chunker`'s business.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NONE = 0xFFFF_FFFF  # No parent, no section.

CHUNK = np.dtype(
    [
        ("byte_start", "<u4"),
        ("byte_end", "<u4"),
        ("char_start", "<u4"),
        ("char_end", "<u4"),
        ("token_start", "<u4"),
        ("token_count", "<u4"),
        ("parent", "<u4"),
        ("first_child", "<u4"),
        ("child_count", "<u4"),
        ("section", "<u4"),
    ]
)

_RECORD = struct.Struct("<10I")
_COUNT = struct.Struct("<I")


class ChunkRecord(NamedTuple):
    """One chunk of a tree, the fields of CHUNK."""

    byte_start: int
    byte_end: int
    char_start: int
    char_end: int
    token_start: int
    token_count: int
    parent: int
    first_child: int
    child_count: int
    section: int


@dataclass(frozen=True, slots=True)
class Section:
    """A heading; it reaches to the next one of the same or a smaller depth."""

    title: str
    depth: int
    char_start: int


@dataclass(frozen=True, slots=True)
class PageSpan:
    """Where a page lies in the text."""

    number: int
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A document's text with its outline, in order of position."""

    text: str
    sections: tuple[Section, ...] = ()
    pages: tuple[PageSpan, ...] = ()


def section_parents(sections: Sequence[Section]) -> tuple[int, ...]:
    """The section each section lies in, by index; NONE at the outermost."""
    parents: list[int] = []
    open_sections: list[int] = []
    for index, section in enumerate(sections):
        while open_sections and sections[open_sections[-1]].depth >= section.depth:
            open_sections.pop()
        parents.append(open_sections[-1] if open_sections else NONE)
        open_sections.append(index)
    return tuple(parents)


class Tree:
    """A document's chunks at every level, over one buffer.

    `counts[l]` chunks at level l, smallest level first. The buffer may be memory that a
    read transaction owns; then the tree lives no longer than the transaction.
    """

    __slots__ = ("_bases", "_buffer", "counts")

    def __init__(self, buffer: bytes | memoryview) -> None:
        """Raises ValueError unless `buffer` is as long as its header says."""
        try:
            (levels,) = _COUNT.unpack_from(buffer)
            self.counts: tuple[int, ...] = struct.unpack_from(f"<{levels}I", buffer, _COUNT.size)
        except struct.error as error:
            raise ValueError(f"{len(buffer)} bytes are too few for a tree: {error}") from error
        self._buffer = buffer
        self._bases = []
        base = _COUNT.size * (levels + 1)
        for count in self.counts:
            self._bases.append(base)
            base += count * CHUNK.itemsize
        if base != len(buffer):
            raise ValueError(
                f"a tree of {self.counts} chunks takes {base} bytes, not {len(buffer)}"
            )

    @classmethod
    def from_levels(cls, levels: Sequence[NDArray[Any]]) -> "Tree":
        """Packs arrays of CHUNK, level 0 first."""
        counts = [len(level) for level in levels]
        header = struct.pack(f"<{1 + len(counts)}I", len(counts), *counts)
        return cls(b"".join([header, *(level.tobytes() for level in levels)]))

    @property
    def top_level(self) -> int:
        return len(self.counts) - 1

    @property
    def size_bytes(self) -> int:
        """Of the buffer."""
        return len(self._buffer)

    def to_bytes(self) -> bytes:
        """The buffer itself; the same tree gives the same bytes everywhere."""
        return bytes(self._buffer)

    def level_buffer(self, level: int) -> memoryview:
        """The chunks of one level, packed, in place."""
        base = self._bases[level]
        return memoryview(self._buffer)[base : base + self.counts[level] * CHUNK.itemsize]

    def level(self, level: int) -> NDArray[Any]:
        """The chunks of one level as `CHUNK[counts[level]]`, read-only, in place."""
        count, base = self.counts[level], self._bases[level]
        return np.frombuffer(self._buffer, CHUNK, count, base)

    def record(self, level: int, index: int) -> ChunkRecord:
        """One chunk; both numbers must be in range."""
        offset = self._bases[level] + index * CHUNK.itemsize
        return ChunkRecord._make(_RECORD.unpack_from(self._buffer, offset))

    def ancestors(self, leaf_level: int) -> NDArray[np.uint32]:
        """Each leaf's ancestor: `uint32[levels from leaf_level up, leaves]`.

        Row 0 is the leaf itself, row 1 its parent's index, and so on.
        """
        rows = np.empty((len(self.counts) - leaf_level, self.counts[leaf_level]), np.uint32)
        # One look at all levels, which lie one behind the other: most trees are small, and
        # a search may wait for many of them.
        parents = np.frombuffer(self._buffer, CHUNK, sum(self.counts), self._bases[0])["parent"]
        rows[0] = current = np.arange(self.counts[leaf_level])
        base = sum(self.counts[:leaf_level])
        for up, level in enumerate(range(leaf_level, self.top_level), start=1):
            rows[up] = current = parents[base + current]
            base += self.counts[level]
        return rows

    def problems(self, sizes: Sequence[int]) -> list[str]:
        """What breaks the promises of a tree; empty when it keeps them all.

        Levels are in order, cover the same tokens without a gap, hold their size; every
        chunk lies in exactly one parent, and children are consecutive.
        """
        found = []
        if len(self.counts) != len(sizes):
            return [f"{len(self.counts)} levels, settings say {len(sizes)}"]
        for level, size in enumerate(sizes):
            found += [f"level {level}: {problem}" for problem in self._level_problems(level, size)]
        for level in range(self.top_level):
            found += [f"level {level}: {problem}" for problem in self._link_problems(level)]
        if (self.level(self.top_level)["parent"] != NONE).any():
            found.append(f"level {self.top_level}: a chunk at the top has a parent")
        return found

    def _level_problems(self, level: int, size: int) -> list[str]:
        chunks = self.level(level)
        if not len(chunks):
            return ["no chunks"]
        starts = chunks["token_start"].astype(np.int64)
        ends = starts + chunks["token_count"]
        last = self.record(self.top_level, self.counts[-1] - 1)
        tests = {
            "a chunk is empty": chunks["token_count"].min() == 0,
            f"a chunk has over {size} tokens": chunks["token_count"].max() > size,
            "does not begin at the first token": starts[0] != 0,
            "does not end at the last token": ends[-1] != last.token_start + last.token_count,
            "chunks are out of order": (np.diff(starts) <= 0).any() or (np.diff(ends) <= 0).any(),
            "tokens between chunks are lost": (starts[1:] > ends[:-1]).any(),
            **_span_tests(chunks["byte_start"], chunks["byte_end"], "byte"),
            **_span_tests(chunks["char_start"], chunks["char_end"], "character"),
        }
        return [problem for problem, broken in tests.items() if broken]

    def _link_problems(self, level: int) -> list[str]:
        children, parents = self.level(level), self.level(level + 1)
        counts = parents["child_count"].astype(np.int64)
        if counts.sum() != len(children) or (counts == 0).any():
            return ["children and parents do not add up"]
        expected = np.repeat(np.arange(len(parents)), counts)
        if (children["parent"] != expected).any():
            return ["children of a chunk are not consecutive"]
        above = parents[expected]
        tests = {
            "first_child is wrong": (
                parents["first_child"] != np.concatenate(([0], np.cumsum(counts)[:-1]))
            ).any(),
            "a chunk leaves its parent's span": (
                (children["byte_start"] < above["byte_start"])
                | (children["byte_end"] > above["byte_end"])
                | (children["char_start"] < above["char_start"])
                | (children["char_end"] > above["char_end"])
            ).any(),
        }
        return [problem for problem, broken in tests.items() if broken]


def _span_tests(starts: NDArray[Any], ends: NDArray[Any], unit: str) -> dict[str, bool]:
    """What may be wrong with one level's spans, and whether it is."""
    return {
        f"{unit} spans are empty": bool((starts >= ends).any()),
        f"{unit} spans leave gaps": bool(starts[0] != 0 or (starts[1:] > ends[:-1]).any()),
    }
