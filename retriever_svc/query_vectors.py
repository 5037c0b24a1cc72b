"""Embeds the texts of queries, before a snapshot is opened."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hrag.engine import Vector
from hrag.models.embedding.cache import CachedQueries
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    DeadlineExceeded,
    EmbedderRejected,
    EmbedderUnavailable,
    HragError,
    InvalidArgument,
)
from hrag.values.search import Retrieval, SearchQuery
from hrag_fast import unit_vector

_EMBEDDER_FAILURES = (EmbedderUnavailable, EmbedderRejected)
# Embedding gets this share of the call's remaining time if words alone can answer the query. The
# search by words needs the rest.
_SHARE_OF_TIME = 0.8


class EmbeddedSearch(Protocol):
    """A search as this module needs it: its query, and the fields that are set. See `SearchRun`."""

    query: SearchQuery
    text: str
    retrieval: Retrieval
    embeds: bool
    embedder: str
    vector: Vector | None
    failure: HragError | None
    error: HragError | None


class QueryVectors:
    """Sets the query vectors of searches. Safe to call from several threads.

    Texts are embedded through a cache. A vector that the query contains is scaled to unit length.
    With `allows_fallback`, a HYBRID query whose text cannot be embedded is answered by a search by
    words alone. If this is possible for all queries of a call, embedding may use only a part of the
    call's remaining time, so that the rest is enough for the search by words.
    """

    def __init__(self, queries: CachedQueries, *, allows_fallback: bool) -> None:
        self._queries = queries
        self._allows_fallback = allows_fallback

    def __call__(
        self, runs: Sequence[EmbeddedSearch], deadline: Deadline, embedding_s: float = math.inf
    ) -> None:
        """Sets the `vector` of each search, or `failure` or `error` if its text has no vector.

        The texts of one tenant are embedded together. If all searches that need a vector could also
        be answered by words alone, embedding takes at most `embedding_s` seconds.
        """
        to_embed = [run for run in runs if run.embeds]
        if to_embed:
            self._embed_texts(to_embed, deadline, embedding_s)
        for run in runs:
            if not run.embeds:
                use_given_vector(run)

    def _embed_texts(
        self, runs: Sequence[EmbeddedSearch], deadline: Deadline, embedding_s: float
    ) -> None:
        texts_of: dict[str, dict[str, None]] = {}
        for run in runs:
            texts_of.setdefault(run.query.tenant_id, {})[run.text] = None
        is_optional = all(map(self._may_fall_back, runs))
        share_s = _SHARE_OF_TIME * deadline.remaining_s
        until = deadline.within(min(embedding_s, share_s) if is_optional else math.inf)
        vector_of = {
            (tenant_id, text): vector
            for tenant_id, texts in texts_of.items()
            for text, vector in zip(
                texts, self._queries.embed_each(tenant_id, list(texts), until), strict=True
            )
        }
        for run in runs:
            vector = vector_of[run.query.tenant_id, run.text]
            if isinstance(vector, HragError):
                self._set_failure(run, vector, deadline)
            else:
                run.vector = vector

    def _set_failure(self, run: EmbeddedSearch, error: HragError, deadline: Deadline) -> None:
        """Records why a search has no vector.

        The reason is recorded in `run.failure` if it is a failure of the embedder and words alone
        can answer the query. Otherwise it is recorded in `run.error`. Exception: if `error` is a
        DeadlineExceeded, but the call itself has time left, the embedder was too slow. Then the
        reason is recorded as an EmbedderUnavailable.
        """
        if self._may_fall_back(run):
            if isinstance(error, DeadlineExceeded) and deadline.remaining_s > 0:
                error = EmbedderUnavailable(
                    "the embedder did not answer within its share of the call's time"
                )
            if isinstance(error, _EMBEDDER_FAILURES):
                run.failure = error
                return
        run.error = error

    def _may_fall_back(self, run: EmbeddedSearch) -> bool:
        """Returns True if words alone can answer the query, without a vector."""
        return self._allows_fallback and run.retrieval is Retrieval.HYBRID


def use_given_vector(run: EmbeddedSearch) -> None:
    """Sets the search's vector to the query's vector, scaled to length 1.

    Does nothing if the query has no vector or searches by words only.
    """
    query = run.query
    vector = query.vector if isinstance(query.query, str) else query.query
    if vector is None or run.retrieval is Retrieval.LEXICAL:
        return
    try:
        run.vector = _unit(np.ascontiguousarray(vector, np.float32))
    except InvalidArgument as error:
        run.error = error


def _unit(vector: Vector) -> Vector:
    """Returns the vector scaled to length 1, `float32[n]`.

    Raises InvalidArgument if the vector contains NaN or infinity, or only zeros.
    """
    norm, unit = unit_vector(vector)
    # The squares of finite float32 numbers cannot overflow a float64, so an infinite norm means
    # that the vector itself contains infinity.
    if not math.isfinite(norm):
        raise InvalidArgument(
            "vector contains NaN or infinity; numbers must be finite", field="vector"
        )
    if unit is None:
        raise InvalidArgument(
            f"vector has no direction: its {len(vector)} numbers are all zero", field="vector"
        )
    return unit
