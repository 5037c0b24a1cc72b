"""A query before it meets a collection: what it asks for, its vector, and which sources it gets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hrag import errors
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import CollectionSettings, Retrieval, SearchMode, SearchQuery, TreeSettings
from hrag.values.deadline import NEVER, Deadline
from retriever_svc.prepared_query import (
    EmbeddedQuery,
    QueryEmbedding,
    VectorMissing,
    prepared_query,
)

DIMENSION = 4
BOTH = CollectionSettings(TreeSettings((32,), 0.0), "hash/4", DIMENSION, analyzer="english/1")
VECTORS = replace(BOTH, analyzer="")
WORDS = replace(BOTH, embedder="none", dimension=0)
DOWN = errors.EmbedderUnavailable("the endpoint is down")
SPENT = errors.DeadlineExceeded("the deadline passed while embedding")


def query(text: Any = "cats", **asked: Any) -> SearchQuery:
    return SearchQuery("t", text, **asked)


# What is asked


@pytest.mark.parametrize(
    ("asked", "retrieval", "embeds"),
    [
        (query(), Retrieval.HYBRID, True),
        (query(vector=[1, 0, 0, 0]), Retrieval.HYBRID, False),
        (query([1, 0, 0, 0]), Retrieval.DENSE, False),
        (query(retrieval=Retrieval.DENSE), Retrieval.DENSE, True),
        (query(retrieval=Retrieval.LEXICAL), Retrieval.LEXICAL, False),
    ],
)
def test_a_text_is_hybrid_and_a_vector_dense(
    asked: SearchQuery, retrieval: Retrieval, embeds: bool
) -> None:
    prepared = prepared_query(asked)
    assert (prepared.retrieval, prepared.embeds) == (retrieval, embeds)


def test_what_marks_a_required_part_is_neither_ranked_nor_embedded() -> None:
    prepared = prepared_query(query('why "access denied" +E-4711'))
    assert (prepared.text, prepared.required) == (
        "why access denied E-4711",
        ("access denied", "E-4711"),
    )


def test_too_many_required_parts_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="17 quoted phrases") as caught:
        prepared_query(query(" ".join(f"+w{number}" for number in range(17))))
    assert caught.value.field == "text"


# Which sources


def embedded(asked: SearchQuery, failure: errors.HragError | None = None) -> EmbeddedQuery:
    prepared = prepared_query(asked)
    has_vector = prepared.retrieval is not Retrieval.LEXICAL and failure is None
    vector = np.array([1, 0, 0, 0], np.float32) if has_vector else None
    return EmbeddedQuery(prepared, vector, failure)


@pytest.mark.parametrize(
    ("asked", "settings", "searched"),
    [
        (Retrieval.HYBRID, BOTH, Retrieval.HYBRID),
        (Retrieval.DENSE, BOTH, Retrieval.DENSE),
        (Retrieval.LEXICAL, BOTH, Retrieval.LEXICAL),
        (Retrieval.DENSE, VECTORS, Retrieval.DENSE),
        (Retrieval.HYBRID, WORDS, Retrieval.LEXICAL),  # Nothing is missing that could be there.
        (Retrieval.LEXICAL, WORDS, Retrieval.LEXICAL),
    ],
)
def test_a_collection_is_searched_by_what_it_has(
    asked: Retrieval, settings: CollectionSettings, searched: Retrieval
) -> None:
    assert embedded(query(retrieval=asked)).sources(settings) == (searched, "")


def test_hybrid_says_when_a_collection_has_no_lexical_index() -> None:
    retrieval, fallback = embedded(query()).sources(VECTORS)
    assert retrieval is Retrieval.DENSE
    assert "`hrag reindex` adds it" in fallback


def test_hybrid_says_why_it_goes_on_without_vectors() -> None:
    assert embedded(query(), DOWN).sources(BOTH) == (Retrieval.LEXICAL, "the endpoint is down")


@pytest.mark.parametrize(
    ("asked", "settings", "failure", "error"),
    [
        (Retrieval.LEXICAL, VECTORS, None, errors.NoLexicalIndex),
        (Retrieval.DENSE, WORDS, None, errors.NoVectors),
        (Retrieval.HYBRID, replace(WORDS, analyzer=""), None, errors.NoLexicalIndex),
        (Retrieval.HYBRID, VECTORS, DOWN, errors.EmbedderUnavailable),
    ],
)
def test_an_error_names_the_source_that_is_missing(
    asked: Retrieval,
    settings: CollectionSettings,
    failure: errors.HragError | None,
    error: type[errors.HragError],
) -> None:
    with pytest.raises(error):
        embedded(query(retrieval=asked), failure).sources(settings)


def test_a_vector_that_was_never_made_is_no_fallback() -> None:
    """The collection was known to have no vectors, and has some by now."""
    with pytest.raises(VectorMissing):
        EmbeddedQuery(prepared_query(query()), None).sources(BOTH)


# Vectors


class Embedder(HashEmbedder):
    """Remembers its texts and how many seconds it had for them; fails if told to."""

    def __init__(self, failure: errors.HragError | None = None) -> None:
        super().__init__(DIMENSION)
        self.texts: list[str] = []
        self.seconds = 0.0
        self._failure = failure

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.texts += texts
        self.seconds = deadline.remaining_s
        if self._failure is not None:
            raise self._failure
        return super().embed(texts, deadline)


def embedding(embedder: HashEmbedder, *, allows_fallback: bool = True) -> QueryEmbedding:
    return QueryEmbedding(CachedQueries(embedder, 10), allows_fallback=allows_fallback)


def test_a_text_is_embedded_as_it_is_ranked() -> None:
    embedder = Embedder()
    found = embedding(embedder).one(prepared_query(query('the "red cats"')), NEVER)
    assert embedder.texts == ["the red cats"]
    assert found.vector is not None
    assert np.array_equal(found.vector, HashEmbedder(DIMENSION).embed(embedder.texts)[0])


def test_a_vector_replaces_that_of_its_text() -> None:
    embedder = Embedder()
    found = embedding(embedder).one(prepared_query(query(vector=[0, 3, 4, 0])), NEVER)
    assert found.vector is not None
    assert np.allclose(found.vector, [0, 0.6, 0.8, 0])
    assert embedder.texts == []


@pytest.mark.parametrize("failure", [DOWN, errors.EmbedderRejected("no")])
def test_hybrid_goes_on_when_its_text_cannot_be_embedded(failure: errors.HragError) -> None:
    embedder = Embedder(failure)
    found = embedding(embedder).one(prepared_query(query()), NEVER)
    assert (found.vector, found.failure) == (None, failure)
    assert len(embedder.texts) == 1, "a text that is refused is not sent again"


@pytest.mark.parametrize(
    ("asked", "allows_fallback", "failure"),
    [
        (query(retrieval=Retrieval.DENSE), True, DOWN),
        (query(mode=SearchMode.SENTENCE_WINDOW), True, DOWN),
        (query(), False, DOWN),
        (query(), True, errors.Cancelled("the caller has left")),
    ],
)
def test_others_fail_as_the_embedder_does(
    asked: SearchQuery, allows_fallback: bool, failure: errors.HragError
) -> None:
    with pytest.raises(type(failure)):
        embedding(Embedder(failure), allows_fallback=allows_fallback).one(
            prepared_query(asked), NEVER
        )


def test_an_embedder_that_hangs_leaves_time_for_a_search_by_words() -> None:
    embedder = Embedder(SPENT)
    found = embedding(embedder).one(prepared_query(query()), Deadline.after(1000))
    assert isinstance(found.failure, errors.EmbedderUnavailable)
    assert "share of the call's time" in found.failure.message
    assert embedder.seconds <= 800


def test_an_embedder_that_hangs_costs_no_more_than_the_caller_allows() -> None:
    embedder = Embedder(SPENT)
    found = embedding(embedder).one(prepared_query(query()), Deadline.after(1000), 5)
    assert isinstance(found.failure, errors.EmbedderUnavailable)
    assert embedder.seconds <= 5


def test_a_search_that_needs_its_vector_waits_to_the_end() -> None:
    embedder = Embedder(SPENT)
    with pytest.raises(errors.DeadlineExceeded):
        embedding(embedder).one(
            prepared_query(query(retrieval=Retrieval.DENSE)), Deadline.after(1000), 5
        )
    assert embedder.seconds > 800


def test_of_several_queries_each_gets_its_own_vector_or_error() -> None:
    embedder = Embedder(DOWN)
    refused = errors.InvalidArgument("limit is 0", field="limit")
    asked = [
        query(),
        query(retrieval=Retrieval.DENSE),
        query(retrieval=Retrieval.LEXICAL),
        query([1, 0, 0, 0]),
        query([0, 0, 0, 0]),
    ]
    hybrid, dense, lexical, vector, zero, same = embedding(embedder).all(
        [*map(prepared_query, asked), refused], NEVER
    )
    assert isinstance(hybrid, EmbeddedQuery)
    assert hybrid.failure is DOWN
    assert dense is DOWN
    assert isinstance(lexical, EmbeddedQuery)
    assert (lexical.vector, lexical.failure) == (None, None)
    assert isinstance(vector, EmbeddedQuery)
    assert vector.vector is not None
    assert isinstance(zero, errors.InvalidArgument)
    assert same is refused
    assert embedder.texts == ["cats"], "texts are embedded once, together"
