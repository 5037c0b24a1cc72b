"""A query before its snapshot is opened: parsed, and with its vector.

The sources to search are decided twice. Before text is embedded, the query's options decide. Once
the snapshot is open, the sources of its collection decide. If one source cannot be used, HYBRID
searches only the other one, and the result says why.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hrag.engine import Vector
from hrag.models.embedding.cache import CachedQueries
from hrag.text.analysis import query_syntax
from hrag.values.collections import CollectionSettings
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    DeadlineExceeded,
    EmbedderRejected,
    EmbedderUnavailable,
    HragError,
    NoLexicalIndex,
    NoVectors,
    outcome_of,
)
from hrag.values.search import Retrieval, SearchMode, SearchQuery
from retriever_svc.query_checks import unit

_EMBEDDER_FAILURES = (EmbedderUnavailable, EmbedderRejected)
# Embedding gets this share of the call's remaining time. The search by words needs the rest.
_SHARE_OF_TIME = 0.8


class VectorMissing(Exception):
    """Raised if a query was not embedded, because its collection was thought to have no vectors."""


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query that has been checked.

    `text` is the query's text without quotes and plus signs. `required` has the parts that these
    mark. `embeds` is True if the text needs a vector.
    """

    query: SearchQuery
    text: str
    required: tuple[str, ...]
    retrieval: Retrieval
    embeds: bool


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """A query with its unit vector, or with None.

    `failure` is the reason why a HYBRID query has no vector, if it may be answered without one.
    """

    prepared: PreparedQuery
    vector: Vector | None
    failure: HragError | None = None

    def sources(self, settings: CollectionSettings) -> tuple[Retrieval, str]:
        """Returns the sources to search, and why they are fewer than the query asks for, or "".

        Raises NoVectors or NoLexicalIndex if the collection lacks the only source, `failure` if
        no other source is left, and VectorMissing if the query should have a vector.
        """
        retrieval = self.prepared.retrieval
        if retrieval is Retrieval.LEXICAL or (
            retrieval is Retrieval.HYBRID and not settings.dimension
        ):
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
        if self.failure is not None:
            if not settings.analyzer:
                raise self.failure
            return Retrieval.LEXICAL, self.failure.message
        if self.vector is None:
            raise VectorMissing
        if retrieval is Retrieval.HYBRID and not settings.analyzer:
            return Retrieval.DENSE, "the collection has no lexical index; `hrag reindex` adds it"
        return retrieval, ""


def prepared_query(query: SearchQuery) -> PreparedQuery:
    """Parses a checked query. Raises InvalidArgument for too many required parts."""
    parsed = query_syntax.parse(query.text)
    retrieval = query.retrieval or (Retrieval.HYBRID if query.text else Retrieval.DENSE)
    is_dense = retrieval is not Retrieval.LEXICAL
    embeds = is_dense and bool(query.text) and query.vector is None
    return PreparedQuery(query, parsed.text, parsed.required, retrieval, embeds)


class QueryEmbedding:
    """Gives queries their vectors.

    Texts are embedded through the cache. A vector that the query contains is scaled to unit
    length. With `allows_fallback`, a HYBRID query whose text cannot be embedded is answered
    without a vector. Then the embedder gets only a share of the caller's time, so that enough is
    left for the search.
    """

    def __init__(self, queries: CachedQueries, *, allows_fallback: bool) -> None:
        self._queries = queries
        self._allows_fallback = allows_fallback

    def one(
        self, prepared: PreparedQuery, deadline: Deadline, embedding_s: float = math.inf
    ) -> EmbeddedQuery:
        """Returns the query with its vector.

        If the query can be answered without a vector, its embedding takes at most `embedding_s`
        seconds.

        Raises InvalidArgument for a vector without direction, and what the embedder raises.
        """
        if prepared.embeds:
            (outcome,) = self.all([prepared], deadline, embedding_s)
        else:
            outcome = self._embedded(prepared, None, deadline)
        if isinstance(outcome, HragError):
            raise outcome
        return outcome

    def all(
        self,
        outcomes: Sequence[PreparedQuery | HragError],
        deadline: Deadline,
        embedding_s: float = math.inf,
    ) -> list[EmbeddedQuery | HragError]:
        """Returns each query with its vector, or its error.

        The texts of one tenant are embedded together. `embedding_s` applies if all queries can
        be answered without a vector.
        """
        to_embed = [
            query for query in outcomes if isinstance(query, PreparedQuery) and query.embeds
        ]
        texts_of: dict[str, dict[str, None]] = {}
        for prepared in to_embed:
            texts_of.setdefault(prepared.query.tenant_id, {})[prepared.text] = None
        optional = all(map(self._may_fall_back, to_embed))
        seconds = min(embedding_s, _SHARE_OF_TIME * deadline.remaining_s) if optional else math.inf
        until = deadline.within(seconds)
        vector_of = {
            (tenant_id, text): vector
            for tenant_id, texts in texts_of.items()
            for text, vector in zip(
                texts, self._queries.embed_each(tenant_id, list(texts), until), strict=True
            )
        }
        return [
            outcome
            if isinstance(outcome, HragError)
            else self._embedded(
                outcome,
                vector_of[outcome.query.tenant_id, outcome.text] if outcome.embeds else None,
                deadline,
            )
            for outcome in outcomes
        ]

    def _may_fall_back(self, prepared: PreparedQuery) -> bool:
        """Returns True if the query can be answered without a vector.

        SENTENCE_WINDOW cannot, because it embeds sentences too.
        """
        has_words = prepared.retrieval is Retrieval.HYBRID
        is_window = prepared.query.mode_or_default is SearchMode.SENTENCE_WINDOW
        return self._allows_fallback and has_words and not is_window

    def _embedded(
        self, prepared: PreparedQuery, vector: Vector | HragError | None, deadline: Deadline
    ) -> EmbeddedQuery | HragError:
        if isinstance(vector, HragError):
            if not self._may_fall_back(prepared):
                return vector
            if isinstance(vector, DeadlineExceeded) and deadline.remaining_s > 0:
                vector = EmbedderUnavailable(
                    "the embedder did not answer within its share of the call's time"
                )
            is_failure = isinstance(vector, _EMBEDDER_FAILURES)
            return EmbeddedQuery(prepared, None, vector) if is_failure else vector
        query_vector = _query_vector(prepared.query)
        if query_vector is None or prepared.retrieval is Retrieval.LEXICAL:
            return EmbeddedQuery(prepared, vector)
        scaled = outcome_of(unit, np.asarray(query_vector, np.float32))
        return scaled if isinstance(scaled, HragError) else EmbeddedQuery(prepared, scaled)


def _query_vector(query: SearchQuery) -> Sequence[float] | None:
    return query.vector if isinstance(query.query, str) else query.query
