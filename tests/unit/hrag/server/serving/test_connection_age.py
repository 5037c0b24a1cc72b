"""Connections end after some time, so that idle ones lock nobody out; calls are not affected."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hrag.client import AsyncClient, Client
from hrag.server.serving import grpc_server
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from tests.support.methods import servicer_of
from tests.support.servers.servers import RETRIEVER, connected, serving
from tests.support.until import until

_AGE_S = 0.3
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _PING = 4, 6
_ACK = 1


@pytest.fixture(autouse=True)
def _short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_MAX_CONNECTION_AGE_MS", int(_AGE_S * 1000))


@contextmanager
def _idle(address: str) -> Iterator[threading.Thread]:
    """Keeps a connection open that answers settings and pings, but makes no call."""
    host, _, port = address.rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=20)) as link:
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


def test_idle_connections_lock_nobody_out() -> None:
    with serving(servicer_of(RETRIEVER), HRAG_MAX_CONNECTIONS=3) as address, ExitStack() as idle:
        threads = [idle.enter_context(_idle(address)) for _ in range(3)]
        until(lambda: not any(thread.is_alive() for thread in threads))
        with grpc.insecure_channel(address) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            assert check(health_pb2.HealthCheckRequest(), timeout=5)


def test_clients_connect_anew_and_their_calls_notice_nothing() -> None:
    with serving(servicer_of(RETRIEVER)) as address, Client(address, address) as client:
        for _ in range(12):
            client.search("acme", "x", timeout_s=5)
            time.sleep(_AGE_S / 4)
        time.sleep(2 * _AGE_S)
        client.search("acme", "x", timeout_s=5)


async def test_asyncio_clients_connect_anew_too() -> None:
    with serving(servicer_of(RETRIEVER)) as address:
        async with AsyncClient(address, address) as client:
            for _ in range(12):
                await client.search("acme", "x", timeout_s=5)
                await asyncio.sleep(_AGE_S / 4)


class Slow(retriever_pb2_grpc.RetrieverServiceServicer):
    """Needs much longer to answer than a connection exists."""

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        time.sleep(5 * _AGE_S)
        return rpb.SearchResponse(sequence=7)

    def Answer(self, request: rpb.AnswerRequest, context: Any) -> Iterator[rpb.AnswerResponse]:
        for _ in range(5):
            time.sleep(_AGE_S)
            yield rpb.AnswerResponse(text="word")


def test_calls_answers_and_watches_outlast_their_connection() -> None:
    with connected(Slow()) as channel:
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        answer = stub.Answer(rpb.AnswerRequest(), timeout=20)
        assert stub.Search(rpb.SearchRequest(), timeout=20).sequence == 7
        assert len(list(answer)) == 5
        assert watch.is_active()
        watch.cancel()
