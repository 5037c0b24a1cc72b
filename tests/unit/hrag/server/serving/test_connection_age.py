"""A connection ends at a maximum age, so that idle connections cannot keep other clients out.

Running calls are not affected.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hrag.client import AsyncClient, Client
from hrag.server.serving.grpc_server import ConnectionPolicy
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from tests.support.methods import servicer_of
from tests.support.servers.servers import RETRIEVER, serving
from tests.support.until import until

_SHORT_LIVED = ConnectionPolicy(max_age_ms=300)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _PING = 4, 6
_ACK = 1


@contextmanager
def _idle(address: str) -> Iterator[threading.Thread]:
    """Keeps a connection open that answers settings and pings, but makes no call.

    Yields the thread of the connection, which ends with the connection.
    """
    host, _, port = address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=60)) as link:
        link.sendall(_PREFACE + _frame(_SETTINGS))
        thread = threading.Thread(target=_acknowledge, args=(link,), daemon=True)
        thread.start()
        yield thread


def _acknowledge(link: socket.socket) -> None:
    """Answers settings and pings until the connection ends."""
    with suppress(OSError), link.makefile("rb") as received:
        while head := received.read(9):
            kind, flags = head[3], head[4]
            payload = received.read(int.from_bytes(head[:3], "big"))
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                answer = payload if kind == _PING else b""
                link.sendall(_frame(kind, answer, _ACK))


def _frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + bytes(4) + payload


def _let_connections_end(address: str, count: int) -> None:
    """Waits until `count` idle connections have ended at their maximum age, one after the other."""
    for _ in range(count):
        with _idle(address) as thread:
            thread.join(60)
            assert not thread.is_alive()


class Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    """Answers every search, and records the connections over which searches arrive."""

    def __init__(self) -> None:
        self.peers: set[str] = set()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        self.peers.add(context.peer())
        return rpb.SearchResponse(
            mode=rpb.SEARCH_MODE_CONTEXT, retrieval=rpb.RETRIEVAL_HYBRID, sequence=7
        )


def test_idle_connections_do_not_keep_other_clients_out() -> None:
    with (
        serving(
            servicer_of(RETRIEVER), connections=_SHORT_LIVED, HRAG_MAX_CONNECTIONS=3
        ) as address,
        ExitStack() as idle,
    ):
        threads = [idle.enter_context(_idle(address)) for _ in range(3)]
        until(lambda: not any(thread.is_alive() for thread in threads))
        with grpc.insecure_channel(address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            assert check(health_pb2.HealthCheckRequest(), timeout=60)


def test_clients_connect_again_and_no_call_fails() -> None:
    retriever = Retriever()
    with (
        serving(retriever, connections=_SHORT_LIVED) as address,
        Client(address, address) as client,
    ):

        def has_connected_three_times() -> bool:
            client.search("acme", "x", timeout_s=60)
            return len(retriever.peers) >= 3

        until(has_connected_three_times)
        _let_connections_end(address, 2)
        client.search("acme", "x", timeout_s=60)


async def test_asyncio_clients_connect_again_too() -> None:
    retriever = Retriever()
    with serving(retriever, connections=_SHORT_LIVED) as address:
        async with AsyncClient(address, address) as client, asyncio.timeout(60):
            while len(retriever.peers) < 3:
                await client.search("acme", "x", timeout_s=60)


class Slow(retriever_pb2_grpc.RetrieverServiceServicer):
    """Completes searches and answers only when the test has set `may_end`."""

    def __init__(self) -> None:
        self.is_searching = threading.Event()
        self.may_end = threading.Event()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        self.is_searching.set()
        assert self.may_end.wait(60)
        return rpb.SearchResponse(sequence=7)

    def Answer(self, request: rpb.AnswerRequest, context: Any) -> Iterator[rpb.AnswerResponse]:
        yield rpb.AnswerResponse(text="word")
        assert self.may_end.wait(60)
        for _ in range(4):
            yield rpb.AnswerResponse(text="word")


def test_searches_answers_and_watches_continue_after_the_maximum_age() -> None:
    servicer = Slow()
    with (
        serving(servicer, connections=_SHORT_LIVED) as address,
        grpc.insecure_channel(address) as channel,
    ):
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        answer = stub.Answer(rpb.AnswerRequest(), timeout=60)
        assert next(answer).text == "word"
        search = stub.Search.future(rpb.SearchRequest(), timeout=60)
        assert servicer.is_searching.wait(60)
        _let_connections_end(address, 3)
        assert not search.done()
        servicer.may_end.set()
        assert search.result().sequence == 7
        assert len(list(answer)) == 4
        assert watch.is_active()
        watch.cancel()
