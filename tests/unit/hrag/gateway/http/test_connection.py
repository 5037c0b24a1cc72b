"""Which connections give way to a new one, where there are as many as may be."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from hrag.gateway.http.http_server import HttpServer
from tests.support.servers.gateways import gateway_settings

_SETTLE_S = 0.2
_BUFFER_BYTES = 4096  # Of the kernel, for each side.
_REQUEST = b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: %b\r\n\r\n"
_PART = b"x" * 30_000  # One stays in the transport, which pauses beyond 64 KiB.
_PARTS = {"/little": [_PART], "/parts": [_PART] * 10, "/whole": [_PART * 10]}

_UNREAD = pytest.mark.parametrize(
    "requests",
    [["/parts"], ["/whole", "/whole"], ["/little close"]],
    ids=["in parts", "one behind the other", "the last one"],
)


class _Places:
    """A server of two connections, and clients of it."""

    def __init__(self, stack: ExitStack, *, accepts: bool) -> None:
        """`accepts` is whether the credentials of all requests are accepted."""
        self._stack = stack
        self._accepts = accepts
        self.may_end = asyncio.Event()
        self.is_cancelled = asyncio.Event()
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        settings = gateway_settings("localhost:1", "localhost:1", HRAG_MAX_CONNECTIONS=2)
        self.server = HttpServer(self._application, self._listening, settings, None)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        connection = scope["state"]["connection"]
        connection.begin(asyncio.current_task())
        try:
            if self._accepts:
                connection.accept()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for part in _PARTS[scope["path"]]:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            if scope["path"] == "/parts":
                await self.may_end.wait()
            await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            self.is_cancelled.set()  # The client has gone, or another one has its place.
        finally:
            connection.end()

    async def ask(self, requests: Sequence[str]) -> socket.socket:
        """Returns a connection that has sent requests, some of which end with `close`."""
        client = self._stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        client.connect(self._listening.getsockname())
        client.setblocking(False)
        for path, _, option in (each.partition(" ") for each in requests):
            client.send(_REQUEST % (path.encode(), option.encode()))
        await asyncio.sleep(_SETTLE_S)
        return client

    async def is_served(self, client: socket.socket) -> bool:
        """Whether a reply comes, and not the end of the connection."""
        try:
            return bool(await asyncio.get_running_loop().sock_recv(client, 1))
        except ConnectionError:
            return False

    async def read(self, client: socket.socket, size_bytes: int) -> None:
        """Reads so many bytes."""
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        while size_bytes > 0:
            size_bytes -= len(await asyncio.get_running_loop().sock_recv(client, size_bytes))
        await asyncio.sleep(_SETTLE_S)


@asynccontextmanager
async def _places(*, accepts: bool) -> AsyncIterator[_Places]:
    with ExitStack() as stack:
        places = _Places(stack, accepts=accepts)
        places.server.start()
        yield places
        await places.server.close(0)


@_UNREAD
@pytest.mark.parametrize("accepts", [False, True])
def test_strangers_that_do_not_read_give_way(requests: Sequence[str], accepts: bool) -> None:
    """Those whose credential was accepted do not."""

    async def run() -> None:
        async with _places(accepts=accepts) as places:
            for _ in range(2):
                await places.ask(requests)
            assert await places.is_served(await places.ask(["/little"])) != accepts

    asyncio.run(run())


def test_a_client_that_leaves_ends_its_request() -> None:
    async def run() -> None:
        async with _places(accepts=True) as places:
            (await places.ask(["/parts"])).close()
            await asyncio.wait_for(places.is_cancelled.wait(), 5)

    asyncio.run(run())


def test_a_stranger_that_reads_keeps_its_place() -> None:
    async def run() -> None:
        async with _places(accepts=False) as places:
            readers = [await places.ask(["/parts"]) for _ in range(2)]
            for each in readers:
                await places.read(each, len(b"".join(_PARTS["/parts"])))
            assert not await places.is_served(await places.ask(["/little"]))
            places.may_end.set()
            await asyncio.sleep(_SETTLE_S)
            assert await places.is_served(await places.ask(["/little"]))

    asyncio.run(run())
