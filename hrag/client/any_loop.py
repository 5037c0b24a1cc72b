"""Lets a coroutine of any event loop await a search by a `Client`.

The gRPC channel of a `Client` returns futures, which a coroutine can await without blocking its
thread. So one client with one connection serves all threads and all event loops of a program, also
at the same time. An `AsyncClient` serves only the event loop in which it was created, but needs a
little less processor time per call.
"""

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from hrag.client import calls
from hrag.client.sync import Client
from hrag.values.search import SearchQuery, SearchResult


async def search(client: Client, query: SearchQuery) -> SearchResult:
    """Returns the result of `client.search` for this query; raises the same errors.

    No thread waits during the call. Cancelling the asyncio task cancels the call.
    """
    call = calls.search(query)
    send = getattr(client._stubs[call.service], call.method)
    with client._translated_errors(call.service):
        metadata = client._targets[call.service].metadata
        future = send.future(call.request, timeout=client._timeout_s, metadata=metadata)
        try:
            await _wait_until_done(future)
        finally:
            future.cancel()  # If the call has ended already, `cancel` does nothing.
        return call.read(future.result())


async def _wait_until_done(future: "grpc.Future[Any]") -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def wake_loop(_: "grpc.Future[Any]") -> None:
        # RuntimeError means that the event loop was closed. Then no coroutine waits for the call.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake_loop)
    await done.wait()
