"""At the limit of connections, a new connection replaces one whose client does not read.

Only connections of strangers are replaced: of clients whose credential was not accepted.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from hrag.gateway.http.http_server import HttpServer
from tests.support.servers.gateways import gateway_settings

# The size of the kernel's buffers on each side of a connection.
_BUFFER_BYTES = 4096
_REQUEST = b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: %b\r\n\r\n"
# One part fits into the buffer of the transport, which pauses above 64 KiB.
_PART = b"x" * 30_000
_PARTS = {"/little": [_PART], "/parts": [_PART] * 10, "/whole": [_PART * 10]}

_UNREAD_REPLIES = pytest.mark.parametrize(
    "requests",
    [["/parts"], ["/whole", "/whole"], ["/little close"]],
    ids=["in parts", "one after the other", "the last one"],
)


class _SmallServer:
    """A server that accepts two connections, and its clients."""

    def __init__(self, stack: ExitStack, *, accepts: bool) -> None:
        """With `accepts`, the credentials of all requests are accepted."""
        self._stack = stack
        self._accepts = accepts
        # Connections with at least one request that has begun, and those with a running request.
        self._begun: list[Any] = []
        self._running: set[Any] = set()
        # Connections that have sent all parts of their reply but have not ended it.
        self._waiting: set[Any] = set()
        self.may_end = asyncio.Event()
        self.is_cancelled = asyncio.Event()
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        settings = gateway_settings("localhost:1", "localhost:1", HRAG_MAX_CONNECTIONS=2)
        self.http = HttpServer(self._application, self._listening, settings, None)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        connection = scope["state"]["connection"]
        connection.begin(asyncio.current_task())
        self._begun.append(connection)
        self._running.add(connection)
        try:
            if self._accepts:
                connection.accept()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for part in _PARTS[scope["path"]]:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            if scope["path"] == "/parts":
                self._waiting.add(connection)
                await self.may_end.wait()
            await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            self.is_cancelled.set()  # The client has left, or a new connection replaced this one.
        finally:
            connection.end()
            self._running.discard(connection)

    def connect(self, requests: Sequence[str]) -> socket.socket:
        """Returns a connection that has sent requests, some of which end with `close`."""
        client = self._stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        client.connect(self._listening.getsockname())
        client.setblocking(False)
        for request in requests:
            path, _, option = request.partition(" ")
            client.send(_REQUEST % (path.encode(), option.encode()))
        return client

    async def connect_and_fill(self, requests: Sequence[str]) -> socket.socket:
        """Calls `connect`; returns the connection when the server can send nothing more to it.

        Either the transport pauses because the client does not read, or the reply has ended.
        """
        count = len(self._begun)
        client = self.connect(requests)

        def is_stuck() -> bool:
            if len(self._begun) == count:
                return False
            connection = self._begun[-1]
            return connection.flow.write_paused or connection not in self._running

        await _until(is_stuck)
        return client

    async def is_served(self, client: socket.socket) -> bool:
        """Returns True if a reply arrives, False if the connection ends."""
        try:
            return bool(await asyncio.get_running_loop().sock_recv(client, 1))
        except ConnectionError:
            return False

    async def read(self, client: socket.socket, size_bytes: int) -> None:
        """Reads `size_bytes` of a reply."""
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        while size_bytes > 0:
            size_bytes -= len(await asyncio.get_running_loop().sock_recv(client, size_bytes))

    async def wait_until_read(self, count: int) -> None:
        """Returns when `count` connections have sent all parts, and the clients have read them."""
        await _until(
            lambda: (
                len(self._waiting) == count
                and not any(connection.flow.write_paused for connection in self._waiting)
            )
        )

    async def wait_until_ended(self) -> None:
        """Returns when no request runs."""
        await _until(lambda: not self._running)


async def _until(holds: Callable[[], bool]) -> None:
    """Returns when `holds` returns True. Meanwhile, other tasks of the event loop run."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0)


@asynccontextmanager
async def _small_server(*, accepts: bool) -> AsyncIterator[_SmallServer]:
    with ExitStack() as stack:
        server = _SmallServer(stack, accepts=accepts)
        server.http.start()
        yield server
        await server.http.close(0)


@_UNREAD_REPLIES
@pytest.mark.parametrize("accepts", [False, True])
def test_connections_of_strangers_that_do_not_read_are_replaced(
    requests: Sequence[str], accepts: bool
) -> None:
    """Connections of clients whose credential was accepted are not replaced."""

    async def run() -> None:
        async with _small_server(accepts=accepts) as server:
            for _ in range(2):
                await server.connect_and_fill(requests)
            assert await server.is_served(server.connect(["/little"])) != accepts

    asyncio.run(run())


def test_a_client_that_leaves_ends_its_request() -> None:
    async def run() -> None:
        async with _small_server(accepts=True) as server:
            (await server.connect_and_fill(["/parts"])).close()
            await asyncio.wait_for(server.is_cancelled.wait(), 60)

    asyncio.run(run())


def test_the_connection_of_a_stranger_that_reads_is_not_replaced() -> None:
    async def run() -> None:
        async with _small_server(accepts=False) as server:
            readers = [await server.connect_and_fill(["/parts"]) for _ in range(2)]
            for reader in readers:
                await server.read(reader, len(b"".join(_PARTS["/parts"])))
            await server.wait_until_read(2)
            assert not await server.is_served(server.connect(["/little"]))
            server.may_end.set()
            await server.wait_until_ended()
            assert await server.is_served(server.connect(["/little"]))

    asyncio.run(run())
