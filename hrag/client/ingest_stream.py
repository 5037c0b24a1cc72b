"""The stream of `ingest_many`: sends documents and yields their outcomes.

The code of the stream is written twice, once for threads and once for asyncio, because `grpc` and
`grpc.aio` send requests differently. All other methods of `sync.py` are generated from `aio.py`.

If the iterable of documents raised an error inside gRPC, gRPC would drop the error, or the call
would never end. So the iterators of this module catch the error and send no further request. When
the call has ended, the caught error is raised instead of the call's error. A document that cannot
be encoded as a request is not sent; its error is yielded at the document's position among the
outcomes.
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
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from hrag.client.calls import is_cancelled
from hrag.values.documents import Document, IngestResult
from hrag.values.errors import HragError
from hrag.wire import indexer
from hrag.wire.stream_admission import is_admitted

Documents: TypeAlias = Iterable[Document]
AsyncDocuments: TypeAlias = Iterable[Document] | AsyncIterable[Document]
Outcome: TypeAlias = IngestResult | HragError
RequestOf: TypeAlias = Callable[[Document], Any]


class _Requests:
    """Builds one request per document, and yields all outcomes in the order of the documents.

    If a document cannot be encoded as a request, its outcome is the error of the encoding.
    `failure` is the error that the iterable of documents raised; None if it raised no error.
    """

    def __init__(self, request_of: RequestOf) -> None:
        self.failure: BaseException | None = None
        self._request_of = request_of
        self._read_count = 0
        self._yielded_count = 0
        # The errors of documents that cannot be encoded as requests. The key is the index of the
        # document in the iterable of documents.
        self._errors: dict[int, HragError] = {}

    def build(self, document: Document) -> Any:
        """Returns the request of the next document.

        If the document cannot be encoded as a request, stores the error and returns None.
        """
        index = self._read_count
        self._read_count += 1
        try:
            return self._request_of(document)
        except HragError as error:
            self._errors[index] = error
            return None

    def in_order(self, outcomes: Iterable[Any]) -> Iterator[Outcome]:
        """Yields the outcomes of the documents that were sent, in the order of the documents.

        Between them, yields the errors of the documents that could not be encoded as requests.
        """
        for outcome in outcomes:
            yield from self.next_errors()
            self._yielded_count += 1
            yield indexer.outcome_from(outcome)

    def next_errors(self) -> Iterator[HragError]:
        """Yields the errors of the next documents that could not be encoded as requests.

        Stops before the first document without such an error.
        """
        while self._yielded_count in self._errors:
            self._yielded_count += 1
            yield self._errors.pop(self._yielded_count - 1)


def outcomes(
    send: Callable[[Iterator[Any]], Any],
    documents: Documents,
    request_of: RequestOf,
    translated_errors: Callable[[], AbstractContextManager[None]],
) -> Generator[Outcome]:
    """Yields one outcome (a result or an error) for each document, in order.

    `send` starts the call with an iterator of requests, which gRPC reads in a separate thread.
    gRPC's flow control limits how many requests are sent before their outcomes arrive. Raises the
    error that `documents` raised; if `documents` raised no error, raises the error of the call.
    `translated_errors` returns the context in which gRPC errors become errors of `hrag.errors`.
    """
    requests = _Requests(request_of)
    try:
        with translated_errors():
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
    """Yields the requests of `built`, except None.

    None stands for a document that could not be encoded as a request.

    An error that `built` raises ends the iteration and becomes `requests.failure`. To end this
    iterator, gRPC raises an exception at the `yield`; this exception is not caught.
    """
    while True:
        try:
            request = next(built)
        except StopIteration:
            return
        # SystemExit is caught too, because otherwise the caller would wait for ever.
        except BaseException as error:
            requests.failure = error
            return
        if request is not None:
            yield request


async def aio_outcomes(
    send: Callable[[AsyncIterator[Any]], Any],
    documents: AsyncDocuments,
    request_of: RequestOf,
    translated_errors: Callable[[], AbstractContextManager[None]],
) -> AsyncGenerator[Outcome]:
    """Yields one outcome (a result or an error) for each document, in order, for asyncio.

    Sends each document only after the outcome of the previous document has arrived. Has the same
    parameters as `outcomes`, and raises the same errors.
    """
    requests = _Requests(request_of)
    permits = _SendPermits()
    try:
        with translated_errors():
            responses = send(_aio_requests_to_send(_iterate(documents), requests, permits))
            try:
                if await is_admitted(responses):
                    permits.add()
                async for response in responses:
                    for _ in response.outcomes:
                        permits.add()
                    for outcome in requests.in_order(response.outcomes):
                        yield outcome
            finally:
                permits.end()
                responses.cancel()
    except HragError:
        if requests.failure is None:
            raise
    for document_error in requests.next_errors():
        yield document_error
    if requests.failure is not None:
        raise requests.failure


async def _aio_requests_to_send(
    documents: AsyncIterator[Document], requests: _Requests, permits: "_SendPermits"
) -> AsyncIterator[Any]:
    while True:
        try:
            request = requests.build(await anext(documents))
        except StopAsyncIteration:
            return
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # gRPC cancelled the task because the call has ended.
            requests.failure = error
            return
        if request is not None:
            if not await permits.acquire():
                return
            yield request


class _SendPermits:
    """Permits to send requests; each request needs one permit.

    The first permit is added when the server has admitted the call, and one permit is added for
    each outcome that arrives. So only one request is sent at a time. This is necessary because
    grpc.aio loses the status of the call if the server ends the call while a request is being sent.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(0)
        self._ended = False

    def add(self) -> None:
        self._free.release()

    def end(self) -> None:
        self._ended = True
        self._free.release()

    async def acquire(self) -> bool:
        """Waits for a permit, then returns True. Returns False once `end` was called."""
        await self._free.acquire()
        return not self._ended


async def _iterate(documents: AsyncDocuments) -> AsyncIterator[Document]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
