"""Concurrent searches share requests to the embedding endpoint.

An error or a short deadline of one search does not affect the searches that share its request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import grpc
import pytest

from hrag.models.embedding.coalescer import MAX_TEXTS
from hrag.types import Document
from hrag.v1 import retriever_pb2 as rpb
from hrag.wire.status_codes import error_from
from tests.support.servers.openai_server import DEFAULT_DIMENSION, OpenAIServer, Reply, refuse
from tests.support.servers.processes import Running, running
from tests.support.servers.stores import COSINE_TOLERANCE
from tests.support.until import PATIENCE_S

CALLERS = 64
SLOW_S = 0.1


class StrictEndpoint(OpenAIServer):
    """A slow endpoint that rejects a whole request if one of its texts contains `bad`."""

    def answer(self, request: dict[str, Any], authorization: str | None) -> Reply:
        reply = replace(super().answer(request, authorization), delay_s=SLOW_S)
        return refuse(400)(reply) if any("bad" in text for text in request["input"]) else reply


@pytest.fixture(scope="module")
def endpoint(_no_settings_from_outside: None) -> Iterator[OpenAIServer]:
    with StrictEndpoint() as server:
        yield server


@pytest.fixture(scope="module")
def crowded(endpoint: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services with one thread per caller."""
    settings = {
        "HRAG_EMBEDDER": "openai",
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": "sk-test",
        "HRAG_OPENAI_DIMENSIONS": str(DEFAULT_DIMENSION),
        "HRAG_THREADS": str(CALLERS),
    }
    with running(tmp_path_factory.mktemp("crowded") / "store", settings) as both:
        yield both


@pytest.fixture
def stored(crowded: Running, endpoint: OpenAIServer, tenant: str) -> str:
    """A tenant with a document for each caller; clears the endpoint's recorded requests."""
    documents = [Document(text, f"d{number}") for number, text in enumerate(texts_of(tenant))]
    list(crowded.client.ingest_many(tenant, documents))
    endpoint.requests.clear()
    return tenant


def texts_of(tenant: str) -> list[str]:
    return [f"What {tenant} said about number {number}." for number in range(CALLERS)]


def at_once(
    crowded: Running, tenant: str, texts: Sequence[str], timeouts: Sequence[float] = (PATIENCE_S,)
) -> list[Any]:
    """Starts a search for each text, all at the same time; returns the running calls.

    The searches get the timeouts in turn: the first search the first timeout, and so on.
    """
    fields = {"tenant_id": tenant, "limit": 1, "retrieval": rpb.RETRIEVAL_DENSE}
    requests = [rpb.SearchRequest(text=text, **fields) for text in texts]
    return [
        crowded.raw_retriever.Search.future(request, timeout=timeouts[number % len(timeouts)])
        for number, request in enumerate(requests)
    ]


def assert_found(search: Any, number: int) -> None:
    """Fails unless a search has found the document whose text is the query, with a score of 1.

    Any other score would mean that the query has got a wrong vector.
    """
    (passage,) = search.result().passages
    assert passage.chunk.document_id == f"d{number}"
    assert passage.score == pytest.approx(1, abs=COSINE_TOLERANCE)


def test_concurrent_callers_share_requests_and_each_gets_its_result(
    crowded: Running, endpoint: OpenAIServer, stored: str
) -> None:
    texts = texts_of(stored)
    for number, search in enumerate(at_once(crowded, stored, texts)):
        assert_found(search, number)
    assert sorted(endpoint.texts) == sorted(texts)
    # How many requests are made depends on the speed of the machine.
    assert endpoint.calls < CALLERS
    assert max(len(request["input"]) for request in endpoint.requests) <= MAX_TEXTS


def test_a_rejected_query_fails_for_its_caller_only(
    crowded: Running, endpoint: OpenAIServer, stored: str
) -> None:
    texts = texts_of(stored)
    texts[10::10] = [f"bad {stored} {number}" for number in range(len(texts[10::10]))]
    for number, search in enumerate(at_once(crowded, stored, texts)):
        if not texts[number].startswith("bad"):
            assert_found(search, number)
            continue
        error = search.exception()
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "answered 400" in error_from(error).message
        assert stored not in error.details()


def test_a_caller_with_a_short_deadline_does_not_affect_the_others(
    crowded: Running, stored: str
) -> None:
    searches = at_once(crowded, stored, texts_of(stored), (SLOW_S / 4, PATIENCE_S))
    for number, search in enumerate(searches):
        if number % 2:
            assert_found(search, number)
        else:
            assert search.code() is grpc.StatusCode.DEADLINE_EXCEEDED
