"""The memory of a call is freed when the call ends, no matter how it ends.

A reference cycle would keep a call, its message and its request in memory until the next garbage
collection, and the garbage collector counts objects, not their bytes.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc._server import _RPCState

from hrag.errors import InvalidArgument
from hrag.server.admission.arrival import PendingCall
from hrag.server.admission.suspension import Suspended
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from hrag.values.deadline import Deadline
from tests.support.servers.servers import connected
from tests.support.until import until

CALLS = 5


class Endings(retriever_pb2_grpc.RetrieverServiceServicer):
    """Ends each search as its text says."""

    def __init__(self) -> None:
        self._waited = False

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        if request.text == "wrong":
            raise InvalidArgument("wrong", field="text")
        if request.text == "broken":
            raise self._broken()
        if request.text == "waiting":
            self._waited = not self._waited
            if self._waited:
                raise Suspended(lambda: True, Deadline.after(10))
        return rpb.SearchResponse(sequence=7)

    def _broken(self) -> Exception:
        try:
            raise KeyError("broken")
        except KeyError as error:
            raise RuntimeError("broken") from error

    def Answer(self, request: rpb.AnswerRequest, context: Any) -> Iterator[rpb.AnswerResponse]:
        yield rpb.AnswerResponse(text="an answer")
        if request.search.text == "wrong":
            raise InvalidArgument("wrong", field="text")


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with connected(Endings()) as channel:
        yield channel


def searched(text: str) -> Callable[[grpc.Channel], object]:
    request = rpb.SearchRequest(tenant_id="t", collection="c", text=text)
    return lambda channel: retriever_pb2_grpc.RetrieverServiceStub(channel).Search(request)


def answered(text: str) -> Callable[[grpc.Channel], object]:
    request = rpb.AnswerRequest(search=rpb.SearchRequest(tenant_id="t", text=text))
    return lambda channel: list(retriever_pb2_grpc.RetrieverServiceStub(channel).Answer(request))


def malformed(channel: grpc.Channel) -> object:
    return channel.unary_unary("/hrag.v1.RetrieverService/Search")(b"\xff", timeout=10)


def never_sent(channel: grpc.Channel) -> object:
    return channel.stream_unary("/hrag.v1.RetrieverService/Search")(iter(()), timeout=10)


def unknown(channel: grpc.Channel) -> object:
    return channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x04none", timeout=10)


ENDINGS = {
    "ok": searched("fine"),
    "refused": searched("wrong"),
    "internal error": searched("broken"),
    "suspended": searched("waiting"),
    "malformed": malformed,
    "without a message": never_sent,
    "an unknown health check": unknown,
    "streamed": answered("fine"),
    "streamed and refused": answered("wrong"),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_call_that_has_ended_is_freed_at_once(channel, ending):
    before = set(map(id, alive()))
    for _ in range(CALLS):
        with suppress(grpc.RpcError):
            ENDINGS[ending](channel)
    # Some objects belong to the last call, or to the next call for which the server waits.
    until(lambda: len([obj for obj in alive() if id(obj) not in before]) < CALLS)


def alive() -> list[object]:
    return [obj for obj in gc.get_objects() if isinstance(obj, PendingCall | _RPCState)]
