"""Summaries without a summariser, and the search by them as plain Python would have it."""

import time
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

EMBEDDER = "fake"  # Of `collection_settings`.

_PATIENCE_S = 30.0
_POLL_S = 0.02

Place = tuple[str, range]
"""A section: a document's id, and which of its leaves."""


@dataclass
class ModelSummaries:
    """What is summarised of a collection: each document's sections, and their vectors.

    Row 0 of a document's vectors is its own, row n + 1 that of section n.
    """

    model: ModelCollection
    sections: dict[str, list[range]] = field(default_factory=dict)
    vectors: dict[str, Vectors] = field(default_factory=dict)

    def forget(self, document_id: str) -> None:
        self.sections.pop(document_id, None)
        self.vectors.pop(document_id, None)

    def all(self, given: Filter | None = None) -> list[Place]:
        """Every section of the documents that pass."""
        passing = self.model if given is None else self.model.filtered(given)
        return [
            (document_id, section)
            for document_id, own in self.sections.items()
            if document_id in passing.documents
            for section in own
        ]

    def best(
        self, query: Vector, count: int, scope: SummaryScope, given: Filter | None = None
    ) -> list[Place]:
        """The sections to be searched, best first."""
        places = self.all(given)
        if scope is SummaryScope.DOCUMENTS:
            documents = sorted(
                self._passing(given),
                key=lambda document_id: -float(self.vectors[document_id][0] @ query),
            )
            places = [place for place in places if place[0] in documents[:count]]
        return sorted(places, key=lambda place: -self.score(query, place))[:count]

    def _passing(self, given: Filter | None) -> set[str]:
        passing = self.model if given is None else self.model.filtered(given)
        return self.vectors.keys() & passing.documents.keys()

    def score(self, query: Vector, place: Place) -> float:
        document_id, section = place
        number = self.sections[document_id].index(section)
        return float(self.vectors[document_id][number + 1] @ query)

    def leaves(self, query: Vector, places: list[Place]) -> dict[Leaf, float]:
        """The leaves of sections, with their scores."""
        own = {(document_id, leaf) for document_id, section in places for leaf in section}
        return {leaf: score for leaf, score in self.model.scores(query).items() if leaf in own}


def summarise(
    writer: Writer,
    summaries: ModelSummaries,
    most: int = 1000,
    empty: frozenset[str] = frozenset(),
    embedder: str = EMBEDDER,
) -> int:
    """Summarises what waits, `most` documents of it; those of `empty` get none.

    Summaries are random vectors, over sections of one to four leaves; every third of these
    is left without.
    """
    done = 0
    while done < most and (document := writer.next_unsummarised(embedder)):
        settings = document.collection.settings
        count = document.tree.counts[settings.tree.embedding_level]
        seed = zlib.crc32(document.parsed.text.encode())
        sections = [] if document.document_id in empty else list(_sections(count, seed))
        texts = [f"Summary {n} of {document.document_id}" for n in range(len(sections) + 1)]
        found = [Summary(texts[0], range(count))]
        found += [Summary(text, own) for text, own in zip(texts[1:], sections, strict=True)]
        if document.document_id in empty:
            found = []
        vectors = unit_vectors(len(found), seed, settings.dimension)
        written = DocumentSummaries(tuple(found), vectors)
        assert writer.put_summaries(document, written, tokens=7)
        done += 1
        if found:
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
    """Where sections lie: their documents, and first and last character."""
    return [(each.document_id, each.span.char_start, each.span.char_end) for each in sections]


def wait_until_summarised(
    client: Client, tenant_id: str, collection: str = DEFAULT_COLLECTION
) -> IndexStatus:
    """Of a collection of running services; summaries come within half a second or so."""
    until = time.monotonic() + _PATIENCE_S
    while (status := client.index_status(tenant_id, collection=collection)).unsummarised_documents:
        assert time.monotonic() < until, status
        time.sleep(_POLL_S)
    return status
