"""What the services tell of themselves to whoever asks, and what strangers cannot do to them."""

import threading
import weakref
from collections.abc import Iterator
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
    """A text that can be watched."""

    __slots__ = ("__weakref__",)


def test_a_name_that_nobody_has_is_forgotten() -> None:
    """Else whoever watches ever new names fills the memory."""
    told: list[pb.HealthCheckResponse] = []
    name = _Name("hrag.v1.NoService")
    kept = weakref.ref(name)
    Health(RETRIEVER).Watch(SimpleNamespace(service=name), SimpleNamespace(), told.append)  # type: ignore[arg-type]
    del name
    assert told[0].status == _KNOWN.SERVICE_UNKNOWN
    assert kept() is None


def test_a_watcher_who_reads_nothing_does_not_hold_up_a_change() -> None:
    health = Health(RETRIEVER)
    hanging, told = threading.Event(), threading.Semaphore(0)

    def send(_: pb.HealthCheckResponse) -> None:
        told.release()
        if first.is_set():
            hanging.wait(30)

    first = threading.Event()
    context = SimpleNamespace(add_callback=lambda _: True)
    health.Watch(pb.HealthCheckRequest(), context, send)  # type: ignore[arg-type]
    first.set()
    setting = threading.Thread(target=lambda: health.set(serving=True))
    setting.start()
    setting.join(10)
    assert not setting.is_alive()
    assert told.acquire(timeout=1)
    hanging.set()
