"""Searches over gRPC are reranked, and results report the failure of a reranker."""

from collections.abc import Iterator

import grpc
import pytest

from hrag.cli.processes import RETRIEVER
from hrag.client import Client
from hrag.errors import InvalidArgument, RerankerNotConfigured
from hrag.types import Document, SearchMode, SearchQuery, SearchResult
from hrag.v1 import retriever_pb2
from hrag.wire.status_codes import error_from
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.openai_server import (
    Fault,
    body,
    hang_up,
    indexes,
    page,
    refuse,
    slow,
    without_last,
)
from tests.support.servers.processes import FAST, Process, Running, running, started
from tests.support.servers.rerank_server import RerankServer, last_score
from tests.support.until import PATIENCE_S, until

KEY = "sk-test-4711"
QUERY = "how do dogs sleep at night"
TEXTS = {
    "birds": "Birds fly.",
    "cats": "Cats sleep.",
    "dogs": "Dogs sleep at night.",
    "fish": "Fish sleep at night.",
}
BEST_FIRST = ["dogs", "fish", "cats", "birds"]


@pytest.fixture(scope="module")
def endpoint(_no_settings_from_outside: None) -> Iterator[RerankServer]:
    with RerankServer() as server:
        yield server


@pytest.fixture(scope="module")
def reranked(
    endpoint: RerankServer, metrics_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Services with a reranker."""
    settings = {**_with_reranker(endpoint, "60"), "HRAG_RETRIEVER_METRICS_ADDRESS": metrics_address}
    with running(tmp_path_factory.mktemp("rerank") / "store", settings) as both:
        for name, text in TEXTS.items():
            both.client.ingest("t", Document(text, name, title=name.title()))
        yield both


def _with_reranker(endpoint: RerankServer, timeout_s: str) -> dict[str, str]:
    return {
        **FAST,
        "HRAG_RERANK_BASE_URL": f"{endpoint.base_url}/v1",
        "HRAG_RERANK_MODEL": "m",
        "HRAG_RERANK_API_KEY": KEY,
        "HRAG_RERANK_TIMEOUT_S": timeout_s,
    }


def ids_of(result: SearchResult) -> list[str]:
    return [passage.chunk.document_id for passage in result.passages]


def test_the_reranker_orders_the_passages(reranked: Running, endpoint: RerankServer) -> None:
    plain = reranked.client.search("t", QUERY, rerank=False)
    assert (plain.reranked, plain.rerank_failure, plain.timings.rerank_us) == (False, "", 0)
    calls = endpoint.calls
    result = reranked.client.search("t", QUERY)
    assert ids_of(result) == BEST_FIRST
    assert (result.reranked, result.rerank_failure, result.exhausted) == (True, "", True)
    assert [passage.rerank_score for passage in result.passages] == [4, 3, 1, 0]
    scores = {passage.chunk.document_id: passage.score for passage in plain.passages}
    assert {passage.chunk.document_id: passage.score for passage in result.passages} == scores
    assert 0 < result.timings.rerank_us <= result.timings.total_us
    assert (endpoint.calls, endpoint.authorizations[-1]) == (calls + 1, f"Bearer {KEY}")
    assert set(endpoint.requests[-1]["documents"]) == {
        f"{name.title()}\n{text}" for name, text in TEXTS.items()
    }


def test_context_is_filled_in_the_order_of_the_reranker(
    reranked: Running, endpoint: RerankServer
) -> None:
    """A passage of CONTEXT is a leaf here, and each leaf has fewer than ten tokens."""
    for options in {}, {"limit": 2}, {"token_budget": 9, "candidates": 1}, {"rerank": True}:
        result = reranked.client.search("t", QUERY, mode=SearchMode.CONTEXT, **options)
        assert ids_of(result) == BEST_FIRST[: len(result.passages)]
        assert result.passages
        assert (result.reranked, result.rerank_failure) == (True, "")
        assert [passage.rerank_score for passage in result.passages] == [4, 3, 1, 0][
            : len(result.passages)
        ]
    calls = endpoint.calls
    plain = reranked.client.search("t", QUERY, mode=SearchMode.CONTEXT, rerank=False)
    assert (plain.reranked, endpoint.calls) == (False, calls)
    endpoint.inject(refuse(503, retry_after="0.001"), times=2)
    failed = reranked.client.search("t", QUERY, mode=SearchMode.CONTEXT)
    endpoint.forget_faults()
    assert (failed.passages, failed.reranked) == (plain.passages, False)
    assert "answered 503" in failed.rerank_failure


def test_the_searches_of_a_batch_are_reranked(reranked: Running) -> None:
    modes = [mode for mode in SearchMode if mode is not SearchMode.SUMMARY_FIRST]
    queries = [SearchQuery("t", QUERY, mode=mode) for mode in modes]
    queries.append(SearchQuery("t", QUERY, merge_adjacent=True, rerank=True))
    for result in reranked.client.batch_search(queries):
        assert isinstance(result, SearchResult)
        assert result.reranked
        assert ids_of(result) == BEST_FIRST


def test_a_smaller_limit_keeps_the_order(reranked: Running) -> None:
    for limit in range(1, 4):
        result = reranked.client.search("t", QUERY, limit=limit, rerank=True)
        assert (ids_of(result), result.exhausted) == (BEST_FIRST[:limit], False)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refuse(503, retry_after="0.001"), "answered 503; gave up after at most 2 attempts"),
        (page(502, "undefined"), "answered 502; gave up after at most 2 attempts"),
        (refuse(401), "answered 401: check HRAG_RERANK_API_KEY"),
        (hang_up, "cannot be reached"),
        (without_last, "returned 3 scores for 4 texts"),
        (indexes(0, 1, 2, 2), "each index from 0 to 3 must occur exactly once"),
        (last_score(float("nan")), "not a finite number"),
        (body(b"nonsense"), "not JSON"),
    ],
    ids=["down", "page", "refused", "lost", "short", "duplicate", "nan", "nonsense"],
)
def test_a_failing_reranker_changes_only_the_order(
    reranked: Running, endpoint: RerankServer, fault: Fault, words: str
) -> None:
    plain = reranked.client.search("t", QUERY, rerank=False)
    endpoint.inject(fault, times=2)
    result = reranked.client.search("t", QUERY, rerank=True)
    endpoint.forget_faults()
    assert result.passages == plain.passages
    assert_failed(result, words, endpoint, reranked.retriever)
    assert ids_of(reranked.client.search("t", QUERY)) == BEST_FIRST


def assert_failed(
    result: SearchResult, words: str, endpoint: RerankServer, retriever: Process
) -> None:
    """Fails unless the result and the log say that the reranker has failed, without its key."""
    assert not result.reranked
    assert words in result.rerank_failure
    assert endpoint.address in result.rerank_failure
    assert KEY not in result.rerank_failure + retriever.log
    assert "rerank_failed" in retriever.log


def test_a_slow_reranker_changes_only_the_order(reranked: Running, endpoint: RerankServer) -> None:
    """Only the retriever of this test waits so short that a pause of the machine may be longer."""
    settings = _with_reranker(endpoint, "0.5")
    plain = reranked.client.search("t", QUERY, rerank=False)
    with (
        started(RETRIEVER, reranked.data_dir, settings) as retriever,
        Client(reranked.indexer.address, retriever.address) as client,
    ):
        retriever.wait_until_serving()
        endpoint.inject(slow(600))
        result = client.search("t", QUERY, rerank=True)
        endpoint.forget_faults()
        assert result.passages == plain.passages
        assert_failed(result, "did not answer within 0.5 s", endpoint, retriever)
        until(lambda: ids_of(client.search("t", QUERY)) == BEST_FIRST)


def test_metrics_count_the_calls_of_the_reranker(reranked: Running, metrics_address: str) -> None:
    # The metrics of reranker calls exist only after the first of these calls.
    reranked.client.search("t", QUERY)
    before = Scrape(metrics_address)
    reranked.client.search("t", QUERY)
    after = Scrape(metrics_address)

    def grown(series: str, **labels: str) -> float:
        return after.value(series, **labels) - before.value(series, **labels)

    assert grown("hrag_reranker_calls_total", outcome="ok") == 1
    assert grown("hrag_reranker_texts_total") == len(TEXTS)
    assert grown("hrag_search_stage_seconds_count", stage="rerank") == 1


def test_searches_that_cannot_be_reranked_are_refused(reranked: Running, services: Running) -> None:
    with pytest.raises(InvalidArgument, match="needs a text"):
        reranked.client.search("t", [1.0] * 64, rerank=True)
    request = retriever_pb2.SearchRequest(tenant_id="nobody", text="x", rerank=True)
    with pytest.raises(grpc.RpcError) as caught:
        services.raw_retriever.Search(request, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(error_from(caught.value), RerankerNotConfigured)
