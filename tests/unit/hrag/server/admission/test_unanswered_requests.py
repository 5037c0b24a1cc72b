"""The bytes of a request count against the limits until its call ends, however the call ends."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from hrag.errors import InvalidArgument
from hrag.observe import metrics
from hrag.server.admission.executor import AdmissionExecutor
from hrag.server.admission.suspension import Suspended, has_time_to_wait
from hrag.server.calls.call_deadline import deadline_of
from hrag.server.serving import grpc_server
from hrag.server.serving.grpc_server import Server
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from hrag.values.deadline import Deadline
from tests.support.servers.servers import built
from tests.support.until import until


class Endings(retriever_pb2_grpc.RetrieverServiceServicer):
    """Ends each search in the way that its text names.

    The texts `held` and `suspended` make a search wait until the test permits its end.
    """

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.suspended = threading.Event()
        self.may_end = threading.Event()
        self.is_ready = threading.Event()
        self.has_left = threading.Event()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        if request.text == "refused":
            raise InvalidArgument("refused", field="text")
        if request.text == "held":
            self.running.release()
            assert self.may_end.wait(60)
        if request.text == "suspended" and not self.is_ready.is_set():
            context.add_callback(self.has_left.set)
            self._suspend(deadline_of(context))
        return rpb.SearchResponse()

    def _suspend(self, deadline: Deadline) -> None:
        deadline.check("waiting")
        if not has_time_to_wait(deadline):
            raise InvalidArgument("too late", field="text")
        self.suspended.set()
        raise Suspended(self.is_ready.is_set, deadline)

    def Answer(self, request: rpb.AnswerRequest, context: Any) -> Iterator[rpb.AnswerResponse]:
        yield rpb.AnswerResponse(text="an answer")
        if request.search.text == "refused":
            raise InvalidArgument("refused", field="text")


class RunningServer:
    """A running server with one thread, its servicer, and methods that call the server."""

    def __init__(self, server: Server, servicer: Endings, channel: grpc.Channel) -> None:
        self.server = server
        self.servicer = servicer
        self.executor: AdmissionExecutor = server.limits.executor
        self._stub = retriever_pb2_grpc.RetrieverServiceStub(channel)

    @property
    def counted_bytes(self) -> int:
        return self.executor.unanswered_bytes

    def search(self, text: str, timeout_s: float = 60) -> Any:
        return self._stub.Search.future(_query(text), timeout=timeout_s)

    def answer(self, text: str = "") -> Any:
        return self._stub.Answer(rpb.AnswerRequest(search=_query(text)), timeout=60)

    def hold(self) -> Any:
        """Starts a call that occupies the only thread until the test sets `servicer.may_end`."""
        held = self.search("held")
        self.servicer.running.acquire()
        return held

    def suspend(self) -> Any:
        suspended = self.search("suspended")
        assert self.servicer.suspended.wait(60)
        return suspended

    def wait(self) -> Any:
        """Starts a call that waits because no thread is free."""
        calls_before = self.executor.calls
        waiting = self.search("")
        until(lambda: self.executor.calls > calls_before)
        return waiting


def _query(text: str) -> rpb.SearchRequest:
    return rpb.SearchRequest(tenant_id="acme", text=text)


@contextmanager
def _running_server(**variables: object) -> Iterator[RunningServer]:
    servicer = Endings()
    server = built(servicer, HRAG_THREADS=1, **variables)
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield RunningServer(server, servicer, channel)
        servicer.may_end.set()
        server.stop(0)


def _answered(running: RunningServer) -> None:
    running.search("").result()
    list(running.answer())


def _refused(running: RunningServer) -> None:
    running.search("refused").exception()
    with pytest.raises(grpc.RpcError):
        list(running.answer("refused"))


def _cancelled_while_it_waits(running: RunningServer) -> None:
    held = running.hold()
    running.wait().cancel()
    until(lambda: running.executor.calls == 1)
    _let_end(running, held)


def _late_while_it_waits(running: RunningServer) -> None:
    """The call waits for the only thread, unless a busy machine lets its deadline pass before."""
    held = running.hold()
    assert running.search("", 0.2).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: running.executor.calls == 1)
    _let_end(running, held)


def _cancelled_while_it_runs(running: RunningServer) -> None:
    running.hold().cancel()
    running.servicer.may_end.set()


def _too_many_wait(running: RunningServer) -> None:
    held = running.hold()
    waiting = [running.wait() for _ in range(2)]
    assert running.search("").code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    _let_end(running, held, *waiting)


def _resumed(running: RunningServer) -> None:
    suspended = running.suspend()
    running.servicer.is_ready.set()
    suspended.result()


def _late_while_suspended(running: RunningServer) -> None:
    assert running.search("suspended", 0.3).exception() is not None


def _cancelled_while_suspended(running: RunningServer) -> None:
    running.suspend().cancel()


def _too_many_are_suspended(running: RunningServer) -> None:
    suspended = running.suspend()
    further_calls = [running.search("suspended") for _ in range(2)]
    until(lambda: sum(call.done() for call in further_calls) == 1)
    running.servicer.is_ready.set()
    suspended.result()
    assert {call.code() for call in further_calls} == {
        grpc.StatusCode.OK,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }


def _cancelled_while_it_waits_to_continue(running: RunningServer) -> None:
    """Cancels a call that waited, ran, was suspended, and waits again."""
    first = running.hold()
    suspended = running.search("suspended")
    until(lambda: running.executor.calls == 2)
    _let_end(running, first)
    assert running.servicer.suspended.wait(60)
    running.servicer.may_end.clear()
    second = running.hold()
    running.servicer.is_ready.set()
    until(lambda: running.executor.limiter.waiting_calls("acme") == 1)
    suspended.cancel()
    assert running.servicer.has_left.wait(60)
    _let_end(running, second)


def _let_end(running: RunningServer, *calls: Any) -> None:
    running.servicer.may_end.set()
    for call in calls:
        call.result()


_ENDINGS = [
    _answered,
    _refused,
    _cancelled_while_it_waits,
    _late_while_it_waits,
    _cancelled_while_it_runs,
    _too_many_wait,
    _resumed,
    _late_while_suspended,
    _cancelled_while_suspended,
    _too_many_are_suspended,
    _cancelled_while_it_waits_to_continue,
]


@pytest.mark.parametrize("end", _ENDINGS, ids=lambda end: end.__name__.strip("_"))
def test_a_request_counts_until_its_call_ends(end: Callable[[RunningServer], None]) -> None:
    counted_before = _running_calls_metric() or 0
    with _running_server(HRAG_TENANT_MAX_WAITING_CALLS=2) as running:
        end(running)
        until(lambda: (running.executor.calls, running.counted_bytes) == (0, 0))
        assert running.executor.limiter.tenants <= {"acme"}
        until(lambda: (_running_calls_metric() or 0) <= counted_before)


def _running_calls_metric() -> float | None:
    return metrics.INSTRUMENTS.get_sample_value("hrag_calls_running")


def test_answers_for_which_no_thread_can_start_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _running_server(HRAG_MAX_STREAMS=1) as running:
        start = threading.Thread.start

        def fail_to_start_streams(thread: threading.Thread) -> None:
            if thread.name == "stream":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", fail_to_start_streams)
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                list(running.answer())
        until(lambda: (running.executor.calls, running.counted_bytes) == (0, 0))


def test_no_request_counts_after_a_server_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_CANCEL_GRACE_S", 60.0)  # A busy machine is slow.
    with _running_server() as running:
        suspended, held = running.suspend(), running.hold()
        # The handler ends only after the server has cancelled its call at the end of the drain.
        held.add_done_callback(lambda _: running.servicer.may_end.set())
        calls = [suspended, held, running.wait(), running.wait()]
        assert running.counted_bytes > 0
        assert running.server.stop(0.05)
        assert running.counted_bytes == 0
        assert all(call.exception() is not None for call in calls)
