"""A query is parsed, gets its vector, and is answered from the sources of its collection."""

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
from hrag.types import CollectionSettings, Retrieval, SearchQuery, TreeSettings
from hrag.values.deadline import NEVER, Deadline
from hrag.values.reply_limit import UNLIMITED
from retriever_svc.query_vectors import QueryVectors
from retriever_svc.search_run import SearchRun, VectorMissing

DIMENSION = 4
# The settings of collections with both sources, with vectors only, and with words only.
BOTH = CollectionSettings(TreeSettings((32,), 0.0), "hash/4", DIMENSION, analyzer="english/1")
VECTORS = replace(BOTH, analyzer="")
WORDS = replace(BOTH, embedder="none", dimension=0)
DOWN = errors.EmbedderUnavailable("the endpoint is down")
SPENT = errors.DeadlineExceeded("the deadline passed while embedding")


def query(text: Any = "cats", **options: Any) -> SearchQuery:
    return SearchQuery("t", text, **options)


def run_of(search_query: SearchQuery) -> SearchRun:
    """Returns the search of a query, without the parts that read a store."""
    nothing: Any = None
    return SearchRun(nothing, search_query, NEVER)


# The following tests cover what a query asks for.


@pytest.mark.parametrize(
    ("search_query", "retrieval", "embeds"),
    [
        (query(), Retrieval.HYBRID, True),
        (query(vector=[1, 0, 0, 0]), Retrieval.HYBRID, False),
        (query([1, 0, 0, 0]), Retrieval.DENSE, False),
        (query(retrieval=Retrieval.DENSE), Retrieval.DENSE, True),
        (query(retrieval=Retrieval.LEXICAL), Retrieval.LEXICAL, False),
    ],
)
def test_a_query_with_a_text_is_hybrid_and_a_query_with_only_a_vector_is_dense(
    search_query: SearchQuery, retrieval: Retrieval, embeds: bool
) -> None:
    run = run_of(search_query)
    assert (run.retrieval, run.embeds) == (retrieval, embeds)


def test_quotes_and_plus_signs_of_a_query_are_neither_ranked_nor_embedded() -> None:
    run = run_of(query('why "access denied" +E-4711'))
    assert run.text == "why access denied E-4711"


def test_too_many_required_parts_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="17 quoted phrases") as caught:
        run_of(query(" ".join(f"+w{number}" for number in range(17))))
    assert caught.value.field == "text"


# The following tests cover the choice of the sources that are searched.


def embedded(search_query: SearchQuery, failure: errors.HragError | None = None) -> SearchRun:
    """Returns the search of a query that has got its vector, or `failure` in place of it."""
    run = run_of(search_query)
    if run.retrieval is not Retrieval.LEXICAL and failure is None:
        run.vector = np.array([1, 0, 0, 0], np.float32)
    run.failure = failure
    return run


@pytest.mark.parametrize(
    ("requested", "settings", "searched"),
    [
        (Retrieval.HYBRID, BOTH, Retrieval.HYBRID),
        (Retrieval.DENSE, BOTH, Retrieval.DENSE),
        (Retrieval.LEXICAL, BOTH, Retrieval.LEXICAL),
        (Retrieval.DENSE, VECTORS, Retrieval.DENSE),
        (Retrieval.HYBRID, WORDS, Retrieval.LEXICAL),  # This is no fallback.
        (Retrieval.LEXICAL, WORDS, Retrieval.LEXICAL),
    ],
)
def test_a_collection_is_searched_by_the_sources_that_it_has(
    requested: Retrieval, settings: CollectionSettings, searched: Retrieval
) -> None:
    assert embedded(query(retrieval=requested)).sources(settings) == (searched, "")


def test_hybrid_without_a_lexical_index_searches_vectors_and_says_how_to_add_the_index() -> None:
    retrieval, fallback = embedded(query()).sources(VECTORS)
    assert retrieval is Retrieval.DENSE
    assert "`hrag reindex` adds it" in fallback


def test_hybrid_without_a_vector_searches_words_and_says_why() -> None:
    assert embedded(query(), DOWN).sources(BOTH) == (Retrieval.LEXICAL, "the endpoint is down")


@pytest.mark.parametrize(
    ("requested", "settings", "failure", "error"),
    [
        (Retrieval.LEXICAL, VECTORS, None, errors.NoLexicalIndex),
        (Retrieval.DENSE, WORDS, None, errors.NoVectors),
        (Retrieval.HYBRID, replace(WORDS, analyzer=""), None, errors.NoLexicalIndex),
        (Retrieval.HYBRID, VECTORS, DOWN, errors.EmbedderUnavailable),
    ],
)
def test_an_error_names_the_source_that_is_missing(
    requested: Retrieval,
    settings: CollectionSettings,
    failure: errors.HragError | None,
    error: type[errors.HragError],
) -> None:
    with pytest.raises(error):
        embedded(query(retrieval=requested), failure).sources(settings)


