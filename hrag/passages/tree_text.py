"""A document's tree together with its text: creates chunks, citations and hierarchies.

An engine only reads the tree, the text and the outline (fields, sections and pages) of a document.
All values that describe the document's chunks are created here, so every engine describes a chunk
in the same way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

from hrag.passages.outline import Outline
from hrag.values.chunks import Chunk, ChunkNode, Hierarchy, Span
from hrag.values.ids import ChunkId
from hrag.values.reply_limit import (
    CHUNK_ADVICE,
    HIERARCHY_ADVICE,
    UNLIMITED,
    ReplyLimit,
    field_bytes,
)
from hrag.values.search import ChosenSection, MatchedChild, MatchedSentence
from hrag.values.tree import NONE, ChunkRecord, Tree

# A chunk id is the document's id, followed by at least this many bytes (level and index).
_MIN_SUFFIX_BYTES = len("#0.0")

TreePosition = tuple[int, int]
"""A chunk's level and index in its tree."""


class LeafMatch(NamedTuple):
    """The index of a matched leaf, with its scores.

    `score` is the score by which the search orders the leaves. `lexical` is the leaf's score in the
    lexical search, and `dense` is its score in the vector search. `lexical` is None if there was no
    lexical search, and `dense` is None if there was no vector search.
    """

    leaf: int
    score: float
    lexical: float | None = None
    dense: float | None = None


@dataclass(frozen=True, slots=True)
class TreeText:
    """The tree, the text and the outline of one document.

    `text` is UTF-8; only the requested parts are decoded. If `check` is given, it is called before
    a part of the text is read, with the start and the end of this part in bytes. `check` raises an
    error if the part is damaged.

    Tree and text may be memory that a read transaction owns. Then this object must not outlive the
    transaction. The values that it creates are copies.
    """

    outline: Outline
    tree: Tree
    text: bytes | memoryview
    check: Callable[[int, int], None] | None = None

    def part(self, start: int, end: int) -> bytes | memoryview:
        """Returns the bytes of the text from `start` to `end`, after `self.check` checked them."""
        if self.check is not None:
            self.check(start, end)
        return self.text[start:end]

    def chunk_id(self, position: TreePosition) -> str:
        """Returns the id of the chunk at a position: `<document_id>#<level>.<index>`."""
        return str(ChunkId(self.outline.document_id, *position))

    def content(self, record: ChunkRecord) -> str:
        """Returns the part of the document's text that `record` spans."""
        return str(self.part(record.byte_start, record.byte_end), "utf-8")

    def chunk(
        self, position: TreePosition, record: ChunkRecord | None = None, *, content: bool = True
    ) -> Chunk:
        """Returns the chunk at a position in the tree.

        If `record` is given, the chunk has the span of `record` instead of its span in the tree.
        Without `content`, the field `content` is empty.
        """
        record = record or self.tree.record(*position)
        outline = self.outline
        level, index = position
        first_page, last_page = outline.page_range(record.char_start, record.char_end)
        return Chunk(
            chunk_id=self.chunk_id(position),
            document_id=outline.document_id,
            level=level,
            index=index,
            content=self.content(record) if content else "",
            token_count=record.token_count,
            span=span_of(record),
            section_path=outline.section_path(record.section),
            first_page=first_page,
            last_page=last_page,
            title=outline.title,
            source=outline.source,
            metadata=outline.metadata,
            page_starts=outline.page_starts_in(record.char_start, record.char_end),
            page_unit=outline.page_unit,
            recognised_pages=outline.recognised_pages_in(record.char_start, record.char_end),
        )

    def matched_child(
        self, position: TreePosition, match: LeafMatch, passage: ChunkRecord
    ) -> MatchedChild | None:
        """Returns the part of a leaf inside a passage's span; None if no part is inside."""
        part = self.tree.record(*position).within(passage)
        if part is None:
            return None
        chunk_id = self.chunk_id(position)
        return MatchedChild(chunk_id, match.score, span_of(part), match.lexical, match.dense)

    def cited_sentence(
        self, byte_start: int, byte_end: int, char_start: int, char_end: int
    ) -> MatchedSentence:
        """Returns the sentence to cite, between these offsets, with its section and pages."""
        span = Span(byte_start, byte_end, char_start, char_end)
        path = self.outline.section_path(self.outline.section_at(char_start))
        recognised_pages = self.outline.recognised_pages_in(char_start, char_end)
        return MatchedSentence(
            span, path, *self.outline.page_range(char_start, char_end), recognised_pages
        )

    def chosen_section(
        self, leaf_level: int, leaves: range, summary: str, score: float
    ) -> ChosenSection:
        """Returns a section that two-stage routing has chosen.

        `leaves` are the indexes of the section's leaves, `summary` is the text of the summary, and
        `score` is its score.
        """
        first = self.tree.record(leaf_level, leaves[0])
        last = self.tree.record(leaf_level, leaves[-1])
        span = Span(first.byte_start, last.byte_end, first.char_start, last.char_end)
        first_page, last_page = self.outline.page_range(span.char_start, span.char_end)
        return ChosenSection(
            document_id=self.outline.document_id,
            title=self.outline.title,
            summary=summary,
            score=score,
            span=span,
            section_path=self.outline.section_path(first.section),
            first_page=first_page,
            last_page=last_page,
            page_unit=self.outline.page_unit,
            recognised_pages=self.outline.recognised_pages_in(span.char_start, span.char_end),
        )

    def has_chunk(self, position: TreePosition) -> bool:
        """Returns True if the tree has a chunk at this position, which is a level and an index."""
        level, index = position
        return level < len(self.tree.counts) and index < self.tree.counts[level]

    def node(
        self, position: TreePosition, *, content: bool = True, reply: ReplyLimit = UNLIMITED
    ) -> ChunkNode:
        """Returns a chunk with the ids of its parent and children.

        If the chunk would take more bytes than `reply` allows, raises ReplyTooLarge before the
        chunk is created.
        """
        if reply is not UNLIMITED:
            reply.check(
                self.outline.encoded_bytes + self._node_bytes(position, content), CHUNK_ADVICE
            )
        level, _ = position
        record = self.tree.record(*position)
        parent = "" if record.parent == NONE else self.chunk_id((level + 1, record.parent))
        children = (self.chunk_id((level - 1, child)) for child in _children(record))
        return ChunkNode(self.chunk(position, record, content=content), parent, tuple(children))

    def hierarchy(
        self,
        position: TreePosition,
        depth: int,
        *,
        content: bool,
        reply: ReplyLimit = UNLIMITED,
    ) -> Hierarchy:
        """Returns a chunk with its ancestors, siblings and `depth` levels of descendants.

        The chunk itself always has its text; the other chunks have theirs only with `content`. If
        all chunks together would take more bytes than `reply` allows, raises ReplyTooLarge before
        any chunk is created.
        """
        ancestors = partial(_ancestors, self.tree, position)
        siblings = partial(_siblings, self.tree, position)
        descendants = partial(_descendants, self.tree, position, depth)
        if reply is not UNLIMITED:
            relatives = chain(ancestors(), siblings(), descendants())
            self._check_size(position, relatives, content, reply)

        def nodes(positions: Iterator[TreePosition]) -> tuple[ChunkNode, ...]:
            return tuple(self.node(relative, content=content) for relative in positions)

        return Hierarchy(
            self.node(position), nodes(ancestors()), nodes(siblings()), nodes(descendants())
        )

    def _check_size(
        self,
        position: TreePosition,
        relatives: Iterator[TreePosition],
        content: bool,
        reply: ReplyLimit,
    ) -> None:
        """Raises ReplyTooLarge if a chunk and its relatives take more bytes than `reply` allows."""
        size = self.outline.encoded_bytes + self._node_bytes(position, content=True)
        reply.check(size, CHUNK_ADVICE)
        for relative in relatives:
            size += self._node_bytes(relative, content)
            reply.check(size, HIERARCHY_ADVICE)

    def _node_bytes(self, position: TreePosition, content: bool) -> int:
        """Returns the fewest bytes that the encoded content and ids of a chunk can take.

        The ids are those of its parent and its children.
        """
        record = self.tree.record(*position)
        ids = (1 + record.child_count) * field_bytes(
            len(self.outline.document_id) + _MIN_SUFFIX_BYTES
        )
        return ids + (field_bytes(record.byte_end - record.byte_start) if content else 0)


