"""The chunk tree of a document as one byte string: its layout, encoding and access.

A tree is one array of little-endian structs of fixed size, with the chunks of level 0 first. A
header before the array contains the number of levels and the number of chunks at each level. So a
tree can be stored as it is, read in place and compared as bytes. A chunk is a span of its
document's text. The tree does not contain this text, but only the offsets of the spans. When a
chunk is read, its text is cut out of the document's text. `Tree.problems` checks the invariants of
a tree. `indexer_svc.chunker` builds trees from text.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hrag.values.read_report import PageUnit

NONE = 0xFFFF_FFFF  # The value of `parent` or `section` if a chunk has no parent or no section.

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
    """A chunk of a tree as Python integers, with the same fields as the numpy dtype CHUNK.

    `parent` is an index into the level above, or NONE at the top level. `first_child` is an index
    into the level below. `section` is an index into the document's sections, or NONE.
    """

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

    @property
    def token_end(self) -> int:
        """The end of the chunk in tokens, counted from the start of the document."""
        return self.token_start + self.token_count

    def within(self, other: "ChunkRecord") -> "ChunkRecord | None":
        """Returns the part of this chunk that lies in the span of `other`; None if no part does."""
        if self.char_end <= other.char_start or other.char_end <= self.char_start:
            return None
        if other.char_start <= self.char_start and self.char_end <= other.char_end:
            return self
        token_start = max(self.token_start, other.token_start)
        return self._replace(
            byte_start=max(self.byte_start, other.byte_start),
            byte_end=min(self.byte_end, other.byte_end),
            char_start=max(self.char_start, other.char_start),
            char_end=min(self.char_end, other.char_end),
            token_start=token_start,
            token_count=min(self.token_end, other.token_end) - token_start,
        )


def covering(records: Sequence[ChunkRecord]) -> ChunkRecord:
    """Returns the first record, with its span extended to cover the spans of all records."""
    token_start = min(record.token_start for record in records)
    return records[0]._replace(
        byte_start=min(record.byte_start for record in records),
        byte_end=max(record.byte_end for record in records),
        char_start=min(record.char_start for record in records),
        char_end=max(record.char_end for record in records),
        token_start=token_start,
        token_count=max(record.token_end for record in records) - token_start,
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a document. It begins at its heading.

    It ends before the next section whose `depth` is the same or smaller, or at the end of the
    document. Outermost sections have a `depth` of 1.
    """

    title: str
    depth: int
    char_start: int


