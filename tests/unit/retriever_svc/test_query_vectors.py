"""A search before it opens a snapshot: its query, its vector, and the sources that it gets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hrag import errors
from hrag.engine import VALUES
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.types import CollectionSettings, Retrieval, SearchMode, SearchQuery, TreeSettings
from hrag.values.deadline import NEVER, Deadline
from hrag.values.reply_limit import UNLIMITED
from retriever_svc.query_vectors import QueryVectors
from retriever_svc.search_run import SearchRun, VectorMissing
from retriever_svc.work_limit import EmbeddingWork

DIMENSION = 4
BOTH = CollectionSettings(TreeSettings((32,), 0.0), "hash/4", DIMENSION, analyzer="english/1")
VECTORS = replace(BOTH, analyzer="")
WORDS = replace(BOTH, embedder="none", dimension=0)
DOWN = errors.EmbedderUnavailable("the endpoint is down")
SPENT = errors.DeadlineExceeded("the deadline passed while embedding")


def query(text: Any = "cats", **asked: Any) -> SearchQuery:
    return SearchQuery("t", text, **asked)


def run_of(asked: SearchQuery) -> SearchRun:
    """A search that has nothing to search in."""
    nothing: Any = None
    return SearchRun(nothing, asked, NEVER, EmbeddingWork())


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
    run = run_of(asked)
    assert (run.retrieval, run.embeds) == (retrieval, embeds)


def test_what_marks_a_required_part_is_neither_ranked_nor_embedded() -> None:
    run = run_of(query('why "access denied" +E-4711'))
    assert (run.text, run.required) == (
        "why access denied E-4711",
        ("access denied", "E-4711"),
    )


def test_too_many_required_parts_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="17 quoted phrases") as caught:
        run_of(query(" ".join(f"+w{number}" for number in range(17))))
    assert caught.value.field == "text"


# Which sources


def embedded(asked: SearchQuery, failure: errors.HragError | None = None) -> SearchRun:
    run = run_of(asked)
    if run.retrieval is not Retrieval.LEXICAL and failure is None:
        run.vector = np.array([1, 0, 0, 0], np.float32)
    run.failure = failure
    return run


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
        run_of(query()).sources(BOTH)


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


def embed(
    embedder: HashEmbedder,
    asked: SearchQuery,
    *limits: Any,
    allows_fallback: bool = True,
) -> SearchRun:
    """The search of a query that was embedded; `limits` are its deadline and its seconds."""
    run = run_of(asked)
    queries = CachedQueries(embedder, 10)
    QueryVectors(queries, allows_fallback=allows_fallback)([run], *(limits or (NEVER,)))
    return run


def test_a_text_is_embedded_as_it_is_ranked() -> None:
    embedder = Embedder()
    found = embed(embedder, query('the "red cats"'))
    assert embedder.texts == ["the red cats"]
    assert found.vector is not None
    assert np.array_equal(found.vector, HashEmbedder(DIMENSION).embed(embedder.texts)[0])


def test_a_vector_replaces_that_of_its_text() -> None:
    embedder = Embedder()
    found = embed(embedder, query(vector=[0, 3, 4, 0]))
    assert found.vector is not None
    assert np.allclose(found.vector, [0, 0.6, 0.8, 0])
    assert embedder.texts == []


@pytest.mark.parametrize("failure", [DOWN, errors.EmbedderRejected("no")])
def test_hybrid_goes_on_when_its_text_cannot_be_embedded(failure: errors.HragError) -> None:
    embedder = Embedder(failure)
    found = embed(embedder, query())
    assert (found.vector, found.failure, found.error) == (None, failure, None)
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
    run = embed(Embedder(failure), asked, allows_fallback=allows_fallback)
    assert (run.vector, run.failure, run.error) == (None, None, failure)
    with pytest.raises(type(failure)):
        run.result(VALUES, UNLIMITED, ("embed", 0.0, 0.0))


def test_an_embedder_that_hangs_leaves_time_for_a_search_by_words() -> None:
    embedder = Embedder(SPENT)
    found = embed(embedder, query(), Deadline.after(1000))
    assert isinstance(found.failure, errors.EmbedderUnavailable)
    assert "share of the call's time" in found.failure.message
    assert embedder.seconds <= 800


def test_an_embedder_that_hangs_costs_no_more_than_the_caller_allows() -> None:
    embedder = Embedder(SPENT)
    found = embed(embedder, query(), Deadline.after(1000), 5)
    assert isinstance(found.failure, errors.EmbedderUnavailable)
    assert embedder.seconds <= 5


def test_a_search_that_needs_its_vector_waits_to_the_end() -> None:
    embedder = Embedder(SPENT)
    run = embed(embedder, query(retrieval=Retrieval.DENSE), Deadline.after(1000), 5)
    assert isinstance(run.error, errors.DeadlineExceeded)
    assert embedder.seconds > 800


def test_of_several_queries_each_gets_its_own_vector_or_error() -> None:
    embedder = Embedder(DOWN)
    asked = [
        query(),
        query(retrieval=Retrieval.DENSE),
        query(retrieval=Retrieval.LEXICAL),
        query([1, 0, 0, 0]),
        query([0, 0, 0, 0]),
    ]
    runs = [run_of(each) for each in asked]
    QueryVectors(CachedQueries(embedder, 10), allows_fallback=True)(runs, NEVER)
    hybrid, dense, lexical, vector, zero = runs
    assert (hybrid.failure, hybrid.error) == (DOWN, None)
    assert (dense.failure, dense.error) == (None, DOWN)
    assert (lexical.vector, lexical.failure, lexical.error) == (None, None, None)
    assert vector.vector is not None
    assert isinstance(zero.error, errors.InvalidArgument)
    assert embedder.texts == ["cats"], "texts are embedded once, together"
