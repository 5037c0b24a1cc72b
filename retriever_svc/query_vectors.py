"""Query vectors: a text is embedded through the cache, a vector is scaled to unit length."""

from collections.abc import Sequence

import numpy as np

from hrag.deadline import Deadline
from hrag.embedding.cache import CachedQueries
from hrag.engine import Vector
from hrag.errors import HragError, outcome_of
from hrag.types import SearchQuery
from retriever_svc.checks import unit


def query_vector(query: SearchQuery, queries: CachedQueries, deadline: Deadline) -> Vector:
    """Returns the query's `float32[dimension]` of unit length.

    Raises InvalidArgument for a vector without direction, else as the embedder does.
    """
    if isinstance(query.query, str):
        return queries.embed_query(query.query, deadline)
    return unit(np.asarray(query.query, np.float32))


def query_vectors(
    outcomes: Sequence[SearchQuery | HragError], queries: CachedQueries, deadline: Deadline
) -> list[Vector | HragError]:
    """Returns each query's vector or its error, in order; all texts are embedded together."""
    texts = list(
        {
            each.query: None
            for each in outcomes
            if not isinstance(each, HragError) and isinstance(each.query, str)
        }
    )
    of_text = dict(zip(texts, queries.embed_each(texts, deadline), strict=True))

    def one(query: SearchQuery) -> Vector | HragError:
        if isinstance(query.query, str):
            return of_text[query.query]
        return outcome_of(query_vector, query, queries, deadline)

    return [each if isinstance(each, HragError) else one(each) for each in outcomes]
