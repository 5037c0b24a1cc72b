"""Services start, stop and restart cleanly, also while they work."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hrag import errors
from hrag.cli.processes import INDEXER, RETRIEVER, Service, free_addresses
from hrag.client import Client
from hrag.types import Document
from tests.support.servers.metrics_page import Scrape
from tests.support.servers.openai_server import OpenAIServer, slow
from tests.support.servers.processes import FAST, Process, Running, running, started
from tests.support.servers.stores import check_store, is_embedded
from tests.support.until import PATIENCE_S, until

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_WRITING_S = 2.5
_FEWEST_WRITES = 40
_WITHOUT_STORE = pytest.mark.not_in_clusters("a service cannot create the tables of a cluster")


def _text(number: int, sentences: int = 60) -> str:
    return "".join(f"Text {number} says sentence {sentence}. " for sentence in range(sentences))


# These tests stop services.


def test_a_graceful_stop_is_announced_and_lets_a_running_search_end(data_dir: Path) -> None:
    (metrics,) = free_addresses(1)
    settings = {**FAST, "HRAG_RETRIEVER_METRICS_ADDRESS": metrics, "HRAG_DRAIN_S": "300"}
    with running(data_dir, settings) as services:
        _stop_during_a_search(services, metrics)


def _stop_during_a_search(services: Running, metrics: str) -> None:
    client, retriever = services.client, services.retriever
    stored = client.ingest("t", Document("Cats sleep.", "a"))
    with grpc.insecure_channel(retriever.address) as channel, ThreadPoolExecutor(1) as caller:
        health = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=RETRIEVER.health_name)
        watched = health.Watch(request, timeout=PATIENCE_S)
        assert next(watched).status == _SERVING
        calls = Scrape(metrics).value("hrag_calls_running")
        running_search = caller.submit(
            client.search, "t", "x", min_sequence=stored.sequence + 1, timeout_s=PATIENCE_S
        )
        until(lambda: Scrape(metrics).value("hrag_calls_running") == calls + 1)
        retriever.terminate()
        assert next(watched).status == _NOT_SERVING
        watched.cancel()
        assert retriever.is_running
        assert not running_search.done()
        client.ingest("t", Document("Dogs bark.", "b"))
        result = running_search.result(PATIENCE_S)
    assert {passage.chunk.document_id for passage in result.passages} == {"a", "b"}
    assert retriever.wait() == 0


@pytest.mark.slow
def test_a_call_that_never_ends_does_not_delay_a_stop(data_dir: Path) -> None:
    with OpenAIServer() as endpoint:
        settings = {
            "HRAG_EMBEDDER": "openai",
            "OPENAI_BASE_URL": endpoint.base_url,
            "HRAG_DRAIN_S": "0.2",
        }
        with running(data_dir, settings) as services, ThreadPoolExecutor(1) as caller:
            services.client.ingest("t", Document("Cats sleep.", "a"))
            calls = endpoint.calls
            endpoint.inject(slow(600))
            hanging = caller.submit(services.client.ingest, "t", Document("Dogs bark.", "b"))
            until(lambda: endpoint.calls > calls)
            assert services.indexer.stop() == 0
            with pytest.raises(errors.ServiceUnavailable):
                hanging.result()
    with running(data_dir) as services:
        assert [info.document_id for info in services.client.list_documents("t").items] == ["a"]


# These tests start services.


@pytest.mark.embedded_only("any number of indexers may share a database")
def test_a_second_indexer_on_the_same_store_ends_and_says_why(services: Running) -> None:
    second = Process(INDEXER, services.data_dir, FAST)
    assert second.wait() == 1
    assert "another indexer has the store" in second.log
    assert str(services.data_dir) in second.log


@pytest.mark.parametrize("service", [INDEXER, RETRIEVER], ids=lambda service: service.name)
def test_a_service_whose_port_is_in_use_ends_and_names_the_address(
    services: Running, data_dir: Path, service: Service
) -> None:
    folder = services.data_dir if service is RETRIEVER else data_dir
    address = services.retriever.address
    second = Process(service, folder, FAST, address)
    assert second.wait() == 1
    assert f"cannot listen on {address}" in second.log


@_WITHOUT_STORE
def test_a_retriever_that_starts_first_waits_for_the_store_and_then_serves(data_dir: Path) -> None:
    with started(RETRIEVER, data_dir) as retriever:
        until(lambda: "waiting_for_store" in retriever.log, 60)
        assert not retriever.serves()
        with started(INDEXER, data_dir) as indexer:
            indexer.wait_until_serving()
            retriever.wait_until_serving()
            with Client(indexer.address, retriever.address) as client:
                client.ingest("t", Document("Cats sleep.", "a"))
                assert len(client.search("t", "x").passages) == 1
    check_store(data_dir)


@_WITHOUT_STORE
def test_a_retriever_can_be_stopped_while_it_waits(data_dir: Path) -> None:
    with started(RETRIEVER, data_dir) as retriever:
        until(lambda: "waiting_for_store" in retriever.log, 60)
        assert retriever.stop() == 0


def test_a_restart_keeps_everything(data_dir: Path) -> None:
    def state(client: Client) -> Any:
        result = client.search("t", "sentence", limit=100)
        return (
            client.list_collections("t"),
            client.list_documents("t"),
            [client.get_text("t", f"d{number}") for number in range(5)],
            client.index_status("t"),
            (result.passages, result.sequence),
        )

    with running(data_dir) as services:
        for number in range(5):
            document = Document(_text(number), f"d{number}", metadata={"number": number})
            services.client.ingest("t", document)
        services.client.ingest("t", Document(_text(9), "gone"))
        services.client.delete_document("t", "gone")
        before = state(services.client)
    with running(data_dir) as services:
        assert state(services.client) == before


# In this test, searches run during writes.


def _search_until(services: Running, has_begun: Event, stop: Event) -> int:
    """Searches until `stop` is set; returns how many it made. Sets `has_begun` after the first.

    Fails if a search returns too few passages, or a passage without text of its document.
    """
    done = 0
    with closing(services.new_client()) as client:
        while not stop.is_set():
            result = client.search(
                "t", f"query {done}", limit=10, return_level=done % 4, keep_overlap=True
            )
            assert len(result.passages) == 10 or result.exhausted
            for passage in result.passages:
                number = passage.chunk.document_id[1:]
                assert f"Text {number} says" in passage.chunk.content
            done += 1
            has_begun.set()
    return done


def _write_for(client: Client, seconds: float) -> None:
    """Stores and deletes documents for this time, and until it has made a few dozen changes."""
    end, writes = time.monotonic() + seconds, 0
    while time.monotonic() < end or writes < _FEWEST_WRITES:
        number = writes % 40
        client.ingest("t", Document(_text(number, 40 + writes), f"d{number}"))
        if number > 20:
            client.delete_document("t", f"d{number}")
        writes += 1


def test_eight_threads_search_during_writes_without_an_error(data_dir: Path) -> None:
    with running(data_dir, {**FAST, "HRAG_SEGMENT_MIN_LEAVES": "64"}) as services:
        for number in range(12):
            services.client.ingest("t", Document(_text(number), f"d{number}"))
        stop, begun = Event(), [Event() for _ in range(8)]
        with ThreadPoolExecutor(len(begun)) as threads:
            searching = [threads.submit(_search_until, services, event, stop) for event in begun]
            try:
                for event in begun:
                    until(lambda e=event: e.is_set() or any(one.done() for one in searching))
                _write_for(services.client, _WRITING_S)
            finally:
                stop.set()
            assert all(search.result() > 0 for search in searching)
        if not is_embedded():
            return
        # A slow machine may have written too little for a segment.
        for number in range(12):
            services.client.ingest("t", Document(_text(number, 200), f"last{number}"))
        until(lambda: services.client.index_status("t").embedded.segments != (), 60)
