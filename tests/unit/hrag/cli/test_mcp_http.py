"""`hrag mcp --http` bounds the bytes, the time and the connections of its clients."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import pytest
import uvicorn

from hrag.cli import mcp_http
from hrag.cli.mcp_server import build_server
from tests.support.until import PATIENCE_S, until

_HEAD = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
    b"accept: application/json\r\n"
)
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def _no_search(_query: str, _limit: int) -> None:
    """Search."""


class _NoDocuments:
    async def get_document(self, document_id: str, start: int) -> None:
        """Reads nothing."""

    async def expand_chunk(self, chunk_id: str) -> None:
        """Reads nothing."""


@contextmanager
def _serving(monkeypatch: pytest.MonkeyPatch, arrival_s: float) -> Iterator[int]:
    """Runs a server in a thread. Requests must arrive within `arrival_s` seconds."""
    monkeypatch.setattr(mcp_http, "ARRIVAL_S", arrival_s)
    monkeypatch.setattr(mcp_http, "MAX_CONNECTIONS", 8)
    servers: list[uvicorn.Server] = []
    serve = uvicorn.Server.serve

    async def remembered(server: uvicorn.Server, **options: object) -> None:
        servers.append(server)
        await serve(server, **options)

    monkeypatch.setattr(uvicorn.Server, "serve", remembered)
    app = build_server(_no_search, 5, _NoDocuments()).streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=mcp_http.MAX_BODY_BYTES,
        host="127.0.0.1",
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=anyio.run, args=(mcp_http.serve_http, app, listener))
        thread.start()
        until(lambda: servers and servers[0].started)
        yield listener.getsockname()[1]
        servers[0].should_exit = True
        thread.join(PATIENCE_S)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with _serving(monkeypatch, 60.0) as port:
        yield port


@pytest.fixture
def impatient_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with _serving(monkeypatch, 0.3) as port:
        yield port


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def _answer(port: int, raw: bytes) -> bytes:
    """Sends bytes; returns the status line, or nothing if the connection is closed before."""
    with _connect(port) as connection:
        try:
            connection.sendall(raw)
            return connection.recv(65_536).partition(b"\r\n")[0]
        except ConnectionError:
            return b""


def _request(port: int, body: bytes = _PING) -> bytes:
    return _HEAD % port + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def _call(port: int, body: bytes = _PING) -> bytes:
    return _answer(port, _request(port, body))


def test_a_call_is_answered(port: int) -> None:
    assert b" 200 " in _call(port)


def test_large_bodies_and_heads_are_refused(port: int) -> None:
    assert b" 413 " in _call(port, b" " * (mcp_http.MAX_BODY_BYTES + 1))
    assert b" 400 " in _answer(port, _HEAD % port + b"a: " + b"x" * mcp_http.MAX_HEAD_BYTES)


def _read_answer(connection: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"}"):
        part = connection.recv(65_536)
        assert part, answer
        answer += part
    return answer


_BEGUN = (b"POST /mcp", _HEAD % 1, _HEAD % 1 + b"content-length: 9\r\n\r\n{")


@pytest.mark.parametrize(
    ("is_first", "start"),
    [(True, b""), *((is_first, start) for is_first in (True, False) for start in _BEGUN)],
)
def test_a_request_that_does_not_arrive_ends(
    impatient_port: int, is_first: bool, start: bytes
) -> None:
    with _connect(impatient_port) as connection:
        if not is_first:
            connection.sendall(_request(impatient_port))
            _read_answer(connection)
        connection.sendall(start)
        with suppress(ConnectionResetError):
            assert b" 200 " not in connection.recv(65_536)
            assert connection.recv(65_536) == b""


def test_idle_connections_lock_others_out_for_a_short_time_only(impatient_port: int) -> None:
    idle: list[socket.socket] = []

    def are_others_locked_out() -> bool:
        """Opens further idle connections, because the earlier ones may have ended already."""
        idle.extend(_connect(impatient_port) for _ in range(mcp_http.MAX_CONNECTIONS))
        return b" 503 " in _call(impatient_port)

    try:
        until(are_others_locked_out)
        until(lambda: b" 200 " in _call(impatient_port))
    finally:
        for connection in idle:
            connection.close()


def test_a_connection_outlives_its_first_request(impatient_port: int) -> None:
    with _connect(impatient_port) as connection:
        for _ in range(2):
            connection.sendall(_request(impatient_port))
            assert b" 200 " in _read_answer(connection)
            time.sleep(2 * mcp_http.ARRIVAL_S)


@pytest.mark.parametrize(
    "header", [b"origin: https://evil.example", b"host: evil.example"], ids=["origin", "host"]
)
def test_foreign_pages_are_refused(port: int, header: bytes) -> None:
    head = (
        _HEAD % port
        if header.startswith(b"origin")
        else _HEAD.replace(b"host: 127.0.0.1:%d\r\n", b"")
    )
    body = b"content-length: %d\r\n" % len(_PING)
    status = _answer(port, head + header + b"\r\n" + body + b"\r\n" + _PING)
    assert b" 403 " in status or b" 421 " in status
