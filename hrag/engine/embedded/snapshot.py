"""One call's look at a collection: search, climb, fetch, walk the tree.

Climbing works on the view's dense arrays alone; only the passages that are returned are
read from LMDB, in the transaction the snapshot holds.
"""

import bisect
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from cachetools import LRUCache

import hrag_fast
from hrag.engine import Groups, Leaves, Vector
from hrag.engine.embedded import keys
from hrag.engine.embedded.lookups import required, slot_of
from hrag.engine.embedded.records import DocumentHead
from hrag.engine.embedded.store import Store, Txn
from hrag.engine.embedded.view import Hits, View
from hrag.errors import ChunkNotFound, DocumentNotFound
from hrag.ids import ChunkId
from hrag.tree import NONE, ChunkRecord, Tree, section_parents
from hrag.types import (
    Aggregation,
    Chunk,
    ChunkNode,
    CollectionSettings,
    Hierarchy,
    MatchedChild,
    Passage,
    Span,
)

_CACHED_CITATIONS = 4096
_LEAF_MASK = keys.MAX_LEAVES - 1

_KERNEL_CODE = {
    Aggregation.MAX: hrag_fast.MAX,
    Aggregation.SUM: hrag_fast.SUM,
    Aggregation.MEAN: hrag_fast.MEAN,
    Aggregation.COUNT: hrag_fast.COUNT,
}


@dataclass(frozen=True, slots=True)
class Citation:
    """A document's head, and what citations are looked up in."""

    head: DocumentHead
    section_parents: tuple[int, ...]
    page_starts: tuple[int, ...]

    @classmethod
    def of(cls, head: DocumentHead) -> "Citation":
        starts = tuple(page.char_start for page in head.pages)
        return cls(head, section_parents(head.sections), starts)

    def section_path(self, section: int) -> tuple[str, ...]:
        titles = []
        while section != NONE:
            titles.append(self.head.sections[section].title)
            section = self.section_parents[section]
        return tuple(reversed(titles))

    def pages(self, record: ChunkRecord) -> tuple[int, int]:
        """Numbers of the first and last page a chunk touches; 0 without pages."""
        if not self.page_starts:
            return 0, 0
        first = bisect.bisect_right(self.page_starts, record.char_start) - 1
        last = bisect.bisect_left(self.page_starts, record.char_end) - 1
        return self.head.pages[max(first, 0)].number, self.head.pages[max(last, 0)].number


@dataclass(frozen=True, slots=True)
class Climbed:
    """What the kernel grouped, and at which level; see `hrag_fast.Groups`."""

    groups: hrag_fast.Groups
    level: int

    def __len__(self) -> int:
        return len(self.groups.keys)


class CitationCache:
    """Citations by ordinal. An ordinal never changes its meaning, so none is ever stale."""

    def __init__(self, entries: int = _CACHED_CITATIONS) -> None:
        self._entries: LRUCache[int, Citation] = LRUCache(entries)
        self._lock = threading.Lock()

    def get(self, ordinal: int, read: Callable[[], memoryview]) -> Citation:
        with self._lock:
            found = self._entries.get(ordinal)
        if found is None:
            found = Citation.of(DocumentHead.from_bytes(read()))
            with self._lock:
                self._entries[ordinal] = found
        return found


