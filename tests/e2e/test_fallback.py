"""What a search is worth while the embedding endpoint is down."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hrag import errors
from hrag.cli.processes import RETRIEVER
from hrag.client import Client
from hrag.types import Document, Retrieval, SearchMode, SearchQuery, SearchResult
from tests.support.servers.openai_server import OpenAIServer, refuse, slow
from tests.support.servers.processes import running, started

DOWN = "answered 401"


@dataclass(frozen=True)
class Two:
    """Clients of two retrievers on one store: one falls back, the other fails."""

    endpoint: OpenAIServer
    lenient: Client
    strict: Client


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None) -> Iterator[Two]:
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
            yield Two(endpoint, both.client, strict)


@pytest.fixture(autouse=True)
def _down(two: Two) -> None:
    """Queries cannot be embedded; those asked before are in the cache."""
    two.endpoint.inject(refuse(401), times=20)


def test_hybrid_answers_by_words_and_says_so(two: Two) -> None:
    found = two.lenient.search("t", "sleeping cats")
    assert found.retrieval is Retrieval.LEXICAL
    assert DOWN in found.fallback
    (passage,) = found.passages
    assert (passage.chunk.document_id, passage.dense_score) == ("cats", None)
    assert passage.score == passage.lexical_score


def test_hybrid_fails_where_a_setting_wants_that(two: Two) -> None:
    with pytest.raises(errors.EmbedderRejected, match=DOWN):
        two.strict.search("t", "sleeping cats")


@pytest.mark.parametrize("whose", ["lenient", "strict"])
def test_words_need_no_embedder(two: Two, whose: str) -> None:
    client: Client = getattr(two, whose)
    calls = two.endpoint.calls
    found = client.search("t", "sleeping cats", retrieval=Retrieval.LEXICAL)
    assert (found.retrieval, found.fallback, len(found.passages)) == (Retrieval.LEXICAL, "", 1)
    assert two.endpoint.calls == calls


@pytest.mark.parametrize(
    "query",
    [
        SearchQuery("t", "barking dogs", retrieval=Retrieval.DENSE),
        SearchQuery("t", "barking dogs", mode=SearchMode.SENTENCE_WINDOW),
    ],
)
def test_what_needs_vectors_fails(two: Two, query: SearchQuery) -> None:
    (found,) = two.lenient.batch_search([query])
    assert isinstance(found, errors.EmbedderRejected)
    assert DOWN in found.message


def test_a_batch_falls_back_search_by_search(two: Two) -> None:
    asked = [
        SearchQuery("t", "sleeping dogs"),
        SearchQuery("t", "barking cats", retrieval=Retrieval.DENSE),
        SearchQuery("t", "sleeping dogs", mode=SearchMode.CONTEXT),
    ]
    hybrid, dense, context = two.lenient.batch_search(asked)
    for found in (hybrid, context):
        assert isinstance(found, SearchResult)
        assert (found.retrieval, len(found.passages)) == (Retrieval.LEXICAL, 2)
        assert DOWN in found.fallback
    assert isinstance(dense, errors.EmbedderRejected)


@pytest.mark.slow
def test_an_endpoint_that_hangs_leaves_time_for_the_words(two: Two) -> None:
    two.endpoint.forget_faults()
    two.endpoint.inject(slow(20), times=20)
    found = two.lenient.search("t", "day by day", timeout_s=5)
    assert (found.retrieval, len(found.passages)) == (Retrieval.LEXICAL, 1)
    assert "did not answer within its share" in found.fallback
    with pytest.raises(errors.DeadlineExceeded):
        two.strict.search("t", "day by day", timeout_s=1)


def test_it_is_hybrid_again_as_soon_as_the_endpoint_is_back(two: Two) -> None:
    two.endpoint.forget_faults()
    found = two.lenient.search("t", "sleeping cats")
    assert (found.retrieval, found.fallback) == (Retrieval.HYBRID, "")
