"""A call frees its thread and stops using models if its caller leaves or its deadline passes."""

import time
from collections.abc import Iterator
from threading import Event
from typing import Any

import grpc
import pytest

from hrag.models.embedding.openai_embedder import MAX_REQUEST_BYTES
from hrag.types import Document
from hrag.v1 import indexer_pb2 as ipb
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import types_pb2 as tpb
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.openai_server import DEFAULT_DIMENSION, OpenAIServer, refuse, slow
from tests.support.servers.processes import Running, running
from tests.support.until import PATIENCE_S, until

_THREADS = 2
_FAR_SEQUENCE = 1 << 40
# The endpoint embeds this text in about twelve requests.
_LONG = "A sentence that fills a request. " * (12 * MAX_REQUEST_BYTES // 33)
_SLOW_S = 0.4
# A search must be answered within this time, while the endpoint delays other searches for a minute.
_UNDELAYED_S = 30.0


@pytest.fixture(scope="module")
def endpoint(_no_settings_from_outside: None) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def services(
    endpoint: OpenAIServer, metrics_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Services with two threads each, whose embedder is an endpoint."""
    settings = {
        "HRAG_RETRIEVER_METRICS_ADDRESS": metrics_address,
        "HRAG_EMBEDDER": "openai",
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": "sk-test",
        "HRAG_OPENAI_DIMENSIONS": str(DEFAULT_DIMENSION),
        "HRAG_THREADS": str(_THREADS),
        "HRAG_MAX_CONCURRENT_ANSWERS": "1",
    }
    with running(tmp_path_factory.mktemp("few") / "store", settings) as both:
        yield both


@pytest.fixture
def stored(services: Running, endpoint: OpenAIServer, tenant: str) -> Iterator[str]:
    """A tenant with a document. Removes the endpoint's remaining faults after the test."""
    services.client.ingest(tenant, Document("Dogs bark.", "dogs"))
    yield tenant
    endpoint.forget_faults()


def _search_still_answers(services: Running, tenant: str) -> None:
    vector = rpb.Vector(values=[1.0] * DEFAULT_DIMENSION)
    request = rpb.SearchRequest(tenant_id=tenant, vector=vector)
    assert len(services.raw_retriever.Search(request, timeout=_UNDELAYED_S).passages) == 1


def test_cancelled_searches_that_wait_for_a_change_free_their_threads(
    services: Running, metrics_address: str, stored: str
) -> None:
    logged = services.retriever.log.count("code=CANCELLED")
    request = rpb.SearchRequest(tenant_id=stored, text="dogs", min_sequence=_FAR_SEQUENCE)
    search = services.raw_retriever.Search
    waiting = [search.future(request, timeout=600) for _ in range(_THREADS)]
    until(lambda: Scrape(metrics_address).value("hrag_calls_running") >= _THREADS)
    for call in waiting:
        assert not call.done()
        call.cancel()
    _search_still_answers(services, stored)
    until(lambda: services.retriever.log.count("code=CANCELLED") >= logged + _THREADS)


@pytest.mark.parametrize("fault", [slow(60), refuse(429, retry_after="60")], ids=["slow", "limits"])
def test_searches_past_their_deadline_do_not_wait_for_an_embedder(
    services: Running, endpoint: OpenAIServer, stored: str, fault: Any
) -> None:
    endpoint.inject(fault, times=_THREADS)
    for number in range(_THREADS):
        request = rpb.SearchRequest(
            tenant_id=stored, text=f"{stored} {number}", retrieval=rpb.RETRIEVAL_DENSE
        )
        with pytest.raises(grpc.RpcError):
            services.raw_retriever.Search(request, timeout=0.5)
    _search_still_answers(services, stored)


@pytest.mark.parametrize("way", ["cancel", "deadline"])
def test_a_document_without_a_waiting_caller_is_not_embedded_to_the_end(
    services: Running, endpoint: OpenAIServer, stored: str, way: str
) -> None:
    before = endpoint.calls
    endpoint.inject(slow(_SLOW_S), times=30)
    document = tpb.Document(document_id="long", text=_LONG)
    request = ipb.IngestDocumentRequest(tenant_id=stored, document=document)
    timeout = None if way == "cancel" else 4 * _SLOW_S
    storing = services.raw_indexer.IngestDocument.future(request, timeout=timeout)
    if way == "cancel":
        until(lambda: endpoint.calls > before)
        storing.cancel()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        storing.result(PATIENCE_S)
    _wait_until_unused(endpoint)
    assert endpoint.calls - before < 6
    assert [info.document_id for info in services.client.list_documents(stored).items] == ["dogs"]


def test_a_stream_without_a_waiting_caller_is_not_embedded_to_the_end(
    services: Running, endpoint: OpenAIServer, stored: str
) -> None:
    before = endpoint.calls
    endpoint.inject(slow(_SLOW_S), times=30)
    over = Event()

    def documents() -> Iterator[ipb.IngestDocumentsRequest]:
        for number in range(6):
            text = f"{number} {_LONG[: 2 * MAX_REQUEST_BYTES]}"
            document = tpb.Document(document_id=f"d{number}", text=text)
            yield ipb.IngestDocumentsRequest(tenant_id=stored, document=document)
        over.wait(PATIENCE_S)

    storing = services.raw_indexer.IngestDocuments(documents())
    until(lambda: endpoint.calls > before)
    storing.cancel()
    over.set()
    _wait_until_unused(endpoint)
    assert endpoint.calls - before < 6


def _wait_until_unused(endpoint: OpenAIServer) -> None:
    """Waits until the endpoint has received no request for three times the duration of a reply."""
    calls, since = endpoint.calls, time.monotonic()

    def is_unused() -> bool:
        nonlocal calls, since
        if endpoint.calls > calls:
            calls, since = endpoint.calls, time.monotonic()
        return time.monotonic() - since > 3 * _SLOW_S

    until(is_unused)
