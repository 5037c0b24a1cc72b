"""Whatever comes at once, other requests have their turns of the event loop."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack

from starlette.requests import Request

from hrag.config import GatewaySettings
from hrag.gateway.calls.request_lines import lines_of
from hrag.gateway.http.http_server import HttpServer
from hrag.gateway.http.request_body import body_parts
from hrag.server.admission.byte_budget import ByteBudget

MANY = 100


async def turns_beside(work: Awaitable[object]) -> int:
    """How often others had their turn until `work` was done."""
    turns, working = 0, asyncio.ensure_future(work)
    while not working.done():
        turns += 1
        await asyncio.sleep(0)
    working.result()
    return turns


def test_connections_that_queue_are_accepted_one_by_one() -> None:
    asyncio.run(_accepting())


async def _accepting() -> None:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=MANY))
        for _ in range(MANY):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        server = HttpServer(None, listening, GatewaySettings(), None)
        server.start()

        async def all_accepted() -> None:
            while server.connections < MANY:
                await asyncio.sleep(0)

        assert await turns_beside(all_accepted()) > MANY // 2
        await server.close(0)


def test_a_few_bytes_that_unpack_to_millions_of_blank_lines_yield() -> None:
    asyncio.run(_unpacking())


async def _unpacking() -> None:
    packed = gzip.compress(b"\n" * (MANY << 16))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": packed, "more_body": False}

    headers = [(b"content-encoding", b"gzip")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)

    async def read() -> None:
        with ByteBudget(1 << 20, "requests", "SETTING", by_credential=True).share("") as share:
            lines: AsyncIterator[object] = lines_of(body_parts(request), 1 << 10, 60, share)
            assert [line async for line in lines] == []

    assert await turns_beside(read()) >= MANY
