"""The stream of `ingest_many`: it sends documents and yields their outcomes.

It is written twice, once for threads and once for asyncio, because gRPC's two libraries send
requests differently. All other methods of `sync.py` are generated from `aio.py`.

If the iterator of requests raises an error, gRPC drops the error, or the call never ends. So the
iterators here catch it, end the requests, and raise it to the caller instead of the error with
which the call then ends. A document that cannot be a request is not sent; its error is yielded
at the document's position among the outcomes.
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
from hrag.wire.stream_admission import is_admitted

Documents: TypeAlias = Iterable[Document]
AsyncDocuments: TypeAlias = Iterable[Document] | AsyncIterable[Document]
Outcome: TypeAlias = IngestResult | HragError
RequestOf: TypeAlias = Callable[[Document], Any]


class _Requests:
    """Builds the requests of documents, and yields all outcomes in the order of the documents.

    A document that cannot be a request has its error as its outcome. `failure` is the error that
    the iterable of documents raised, or None.
    """

    def __init__(self, request_of: RequestOf) -> None:
        self.failure: BaseException | None = None
        self._request_of = request_of
        self._read_count = 0
        self._yielded_count = 0
        # The key is the document's index in the iterable of documents.
        self._errors: dict[int, HragError] = {}

    def build(self, document: Document) -> Any:
        """Returns the request of the next document, or None if it cannot be a request."""
        index = self._read_count
        self._read_count += 1
        try:
            return self._request_of(document)
        except HragError as error:
            self._errors[index] = error
            return None

    def in_order(self, outcomes: Iterable[Any]) -> Iterator[Outcome]:
        """Yields the outcome of each sent document after the errors of unsent ones before it."""
        for outcome in outcomes:
            yield from self.next_errors()
            self._yielded_count += 1
            yield indexer.outcome_from(outcome)

    def next_errors(self) -> Iterator[HragError]:
        """Yields the errors of the next documents, up to one without an error."""
        while self._yielded_count in self._errors:
            self._yielded_count += 1
            yield self._errors.pop(self._yielded_count - 1)


def outcomes(
    send: Callable[[Iterator[Any]], Any],
    documents: Documents,
    request_of: RequestOf,
    is_closed: Callable[[], bool],
) -> Generator[Outcome]:
    """Yields one outcome for each document, in order.

    `send` starts the call with an iterator of requests, which gRPC reads in a separate thread.
    gRPC's flow control limits how many requests are sent before they are answered. Raises the
    error that `documents` raised; if there is none, the error of the call.
    """
    requests = _Requests(request_of)
    try:
        with translated_errors(is_closed):
            responses = send(_requests_to_send(map(requests.build, documents), requests))
            try:
                for response in responses:
                    yield from requests.in_order(response.outcomes)
            finally:
                responses.cancel()
    except HragError:
        if requests.failure is None:
            raise
    yield from requests.next_errors()
    if requests.failure is not None:
        raise requests.failure


def _requests_to_send(built: Iterator[Any], requests: _Requests) -> Iterator[Any]:
    """Yields the requests of `built` that are not None.

    An error of `built` ends the iteration and becomes `requests.failure`. An error that gRPC
    raises at the `yield`, to end this iterator, is not a failure and is not caught.
    """
    while True:
        try:
            request = next(built)
        except StopIteration:
            return
        # SystemExit is caught too: otherwise the caller would wait for ever.
        except BaseException as error:
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
    """Yields one outcome for each document, in order, for asyncio.

    Sends each document after the document before it was answered. Otherwise like `outcomes`.
    """
    requests = _Requests(request_of)
    turns = _Turns()
    try:
        with translated_errors(is_closed):
            responses = send(_aio_requests_to_send(_iterate(documents), requests, turns))
            try:
                if await is_admitted(responses):
                    turns.next()
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
    for document_error in requests.next_errors():
        yield document_error
    if requests.failure is not None:
        raise requests.failure


async def _aio_requests_to_send(
    documents: AsyncIterator[Document], requests: _Requests, turns: "_Turns"
) -> AsyncIterator[Any]:
    while True:
        try:
            request = requests.build(await anext(documents))
        except StopAsyncIteration:
            return
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # The task was cancelled because the call has ended.
            requests.failure = error
            return
        if request is not None:
            if not await turns.wait():
                return
            yield request


class _Turns:
    """Lets one request be sent at a time, the first after the server has admitted the call.

    If the server ends a stream while a request is being sent, grpc.aio loses the status.
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
        """Waits for the next turn; returns True if there is one, and False after the end."""
        await self._free.acquire()
        return not self._ended


async def _iterate(documents: AsyncDocuments) -> AsyncIterator[Document]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
