"""A search by a `Client`, awaited in whichever event loop runs.

A gRPC channel for threads returns futures, so one client with one connection serves all threads
and event loops of a program, together and one after another. An `AsyncClient` serves the one
event loop in which it was made, with a little less processor time per call.
"""

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from hrag.client import calls
from hrag.client.sync import Client
from hrag.values.search import SearchQuery, SearchResult


async def search(client: Client, query: SearchQuery) -> SearchResult:
    """Returns what `client.search` returns for this query, and raises what it raises.

    No thread waits meanwhile. Cancelling the task cancels the call.
    """
    call = calls.search(query)
    send = getattr(client._stubs[call.service], call.method)
    with calls.translated_errors(client._is_closed):
        sent = send.future(call.request, timeout=client._timeout_s, metadata=client._metadata)
        try:
            await _ended(sent)
        finally:
            sent.cancel()  # Does nothing to a call that has ended.
        return call.read(sent.result())


async def _ended(sent: "grpc.Future[Any]") -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: "grpc.Future[Any]") -> None:
        with suppress(RuntimeError):  # The loop was closed; nobody waits any more.
            loop.call_soon_threadsafe(ended.set)

    sent.add_done_callback(tell)
    await ended.wait()
