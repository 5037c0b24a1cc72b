"""Health can be checked and watched, and no client can block a service by doing so."""

import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from hrag.server.serving import health_service
from hrag.server.serving.health_service import Health
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from hrag.wire.status_codes import error_from
from tests.support.methods import servicer_of
from tests.support.servers.credentials import UNKNOWN_KEY, new_key
from tests.support.servers.servers import RETRIEVER, connected, serving
from tests.support.until import until

_Response = pb.HealthCheckResponse
_UNREADABLE = b"\xff"


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with connected(servicer_of(RETRIEVER)) as connection:
        yield connection


def test_list_returns_all_services(channel: grpc.Channel) -> None:
    response = health_pb2_grpc.HealthStub(channel).List(pb.HealthListRequest(), timeout=60)
    assert {name: state.status for name, state in response.statuses.items()} == {
        "": _Response.SERVING,
        RETRIEVER: _Response.SERVING,
    }


def test_a_watch_of_an_unknown_service_reports_service_unknown(channel: grpc.Channel) -> None:
    request = pb.HealthCheckRequest(service="hrag.v1.NoService")
    watched = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60)
    assert next(watched).status == _Response.SERVICE_UNKNOWN
    threading.Timer(1.0, watched.cancel).start()
    with pytest.raises(grpc.RpcError) as caught:
        next(watched)
    assert caught.value.code() is grpc.StatusCode.CANCELLED, "only the client ends the watch"


@pytest.mark.parametrize("name", ["Check", "List", "Watch"])
def test_a_malformed_request_is_an_invalid_argument(
    channel: grpc.Channel, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    call = channel.unary_stream(f"/grpc.health.v1.Health/{name}")
    with pytest.raises(grpc.RpcError) as caught:
        next(call(_UNREADABLE, timeout=60))
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
                watched = stub.Watch(pb.HealthCheckRequest(), timeout=60)
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
    assert stub.Check(pb.HealthCheckRequest(), timeout=60).status == _Response.SERVING


class _Name(str):
    """A string whose deletion can be observed."""

    __slots__ = ("__weakref__",)


class _Context:
    """The context of a Watch call; `leave` is the callback that runs when the caller leaves.

    It is also the sender of the call's messages. `received` has the states that were sent. Unless
    `reads`, the caller does not read, so no message is ever received.
    """

    def __init__(self, peer: str, *, reads: bool = True) -> None:
        self.code: grpc.StatusCode | None = None
        self.details = ""
        self.leave: Any = None
        self.received: list[int] = []
        self._peer = peer
        self._reads = reads

    def peer(self) -> str:
        return self._peer

    def add_callback(self, callback: Any) -> bool:
        self.leave = callback
        return True

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.code = code
        self.details = details
        raise ConnectionAbortedError

    def start(self, message: bytes, sent: Callable[[], None]) -> bool:
        self.received.append(pb.HealthCheckResponse.FromString(message).status)
        if self._reads:
            threading.Thread(target=sent).start()
        return True


def _health() -> Health:
    return Health(RETRIEVER, lambda context: context)


def _watch(
    health: Health, name: str = "", peer: str = "ipv4:127.0.0.1:50000", *, reads: bool = True
) -> _Context:
    context: Any = _Context(peer, reads=reads)
    with suppress(ConnectionAbortedError):
        health.Watch(SimpleNamespace(service=name), context, None)
    return context


def test_an_unknown_service_name_is_freed_when_its_watcher_leaves() -> None:
    """If names were kept, a client that watches more and more names would fill the memory."""
    name = _Name("hrag.v1.NoService")
    reference = weakref.ref(name)
    context = _watch(_health(), name)
    assert context.received == [_Response.SERVICE_UNKNOWN]
    context.leave()
    context.leave = None  # gRPC forgets the callbacks of a call that has ended, too.
    del name, context
    until(lambda: reference() is None)


@pytest.mark.parametrize(
    ("host", "limit"), [("ipv4:192.0.2.1", 128), ("ipv6:%5B2001:db8::1%5D", 128)]
)
def test_watches_of_a_strangers_address_are_limited(host: str, limit: int) -> None:
    health = _health()
    watches = [_watch(health, peer=f"{host}:{port}") for port in range(limit)]
    refused = _watch(health, peer=f"{host}:60000")
    assert refused.code is grpc.StatusCode.UNIMPLEMENTED
    assert f"{limit} watches" in refused.details
    assert _watch(health, peer="ipv4:192.0.2.2:1").code is None
    watches[0].leave()
    assert _watch(health, peer=f"{host}:60001").code is None


def test_watches_of_this_machine_are_served_beside_those_of_many_strangers() -> None:
    health = _health()
    for number in range(1024):
        assert _watch(health, peer=f"ipv4:192.0.2.{number % 16}:{number}").code is None
    assert _watch(health, peer="ipv4:198.51.100.1:1").code is grpc.StatusCode.UNIMPLEMENTED
    for peer in ("ipv4:127.0.0.1:1", "ipv6:%5B::1%5D:1", "unix:"):
        assert _watch(health, peer=peer).received


def test_a_caller_with_a_valid_credential_is_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here even the callers on this machine are strangers, and strangers may not watch."""
    monkeypatch.setattr(health_service, "_MAX_STRANGERS", 0)
    monkeypatch.setattr(health_service, "is_loopback", lambda _: False)
    keys = tmp_path / "keys.json"
    key = new_key(keys)
    settings = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(keys)}
    with connected(servicer_of(RETRIEVER), **settings) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch
        metadata = (("authorization", f"Bearer {key}"),)
        known = watch(pb.HealthCheckRequest(), metadata=metadata, timeout=60)
        assert next(known).status == _Response.SERVING
        known.cancel()
        for pairs in ((("authorization", f"Bearer {UNKNOWN_KEY}"),), ()):
            with pytest.raises(grpc.RpcError) as caught:
                next(watch(pb.HealthCheckRequest(), metadata=pairs, timeout=60))
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_clients_that_check_health_are_served_while_others_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a watch is refused with an unexpected code, a client treats the service as down."""
    config = {"healthCheckConfig": {"serviceName": RETRIEVER}}
    config["loadBalancingConfig"] = [{"round_robin": {}}]
    monkeypatch.setattr(health_service, "_MAX_KNOWN", 2)
    with serving(servicer_of(RETRIEVER)) as address:
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
            assert search(request, timeout=60) is not None
            for watch_call in watches:
                watch_call.cancel()


def test_a_watcher_receives_changes_only() -> None:
    health = _health()
    received = _watch(health).received
    for is_serving in (True, True, False):
        health.set(serving=is_serving)
        expected = _Response.SERVING if is_serving else _Response.NOT_SERVING
        assert received[-1:] == [expected]
    assert all(first != second for first, second in pairwise(received))


def test_watchers_that_do_not_read_delay_neither_calls_nor_other_watchers() -> None:
    health = _health()
    unread = _watch(health, reads=False).received
    received = _watch(health).received
    began = time.monotonic()
    health.set(serving=True)
    assert time.monotonic() - began < 30
    assert received == [_Response.NOT_SERVING, _Response.SERVING]
    assert len(unread) == 1, "the next message starts when the last message was read"
