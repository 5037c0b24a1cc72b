"""A query before it meets a collection: parsed, and with its vector.

Which sources are searched is decided twice: by what the query asks for, before anything is
embedded, and by what the collection of the snapshot has. HYBRID falls back to one source where
the other cannot be used, and says why.
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
_SHARE_OF_TIME = 0.8  # Of what the call has left; the rest is for the search by words.


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
    """A query with its unit vector, or None.

    `failure` is the error for which a HYBRID query has none, if it may go on without.
    """

    prepared: PreparedQuery
    vector: Vector | None
    failure: HragError | None = None

    def sources(self, settings: CollectionSettings) -> tuple[Retrieval, str]:
        """Returns which sources to search in a collection, and why fewer than were asked for.

        Raises NoVectors or NoLexicalIndex, `failure` where nothing is left to search, and
        VectorMissing.
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
        if self.failure is not None:
            if not settings.analyzer:
                raise self.failure
            return Retrieval.LEXICAL, self.failure.message
        if self.vector is None:
            raise VectorMissing
        if asked is Retrieval.HYBRID and not settings.analyzer:
            return Retrieval.DENSE, "the collection has no lexical index; `hrag reindex` adds it"
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

    With `allows_fallback`, a HYBRID query whose text cannot be embedded goes on without. The
    embedder gets only a share of its caller's time, so that the rest of the search fits.
    """

    def __init__(self, queries: CachedQueries, *, allows_fallback: bool) -> None:
        self._queries = queries
        self._allows_fallback = allows_fallback

    def one(
        self, prepared: PreparedQuery, deadline: Deadline, embedding_s: float = math.inf
    ) -> EmbeddedQuery:
        """Returns the query with its vector.

        `embedding_s` bounds the time of an embedding that it can do without.

        Raises InvalidArgument for a vector without direction, else as the embedder does.
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
        """Returns each query with its vector or its error; a tenant's are embedded together."""
        embeds = [each for each in outcomes if isinstance(each, PreparedQuery) and each.embeds]
        texts_of: dict[str, dict[str, None]] = {}
        for each in embeds:
            texts_of.setdefault(each.query.tenant_id, {})[each.text] = None
        shares = all(map(self._may_fall_back, embeds))
        seconds = min(embedding_s, _SHARE_OF_TIME * deadline.remaining_s) if shares else math.inf
        until = deadline.within(seconds)
        vector_of = {
            (tenant_id, text): vector
            for tenant_id, texts in texts_of.items()
            for text, vector in zip(
                texts, self._queries.embed_each(tenant_id, list(texts), until), strict=True
            )
        }
        return [
            each
            if isinstance(each, HragError)
            else self._embedded(
                each,
                vector_of[each.query.tenant_id, each.text] if each.embeds else None,
                deadline,
            )
            for each in outcomes
        ]

    def _may_fall_back(self, prepared: PreparedQuery) -> bool:
        """Whether the query can be answered without a vector; sentences have to be embedded too."""
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
        given = _given_vector(prepared.query)
        if given is None or prepared.retrieval is Retrieval.LEXICAL:
            return EmbeddedQuery(prepared, vector)
        scaled = outcome_of(unit, np.asarray(given, np.float32))
        return scaled if isinstance(scaled, HragError) else EmbeddedQuery(prepared, scaled)


def _given_vector(query: SearchQuery) -> Sequence[float] | None:
    return query.vector if isinstance(query.query, str) else query.query
