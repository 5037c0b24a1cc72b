"""The stream behind `ingest_many`: documents out, their outcomes back.

Written once for threads and once for asyncio, the only part of the clients that is: gRPC's two
libraries send differently. The rest of `sync.py` is generated from `aio.py`.

gRPC swallows what the iterator of its requests raises, or never ends the call, so that is kept
and raised to the caller in place of the error that the call then ends with. A document that no
request can hold is not sent; its error takes its place among the outcomes.
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

from hrag.client.calls import is_cancelled, translated_errors
from hrag.values.documents import Document, IngestResult
from hrag.values.errors import HragError
from hrag.wire import indexer

Documents: TypeAlias = Iterable[Document]
AsyncDocuments: TypeAlias = Iterable[Document] | AsyncIterable[Document]
Outcome: TypeAlias = IngestResult | HragError
RequestOf: TypeAlias = Callable[[Document], Any]

# The status of a refused call arrives with its headers, and grpc.aio reports it a moment later.
# A request that is sent in between fails, and grpc.aio then reports that failure instead.
_REFUSAL_S = 0.005


class _Requests:
    """Makes the requests of documents, and puts the errors of those that have none in order.

    `failure` is what `documents` raised, if anything.
    """

    def __init__(self, request_of: RequestOf) -> None:
        self.failure: BaseException | None = None
        self._request_of = request_of
        self._taken = 0
        self._yielded = 0
        self._refusals: dict[int, HragError] = {}  # By the document's place in `documents`.

    def of(self, document: Document) -> Any:
        """Returns the request of the next document, None if no request can hold it."""
        place = self._taken
        self._taken += 1
        try:
            return self._request_of(document)
        except HragError as error:
            self._refusals[place] = error
            return None

    def in_order(self, outcomes: Iterable[Any]) -> Iterator[Outcome]:
        """Yields the outcomes of sent documents, after the errors of documents before each."""
        for outcome in outcomes:
            yield from self.refused()
            self._yielded += 1
            yield indexer.outcome_from(outcome)

    def refused(self) -> Iterator[HragError]:
        """Yields the errors of the documents that come next, up to one that was sent."""
        while self._yielded in self._refusals:
            self._yielded += 1
            yield self._refusals.pop(self._yielded - 1)


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
    requests = _Requests(request_of)
    try:
        with translated_errors(is_closed):
            responses = send(_sent(map(requests.of, documents), requests))
            try:
                for response in responses:
                    yield from requests.in_order(response.outcomes)
            finally:
                responses.cancel()
    except HragError:
        if requests.failure is None:
            raise
    yield from requests.refused()
    if requests.failure is not None:
        raise requests.failure


def _sent(made: Iterator[Any], requests: _Requests) -> Iterator[Any]:
    """Yields the requests to send; what ends the yield itself is gRPC's and no failure."""
    while True:
        try:
            request = next(made)
        except StopIteration:
            return
        except BaseException as error:  # SystemExit too would leave the caller waiting.
            requests.failure = error
            return
        if request is not None:
            yield request


async def aio_outcomes(
    send: Callable[[AsyncIterator[Any]], Any],
    documents: AsyncDocuments,
    request_of: RequestOf,
    is_closed: Callable[[], bool],
) -> AsyncGenerator[Outcome]:
    """As `outcomes`; sends each document once the one before it is answered."""
    requests = _Requests(request_of)
    turns = _Turns()
    try:
        with translated_errors(is_closed):
            responses = send(_aio_sent(_each(documents), requests, turns))
            try:
                await _begin(responses, turns)
                async for response in responses:
                    for _ in response.outcomes:
                        turns.next()
                    for outcome in requests.in_order(response.outcomes):
                        yield outcome
            finally:
                turns.end()
                responses.cancel()
    except HragError:
        if requests.failure is None:
            raise
    for refusal in requests.refused():
        yield refusal
    if requests.failure is not None:
        raise requests.failure


async def _aio_sent(
    documents: AsyncIterator[Document], requests: _Requests, turns: "_Turns"
) -> AsyncIterator[Any]:
    while True:
        try:
            request = requests.of(await anext(documents))
        except StopAsyncIteration:
            return
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # The call has ended.
            requests.failure = error
            return
        if request is not None:
            if not await turns.wait():
                return
            yield request


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


async def _each(documents: AsyncDocuments) -> AsyncIterator[Document]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
