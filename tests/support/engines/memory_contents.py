"""What a MemoryEngine stores: the versions of documents, with their leaves and summaries.

All values are immutable, and they compute what a search needs of them when it is first used.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hrag import errors, types
from hrag.engine import CollectionHandle, DocumentSummaries
from hrag.engine.engine_documents import StoredDocument, info_bytes, read_part
from hrag.passages import outline
from hrag.passages.indexed_text import (
    MAX_HEADING_CHARS,
    IndexedLeaf,
    IndexedName,
    indexed_leaves,
    indexed_name,
)
from hrag.passages.tree_text import TreeText
from hrag.text.analysis import analyzer
from hrag.types import IngestOutcome, SummaryUnit
from hrag.values.reply_limit import field_bytes


@dataclass(frozen=True, eq=False)
class Leaf:
    """An item that a search scores: a leaf or a summary of a document, with its terms.

    `index` is its index among the leaves or among the summaries. Items of equal scores are returned
    in the order of `order`.
    """

    version: "Version"
    index: int
    order: tuple[int, int]
    vector: Any
    text: IndexedLeaf
    terms: Counter[int]
    length: int

    @property
    def summary(self) -> Any:
        return self.version.stored.summaries.summaries[self.index]


@dataclass(frozen=True, eq=False)
class Version:
    """One version of a document.

    A version with a new text has a larger `number` than all earlier versions. A change of metadata
    or summaries keeps the number.

    `sizes` has what this document adds to each sum of `sums`, in the same order.
    """

    number: int
    settings: types.CollectionSettings
    stored: StoredDocument
    info: types.DocumentInfo
    text: TreeText
    sizes: tuple[int, ...]
    unchanged: types.IngestResult

    @classmethod
    def of(cls, number: int, sequence: int, settings: Any, stored: StoredDocument) -> "Version":
        document, tree, parsed = stored.document, stored.document.tree, stored.document.parsed
        text, vectors = parsed.text.encode(), document.vectors
        summaries = stored.summaries.summaries if stored.summaries else ()
        tokens = sum(tree.record(tree.top_level, tree.counts[-1] - 1)[4:6])
        named = (document.document_id, document.title, document.source)
        described = (parsed.sections, parsed.pages, parsed.page_unit)
        about = outline.Outline.of(*named, document.metadata, *described)
        described = (*named, document.mime_type, document.metadata, tree.counts, tokens, len(text))
        counts = (len(parsed.pages), len(parsed.sections), sequence)
        recognised = sum(page.is_recognised for page in parsed.pages)
        original_bytes = len(document.original or b"")
        info = types.DocumentInfo(*described, *counts, parsed.page_unit, recognised, original_bytes)
        stored_bytes = len(text) + vectors.nbytes + len(repr((described, summaries)))
        stored_bytes += original_bytes
        sizes = (1, sum(tree.counts), len(vectors), tokens, len(text), vectors.nbytes)
        sizes += (len(summaries), stored_bytes)
        result = (document.document_id, IngestOutcome.UNCHANGED, sequence, tree.counts, tokens)
        unchanged = types.IngestResult(*result)
        return cls(number, settings, stored, info, TreeText(about, tree, text), sizes, unchanged)

    @cached_property
    def leaves(self) -> list[Leaf]:
        document, level = self.stored.document, self.settings.tree.embedding_level
        parsed, headings = document.parsed, self.settings.index_headings
        about = (parsed.text, document.title, parsed.sections, document.tree, level)
        leaves = indexed_leaves(*about, headings=headings, name=self._name)
        return self._leaves(document.vectors, leaves)

    @cached_property
    def summaries(self) -> list[Leaf]:
        """The summary of the whole document, and then those of its sections."""
        title = self.stored.document.title if self.settings.index_headings else ""
        heading = f"{title[:MAX_HEADING_CHARS]}\n" if title else ""
        document_summaries = self.stored.summaries or DocumentSummaries((), ())
        texts = [
            IndexedLeaf(heading, summary.text.strip(), self._name)
            for summary in document_summaries.summaries
        ]
        return self._leaves(document_summaries.vectors, texts)

    @property
    def _name(self) -> IndexedName:
        document = self.stored.document
        source = document.source if document.indexed_source is None else document.indexed_source
        return indexed_name(self.settings, document.title, source, document.document_id)

    def _leaves(self, vectors: Any, texts: Sequence[IndexedLeaf]) -> list[Leaf]:
        name = self.settings.analyzer
        lexical = [text.lexical if name else "" for text in texts]
        analysis = analyzer(name or "simple/1")
        counts = (Counter(analysis.terms(text).tolist()) for text in lexical)
        lengths = analysis.leaf_terms(lexical).lengths.tolist()
        numbered = enumerate(zip(vectors, texts, counts, lengths, strict=True))
        return [Leaf(self, n, (self.number, n), *arguments) for n, arguments in numbered]


@dataclass(frozen=True)
class Contents:
    """The contents of a collection between two changes; documents are in order of commits."""

    handle: CollectionHandle
    sequence: int = 0
    versions: Mapping[str, Version] = field(default_factory=dict)
    summary_tokens: int = 0

    @property
    def collection(self) -> types.Collection:
        handle = self.handle
        return types.Collection(handle.tenant_id, handle.name, handle.settings, len(self.versions))

    @property
    def unsummarised(self) -> dict[int, Version]:
        waiting = (
            version for version in self.versions.values() if version.stored.summaries is None
        )
        wants = self.handle.settings.summaries is not SummaryUnit.NONE
        return {version.number: version for version in waiting} if wants else {}

    def version(self, document_id: str, field: str = "document_id") -> Version:
        if document_id not in self.versions:
            problem = f"collection {self.handle.name!r} has no document {document_id!r}"
            raise errors.DocumentNotFound(problem, field=field)
        return self.versions[document_id]


def sums(contents: Iterable[Contents]) -> tuple[int, ...]:
    """Returns eight sums over the documents of the collections.

    They are the counts of documents, chunks, leaves and tokens, the bytes of texts and of vectors,
    the count of summaries, and the stored bytes.
    """
    sizes = [version.sizes for collection in contents for version in collection.versions.values()]
    return tuple(map(sum, zip((0,) * 8, *sizes, strict=True)))


def with_text(version, part, reply):
    remaining = reply.after(field_bytes(info_bytes(version.info)))
    return version.info, *read_part(version.stored.document.parsed.text.encode(), part, remaining)
