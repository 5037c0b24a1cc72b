"""Calls whose callers have gone, or whose time is over, let go of their threads and models."""

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
from tests.support.servers.openai_server import DEFAULT_DIMENSION, OpenAIServer, refuse, slow
from tests.support.servers.processes import Running, running
from tests.support.until import until

_THREADS = 2
_FAR = 1 << 40
# Some twelve requests to the endpoint.
_LONG = "A sentence that fills a request. " * (12 * MAX_REQUEST_BYTES // 33)
_SLOW_S = 0.4


@pytest.fixture(scope="module")
def endpoint(_no_settings_from_outside: None) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def few(endpoint: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Services with two threads each, which an endpoint embeds for."""
    settings = {
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
def stored(few: Running, endpoint: OpenAIServer, tenant: str) -> Iterator[str]:
    """A tenant with a document; what was to spoil replies is forgotten afterwards."""
    few.client.ingest(tenant, Document("Dogs bark.", "dogs"))
    yield tenant
    endpoint.forget_faults()


def _search_still_answers(few: Running, tenant: str) -> None:
    vector = rpb.Vector(values=[1.0] * DEFAULT_DIMENSION)
    request = rpb.SearchRequest(tenant_id=tenant, vector=vector)
    assert len(few.raw_retriever.Search(request, timeout=3).passages) == 1


def test_cancelled_searches_that_wait_for_a_change_free_their_threads(
    few: Running, stored: str
) -> None:
    request = rpb.SearchRequest(tenant_id=stored, text="dogs", min_sequence=_FAR)
    waiting = [few.raw_retriever.Search.future(request) for _ in range(_THREADS)]
    with pytest.raises(grpc.FutureTimeoutError):
        waiting[0].result(0.5)
    for each in waiting:
        each.cancel()
    _search_still_answers(few, stored)
    until = time.monotonic() + 10
    while few.retriever.log.count("code=CANCELLED") < _THREADS:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("fault", [slow(60), refuse(429, retry_after="60")], ids=["slow", "limits"])
def test_searches_whose_time_is_over_do_not_wait_for_an_embedder(
    few: Running, endpoint: OpenAIServer, stored: str, fault: Any
) -> None:
    endpoint.inject(fault, times=_THREADS)
    for number in range(_THREADS):
        request = rpb.SearchRequest(
            tenant_id=stored, text=f"{stored} {number}", retrieval=rpb.RETRIEVAL_DENSE
        )
        with pytest.raises(grpc.RpcError):
            few.raw_retriever.Search(request, timeout=0.5)
    _search_still_answers(few, stored)


@pytest.mark.parametrize("way", ["cancel", "deadline"])
def test_a_document_nobody_waits_for_is_not_embedded_to_its_end(
    few: Running, endpoint: OpenAIServer, stored: str, way: str
) -> None:
    before = endpoint.calls
    endpoint.inject(slow(_SLOW_S), times=30)
    document = tpb.Document(document_id="long", text=_LONG)
    request = ipb.IngestDocumentRequest(tenant_id=stored, document=document)
    timeout = None if way == "cancel" else 4 * _SLOW_S
    storing = few.raw_indexer.IngestDocument.future(request, timeout=timeout)
    if way == "cancel":
        until(lambda: endpoint.calls > before)
        storing.cancel()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        storing.result(20)
    _stands_still(endpoint)
    assert endpoint.calls - before < 6
    assert [info.document_id for info in few.client.list_documents(stored).items] == ["dogs"]


def test_a_stream_nobody_waits_for_is_not_embedded_to_its_end(
    few: Running, endpoint: OpenAIServer, stored: str
) -> None:
    before = endpoint.calls
    endpoint.inject(slow(_SLOW_S), times=30)
    over = Event()

    def documents() -> Iterator[ipb.IngestDocumentsRequest]:
        for number in range(6):
            text = f"{number} {_LONG[: 2 * MAX_REQUEST_BYTES]}"
            document = tpb.Document(document_id=f"d{number}", text=text)
            yield ipb.IngestDocumentsRequest(tenant_id=stored, document=document)
        over.wait(20)

    storing = few.raw_indexer.IngestDocuments(documents())
    until(lambda: endpoint.calls > before)
    storing.cancel()
    over.set()
    _stands_still(endpoint)
    assert endpoint.calls - before < 6


def _stands_still(endpoint: OpenAIServer) -> None:
    """Waits until nothing is asked any more."""
    seen = -1
    while endpoint.calls > seen:
        seen = endpoint.calls
        time.sleep(3 * _SLOW_S)
