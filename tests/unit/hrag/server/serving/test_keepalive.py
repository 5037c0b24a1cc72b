"""Keepalive pings: from clients within and above the limit, and to clients that disappeared."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest

from hrag.server.serving import grpc_server
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from tests.support.servers.servers import connected, serving

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _PING, _GOAWAY = 4, 6, 7
_ENHANCE_YOUR_CALM = 11
_SOON_S = 10.0


class Waiting(retriever_pb2_grpc.RetrieverServiceServicer):
    """Blocks each call until its caller leaves."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.gone = threading.Event()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        context.add_callback(self.gone.set)
        self.running.set()
        self.gone.wait(2 * _SOON_S)
        return rpb.SearchResponse()


def _frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, 0)) + bytes(4) + payload


def _refusal(address: str, pings: int, every_s: float) -> int | None:
    """Returns the error code of the GOAWAY that a connection that only pings receives.

    Returns None if it receives no GOAWAY.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), _SOON_S) as link:
        link.sendall(_PREFACE + _frame(_SETTINGS))
        with suppress(ConnectionError):  # The server may have closed the connection already.
            for _ in range(pings):
                link.sendall(_frame(_PING, bytes(8)))
                time.sleep(every_s)
            link.shutdown(socket.SHUT_WR)
        return _goaway(link)


def _goaway(link: socket.socket) -> int | None:
    received = b""
    with suppress(ConnectionError):
        while part := link.recv(65_536):
            received += part
    while received:
        size, kind = int.from_bytes(received[:3], "big"), received[3]
        payload, received = received[9 : 9 + size], received[9 + size :]
        if kind == _GOAWAY and payload[4:8] != bytes(4):
            return int.from_bytes(payload[4:8], "big")
    return None


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_MIN_PING_MS", 100)


@pytest.mark.usefixtures("_often")
def test_a_client_that_pings_within_the_limit_keeps_its_connection() -> None:
    with serving(Waiting()) as address:
        assert _refusal(address, pings=6, every_s=0.15) is None


@pytest.mark.usefixtures("_often")
def test_a_client_that_pings_more_often_loses_its_connection() -> None:
    with serving(Waiting()) as address:
        assert _refusal(address, pings=6, every_s=0.01) == _ENHANCE_YOUR_CALM


def test_the_limit_allows_pings_every_ten_seconds() -> None:
    assert grpc_server._MIN_PING_MS <= 5_000


class Relay:
    """Forwards bytes between two sockets until `swallow` is called; then drops them."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self._swallowing = threading.Event()
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def swallow(self) -> None:
        self._swallowing.set()

    def serve(self) -> None:
        """Accepts one connection."""
        ours, _ = self._listening.accept()
        theirs = socket.create_connection(self._target)
        self._open += [ours, theirs]
        for source, sink in ((ours, theirs), (theirs, ours)):
            threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        for open_socket in self._open:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65_536):
                if not self._swallowing.is_set():
                    sink.sendall(received)


@contextmanager
def _relayed(address: str) -> Iterator[Relay]:
    relay = Relay(address)
    taking = threading.Thread(target=relay.serve, daemon=True)
    taking.start()
    try:
        yield relay
    finally:
        relay.close()
        taking.join()


def test_a_client_that_vanishes_does_not_hold_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_server, "_PING_INTERVAL_MS", 200)
    monkeypatch.setattr(grpc_server, "_PING_TIMEOUT_MS", 300)
    servicer = Waiting()
    with (
        serving(servicer) as address,
        _relayed(address) as relay,
        grpc.insecure_channel(relay.address) as channel,
    ):
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        calling = stub.Search.future(rpb.SearchRequest())
        assert servicer.running.wait(_SOON_S)
        assert not servicer.gone.wait(1), "it answers pings, so it is there"
        relay.swallow()
        assert servicer.gone.wait(_SOON_S)
        calling.cancel()


def test_a_call_longer_than_many_pings_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "_PING_INTERVAL_MS", 50)
    servicer = Waiting()
    with connected(servicer) as channel:
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        calling = stub.Search.future(rpb.SearchRequest())
        assert servicer.running.wait(_SOON_S)
        assert not servicer.gone.wait(0.5)
        servicer.gone.set()
        assert calling.result() == rpb.SearchResponse()
