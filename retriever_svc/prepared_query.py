"""A query before it meets a collection: parsed, and with its vector.

Which sources are searched is decided twice: by what the query asks for, before anything is
embedded, and by what the collection of the snapshot has. HYBRID falls back to one source where
the other cannot be used, and says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hrag import metrics
from hrag.analysis import query_syntax
from hrag.deadline import Deadline
from hrag.embedding.cache import CachedQueries
from hrag.engine import Vector
from hrag.errors import (
    EmbedderRejected,
    EmbedderUnavailable,
    HragError,
    NoLexicalIndex,
    NoVectors,
    outcome_of,
)
from hrag.types import CollectionSettings, Retrieval, SearchMode, SearchQuery
from retriever_svc.checks import unit

_EMBEDDER_FAILURES = (EmbedderUnavailable, EmbedderRejected)


class VectorMissing(Exception):
    """A query was not embedded, because its collection was known to have no vectors."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query that has been checked.

    `text` is the query's without quotes and plus signs, `required` what they mark. `embeds`:
    the text needs a vector.
    """

    query: SearchQuery
    text: str
    required: tuple[str, ...]
    retrieval: Retrieval
    embeds: bool


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """A query with its unit vector, or None; `fallback` says why there is none where one is due."""

    prepared: PreparedQuery
    vector: Vector | None
    fallback: str = ""

    def sources(self, settings: CollectionSettings) -> tuple[Retrieval, str]:
        """Returns which sources to search in a collection, and why fewer than were asked for.

        Raises NoVectors or NoLexicalIndex.
        """
        asked = self.prepared.retrieval
        if asked is Retrieval.LEXICAL or (asked is Retrieval.HYBRID and not settings.dimension):
            if not settings.analyzer:
                raise NoLexicalIndex(
                    "the collection has no lexical index, because it was made before there was "
                    "one; `hrag reindex` adds it, and DENSE searches work",
                    field="retrieval",
                )
            return Retrieval.LEXICAL, ""
        if not settings.dimension:
            raise NoVectors(
                "the collection has no vectors (embedder `none`); search it by words, in LEXICAL",
                field="retrieval",
            )
        if asked is Retrieval.HYBRID and not settings.analyzer:
            metrics.search_fallback("lexical")
            return Retrieval.DENSE, "the collection has no lexical index; `hrag reindex` adds it"
        if asked is Retrieval.HYBRID and self.fallback:
            metrics.search_fallback("dense")
            return Retrieval.LEXICAL, self.fallback
        if self.vector is None:
            raise VectorMissing
        return asked, ""


def prepared_query(query: SearchQuery) -> PreparedQuery:
    """Returns a checked query, parsed. Raises InvalidArgument for too many required parts."""
    parsed = query_syntax.parse(query.text)
    retrieval = query.retrieval or (Retrieval.HYBRID if query.text else Retrieval.DENSE)
    is_dense = retrieval is not Retrieval.LEXICAL
    embeds = is_dense and bool(query.text) and query.vector is None
    return PreparedQuery(query, parsed.text, parsed.required, retrieval, embeds)


class QueryEmbedding:
    """Gives queries their vectors: through the cache, or scaled to unit length.

    With `allows_fallback`, a HYBRID query whose text cannot be embedded goes on without.
    """

    def __init__(self, queries: CachedQueries, *, allows_fallback: bool) -> None:
        self._queries = queries
        self._allows_fallback = allows_fallback

    def one(self, prepared: PreparedQuery, deadline: Deadline) -> EmbeddedQuery:
        """Returns the query with its vector.

        Raises InvalidArgument for a vector without direction, else as the embedder does.
        """
        vector: Vector | HragError | None = None
        if prepared.embeds:
            vector = outcome_of(self._queries.embed_query, prepared.text, deadline)
        outcome = self._embedded(prepared, vector)
        if isinstance(outcome, HragError):
            raise outcome
        return outcome

    def all(
        self, outcomes: Sequence[PreparedQuery | HragError], deadline: Deadline
    ) -> list[EmbeddedQuery | HragError]:
        """Returns each query with its vector or its error; all texts are embedded together."""
        texts = list(
            {
                each.text: None
                for each in outcomes
                if not isinstance(each, HragError) and each.embeds
            }
        )
        of_text = dict(zip(texts, self._queries.embed_each(texts, deadline), strict=True))
        return [
            each
            if isinstance(each, HragError)
            else self._embedded(each, of_text[each.text] if each.embeds else None)
            for each in outcomes
        ]

    def _embedded(
        self, prepared: PreparedQuery, vector: Vector | HragError | None
    ) -> EmbeddedQuery | HragError:
        if isinstance(vector, HragError):
            is_hybrid = prepared.retrieval is Retrieval.HYBRID
            # Sentences have to be embedded too.
            is_possible = prepared.query.mode_or_default is not SearchMode.SENTENCE_WINDOW
            is_failure = isinstance(vector, _EMBEDDER_FAILURES)
            if is_failure and is_hybrid and is_possible and self._allows_fallback:
                return EmbeddedQuery(prepared, None, vector.message)
            return vector
        given = _given_vector(prepared.query)
        if given is None or prepared.retrieval is Retrieval.LEXICAL:
            return EmbeddedQuery(prepared, vector)
        scaled = outcome_of(unit, np.asarray(given, np.float32))
        return scaled if isinstance(scaled, HragError) else EmbeddedQuery(prepared, scaled)


def _given_vector(query: SearchQuery) -> Sequence[float] | None:
    return query.vector if isinstance(query.query, str) else query.query