class PageSpan(NamedTuple):
    """The span of a page in the document's text, in characters.

    `is_recognised` is True if the text was recognised in a picture of the page. A document may have
    100,000 pages, and tuples are created faster than objects of a dataclass.
    """

    number: int
    char_start: int
    char_end: int
    is_recognised: bool = False


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The text of a document with its sections and pages, both in order of the text.

    `page_unit` says what the numbers of the pages mean.
    """

    text: str
    sections: tuple[Section, ...] = ()
    pages: tuple[PageSpan, ...] = ()
    page_unit: PageUnit = PageUnit.PAGE


def section_parents(sections: Sequence[Section]) -> tuple[int, ...]:
    """Returns, for each section, the index of the innermost section that contains it, or NONE."""
    parents: list[int] = []
    open_sections: list[int] = []
    for index, section in enumerate(sections):
        while open_sections and sections[open_sections[-1]].depth >= section.depth:
            open_sections.pop()
        parents.append(open_sections[-1] if open_sections else NONE)
        open_sections.append(index)
    return tuple(parents)


def section_path(
    sections: Sequence[Section], parents: Sequence[int], section: int
) -> tuple[str, ...]:
    """Returns the titles from the outermost section down to a section.

    `section` is an index into `sections`; for NONE, the result is (). `parents` is
    `section_parents(sections)`. It is a parameter because computing it takes linear time.
    """
    titles = []
    while section != NONE:
        titles.append(sections[section].title)
        section = parents[section]
    return tuple(reversed(titles))


def path_below(
    title: str, sections: Sequence[Section], parents: Sequence[int], section: int
) -> tuple[str, ...]:
    """Returns the titles from the outermost section down to a section, like `section_path`.

    `title` is the document's title. If the title of the outermost section is the same, it is left
    out.
    """
    path = section_path(sections, parents, section)
    return path[1:] if path[:1] == (title,) else path


class Tree:
    """The chunks of a document at every level, in one buffer. Immutable.

    `counts[l]` is the number of chunks at level l. If the buffer is memory of a read transaction,
    the tree must not be used after the transaction ends.
    """

    __slots__ = ("_bases", "_buffer", "counts")

    def __init__(self, buffer: bytes | memoryview) -> None:
        """Reads an encoded tree. Raises ValueError if its length does not match its header."""
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
        """Returns the tree with these levels. Each level is an array of CHUNK; level 0 is first."""
        counts = [len(level) for level in levels]
        header = struct.pack(f"<{1 + len(counts)}I", len(counts), *counts)
        return cls(b"".join([header, *(level.tobytes() for level in levels)]))

    @property
    def top_level(self) -> int:
        """The highest level, which has the largest chunks."""
        return len(self.counts) - 1

    @property
    def size_bytes(self) -> int:
        """The size of the encoded tree, in bytes."""
        return len(self._buffer)

    def to_bytes(self) -> bytes:
        """Returns the encoded tree; equal trees have equal bytes on every machine."""
        return bytes(self._buffer)

    def level(self, level: int) -> NDArray[Any]:
        """Returns the chunks of one level, `CHUNK[counts[level]]`, read-only, without copying."""
        count, base = self.counts[level], self._bases[level]
        return np.frombuffer(self._buffer, CHUNK, count, base)

    def record(self, level: int, index: int) -> ChunkRecord:
        """Returns one chunk. Does not check that `level` and `index` are in range."""
        offset = self._bases[level] + index * CHUNK.itemsize
        return ChunkRecord._make(_RECORD.unpack_from(self._buffer, offset))

    def descendants(self, position: tuple[int, int], level: int) -> range:
        """Returns the indexes of the chunks at `level` that are below a chunk.

        `position` is the level and the index of this chunk. If the chunk is itself at `level`, the
        range contains only the index of the chunk.
        """
        start_level, index = position
        first, last = index, index
        for upper in range(start_level, level, -1):
            last_record = self.record(upper, last)
            first = self.record(upper, first).first_child
            last = last_record.first_child + last_record.child_count - 1
        return range(first, last + 1)

    def ancestors(self, leaf_level: int) -> NDArray[np.uint32]:
        """Returns the index of each leaf's ancestor at each level from `leaf_level` upwards.

        The result is `uint32[top_level - leaf_level + 1, counts[leaf_level]]`. Row 0 has the
        indexes of the leaves, row 1 those of their parents, and so on.
        """
        rows = np.empty((len(self.counts) - leaf_level, self.counts[leaf_level]), np.uint32)
        # The levels are contiguous in the buffer, so one numpy array covers all of them. One array
        # for each level would be slower: most trees are small, so the fixed cost of a numpy
        # call dominates, and a search may need many trees.
        parents = np.frombuffer(self._buffer, CHUNK, sum(self.counts), self._bases[0])["parent"]
        rows[0] = current = np.arange(self.counts[leaf_level])
        base = sum(self.counts[:leaf_level])
        for row, level in enumerate(range(leaf_level, self.top_level), start=1):
            rows[row] = current = parents[base + current]
            base += self.counts[level]
        return rows

    def problems(self, sizes: Sequence[int]) -> list[str]:
        """Returns a message for each violated invariant; the list is empty if the tree is valid.

        `sizes` has the maximum count of tokens in a chunk of each level. These are the invariants:

        * The chunks of each level are in order of the text.
        * No chunk has more tokens than `sizes` allows for its level.
        * All levels cover the same tokens, without a gap.
        * Every chunk below the top level lies inside exactly one parent.
        * The children of a chunk are consecutive.
        """
        problems = []
        if len(self.counts) != len(sizes):
            return [f"the tree has {len(self.counts)} levels; the settings have {len(sizes)}"]
        for level, size in enumerate(sizes):
            problems += [
                f"level {level}: {problem}" for problem in self._level_problems(level, size)
            ]
        for level in range(self.top_level):
            problems += [f"level {level}: {problem}" for problem in self._link_problems(level)]
        if (self.level(self.top_level)["parent"] != NONE).any():
            problems.append(f"level {self.top_level}: a chunk at the top has a parent")
        return problems

    def _level_problems(self, level: int, size: int) -> list[str]:
        """Returns a message for each invariant that the chunks of one level violate."""
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
        """Returns a message for each violated invariant of the links between chunks and parents.

        Checks the links between the chunks of `level` and their parents in the next level up.
        """
        children, parents = self.level(level), self.level(level + 1)
        counts = parents["child_count"].astype(np.int64)
        if counts.sum() != len(children) or (counts == 0).any():
            return ["children do not match the parents' child counts"]
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
    """Checks the spans of one level for defects.

    Returns a dictionary. Each key is a message about a defect, and the value is True if the level
    has this defect. `unit` is the unit of `starts` and `ends`, for the messages.
    """
    return {
        f"{unit} spans are empty": bool((starts >= ends).any()),
        f"{unit} spans leave gaps": bool(starts[0] != 0 or (starts[1:] > ends[:-1]).any()),
    }
