"""The server of a service binds its address, reports health, limits calls, and stops."""

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from hrag import errors
from hrag.config import NO_AUTH_WORDS, PLAINTEXT_WORDS
from hrag.observe import metrics
from hrag.server.calls.call_deadline import deadline_of
from hrag.server.serving.grpc_server import Server
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from hrag.wire.status_codes import error_from
from hrag.wire.stream_admission import REQUEST_ID
from tests.support.servers.servers import RETRIEVER, built, connected, serving
from tests.support.until import until

_SERVING = health_pb2.HealthCheckResponse.SERVING
_OPEN = {"HRAG_INSECURE_NO_AUTH": NO_AUTH_WORDS, "HRAG_INSECURE_PLAINTEXT": PLAINTEXT_WORDS}
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Slow(retriever_pb2_grpc.RetrieverServiceServicer):
    """Answers each search only when the test has set `may_end`."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.may_end = threading.Event()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        self.running.release()
        assert self.may_end.wait(60)
        return rpb.SearchResponse(sequence=7)


@contextmanager
def _started(servicer: object, **variables: object) -> Iterator[tuple[Server, grpc.Channel]]:
    server = built(servicer, **variables)
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield server, channel


def _search(channel: grpc.Channel, timeout: float | None = 60) -> Any:
    return retriever_pb2_grpc.RetrieverServiceStub(channel).Search.future(
        rpb.SearchRequest(), timeout=timeout
    )


def _health(channel: grpc.Channel, name: str) -> int:
    request = health_pb2.HealthCheckRequest(service=name)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=60).status


def _refusal(channel: grpc.Channel) -> grpc.RpcError:
    """Returns the error of the first call that a stopping server refuses."""
    refusals: list[grpc.RpcError] = []

    def is_refused() -> bool:
        try:
            _health(channel, RETRIEVER)
        except grpc.RpcError as refusal:
            refusals.append(refusal)
        return bool(refusals)

    until(is_refused)
    return refusals[0]


@pytest.mark.parametrize("name", ["", RETRIEVER])
def test_health_is_serving_until_the_service_stops(name: str) -> None:
    servicer = Slow()
    with _started(servicer) as (server, channel):
        assert _health(channel, name) == _SERVING
        request = health_pb2.HealthCheckRequest(service=name)
        statuses = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=60)
        assert next(statuses).status == _SERVING
        running = _search(channel)
        servicer.running.acquire()
        with ThreadPoolExecutor(1) as stopper:
            stopped = stopper.submit(server.stop, 60)
            assert next(statuses).status == _NOT_SERVING
            assert not stopped.done(), "a call is still running"
            statuses.cancel()
            servicer.may_end.set()
            assert running.result().sequence == 7
            assert stopped.result() is True


def test_health_of_an_unknown_service_is_not_found() -> None:
    with connected(Slow()) as channel, pytest.raises(grpc.RpcError) as caught:
        _health(channel, "hrag.v1.NoService")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_bound_server_does_not_answer_before_its_start() -> None:
    server = built(Slow())
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=0.2)
        assert caught.value.code() in (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.UNAVAILABLE,
        )
    server.stop(0)


def test_a_stopping_server_refuses_new_calls() -> None:
    servicer = Slow()
    with _started(servicer) as (server, channel), ThreadPoolExecutor(1) as stopper:
        running = _search(channel)
        servicer.running.acquire()
        stopped = stopper.submit(server.stop, 60)
        assert type(error_from(_refusal(channel))) is errors.ServiceUnavailable
        assert type(error_from(_search(channel))) is errors.ServiceUnavailable
        servicer.may_end.set()
        assert running.result().sequence == 7
        assert stopped.result() is True


def test_a_call_that_does_not_end_during_the_drain_is_cancelled_and_reported() -> None:
    servicer = Slow()
    with _started(servicer) as (server, channel):
        running = _search(channel)
        servicer.running.acquire()
        began = time.monotonic()
        assert server.stop(0.1) is False
        assert time.monotonic() - began < 30
        assert running.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
        servicer.may_end.set()


def test_another_call_may_wait_when_the_caller_of_a_waiting_call_leaves() -> None:
    servicer = Slow()
    variables = {"HRAG_THREADS": 2, "HRAG_TENANT_MAX_WAITING_CALLS": 4}
    with _started(servicer, **variables) as (server, channel):
        running = [_search(channel) for _ in range(2)]
        for _ in running:
            servicer.running.acquire()
        waiting = [_search(channel) for _ in range(2)]
        until(lambda: server.limits.executor.calls == 4)
        late = [_search(channel, timeout=0.2) for _ in range(2)]
        assert all(call.code() is grpc.StatusCode.DEADLINE_EXCEEDED for call in late)
        waiting[0].cancel()
        until(lambda: server.limits.executor.calls == 3)
        further_calls = [_search(channel) for _ in range(3)]
        until(lambda: server.limits.executor.calls == 6)
        servicer.may_end.set()
        calls = (*running, waiting[1], *further_calls)
        assert [call.result().sequence for call in calls] == [7] * 6
        until(lambda: server.limits.executor.calls == 0)


def test_the_bytes_of_unanswered_requests_are_limited() -> None:
    servicer = Slow()
    large = rpb.SearchRequest(text="x" * 300_000)
    with _started(servicer, HRAG_MAX_UNANSWERED_BYTES=1 << 20) as (server, channel):
        search = retriever_pb2_grpc.RetrieverServiceStub(channel).Search
        running = search.future(large, timeout=60)
        servicer.running.acquire()
        with pytest.raises(grpc.RpcError) as caught:
            search(large, timeout=60)
        refusal = error_from(caught.value)
        assert type(refusal) is errors.TooBusy
        assert "HRAG_MAX_UNANSWERED_BYTES" in refusal.message
        servicer.may_end.set()
        assert running.result().sequence == 7
        until(lambda: server.limits.executor.calls == 0)
        assert search(large, timeout=60).sequence == 7


def test_a_stream_for_which_no_thread_can_start_is_refused_and_calls_continue(monkeypatch) -> None:
    servicer = Slow()
    servicer.may_end.set()
    with _started(servicer) as (server, channel):
        start = threading.Thread.start

        def fail_to_start_streams(thread: threading.Thread) -> None:
            if thread.name == "stream":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", fail_to_start_streams)
        request = rpb.AnswerRequest(search=rpb.SearchRequest(tenant_id="t"))
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        for answers in (stub.Answer(request, timeout=60), _open_reflection(channel)):
            with pytest.raises(grpc.RpcError) as caught:
                list(answers)
            assert type(error_from(caught.value)) is errors.TooBusy
        assert _search(channel).result().sequence == 7
        executor = server.limits.executor
        until(lambda: (len(executor.streams), executor.calls) == (0, 0))


def _open_reflection(channel: grpc.Channel) -> Any:
    """Opens a reflection stream that requests the list of services."""
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    return channel.stream_stream(method)(iter([b"\x3a\x00"]), timeout=60)


@pytest.mark.parametrize("address", ["198.51.100.7:50051", "nowhere", "127.0.0.1:99999"])
def test_an_address_that_cannot_be_bound_is_named(address: str) -> None:
    with pytest.raises(errors.ServiceUnavailable) as caught:
        built(Slow(), address=address, **_OPEN)
    assert f"cannot listen on {address}" in caught.value.message


def test_a_port_cannot_be_bound_twice() -> None:
    with serving(Slow()) as address, pytest.raises(errors.ServiceUnavailable, match="in use"):
        built(Slow(), address=address)


def test_a_message_far_over_the_document_limit_is_refused_before_parsing() -> None:
    request = rpb.SearchRequest(text="x" * 5000)
    with connected(Slow(), HRAG_MAX_DOCUMENT_BYTES=1024) as channel:
        refused = retriever_pb2_grpc.RetrieverServiceStub(channel).Search.future(
            request, timeout=60
        )
        error = error_from(refused.exception())
    assert type(error) is errors.TooLarge
    assert "4096" in error.message


@contextmanager
def _full_server(**variables: object) -> Iterator[tuple[Slow, grpc.Channel, list[Any]]]:
    """Yields a servicer, a channel, and two calls that the server has. It allows no third call."""
    servicer = Slow()
    with _started(servicer, HRAG_MAX_CONCURRENT_CALLS=2, **variables) as (server, channel):
        running = [_search(channel), _search(channel)]
        until(lambda: server.limits.executor.calls == 2)
        try:
            yield servicer, channel, running
        finally:
            servicer.may_end.set()
            server.stop(0)


@pytest.mark.parametrize("threads", [1, 4])
def test_calls_above_the_limit_are_rejected_with_a_retry_delay(threads: int) -> None:
    with _full_server(HRAG_THREADS=threads) as (servicer, channel, running):
        for _ in range(100):
            refused = _search(channel).exception()
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            error = error_from(refused)
            assert type(error) is errors.TooBusy
            assert error.retry_s == 1.0
            assert error.message == (
                "the limit of 2 running and waiting calls is reached (HRAG_MAX_CONCURRENT_CALLS)"
            )
            assert REQUEST_ID in dict(refused.trailing_metadata())
        servicer.may_end.set()
        assert [call.result().sequence for call in running] == [7, 7]
        until(lambda: _search(channel).exception() is None)


def test_answers_above_the_limit_are_rejected_before_a_message_is_read() -> None:
    with _full_server() as (_, channel, _running):
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.Answer(rpb.AnswerRequest(), timeout=60))
        assert type(error_from(caught.value)) is errors.TooBusy


def test_rejected_calls_are_counted() -> None:
    refused_calls = partial(
        metrics.INSTRUMENTS.get_sample_value,
        "hrag_calls_total",
        {"method": "Search", "code": "RESOURCE_EXHAUSTED"},
    )
    with _full_server() as (_, channel, _running):
        before = refused_calls() or 0
        for _ in range(3):
            _search(channel).exception()
        assert refused_calls() == before + 3


def test_health_checks_are_answered_above_the_limit() -> None:
    with _full_server() as (_, channel, _running):
        assert [_health(channel, RETRIEVER) for _ in range(20)] == [_SERVING] * 20


@pytest.mark.parametrize("is_enabled", [True, False])
def test_reflection_can_be_switched_off(is_enabled: bool) -> None:
    with connected(Slow(), HRAG_REFLECTION=is_enabled) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        if is_enabled:
            assert set(database.get_services()) == {
                RETRIEVER,
                "grpc.health.v1.Health",
                "grpc.reflection.v1alpha.ServerReflection",
            }
        else:
            with pytest.raises(grpc.RpcError) as caught:
                database.get_services()
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


class Context:
    """A fake server context with the two methods that a deadline needs."""

    def __init__(self, remaining_s: float | None, *, is_active: bool = True) -> None:
        self._remaining_s = remaining_s
        self._is_active = is_active

    def time_remaining(self) -> float | None:
        return self._remaining_s

    def is_active(self) -> bool:
        return self._is_active


def test_a_call_has_the_deadline_of_its_caller() -> None:
    assert 900 < deadline_of(Context(1000)).remaining_s <= 1000


@pytest.mark.parametrize("remaining_s", [None, float("inf")])
def test_a_call_whose_caller_has_no_deadline_never_times_out(remaining_s: float | None) -> None:
    assert deadline_of(Context(remaining_s)).remaining_s == math.inf


def test_work_is_cancelled_when_the_caller_has_left() -> None:
    deadline_of(Context(1000)).check("waiting")
    with pytest.raises(errors.Cancelled):
        deadline_of(Context(1000, is_active=False)).check("waiting")
