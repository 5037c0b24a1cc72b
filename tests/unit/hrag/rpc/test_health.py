"""What the services tell of themselves to whoever asks, and what strangers cannot do to them."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from queue import Queue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from hrag.rpc.health import Health
from hrag.rpc.status import error_from
from tests.methods import servicer_of
from tests.servers import RETRIEVER, connected

_KNOWN = pb.HealthCheckResponse
_UNREADABLE = b"\xff"


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with connected(servicer_of(RETRIEVER)) as one:
        yield one


def test_all_that_can_be_asked_about_is_listed(channel: grpc.Channel) -> None:
    listed = health_pb2_grpc.HealthStub(channel).List(pb.HealthListRequest(), timeout=5)
    assert {name: each.status for name, each in listed.statuses.items()} == {
        "": _KNOWN.SERVING,
        RETRIEVER: _KNOWN.SERVING,
    }


def test_an_unknown_service_stays_unknown_to_who_watches_it(channel: grpc.Channel) -> None:
    request = pb.HealthCheckRequest(service="hrag.v1.NoService")
    watched = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=0.3)
    assert next(watched).status == _KNOWN.SERVICE_UNKNOWN
    with pytest.raises(grpc.RpcError) as caught:
        next(watched)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED, "it does not end by itself"


@pytest.mark.parametrize("name", ["Check", "List", "Watch"])
def test_a_request_that_cannot_be_read_is_the_callers_fault(
    channel: grpc.Channel, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    call = channel.unary_stream(f"/grpc.health.v1.Health/{name}")
    with pytest.raises(grpc.RpcError) as caught:
        next(call(_UNREADABLE, timeout=5))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_from(caught.value).field == "request"
    assert "Traceback" not in capfd.readouterr().err


def test_watchers_who_come_and_go_at_once_do_not_stop_the_server(channel: grpc.Channel) -> None:
    """One who leaves while another is told something made all of gRPC wait for ever."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    failures = []

    def come_and_go() -> None:
        try:
            for _ in range(100):
                watched = stub.Watch(pb.HealthCheckRequest(), timeout=5)
                next(watched)
                watched.cancel()
        except grpc.RpcError as failure:
            failures.append(failure.code())

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert stub.Check(pb.HealthCheckRequest(), timeout=5).status == _KNOWN.SERVING


class _Name(str):
    """A text whose end can be seen."""

    __slots__ = ("__weakref__",)


class _Context:
    """A call of Watch; `leave` is what its caller's going does."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.leave: Any = None

    def add_callback(self, callback: Any) -> bool:
        self.leave = callback
        return True

    def abort_with_status(self, told: Any) -> None:
        self.code = told.code
        raise ConnectionAbortedError


def _watch(health: Health, send: Any, name: str = "") -> _Context:
    context: Any = _Context()
    health.Watch(SimpleNamespace(service=name), context, send)
    return context


def test_a_name_that_nobody_has_is_forgotten_when_its_watcher_goes() -> None:
    """Else whoever watches ever new names fills the memory."""
    told = Queue[pb.HealthCheckResponse]()
    name = _Name("hrag.v1.NoService")
    kept = weakref.ref(name)
    context = _watch(Health(RETRIEVER, 8), told.put, name)
    assert told.get(timeout=5).status == _KNOWN.SERVICE_UNKNOWN
    context.leave()
    del name, context
    assert _soon(lambda: kept() is None)


def test_watchers_leave_half_of_the_calls_to_others() -> None:
    health = Health(RETRIEVER, 4)
    watching = [_watch(health, lambda _: None) for _ in range(2)]
    with pytest.raises(ConnectionAbortedError):
        _watch(health, lambda _: None)
    watching[0].leave()
    assert _watch(health, lambda _: None).code is None


def test_a_watcher_is_told_what_is_new_alone() -> None:
    health = Health(RETRIEVER, 8)
    told: list[int] = []
    _watch(health, lambda response: told.append(response.status))
    for serving in (True, True, False):
        health.set(serving=serving)
        expected = _KNOWN.SERVING if serving else _KNOWN.NOT_SERVING
        assert _soon(lambda now=expected: told[-1:] == [now])  # type: ignore[misc]
    assert all(first != second for first, second in pairwise(told))


def test_watchers_who_read_nothing_hold_up_neither_calls_nor_others() -> None:
    health = Health(RETRIEVER, 8)
    may_read = threading.Event()
    told: list[int] = []
    _watch(health, lambda _: may_read.wait(30))  # Would wait here, in a thread of calls.
    _watch(health, lambda response: told.append(response.status))
    began = time.monotonic()
    health.set(serving=True)
    assert time.monotonic() - began < 5
    assert _soon(lambda: told[-1:] == [_KNOWN.SERVING])
    may_read.set()


def _soon(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + 5
    while not holds() and time.monotonic() < until:
        time.sleep(0.005)
    return holds()
