"""Health can be checked and watched, and no client can block a service by doing so."""

import json
import threading
import time
import weakref
from collections.abc import Iterator
from itertools import pairwise
from queue import Queue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from hrag.server.serving.health_service import Health
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from hrag.wire.status_codes import error_from
from tests.support.methods import servicer_of
from tests.support.servers.servers import RETRIEVER, connected, serving
from tests.support.until import until

_Response = pb.HealthCheckResponse
_UNREADABLE = b"\xff"


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with connected(servicer_of(RETRIEVER)) as connection:
        yield connection


def test_list_returns_all_services(channel: grpc.Channel) -> None:
    response = health_pb2_grpc.HealthStub(channel).List(pb.HealthListRequest(), timeout=5)
    assert {name: state.status for name, state in response.statuses.items()} == {
        "": _Response.SERVING,
        RETRIEVER: _Response.SERVING,
    }


def test_a_watch_of_an_unknown_service_reports_service_unknown(channel: grpc.Channel) -> None:
    request = pb.HealthCheckRequest(service="hrag.v1.NoService")
    watched = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=0.3)
    assert next(watched).status == _Response.SERVICE_UNKNOWN
    with pytest.raises(grpc.RpcError) as caught:
        next(watched)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED, (
        "only the deadline ends the watch"
    )


@pytest.mark.parametrize("name", ["Check", "List", "Watch"])
def test_a_malformed_request_is_an_invalid_argument(
    channel: grpc.Channel, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    call = channel.unary_stream(f"/grpc.health.v1.Health/{name}")
    with pytest.raises(grpc.RpcError) as caught:
        next(call(_UNREADABLE, timeout=5))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_from(caught.value).field == "request"
    assert "Traceback" not in capfd.readouterr().err


def test_watchers_that_join_and_leave_concurrently_do_not_block_the_server(
    channel: grpc.Channel,
) -> None:
    """When a watcher left while another watcher was notified, all of gRPC used to deadlock."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    failures = []

    def join_and_leave() -> None:
        try:
            for _ in range(100):
                watched = stub.Watch(pb.HealthCheckRequest(), timeout=5)
                next(watched)
                watched.cancel()
        except grpc.RpcError as failure:
            failures.append(failure.code())

    threads = [threading.Thread(target=join_and_leave) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stub.Check(pb.HealthCheckRequest(), timeout=5).status == _Response.SERVING


class _Name(str):
    """A string whose deletion can be observed."""

    __slots__ = ("__weakref__",)


class _Context:
    """The context of a Watch call; `leave` is the callback that runs when the caller leaves."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.leave: Any = None

    def add_callback(self, callback: Any) -> bool:
        self.leave = callback
        return True

    def abort(self, code: grpc.StatusCode, _details: str) -> None:
        self.code = code
        raise ConnectionAbortedError


def _watch(health: Health, send: Any, name: str = "") -> _Context:
    context: Any = _Context()
    health.Watch(SimpleNamespace(service=name), context, send)
    return context


def test_an_unknown_service_name_is_freed_when_its_watcher_leaves() -> None:
    """If names were kept, a client that watches more and more names would fill the memory."""
    received = Queue[pb.HealthCheckResponse]()
    name = _Name("hrag.v1.NoService")
    reference = weakref.ref(name)
    context = _watch(Health(RETRIEVER, 8), received.put, name)
    assert received.get(timeout=5).status == _Response.SERVICE_UNKNOWN
    context.leave()
    del name, context
    until(lambda: reference() is None)


def test_watchers_use_at_most_half_of_the_allowed_calls() -> None:
    health = Health(RETRIEVER, 4)
    watching = [_watch(health, lambda _: None) for _ in range(2)]
    with pytest.raises(ConnectionAbortedError):
        _watch(health, lambda _: None)
    watching[0].leave()
    assert _watch(health, lambda _: None).code is None


def test_clients_that_check_health_are_served_while_a_stranger_watches() -> None:
    """If a watch is refused with an unexpected code, a client treats the service as down."""
    config = {"healthCheckConfig": {"serviceName": RETRIEVER}}
    config["loadBalancingConfig"] = [{"round_robin": {}}]
    with serving(servicer_of(RETRIEVER), HRAG_MAX_CONCURRENT_CALLS=4) as address:
        options = [("grpc.service_config", json.dumps(config))]
        with (
            grpc.insecure_channel(address) as stranger,
            grpc.insecure_channel(address, options) as client,
        ):
            watch = health_pb2_grpc.HealthStub(stranger).Watch
            watches = [watch(pb.HealthCheckRequest()) for _ in range(2)]
            assert [next(watch_call).status for watch_call in watches] == [_Response.SERVING] * 2
            request = rpb.SearchRequest(tenant_id="t")
            search = retriever_pb2_grpc.RetrieverServiceStub(client).Search
            assert search(request, timeout=10) is not None
            for watch_call in watches:
                watch_call.cancel()


def test_a_watcher_receives_changes_only() -> None:
    health = Health(RETRIEVER, 8)
    received: list[int] = []
    _watch(health, lambda response: received.append(response.status))
    for is_serving in (True, True, False):
        health.set(serving=is_serving)
        expected = _Response.SERVING if is_serving else _Response.NOT_SERVING
        until(lambda last=expected: received[-1:] == [last])  # type: ignore[misc]
    assert all(first != second for first, second in pairwise(received))


def test_watchers_that_do_not_read_delay_neither_calls_nor_other_watchers() -> None:
    health = Health(RETRIEVER, 8)
    may_read = threading.Event()
    received: list[int] = []
    # This watcher never reads. It must not block a thread that calls need.
    _watch(health, lambda _: may_read.wait(30))
    _watch(health, lambda response: received.append(response.status))
    began = time.monotonic()
    health.set(serving=True)
    assert time.monotonic() - began < 5
    until(lambda: received[-1:] == [_Response.SERVING])
    may_read.set()
