"""Random summaries without a summariser, and a plain model of the search by summaries."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from hrag.client import Client
from hrag.engine.engine_documents import DocumentSummaries, Summary
from hrag.engine.find import Vector
from hrag.engine.protocols import Writer
from hrag.filters import Filter
from hrag.models.embedding import Vectors
from hrag.types import DEFAULT_COLLECTION, ChosenSection, IndexStatus, SummaryScope
from tests.support.documents.fakes import Leaf, ModelCollection, unit_vectors
from tests.support.until import until

# This is the name of the embedder in the settings that `collection_settings` returns.
EMBEDDER = "fake"

SectionKey = tuple[str, range]
"""What identifies a section: the id of its document, and the range of its leaves."""


@dataclass
class ModelSummaries:
    """The summarised sections of each document of a collection, and the vectors of the summaries.

    Row 0 of a document's vectors is the vector of the whole document's summary. Row n + 1 is the
    vector of the summary of section n.
    """

    model: ModelCollection
    sections: dict[str, list[range]] = field(default_factory=dict)
    vectors: dict[str, Vectors] = field(default_factory=dict)

    def forget(self, document_id: str) -> None:
        self.sections.pop(document_id, None)
        self.vectors.pop(document_id, None)

    def all(self, filter: Filter | None = None) -> list[SectionKey]:
        """Returns every section of the documents that pass the filter."""
        passing = self.model if filter is None else self.model.filtered(filter)
        return [
            (document_id, section)
            for document_id, sections in self.sections.items()
            if document_id in passing.documents
            for section in sections
        ]

    def best(
        self, query: Vector, count: int, scope: SummaryScope, filter: Filter | None = None
    ) -> list[SectionKey]:
        """Returns the `count` best sections, best first. A search returns their leaves.

        With SummaryScope.DOCUMENTS, only sections of the `count` best documents are considered.
        """
        keys = self.all(filter)
        if scope is SummaryScope.DOCUMENTS:
            documents = sorted(
                self._passing(filter),
                key=lambda document_id: -self.document_score(query, document_id),
            )
            keys = [key for key in keys if key[0] in documents[:count]]
        return sorted(keys, key=lambda key: -self.score(query, key))[:count]

    def near_the_best(
        self, query: Vector, scope: SummaryScope, filter: Filter | None = None
    ) -> list[SectionKey]:
        """Returns the sections with at least three quarters of the best score, best first.

        With SummaryScope.DOCUMENTS, these are sections of documents with such a score.
        """
        keys = self.best(query, len(self.all()), SummaryScope.SECTIONS, filter)
        if scope is SummaryScope.DOCUMENTS:
            documents = {name: self.document_score(query, name) for name in self._passing(filter)}
            least = 0.75 * max(documents.values())
            keys = [key for key in keys if documents[key[0]] >= least]
        least = 0.75 * self.score(query, keys[0])
        return [key for key in keys if self.score(query, key) >= least]

    def _passing(self, filter: Filter | None) -> set[str]:
        passing = self.model if filter is None else self.model.filtered(filter)
        return self.vectors.keys() & passing.documents.keys()

    def document_score(self, query: Vector, document_id: str) -> float:
        """Returns the mean of the document's three best leaves, plus a quarter of its summary's."""
        leaves = [
            score for (name, _), score in self.model.scores(query).items() if name == document_id
        ]
        sections = self.sections[document_id]
        few = min(3, sections[-1].stop if sections else 3)
        best = sum(sorted(leaves, reverse=True)[:3]) / few
        return best + 0.25 * float(self.vectors[document_id][0] @ query)

    def score(self, query: Vector, key: SectionKey) -> float:
        """Returns the score of the best leaf, plus shares of those of summary and document."""
        document_id, section = key
        index = self.sections[document_id].index(section)
        summary = float(self.vectors[document_id][index + 1] @ query)
        best = max(self.model.scores(query)[document_id, leaf] for leaf in section)
        return best + 0.1 * summary + 0.25 * self.document_score(query, document_id)

    def leaves(self, query: Vector, keys: list[SectionKey]) -> dict[Leaf, float]:
        """Returns the leaves of sections, with their scores."""
        leaves = {(document_id, leaf) for document_id, section in keys for leaf in section}
        documents = {name: 0.25 * self.document_score(query, name) for name, _ in keys}
        scores = self.model.scores(query)
        return {leaf: scores[leaf] + documents[leaf[0]] for leaf in leaves}


def summarise(
    writer: Writer,
    summaries: ModelSummaries,
    max_documents: int = 1000,
    empty: frozenset[str] = frozenset(),
    embedder: str = EMBEDDER,
) -> int:
    """Stores random summaries of up to `max_documents` waiting documents; returns their count.

    Documents whose ids are in `empty` get no summaries. Sections have one to four leaves, and every
    third section gets no summary.
    """
    done = 0
    while done < max_documents and (document := writer.next_unsummarised(embedder)):
        settings = document.collection.settings
        count = document.tree.counts[settings.tree.embedding_level]
        seed = zlib.crc32(document.parsed.text.encode())
        sections = [] if document.document_id in empty else list(_sections(count, seed))
        texts = [f"Summary {n} of {document.document_id}" for n in range(len(sections) + 1)]
        new_summaries = [Summary(texts[0], range(count))]
        new_summaries += [
            Summary(text, section) for text, section in zip(texts[1:], sections, strict=True)
        ]
        if document.document_id in empty:
            new_summaries = []
        vectors = unit_vectors(len(new_summaries), seed, settings.dimension)
        written = DocumentSummaries(tuple(new_summaries), vectors)
        assert writer.put_summaries(document, written, tokens=7)
        done += 1
        if new_summaries:
            summaries.sections[document.document_id] = sections
            summaries.vectors[document.document_id] = vectors
    return done


def _sections(count: int, seed: int) -> Iterator[range]:
    start, sizes = 0, np.random.default_rng(seed).integers(1, 5, count).tolist()
    for number, size in enumerate(sizes):
        end = min(start + size, count)
        if start < end and (number % 3 or count == 1):
            yield range(start, end)
        start = end


def places_in(sections: Iterable[ChosenSection]) -> list[tuple[str, int, int]]:
    """Returns the position of each section: document id, first character, end."""
    return [
        (section.document_id, section.span.char_start, section.span.char_end)
        for section in sections
    ]


def wait_until_summarised(
    client: Client, tenant_id: str, collection: str = DEFAULT_COLLECTION
) -> IndexStatus:
    """Waits until all documents of a collection of running services have summaries.

    Returns the status of the index then. Summaries are usually written within half a second.
    """
    statuses: list[IndexStatus] = []

    def is_summarised() -> bool:
        statuses.append(client.index_status(tenant_id, collection=collection))
        return not statuses[-1].unsummarised_documents

    until(is_summarised)
    return statuses[-1]