def span_of(record: ChunkRecord) -> Span:
    """Returns the position of a chunk in its document's text."""
    return Span(record.byte_start, record.byte_end, record.char_start, record.char_end)


def _children(record: ChunkRecord) -> range:
    return range(record.first_child, record.first_child + record.child_count)


def _ancestors(tree: Tree, position: TreePosition) -> Iterator[TreePosition]:
    """Yields the positions of a chunk's ancestors, parent first."""
    level, index = position
    while (index := tree.record(level, index).parent) != NONE:
        level += 1
        yield level, index


def _siblings(tree: Tree, position: TreePosition) -> Iterator[TreePosition]:
    """Yields the positions of the other children of a chunk's parent.

    If the chunk is in the top level, it has no parent. Then yields the positions of the other
    chunks of the top level.
    """
    level, index = position
    parent = tree.record(level, index).parent
    if parent == NONE:
        candidates = range(tree.counts[level])
    else:
        candidates = _children(tree.record(level + 1, parent))
    return ((level, other) for other in candidates if other != index)


def _descendants(tree: Tree, position: TreePosition, depth: int) -> Iterator[TreePosition]:
    """Yields the positions of a chunk's descendants on the `depth` levels below the chunk.

    The highest of these levels comes first; the chunks of a level are in order of the text.
    """
    level, _ = position
    for below in range(level - 1, max(level - depth, 0) - 1, -1):
        yield from ((below, child) for child in tree.descendants(position, below))
