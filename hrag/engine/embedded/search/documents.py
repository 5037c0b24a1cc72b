"""A stored document within a transaction: its chunks, sentences and citations on demand."""

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hrag import tokens
from hrag.engine import Describe
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import required, slot_of
from hrag.engine.embedded.store.records import DocumentRecord
from hrag.passages.sentence_context import Sentence, SentenceContext
from hrag.sentences import MAX_SENTENCE_CHARS, fitting, sentence_ends
from hrag.tree import NONE, ChunkRecord, Tree, section_parents
from hrag.types import ChosenSection, Chunk, ChunkNode, MatchedChild, PageStart, Span
from hrag_fast import CitedDocument, PassageEncoder

_CITATION_BYTES = 32 << 20  # Some 10,000 documents; reading one again takes 15 us.
_OWN_BYTES = 1_500  # Of a citation in memory, and a multiple of its head on disk.
_TO_HEAD = 6
_LONGEST_CHARACTER = 4  # Bytes of UTF-8.


@dataclass(frozen=True, slots=True)
class Citation:
    """A document's head and slot, and what citations are looked up in."""

    head: DocumentRecord
    slot: bytes
    section_parents: tuple[int, ...]
    page_starts: tuple[int, ...]
    size_bytes: int  # In memory, about.
    _cited: dict[Describe, CitedDocument] = field(default_factory=dict)

    @classmethod
    def of(cls, packed_head: memoryview, slot: bytes) -> "Citation":
        head = DocumentRecord.from_bytes(packed_head)
        starts = tuple(page.char_start for page in head.pages)
        size_bytes = _OWN_BYTES + _TO_HEAD * len(packed_head)
        return cls(head, slot, section_parents(head.sections), starts, size_bytes)

    def cited(self, describe: Describe) -> CitedDocument:
        """What passages cite of the document, made once."""
        found = self._cited.get(describe)
        if found is None:
            head = self.head
            found = CitedDocument(
                describe(head.document_id, head.title, head.source, head.metadata),
                head.document_id.encode(),
                self.section_path,
                (page.number for page in head.pages),
                self.page_starts,
            )
            self._cited[describe] = found
        return found

    def section_path(self, section: int) -> tuple[str, ...]:
        titles = []
        while section != NONE:
            titles.append(self.head.sections[section].title)
            section = self.section_parents[section]
        return tuple(reversed(titles))

    def pages(self, char_start: int, char_end: int) -> tuple[int, int]:
        """Numbers of the first and last page that a span touches; 0 without pages."""
        if not self.page_starts:
            return 0, 0
        first = bisect.bisect_right(self.page_starts, char_start) - 1
        last = bisect.bisect_left(self.page_starts, char_end) - 1
        return self.head.pages[max(first, 0)].number, self.head.pages[max(last, 0)].number

    def page_starts_in(self, char_start: int, char_end: int) -> tuple[PageStart, ...]:
        """Where pages after the first that a span touches begin."""
        if not self.page_starts:
            return ()
        first = bisect.bisect_right(self.page_starts, char_start)
        last = bisect.bisect_left(self.page_starts, char_end)
        return tuple(
            PageStart(page.number, page.char_start) for page in self.head.pages[first:last]
        )


class CitationCache:
    """Citations by ordinal. An ordinal never changes its meaning, so none is ever stale.

    What is asked for is in `_young`; once that is half of what is allowed, these are the
    old ones, and those of before go. So what was asked for lately stays, and that takes no
    lock: threads that do the same at once read twice or forget too early, no more.
    """

    def __init__(self, most_bytes: int = _CITATION_BYTES) -> None:
        self._half_bytes = most_bytes // 2
        self._young: dict[int, Citation] = {}
        self._young_bytes = 0
        self._old: dict[int, Citation] = {}

    def get(self, ordinal: int, read: Callable[[], Citation]) -> Citation:
        found = self._young.get(ordinal)
        if found is None:
            found = self._old.get(ordinal) or read()
            if self._young_bytes + found.size_bytes > self._half_bytes:
                self._old, self._young, self._young_bytes = self._young, {}, 0
            self._young[ordinal] = found
            self._young_bytes += found.size_bytes
        return found


