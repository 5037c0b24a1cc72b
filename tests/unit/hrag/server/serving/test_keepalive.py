"""Clients and the server ping each other to keep connections open and to detect broken ones."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from hrag.server.serving.grpc_server import ConnectionPolicy
from hrag.v1 import retriever_pb2 as rpb
from hrag.v1 import retriever_pb2_grpc
from tests.support.servers.servers import serving
from tests.support.until import PATIENCE_S, until

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS, _PING, _GOAWAY = 4, 6, 7
_ACK = 1
_ENHANCE_YOUR_CALM = 11


class Waiting(retriever_pb2_grpc.RetrieverServiceServicer):
    """Blocks each call until its caller leaves."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.has_left = threading.Event()

    def Search(self, request: rpb.SearchRequest, context: Any) -> rpb.SearchResponse:
        context.add_callback(self.has_left.set)
        self.running.set()
        self.has_left.wait(2 * PATIENCE_S)
        return rpb.SearchResponse()


def _frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + bytes(4) + payload


def _ping(address: str, pings: int, interval_s: float) -> int | None:
    """Opens a connection that only pings; returns the error code in the GOAWAY frame of the server.

    Returns None if the server sends no GOAWAY frame with an error code.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as link:
        link.sendall(_PREFACE + _frame(_SETTINGS))
        # The server gives up a client that does not acknowledge its settings, its first frame.
        head = link.recv(9, socket.MSG_WAITALL)
        link.recv(int.from_bytes(head[:3], "big"), socket.MSG_WAITALL)
        link.sendall(_frame(_SETTINGS, flags=_ACK))
        with suppress(ConnectionError):  # The server may have closed the connection already.
            for _ in range(pings):
                link.sendall(_frame(_PING, bytes(8)))
                time.sleep(interval_s)  # The interval of pings is the behaviour under test.
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


_MIN_PING_50_MS = ConnectionPolicy(min_ping_ms=50)


def test_a_client_that_pings_rarely_enough_keeps_its_connection() -> None:
    with serving(Waiting(), connections=_MIN_PING_50_MS) as address:
        assert _ping(address, pings=5, interval_s=0.3) is None


def test_a_client_that_pings_too_often_loses_its_connection() -> None:
    with serving(Waiting(), connections=_MIN_PING_50_MS) as address:
        assert _ping(address, pings=20, interval_s=0.001) == _ENHANCE_YOUR_CALM


def test_the_default_limit_allows_pings_every_ten_seconds() -> None:
    assert ConnectionPolicy().min_ping_ms <= 5_000


class Relay:
    """Forwards bytes between a client and a server. After `swallow` is called, drops all bytes.

    `parts_of_client` counts how often bytes from the client were forwarded. A client that waits for
    a reply sends nothing except acknowledgements of pings.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self._swallowing = threading.Event()
        self.parts_of_client = 0
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def swallow(self) -> None:
        self._swallowing.set()

    def serve(self) -> None:
        """Accepts one connection."""
        client, _ = self._listening.accept()
        server = socket.create_connection(self._target)
        self._open += [client, server]
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        for open_socket in self._open:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        is_client = source is self._open[1]
        with suppress(OSError):
            while received := source.recv(65_536):
                if not self._swallowing.is_set():
                    sink.sendall(received)
                    self.parts_of_client += is_client


@contextmanager
def _relayed(address: str) -> Iterator[Relay]:
    relay = Relay(address)
    accepting = threading.Thread(target=relay.serve, daemon=True)
    accepting.start()
    try:
        yield relay
    finally:
        relay.close()
        accepting.join()


def _wait_for_acknowledgements(relay: Relay, count: int) -> None:
    """Returns when the client has acknowledged `count` further pings."""
    before = relay.parts_of_client
    until(lambda: relay.parts_of_client >= before + count)


def test_the_call_of_a_client_that_stops_answering_pings_ends() -> None:
    """The next test shows that a client which answers pings keeps its call.

    Here the timeout is so short that a busy machine may end the call of such a client too.
    """
    servicer = Waiting()
    policy = ConnectionPolicy(ping_interval_ms=200, ping_timeout_ms=300)
    with (
        serving(servicer, connections=policy) as address,
        _relayed(address) as relay,
        grpc.insecure_channel(relay.address) as channel,
    ):
        call = retriever_pb2_grpc.RetrieverServiceStub(channel).Search.future(rpb.SearchRequest())
        assert servicer.running.wait(PATIENCE_S)
        relay.swallow()
        assert servicer.has_left.wait(PATIENCE_S)
        call.cancel()


def test_a_call_continues_while_its_client_answers_many_pings() -> None:
    servicer = Waiting()
    with (
        serving(servicer, connections=ConnectionPolicy(ping_interval_ms=50)) as address,
        _relayed(address) as relay,
        grpc.insecure_channel(relay.address) as channel,
    ):
        call = retriever_pb2_grpc.RetrieverServiceStub(channel).Search.future(rpb.SearchRequest())
        assert servicer.running.wait(PATIENCE_S)
        _wait_for_acknowledgements(relay, 10)
        assert not servicer.has_left.is_set()
        servicer.has_left.set()
        assert call.result() == rpb.SearchResponse()
