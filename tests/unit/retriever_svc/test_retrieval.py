"""A search chooses its sources, passes its options to them, and reports missing sources."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hrag import errors
from hrag.engine import FindRequest, Fusion
from hrag.observe.metrics import INSTRUMENTS
from hrag.types import (
    CollectionSettings,
    FusionMethod,
    Retrieval,
    SearchMode,
    SearchQuery,
    SearchResult,
)
from hrag.values.deadline import NEVER
from tests.support.engines import rankings
from tests.support.engines.rankings import QUERY, Embedder, FakeReader, FakeSnapshot, search_of

# The settings of a collection with vectors and a lexical index, and of one without vectors.
SETTINGS = replace(rankings.SETTINGS, analyzer="english/1")
WORDS = replace(SETTINGS, embedder="none", dimension=0)
VECTOR = [0.0, 3.0, 4.0, 0.0]


def request_and_result(
    settings: CollectionSettings = SETTINGS, **options: Any
) -> tuple[FindRequest, SearchResult]:
    """Returns the request that QUERY with these options sends to the engine, and the result."""
    snapshot = FakeSnapshot(["a"], settings)
    result = search_of(snapshot)(replace(QUERY, **options), NEVER)
    return snapshot.requests[-1], result


def test_by_default_both_sources_are_searched_with_the_default_weights() -> None:
    request, result = request_and_result()
    assert (request.retrieval, request.text, request.required) == (
        Retrieval.HYBRID,
        QUERY.query,
        (),
    )
    assert request.vector is not None
    assert request.fusion == Fusion(FusionMethod.CONVEX, 0.5, -1.0)
    assert (request.candidates, request.max_per_document) == (200, 0)
    assert (result.retrieval, result.fallback) == (Retrieval.HYBRID, "")


def test_the_options_of_the_sources_are_passed_to_the_engine() -> None:
    options = {"neighbour_bonus": 0.25, "max_per_document": 3, "candidates": 7}
    request, _ = request_and_result(
        query='red "big cats" +paw',
        fusion=FusionMethod.RECIPROCAL_RANK,
        lexical_weight=0.75,
        **options,
    )
    assert {name: getattr(request, name) for name in options} == options
    assert request.fusion == Fusion(FusionMethod.RECIPROCAL_RANK, 0.75, -1.0)
    assert request.text == "red big cats paw"
    assert (request.required, request.preferred) == (("paw",), ("big cats",))


def test_the_dense_source_uses_the_vector_of_a_query_and_the_lexical_source_its_text() -> None:
    request, _ = request_and_result(vector=VECTOR)
    assert request.vector is not None
    assert np.allclose(request.vector, [0, 0.6, 0.8, 0])
    assert (request.text, request.retrieval) == (QUERY.query, Retrieval.HYBRID)


@pytest.mark.parametrize("settings", [SETTINGS, WORDS])
def test_a_search_by_words_embeds_nothing(settings: CollectionSettings) -> None:
    snapshot = FakeSnapshot(["a"], settings)
    embedder = Embedder(snapshot)
    result = search_of(snapshot, embedder=embedder)(
        replace(QUERY, retrieval=Retrieval.LEXICAL), NEVER
    )
    assert (snapshot.requests[0].vector, result.retrieval) == (None, Retrieval.LEXICAL)
    assert embedder.texts == []


@pytest.mark.parametrize(
    ("mode", "bonus"),
    [
        (SearchMode.SMALL_TO_BIG, 0.0),
        (SearchMode.STANDARD, 0.5),
        (SearchMode.AUTO_MERGE, 0.0),
        (SearchMode.SUMMARY_FIRST, 0.0),
        (SearchMode.CONTEXT, 0.5),
    ],
)
def test_the_default_neighbour_bonus_is_0_in_modes_that_return_larger_chunks_than_leaves(
    mode: SearchMode, bonus: float
) -> None:
    assert request_and_result(mode=mode)[0].neighbour_bonus == bonus


def test_the_mode_context_fills_a_token_budget_instead_of_counting_passages() -> None:
    request, result = request_and_result(mode=SearchMode.CONTEXT)
    assert (request.token_budget, request.limit, request.level) == (4096, 4096, 0)
    assert (request.cut_last, request.merge_adjacent, request.neighbour_bonus) == (True, True, 0.5)
    assert result.returned_at_level == 0
    request, _ = request_and_result(
        mode=SearchMode.CONTEXT, token_budget=99, limit=2, neighbour_bonus=0.0
    )
    assert (request.token_budget, request.limit, request.neighbour_bonus) == (99, 2, 0.0)


# The following tests cover fallbacks. If the embedder fails, a search uses only the lexical index.
# If there is no lexical index, a search uses only vectors.


def fallbacks(missing: str) -> float:
    """Returns how many searches without the source `missing` the metrics have counted."""
    name = "hrag_search_fallbacks_total"
    return INSTRUMENTS.get_sample_value(name, {"missing": missing}) or 0.0


def test_while_the_embedder_is_down_words_are_searched_and_the_fallback_is_counted() -> None:
    snapshot = FakeSnapshot(["a"], SETTINGS)
    embedder = Embedder(snapshot)
    embedder.failure = errors.EmbedderUnavailable("the endpoint is down")
    search = search_of(snapshot, embedder=embedder)
    before = fallbacks("dense")
    result = search(QUERY, NEVER)
    assert result.passages == ("a",)
    assert (result.retrieval, result.fallback) == (Retrieval.LEXICAL, "the endpoint is down")
    assert (snapshot.requests[0].retrieval, snapshot.requests[0].vector) == (
        Retrieval.LEXICAL,
        None,
    )
    assert fallbacks("dense") == before + 1
    embedder.failure = None
    assert search(QUERY, NEVER).retrieval is Retrieval.HYBRID, "failures are not cached"
    assert fallbacks("dense") == before + 1


def test_without_a_lexical_index_vectors_are_searched_and_the_fallback_is_counted() -> None:
    before = fallbacks("lexical")
    request, result = request_and_result(rankings.SETTINGS)
    assert request.retrieval is result.retrieval is Retrieval.DENSE
    assert "`hrag reindex`" in result.fallback
    assert fallbacks("lexical") == before + 1


# The following tests cover collections without vectors.


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"retrieval": Retrieval.DENSE}, errors.NoVectors),
        ({"query": VECTOR}, errors.NoVectors),
    ],
)
def test_a_search_that_needs_vectors_is_refused_in_a_collection_without_vectors(
    options: dict[str, Any], error: type[errors.HragError]
) -> None:
    with pytest.raises(error, match="no vectors"):
        request_and_result(WORDS, **options)


def test_a_collection_that_was_created_again_with_vectors_is_searched_by_vectors() -> None:
    snapshot = FakeSnapshot(["a"], WORDS)
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    assert search(QUERY, NEVER).retrieval is Retrieval.LEXICAL
    assert search.batch([QUERY], NEVER)[0].retrieval is Retrieval.LEXICAL  # type: ignore[union-attr]
    assert embedder.texts == []
    snapshot.settings = SETTINGS
    for _ in range(2):
        assert search(QUERY, NEVER).retrieval is Retrieval.HYBRID
    assert embedder.texts == [QUERY.query]


def test_after_a_collection_was_created_again_without_vectors_one_more_query_is_embedded() -> None:
    snapshot = FakeSnapshot(["a"], SETTINGS)
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    search(QUERY, NEVER)
    snapshot.settings = WORDS
    for text in ("one", "two", "three"):
        result = search(replace(QUERY, query=text), NEVER)
        assert (result.retrieval, result.fallback) == (Retrieval.LEXICAL, "")
    assert embedder.texts == [QUERY.query, "one"]


def test_a_service_without_an_embedder_searches_any_collection_by_words() -> None:
    snapshot = FakeSnapshot(["a"], SETTINGS)
    embedder = Embedder(snapshot, name="none")
    embedder.failure = errors.EmbedderRejected("this service has no embedder")
    search = search_of(snapshot, embedder=embedder)
    result = search(QUERY, NEVER)
    assert (result.retrieval, result.fallback) == (
        Retrieval.LEXICAL,
        "this service has no embedder",
    )
    with pytest.raises(errors.EmbedderRejected):
        search(replace(QUERY, retrieval=Retrieval.DENSE), NEVER)


# The following tests cover batches.


def test_each_search_of_a_batch_has_its_own_sources_fallback_or_error() -> None:
    snapshot = FakeSnapshot(["a"], SETTINGS)
    embedder = Embedder(snapshot)
    embedder.failure = errors.EmbedderUnavailable("down")
    reader = FakeReader(snapshot)
    hybrid, dense, lexical, vector, wrong = search_of(
        snapshot, embedder=embedder, reader=reader
    ).batch(
        [
            QUERY,
            replace(QUERY, retrieval=Retrieval.DENSE),
            replace(QUERY, retrieval=Retrieval.LEXICAL),
            replace(QUERY, query=VECTOR),
            replace(QUERY, lexical_weight=2.0),
        ],
        NEVER,
    )
    assert [
        (result.retrieval, result.fallback)  # type: ignore[union-attr]
        for result in (hybrid, lexical, vector)
    ] == [(Retrieval.LEXICAL, "down"), (Retrieval.LEXICAL, ""), (Retrieval.DENSE, "")]
    assert dense is embedder.failure
    assert isinstance(wrong, errors.InvalidArgument)
    assert len(embedder.batches) == 1


# The following tests cover the limits of options.


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"query": VECTOR, "retrieval": Retrieval.LEXICAL}, "retrieval", "LEXICAL and text is emp"),
        ({"query": VECTOR, "retrieval": Retrieval.HYBRID}, "retrieval", "HYBRID and text is empty"),
        (
            {"retrieval": Retrieval.DENSE, "fusion": FusionMethod.CONVEX},
            "fusion",
            "only HYBRID uses it, so leave it unset in DENSE",
        ),
        (
            {"retrieval": Retrieval.LEXICAL, "lexical_weight": 0.5},
            "lexical_weight",
            "leave it unset in LEXICAL",
        ),
        ({"query": VECTOR, "lexical_weight": 0.5}, "lexical_weight", "unset in DENSE"),
        ({"lexical_weight": -0.1}, "lexical_weight", "is -0.1; it must be from 0 to 1"),
        ({"lexical_weight": 1.1}, "lexical_weight", "is 1.1; it must be from 0 to 1"),
        ({"lexical_weight": float("nan")}, "lexical_weight", "is nan; it must be from 0 to 1"),
        ({"neighbour_bonus": 1.5}, "neighbour_bonus", "is 1.5; it must be from 0 to 1"),
        ({"max_per_document": 1001}, "max_per_document", "is 1001; it must be from 1 to 1000"),
        ({"query": " ".join(f"+w{n}" for n in range(17))}, "text", "at most 16"),
        ({"vector": [1.0]}, "vector", "vector has 1 numbers; the vectors of the collection have 4"),
        ({"mode": SearchMode.CONTEXT, "return_level": 1}, "return_level", "CONTEXT returns"),
    ],
)
def test_the_error_for_an_invalid_option_names_its_field_and_its_value(
    options: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        request_and_result(**options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "options",
    [
        {"lexical_weight": 0.0},
        {"lexical_weight": 1.0, "neighbour_bonus": 1.0, "max_per_document": 1000},
        {"mode": SearchMode.CONTEXT, "cut_last": True},
        {"mode": SearchMode.CONTEXT, "limit": 100, "token_budget": 1},
        {"mode": SearchMode.SENTENCE_WINDOW, "window_sentences": 0},
        {"mode": SearchMode.SENTENCE_WINDOW, "window_sentences": 20, "limit": 100},
        {"mode": SearchMode.SENTENCE_WINDOW, "retrieval": Retrieval.LEXICAL},
    ],
)
def test_options_equal_to_their_limits_are_allowed(options: dict[str, Any]) -> None:
    assert request_and_result(**options)[1].passages == ("a",)


def test_a_query_has_the_defaults_that_the_protocol_documents() -> None:
    query = SearchQuery("t", "x")
    assert (query.mode, query.limit, query.retrieval) == (None, None, None)
    assert (query.candidates, query.mode_or_default) == (200, SearchMode.SMALL_TO_BIG)