class StoredDocument:
    """Its text and tree are read only as far as they are asked for."""

    __slots__ = ("_citation", "_packed", "_text", "_tree")

    def __init__(self, citation: Citation, packed: memoryview, text: memoryview) -> None:
        """`packed` is its tree."""
        self._citation = citation
        self._packed = packed
        self._text = text
        self._tree: Tree | None = None

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            self._tree = Tree(self._packed)
        return self._tree

    def name(self, level: int, index: int) -> str:
        return f"{self._citation.head.document_id}#{level}.{index}"

    def text(self, level: int, index: int) -> str:
        """A chunk's content."""
        record = self.tree.record(level, index)
        return str(self._text[record.byte_start : record.byte_end], "utf-8")

    def section(self, level: int, leaves: range, summary: str, score: float) -> ChosenSection:
        """Some of the leaves, which are of `level`, as a section."""
        first = self.tree.record(level, leaves[0])
        last = self.tree.record(level, leaves[-1])
        span = Span(first.byte_start, last.byte_end, first.char_start, last.char_end)
        first_page, last_page = self._citation.pages(span.char_start, span.char_end)
        return ChosenSection(
            document_id=self._citation.head.document_id,
            title=self._citation.head.title,
            summary=summary,
            score=score,
            span=span,
            section_path=self._citation.section_path(first.section),
            first_page=first_page,
            last_page=last_page,
        )

    def chunk(self, level: int, index: int, record: ChunkRecord, *, content: bool) -> Chunk:
        head = self._citation.head
        first_page, last_page = self._citation.pages(record.char_start, record.char_end)
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
            page_starts=self._citation.page_starts_in(record.char_start, record.char_end),
        )

    def encoded(
        self,
        encoder: PassageEncoder,
        describe: Describe,
        place: tuple[int, int],
        group: int,
        record: ChunkRecord | None = None,
        merged: Sequence[tuple[int, int]] = (),
    ) -> bytes:
        """A group's chunk as a passage, or in its place a `record` of another span."""
        cited = self._citation.cited(describe)
        return encoder.passage(cited, self._packed, self._text, *place, group, record, merged)

    def cut(self, record: ChunkRecord, keep: ChunkRecord, token_budget: int) -> ChunkRecord | None:
        """As many whole sentences of a chunk as fit, that in which `keep` begins among them."""
        text = str(self._text[record.byte_start : record.byte_end], "utf-8")
        spans = list(pairwise([0, *sentence_ends(text)]))
        sizes = [len(tokens.encode(text[start:end])) for start, end in spans]
        wanted = max(keep.char_start - record.char_start, 0)
        number = next(number for number, (_, end) in enumerate(spans) if end > wanted)
        kept = fitting(sizes, number, token_budget)
        if kept is None:
            return None
        start, end = spans[kept[0]][0], spans[kept[-1]][1]
        byte_start = record.byte_start + len(text[:start].encode())
        return record._replace(
            byte_start=byte_start,
            byte_end=byte_start + len(text[start:end].encode()),
            char_start=record.char_start + start,
            char_end=record.char_start + end,
            token_count=len(tokens.encode(text[start:end])),
        )

    def stretch(self, level: int, index: int, score: float, margin: int) -> SentenceContext:
        """A chunk with the sentences it touches and `margin` more on either side."""
        record = self.tree.record(level, index)
        before, inside, behind = self._around(record, (margin + 1) * MAX_SENTENCE_CHARS)
        text = before + inside + behind
        start, end = len(before), len(before) + len(inside)
        spans = list(pairwise([0, *sentence_ends(text)]))
        touched = [n for n, (first, last) in enumerate(spans) if first < end and start < last]
        chosen = range(max(touched[0] - margin, 0), min(touched[-1] + margin + 1, len(spans)))
        char = record.char_start - start
        byte = record.byte_start - len(before.encode()) + len(text[: spans[chosen[0]][0]].encode())
        sentences = []
        for first, last in spans[chosen.start : chosen.stop]:
            content = text[first:last]
            span = Span(byte, byte + len(content.encode()), char + first, char + last)
            pages = self._citation.pages(span.char_start, span.char_end)
            starts = self._citation.page_starts_in(span.char_start, span.char_end)
            sentences.append(Sentence(content, span, *pages, starts))
            byte = span.byte_end
        own = range(touched[0] - chosen.start, touched[-1] - chosen.start + 1)
        chunk = self.chunk(level, index, record, content=False)
        return SentenceContext(chunk, score, tuple(sentences), own)

    def _around(self, record: ChunkRecord, chars: int) -> tuple[str, str, str]:
        """A chunk's text, and as many characters before and behind it as there are."""
        reach = chars * _LONGEST_CHARACTER
        before = self._text[max(record.byte_start - reach, 0) : record.byte_start]
        inside = self._text[record.byte_start : record.byte_end]
        behind = self._text[record.byte_end : record.byte_end + reach]
        # The outer ends may lie inside a character.
        return (
            str(before, "utf-8", "ignore")[-chars:],
            str(inside, "utf-8"),
            str(behind, "utf-8", "ignore")[:chars],
        )

    def matched(
        self, level: int, leaf: int, score: float, inside: ChunkRecord
    ) -> MatchedChild | None:
        """The leaf as far as it lies inside, or None."""
        record = self.tree.record(level, leaf)
        if record.char_end <= inside.char_start or inside.char_end <= record.char_start:
            return None
        span = Span(
            max(record.byte_start, inside.byte_start),
            min(record.byte_end, inside.byte_end),
            max(record.char_start, inside.char_start),
            min(record.char_end, inside.char_end),
        )
        return MatchedChild(self.name(level, leaf), score, span)

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


class StoredDocuments:
    """Those that live in a transaction."""

    def __init__(self, store: Store, txn: Txn, citations: CitationCache) -> None:
        self._store = store
        self._txn = txn
        self._citations = citations
        self._found: dict[int, StoredDocument] = {}

    def get(self, collection: int, ordinal: int) -> StoredDocument:
        """The same one for the same ordinal: often several passages are of one document."""
        found = self._found.get(ordinal)
        if found is None:
            found = self._found[ordinal] = self._stored(collection, ordinal)
        return found

    def _stored(self, collection: int, ordinal: int) -> StoredDocument:
        def read() -> Citation:
            slot = slot_of(self._store, self._txn, collection, ordinal)
            return Citation.of(self._read(slot, "documents"), slot)

        citation = self._citations.get(ordinal, read)
        return StoredDocument(
            citation, self._read(citation.slot, "trees"), self._read(citation.slot, "texts")
        )

    def tree(self, collection: int, ordinal: int) -> Tree:
        """A document's tree alone."""
        slot = slot_of(self._store, self._txn, collection, ordinal)
        return Tree(self._read(slot, "trees"))

    def _read(self, slot: bytes, database: str) -> memoryview:
        return required(self._txn.get(slot, db=self._store.db[database]))


def _children(record: ChunkRecord) -> range:
    return range(record.first_child, record.first_child + record.child_count)


def _span(record: ChunkRecord) -> Span:
    return Span(record.byte_start, record.byte_end, record.char_start, record.char_end)
