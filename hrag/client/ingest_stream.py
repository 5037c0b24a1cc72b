"""The stream behind `ingest_many`: documents out, their outcomes back.

Written once for threads and once for asyncio, the only part of the clients that is: gRPC's two
libraries send differently. The rest of `sync.py` is generated from `aio.py`.

gRPC swallows what the iterator of its requests raises, so that is kept and raised to the caller
in place of the error that the call then ends with.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from typing import Any, TypeAlias

from hrag.client.calls import translated_errors
from hrag.errors import HragError
from hrag.types import Document, IngestResult
from hrag.wire import indexer

Documents: TypeAlias = Iterable[Document]
AsyncDocuments: TypeAlias = Iterable[Document] | AsyncIterable[Document]
Outcome: TypeAlias = IngestResult | HragError
RequestOf: TypeAlias = Callable[[Document], Any]

# The status of a refused call arrives with its headers, and grpc.aio reports it a moment later.
# A request that is sent in between fails, and grpc.aio then reports that failure instead.
_REFUSAL_S = 0.005


def outcomes(
    send: Callable[[Iterator[Any]], Any],
    documents: Documents,
    request_of: RequestOf,
    is_closed: Callable[[], bool],
) -> Generator[Outcome]:
    """Yields one outcome a document, in order; gRPC's flow control bounds what is under way.

    `send` starts the call with an iterator of requests, which gRPC reads in a thread of its own.
    Raises what `documents` raised, else the call's own error.
    """
    failures: list[Exception] = []
    try:
        with translated_errors(is_closed):
            responses = send(_requests(documents, request_of, failures))
            try:
                for response in responses:
                    yield from map(indexer.outcome_from, response.outcomes)
            finally:
                responses.cancel()
    except HragError:
        if not failures:
            raise
    if failures:
        raise failures[0]


def _requests(
    documents: Documents, request_of: RequestOf, failures: list[Exception]
) -> Iterator[Any]:
    try:
        yield from map(request_of, documents)
    except Exception as error:
        failures.append(error)


async def aio_outcomes(
    send: Callable[[AsyncIterator[Any]], Any],
    documents: AsyncDocuments,
    request_of: RequestOf,
    is_closed: Callable[[], bool],
) -> AsyncGenerator[Outcome]:
    """As `outcomes`; sends each document once the one before it is answered."""
    failures: list[Exception] = []
    turns = _Turns()
    try:
        with translated_errors(is_closed):
            responses = send(_aio_requests(documents, request_of, failures, turns))
            try:
                await _begin(responses, turns)
                async for response in responses:
                    for outcome in response.outcomes:
                        turns.next()
                        yield indexer.outcome_from(outcome)
            finally:
                turns.end()
                responses.cancel()
    except HragError:
        if not failures:
            raise
    if failures:
        raise failures[0]


class _Turns:
    """Lets one request go at a time, the first once the server has admitted the call.

    grpc.aio loses the status of a stream that the server ended while a request was being sent.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(0)
        self._ended = False

    def next(self) -> None:
        self._free.release()

    def end(self) -> None:
        self._ended = True
        self._free.release()

    async def wait(self) -> bool:
        """True if there is another turn, False after the end."""
        await self._free.acquire()
        return not self._ended


async def _begin(responses: Any, turns: _Turns) -> None:
    """Gives the first turn, unless the server refused the call: reading then raises why."""
    await responses.wait_for_connection()
    await asyncio.sleep(_REFUSAL_S)
    if not responses.done():
        turns.next()


async def _aio_requests(
    documents: AsyncDocuments, request_of: RequestOf, failures: list[Exception], turns: _Turns
) -> AsyncIterator[Any]:
    try:
        async for document in _each(documents):
            if not await turns.wait():
                return
            yield request_of(document)
    except Exception as error:
        failures.append(error)


async def _each(documents: AsyncDocuments) -> AsyncIterator[Document]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
