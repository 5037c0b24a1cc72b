"""Searches of one client can be awaited on any event loop, and be cancelled.

A closed client refuses them.
"""

import asyncio
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from hrag import errors
from hrag.client import Client, any_loop
from hrag.types import SearchQuery
from hrag.v1 import retriever_pb2, retriever_pb2_grpc
from tests.support.servers.servers import serving

QUERY = SearchQuery("acme", "dogs")
WAIT_S = 20.0


class Servicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """Answers every search at once; a search for `wait` ends only when its caller has left."""

    def __init__(self) -> None:
        self.is_waiting, self.has_left = Event(), Event()

    def Search(self, request, context):
        if request.text == "wait":
            context.add_callback(self.has_left.set)
            self.is_waiting.set()
            self.has_left.wait(WAIT_S)
        return retriever_pb2.SearchResponse(
            mode=retriever_pb2.SEARCH_MODE_CONTEXT,
            retrieval=retriever_pb2.RETRIEVAL_HYBRID,
            sequence=7,
        )


@pytest.fixture(scope="module")
def servicer() -> Servicer:
    return Servicer()


@pytest.fixture(scope="module")
def address(servicer: Servicer) -> Iterator[str]:
    with serving(servicer) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, address) as client:
        yield client


def test_event_loops_share_a_client_one_after_another_and_concurrently(client):
    sequences = [asyncio.run(any_loop.search(client, QUERY)).sequence for _ in range(3)]

    def run() -> None:
        sequences.append(asyncio.run(any_loop.search(client, QUERY)).sequence)

    threads = [Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sequences == [7] * 7


async def test_searches_of_one_loop_do_not_wait_for_each_other(client, servicer):
    waiting = asyncio.create_task(any_loop.search(client, SearchQuery("acme", "wait")))
    assert await asyncio.to_thread(servicer.is_waiting.wait, WAIT_S)
    assert (await any_loop.search(client, QUERY)).sequence == 7
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(servicer.has_left.wait, WAIT_S), "the call was cancelled too"


async def test_an_awaited_search_raises_the_errors_of_the_client(client):
    with pytest.raises(errors.InvalidArgument, match="mode is 'best'"):
        await any_loop.search(client, SearchQuery("acme", "dogs", mode="best"))
    client.close()
    with pytest.raises(errors.ServiceUnavailable, match="this client is closed"):
        await any_loop.search(client, QUERY)


async def test_a_search_fails_if_no_service_listens():
    allowed = (errors.ServiceUnavailable, errors.DeadlineExceeded)
    with Client("127.0.0.1:1", "127.0.0.1:1", timeout_s=0.2) as client, pytest.raises(allowed):
        await any_loop.search(client, QUERY)
