"""Running services export traces to a collector."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from hrag.config import CommonSettings, SettingsError
from hrag.errors import HragError
from hrag.observe import tracing
from hrag.types import Document
from hrag.v1 import retriever_pb2 as rpb
from tests.support.servers.processes import FAST, running
from tests.support.until import PATIENCE_S, until

_SECRET = "Zyzzyva"
_SEARCH = "/hrag.v1.RetrieverService/Search"
_ERROR = 2


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """A collector that stores each received span with the name of the service that sent it."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []

    def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            (service,) = (
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            )
            self.spans += [
                (service, span) for scope in resource.scope_spans for span in scope.spans
            ]
        return trace_service_pb2.ExportTraceServiceResponse()

    def await_spans(self, name: str, count: int) -> list[Any]:
        """Waits for `count` spans of this name and returns them."""
        until(lambda: len(self._named(name)) >= count)
        return self._named(name)

    def _named(self, name: str) -> list[Any]:
        return [span for _, span in self.spans if span.name == name]


@contextmanager
def _collecting() -> Iterator[tuple[Collector, str]]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def test_calls_are_traced_with_their_stages_and_without_texts(data_dir: Path) -> None:
    with _collecting() as (collector, endpoint):
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_EXPORTER_OTLP_TIMEOUT": str(PATIENCE_S),
        }
        with running(data_dir, {**FAST, **settings}) as services:
            services.client.ingest("t", Document(f"{_SECRET} sleeps.", "a", title=_SECRET))
            trace_id, parent_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
            services.raw_retriever.Search(
                rpb.SearchRequest(tenant_id="t", text=_SECRET),
                metadata=(("traceparent", f"00-{trace_id}-{parent_id}-01"),),
                timeout=PATIENCE_S,
            )
            (search,) = collector.await_spans(_SEARCH, 1)
            (fetched,) = collector.await_spans("fetch", 1)
            with pytest.raises(HragError):
                services.client.search("t", "x", collection=f"{_SECRET} is no name")
            *_, refused = collector.await_spans(_SEARCH, 2)
        collector.await_spans("/hrag.v1.IndexerService/IngestDocument", 1)
    assert (search.trace_id.hex(), search.parent_span_id.hex()) == (trace_id, parent_id)
    inside = [span for _, span in collector.spans if span.parent_span_id == search.span_id]
    assert {span.name for span in inside} == {"embed", "search", "climb", "fetch"}
    assert fetched.trace_id == search.trace_id
    for span in inside:
        assert search.start_time_unix_nano <= span.start_time_unix_nano + 1_000_000
        assert span.start_time_unix_nano < span.end_time_unix_nano
    codes = {a.key: a.value.int_value for a in refused.attributes}
    assert codes["rpc.grpc.status_code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert refused.status.code != _ERROR, "the fault is the client's"
    assert {service for service, _ in collector.spans} == {"hrag-indexer", "hrag-retriever"}
    assert not any("health" in span.name for _, span in collector.spans)
    assert _SECRET not in str(collector.spans)


@pytest.mark.slow
def test_a_collector_that_is_down_delays_no_call_and_no_stop(data_dir: Path) -> None:
    settings = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        # The exporter repeats its attempts for much longer than a test waits for a stop.
        "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
        "HRAG_DRAIN_S": "1",
    }
    with running(data_dir, {**FAST, **settings}) as services:
        services.client.ingest("t", Document("Cats sleep.", "a"))
        assert services.client.search("t", "cats").passages
        assert services.retriever.stop() == 0


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "HRAG_TRACING": "false"}, False),
        ({"HRAG_TRACING": "on"}, True),
    ],
)
def test_tracing_is_off_by_default(variables: dict[str, str], expected: bool) -> None:
    assert CommonSettings(**variables).is_tracing is expected


def test_missing_optional_packages_are_reported_with_the_command_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"HRAG_TRACING .*pip install '\.\[otel\]'"):
        tracing.configure("indexer", CommonSettings(HRAG_TRACING="on"))
    assert tracing.interceptors() == []
