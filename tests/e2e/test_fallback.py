"""Hybrid searches fall back to lexical retrieval while the embedding endpoint is down."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from hrag import errors
from hrag.cli.processes import RETRIEVER
from hrag.client import Client
from hrag.types import Document, Retrieval, SearchMode, SearchQuery, SearchResult
from tests.support.servers.openai_server import OpenAIServer, refuse, slow
from tests.support.servers.processes import running, started
from tests.support.until import GROWING_S

DOWN = "answered 401"


@dataclass(frozen=True)
class Retrievers:
    """Clients of two retrievers on one store.

    While the endpoint is down, hybrid searches of `lenient` fall back to lexical retrieval, and
    hybrid searches of `strict` fail.
    """

    endpoint: OpenAIServer
    lenient: Client
    strict: Client


@pytest.fixture(scope="module")
def retrievers(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Retrievers]:
    folder = tmp_path_factory.mktemp("fallback") / "store"
    with OpenAIServer() as endpoint:
        settings = {
            "HRAG_EMBEDDER": "openai",
            "OPENAI_BASE_URL": endpoint.base_url,
            "OPENAI_API_KEY": "sk-test",
        }
        strict_settings = {**settings, "HRAG_HYBRID_FALLBACK": "false"}
        with (
            running(folder, settings) as both,
            started(RETRIEVER, folder, strict_settings) as other,
            Client(both.indexer.address, other.address) as strict,
        ):
            other.wait_until_serving()
            both.client.ingest("t", Document("Cats sleep all day.", "cats"))
            both.client.ingest("t", Document("Dogs bark.", "dogs"))
            yield Retrievers(endpoint, both.client, strict)


@pytest.fixture(autouse=True)
def _down(retrievers: Retrievers) -> None:
    """Makes the endpoint refuse requests. Retrievers still have vectors of queries in the cache."""
    retrievers.endpoint.inject(refuse(401), times=20)


def test_a_hybrid_search_falls_back_to_lexical_retrieval_and_reports_it(
    retrievers: Retrievers,
) -> None:
    result = retrievers.lenient.search("t", "sleeping cats")
    assert result.retrieval is Retrieval.LEXICAL
    assert DOWN in result.fallback
    (passage,) = result.passages
    assert (passage.chunk.document_id, passage.dense_score) == ("cats", None)
    assert passage.score == passage.lexical_score


def test_a_hybrid_search_fails_if_the_setting_forbids_the_fallback(retrievers: Retrievers) -> None:
    with pytest.raises(errors.EmbedderRejected, match=DOWN):
        retrievers.strict.search("t", "sleeping cats")


@pytest.mark.parametrize("whose", ["lenient", "strict"])
def test_a_lexical_search_needs_no_embedder(retrievers: Retrievers, whose: str) -> None:
    client: Client = getattr(retrievers, whose)
    calls = retrievers.endpoint.calls
    result = client.search("t", "sleeping cats", retrieval=Retrieval.LEXICAL)
    assert (result.retrieval, result.fallback, len(result.passages)) == (Retrieval.LEXICAL, "", 1)
    assert retrievers.endpoint.calls == calls


def test_searches_that_need_vectors_fail(retrievers: Retrievers) -> None:
    query = SearchQuery("t", "barking dogs", retrieval=Retrieval.DENSE)
    (error,) = retrievers.lenient.batch_search([query])
    assert isinstance(error, errors.EmbedderRejected)
    assert DOWN in error.message


def test_each_search_of_a_batch_falls_back_separately(retrievers: Retrievers) -> None:
    queries = [
        SearchQuery("t", "sleeping dogs"),
        SearchQuery("t", "barking cats", retrieval=Retrieval.DENSE),
        SearchQuery("t", "sleeping dogs", mode=SearchMode.CONTEXT),
        SearchQuery("t", "sleeping dogs", mode=SearchMode.SENTENCE_WINDOW),
    ]
    hybrid, dense, context, window = retrievers.lenient.batch_search(queries)
    for result in (hybrid, context, window):
        assert isinstance(result, SearchResult)
        assert (result.retrieval, len(result.passages)) == (Retrieval.LEXICAL, 2)
        assert DOWN in result.fallback
    assert isinstance(dense, errors.EmbedderRejected)


@pytest.mark.slow
def test_a_hanging_endpoint_leaves_time_for_the_lexical_search(retrievers: Retrievers) -> None:
    retrievers.endpoint.forget_faults()
    retrievers.endpoint.inject(slow(600), times=20)
    result = _first_in_time(retrievers.lenient, "day by day")
    assert (result.retrieval, len(result.passages)) == (Retrieval.LEXICAL, 1)
    assert "did not answer within its share" in result.fallback
    with pytest.raises(errors.DeadlineExceeded):
        retrievers.strict.search("t", "day by day", timeout_s=1)


def _first_in_time(client: Client, text: str) -> SearchResult:
    """Returns the result of the first search that ends before its deadline."""
    for timeout_s in GROWING_S:
        with suppress(errors.DeadlineExceeded):
            return client.search("t", text, timeout_s=timeout_s)
    raise AssertionError("no search has ended before its deadline")


def test_a_search_is_hybrid_again_when_the_endpoint_is_back(retrievers: Retrievers) -> None:
    retrievers.endpoint.forget_faults()
    result = retrievers.lenient.search("t", "sleeping cats")
    assert (result.retrieval, result.fallback) == (Retrieval.HYBRID, "")
