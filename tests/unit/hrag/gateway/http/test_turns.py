"""The event loop also serves other requests, however much data arrives at once."""

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


async def other_runs_during(work: Awaitable[object]) -> int:
    """Returns how often another task of the event loop could run until `work` was done."""
    other_runs, running_work = 0, asyncio.ensure_future(work)
    while not running_work.done():
        other_runs += 1
        await asyncio.sleep(0)
    running_work.result()
    return other_runs


def test_connections_that_queue_are_accepted_one_by_one() -> None:
    asyncio.run(_accept_queued_connections())


async def _accept_queued_connections() -> None:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=MANY))
        for _ in range(MANY):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        server = HttpServer(None, listening, GatewaySettings(), None)
        server.start()

        async def all_accepted() -> None:
            while server.connections < MANY:
                await asyncio.sleep(0)

        assert await other_runs_during(all_accepted()) > MANY // 2
        await server.close(0)


def test_other_tasks_run_while_a_few_bytes_become_millions_of_blank_lines() -> None:
    asyncio.run(_decompress_blank_lines())


async def _decompress_blank_lines() -> None:
    compressed = gzip.compress(b"\n" * (MANY << 16))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": compressed, "more_body": False}

    headers = [(b"content-encoding", b"gzip")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, receive)

    async def read() -> None:
        with ByteBudget(1 << 20, "requests", "SETTING", by_credential=True).share("") as share:
            lines: AsyncIterator[object] = lines_of(body_parts(request), 1 << 10, 60, share)
            assert [line async for line in lines] == []

    assert await other_runs_during(read()) >= MANY