class EmbeddedSnapshot:
    """See `hrag.engine.Snapshot`. Lives as long as its transaction."""

    def __init__(
        self, store: Store, txn: Txn, collection: int, view: View, citations: CitationCache
    ) -> None:
        self._store = store
        self._txn = txn
        self._collection = collection
        self._view = view
        self._citations = citations

    @property
    def settings(self) -> CollectionSettings:
        return self._view.settings

    @property
    def sequence(self) -> int:
        return self._store.number(self._txn, keys.SEQUENCE)

    def search(self, query: Vector, count: int) -> Hits:
        hits = self._view.nearest(query, count)
        if hits is None:
            return self._view.all_of(self._store, self._txn, query, count)
        return hits

    def climb(self, leaves: Leaves, level: int, aggregation: Aggregation) -> Climbed:
        view, hits = self._view, cast("Hits", leaves)
        groups = hrag_fast.climb(
            hits.rows,
            hits.scores,
            view.labels,
            view.ancestors[level - view.settings.tree.embedding_level],
            view.alive,
            _KERNEL_CODE[aggregation],
        )
        return Climbed(groups, level)

    def passages(self, groups: Groups, limit: int, token_budget: int) -> tuple[Passage, ...]:
        found: list[Passage] = []
        left = token_budget or sys.maxsize
        climbed = cast("Climbed", groups)
        for place, key in enumerate(climbed.groups.keys.tolist()):
            if len(found) == limit:
                break
            document = self._document(key >> keys.LEAF_BITS)
            record = document.tree.record(climbed.level, key & _LEAF_MASK)
            if record.token_count > left:
                continue
            left -= record.token_count
            found.append(self._passage(document, record, key & _LEAF_MASK, climbed, place))
        return tuple(found)

    def _passage(
        self, document: "_Document", record: ChunkRecord, index: int, climbed: Climbed, place: int
    ) -> Passage:
        groups = climbed.groups
        start, end = groups.starts[place : place + 2].tolist()
        leaves = (self._view.labels[groups.children[start:end]] & np.uint64(_LEAF_MASK)).tolist()
        scores = groups.child_scores[start:end].tolist()
        level = self._view.settings.tree.embedding_level
        return Passage(
            document.chunk(climbed.level, index, record, content=True),
            float(groups.scores[place]),
            tuple(
                document.matched(level, leaf, score)
                for leaf, score in zip(leaves, scores, strict=True)
            ),
        )

    def chunk(self, chunk_id: ChunkId) -> ChunkNode:
        document = self._named(chunk_id)
        return document.node(chunk_id.level, chunk_id.index, content=True)

    def hierarchy(self, chunk_id: ChunkId, depth: int, *, content: bool) -> Hierarchy:
        document = self._named(chunk_id)
        place = (chunk_id.level, chunk_id.index)
        return Hierarchy(
            document.node(*place, content=True),
            tuple(document.node(*above, content=content) for above in document.ancestors(*place)),
            tuple(document.node(*beside, content=content) for beside in document.siblings(*place)),
            tuple(
                document.node(*below, content=content)
                for below in document.descendants(*place, depth)
            ),
        )

    def _named(self, chunk_id: ChunkId) -> "_Document":
        """The chunk's document, having made sure that it holds the chunk."""
        key = keys.document_id(self._collection, chunk_id.document_id)
        ordinal = self._txn.get(key, db=self._store.db["document_ids"])
        if ordinal is None:
            raise DocumentNotFound(
                f"the collection has no document {chunk_id.document_id!r}", field="chunk_id"
            )
        document = self._document(keys.read_u64(ordinal))
        counts = document.tree.counts
        if chunk_id.level >= len(counts) or chunk_id.index >= counts[chunk_id.level]:
            raise ChunkNotFound(
                f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}; "
                f"its levels hold {counts} chunks",
                field="chunk_id",
            )
        return document

    def _document(self, ordinal: int) -> "_Document":
        txn, db = self._txn, self._store.db
        slot = slot_of(self._store, txn, self._collection, ordinal)
        citation = self._citations.get(ordinal, lambda: required(txn.get(slot, db=db["heads"])))
        return _Document(
            citation,
            Tree(required(txn.get(slot, db=db["trees"]))),
            required(txn.get(slot, db=db["texts"])),
        )


class _Document:
    """A stored document within a transaction: its chunks on demand."""

    __slots__ = ("_citation", "_text", "tree")

    def __init__(self, citation: Citation, tree: Tree, text: memoryview) -> None:
        self._citation = citation
        self._text = text
        self.tree = tree

    def name(self, level: int, index: int) -> str:
        return f"{self._citation.head.document_id}#{level}.{index}"

    def chunk(self, level: int, index: int, record: ChunkRecord, *, content: bool) -> Chunk:
        head = self._citation.head
        first_page, last_page = self._citation.pages(record)
        text = str(self._text[record.byte_start : record.byte_end], "utf-8") if content else ""
        return Chunk(
            chunk_id=self.name(level, index),
            document_id=head.document_id,
            level=level,
            index=index,
            content=text,
            token_count=record.token_count,
            span=_span(record),
            section_path=self._citation.section_path(record.section),
            first_page=first_page,
            last_page=last_page,
            title=head.title,
            source=head.source,
            metadata=head.metadata,
        )

    def matched(self, level: int, leaf: int, score: float) -> MatchedChild:
        return MatchedChild(self.name(level, leaf), score, _span(self.tree.record(level, leaf)))

    def node(self, level: int, index: int, *, content: bool) -> ChunkNode:
        record = self.tree.record(level, index)
        parent = "" if record.parent == NONE else self.name(level + 1, record.parent)
        children = (self.name(level - 1, child) for child in _children(record))
        return ChunkNode(self.chunk(level, index, record, content=content), parent, tuple(children))

    def ancestors(self, level: int, index: int) -> Iterator[tuple[int, int]]:
        """From the parent up."""
        while (index := self.tree.record(level, index).parent) != NONE:
            level += 1
            yield level, index

    def siblings(self, level: int, index: int) -> Iterator[tuple[int, int]]:
        """The other children of the parent; at the top, the level's other chunks."""
        parent = self.tree.record(level, index).parent
        if parent == NONE:
            family = range(self.tree.counts[level])
        else:
            family = _children(self.tree.record(level + 1, parent))
        return ((level, other) for other in family if other != index)

    def descendants(self, level: int, index: int, depth: int) -> Iterator[tuple[int, int]]:
        """Level by level; the descendants at one level are consecutive."""
        family = range(index, index + 1)
        for below in range(level - 1, max(level - depth, 0) - 1, -1):
            first = _children(self.tree.record(below + 1, family[0]))
            last = _children(self.tree.record(below + 1, family[-1]))
            family = range(first.start, last.stop)
            yield from ((below, child) for child in family)


def _children(record: ChunkRecord) -> range:
    return range(record.first_child, record.first_child + record.child_count)


def _span(record: ChunkRecord) -> Span:
    return Span(record.byte_start, record.byte_end, record.char_start, record.char_end)
