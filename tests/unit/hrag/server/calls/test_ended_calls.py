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
    """Ends each search in the way that its text names."""

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


def search_of(text: str) -> Callable[[grpc.Channel], object]:
    request = rpb.SearchRequest(tenant_id="t", collection="c", text=text)
    return lambda channel: retriever_pb2_grpc.RetrieverServiceStub(channel).Search(request)


def answer_of(text: str) -> Callable[[grpc.Channel], object]:
    request = rpb.AnswerRequest(search=rpb.SearchRequest(tenant_id="t", text=text))
    return lambda channel: list(retriever_pb2_grpc.RetrieverServiceStub(channel).Answer(request))


def send_malformed_request(channel: grpc.Channel) -> object:
    return channel.unary_unary("/hrag.v1.RetrieverService/Search")(b"\xff", timeout=60)


def send_no_request(channel: grpc.Channel) -> object:
    return channel.stream_unary("/hrag.v1.RetrieverService/Search")(iter(()), timeout=60)


def check_unknown_service(channel: grpc.Channel) -> object:
    return channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x04none", timeout=60)


ENDINGS = {
    "ok": search_of("fine"),
    "refused": search_of("wrong"),
    "internal error": search_of("broken"),
    "suspended": search_of("waiting"),
    "malformed": send_malformed_request,
    "without a message": send_no_request,
    "an unknown health check": check_unknown_service,
    "streamed": answer_of("fine"),
    "streamed and refused": answer_of("wrong"),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_call_that_has_ended_is_freed_immediately(channel, ending):
    ids_before = set(map(id, living_objects()))
    for _ in range(CALLS):
        with suppress(grpc.RpcError):
            ENDINGS[ending](channel)
    # Fewer than one object per call remain: those of the last call, and those of the next call, for
    # which the server waits.
    until(lambda: len([obj for obj in living_objects() if id(obj) not in ids_before]) < CALLS)


def living_objects() -> list[object]:
    """Returns the objects in memory that belong to calls of this process."""
    return [obj for obj in gc.get_objects() if isinstance(obj, PendingCall | _RPCState)]