def test_a_query_that_was_not_embedded_is_not_answered_by_words_alone() -> None:
    """The collection had no vectors at first, and was then created again with vectors."""
    with pytest.raises(VectorMissing):
        run_of(query()).sources(BOTH)


# The following tests cover the vectors of queries.


class RecordingEmbedder(HashEmbedder):
    """An embedder that records its texts, and how many seconds the call had left.

    It raises `failure` if there is one.
    """

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
    search_query: SearchQuery,
    *limits: Any,
    allows_fallback: bool = True,
) -> SearchRun:
    """Embeds a query and returns its search.

    `limits` are the deadline of the call and the seconds that embedding may take.
    """
    run = run_of(search_query)
    queries = CachedQueries(embedder, 10)
    QueryVectors(queries, allows_fallback=allows_fallback)([run], *(limits or (NEVER,)))
    return run


def test_a_text_is_embedded_without_its_quotes() -> None:
    embedder = RecordingEmbedder()
    run = embed(embedder, query('the "red cats"'))
    assert embedder.texts == ["the red cats"]
    assert run.vector is not None
    assert np.array_equal(run.vector, HashEmbedder(DIMENSION).embed(embedder.texts)[0])


def test_the_vector_of_a_query_is_used_instead_of_embedding_its_text() -> None:
    embedder = RecordingEmbedder()
    run = embed(embedder, query(vector=[0, 3, 4, 0]))
    assert run.vector is not None
    assert np.allclose(run.vector, [0, 0.6, 0.8, 0])
    assert embedder.texts == []


@pytest.mark.parametrize("failure", [DOWN, errors.EmbedderRejected("no")])
def test_hybrid_continues_without_a_vector_if_its_text_cannot_be_embedded(
    failure: errors.HragError,
) -> None:
    embedder = RecordingEmbedder(failure)
    run = embed(embedder, query())
    assert (run.vector, run.failure, run.error) == (None, failure, None)
    assert len(embedder.texts) == 1, "a text that is refused is not sent again"


@pytest.mark.parametrize(
    ("search_query", "allows_fallback", "failure"),
    [
        (query(retrieval=Retrieval.DENSE), True, DOWN),
        (query(), False, DOWN),
        (query(), True, errors.Cancelled("the caller has left")),
    ],
)
def test_a_search_without_a_fallback_raises_the_error_of_the_embedder(
    search_query: SearchQuery, allows_fallback: bool, failure: errors.HragError
) -> None:
    run = embed(RecordingEmbedder(failure), search_query, allows_fallback=allows_fallback)
    assert (run.vector, run.failure, run.error) == (None, None, failure)
    with pytest.raises(type(failure)):
        run.result(VALUES, UNLIMITED, ("embed", 0.0, 0.0))


def test_an_embedder_that_hangs_leaves_time_for_a_search_by_words() -> None:
    embedder = RecordingEmbedder(SPENT)
    run = embed(embedder, query(), Deadline.after(1000))
    assert isinstance(run.failure, errors.EmbedderUnavailable)
    assert "share of the call's time" in run.failure.message
    assert embedder.seconds <= 800


def test_an_embedder_that_hangs_takes_at_most_the_seconds_that_the_caller_allows() -> None:
    embedder = RecordingEmbedder(SPENT)
    run = embed(embedder, query(), Deadline.after(1000), 5)
    assert isinstance(run.failure, errors.EmbedderUnavailable)
    assert embedder.seconds <= 5


def test_a_search_that_needs_its_vector_waits_until_the_deadline() -> None:
    embedder = RecordingEmbedder(SPENT)
    run = embed(embedder, query(retrieval=Retrieval.DENSE), Deadline.after(1000), 5)
    assert isinstance(run.error, errors.DeadlineExceeded)
    assert embedder.seconds > 800


def test_each_of_several_queries_gets_its_own_vector_or_error() -> None:
    embedder = RecordingEmbedder(DOWN)
    queries = [
        query(),
        query(retrieval=Retrieval.DENSE),
        query(retrieval=Retrieval.LEXICAL),
        query([1, 0, 0, 0]),
        query([0, 0, 0, 0]),
    ]
    runs = [run_of(search_query) for search_query in queries]
    QueryVectors(CachedQueries(embedder, 10), allows_fallback=True)(runs, NEVER)
    hybrid, dense, lexical, vector, zero = runs
    assert (hybrid.failure, hybrid.error) == (DOWN, None)
    assert (dense.failure, dense.error) == (None, DOWN)
    assert (lexical.vector, lexical.failure, lexical.error) == (None, None, None)
    assert vector.vector is not None
    assert isinstance(zero.error, errors.InvalidArgument)
    assert embedder.texts == ["cats"], "texts are embedded once, together"
