"""Serves a stream of documents: each line of JSON is a request, and is answered by an outcome.

Lines are read no faster than the indexer accepts documents and the client reads outcomes, so the
gateway buffers a limited number of lines. If a line is not a valid request, its outcome is an error
at the same position, and the stream continues with the next line.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.calls.request_lines import RequestLine, lines_of
from hrag.gateway.http import call_headers
from hrag.gateway.http.connect_error import error_of
from hrag.gateway.http.reply import Parts, StreamReply
from hrag.gateway.http.request_body import body_parts
from hrag.gateway.protojson.json_writer import as_json, dumped
from hrag.gateway.services.methods import ServiceMethod
from hrag.observe import metrics
from hrag.server.admission.byte_budget import Share
from hrag.values.errors import HragError, InvalidArgument, ServiceUnavailable
from hrag.wire.indexer import error_outcome
from hrag.wire.stream_admission import is_admitted

JSON_LINES = "application/x-ndjson"
# The same lines. Generators of clients know this media type, and send and return bytes.
BYTES = "application/octet-stream"
MEDIA_TYPES = (JSON_LINES, BYTES)
# grpc.aio raises an error with this message if it has lost the status of a call.
_LOST_STATUS = "Internal error from Core"
# The maximum number of lines that were sent to the indexer but have no outcome yet. The indexer
# reads at most about 260 documents in advance of their outcomes, so it never waits for lines
# because of this limit.
_MAX_AHEAD = 512


def ingest_endpoint(
    exchange: Exchange, method: ServiceMethod
) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of a method with a stream of requests and a stream of outcomes."""
    return partial(_serve, exchange, method)


async def _serve(exchange: Exchange, method: ServiceMethod, request: Request) -> Response:
    time_left_s = call_headers.time_left_s(request)
    metadata = call_headers.metadata(request)
    parts = body_parts(request)
    await exchange.authorize(request, metadata)
    call = exchange.services.call(method, None, metadata, time_left_s())
    caller = call_headers.caller_or_address(request)
    outcomes = _Stream(exchange, method, call, caller).outcomes(parts, exchange.share(request))
    # If an error occurs before the first outcome, it is raised here. So the whole reply is this
    # error, with its HTTP status.
    first = await anext(outcomes, b"")
    return StreamReply(_chain(first, outcomes), call_headers.media_type(request))


async def _chain(first: bytes, next_parts: Parts) -> Parts:
    async with aclosing(next_parts):
        yield first
        async for part in next_parts:
            yield part


@dataclass(frozen=True, slots=True)
class _SentLine:
    """A line of the request, with its line number.

    If `error` is None, the document in the line was sent to the indexer. Otherwise the line could
    not be read, and `error` says why.
    """

    number: int
    error: HragError | None = None


class _Stream:
    """Reads the lines of one request, and yields the outcomes of the lines in the same order."""

    def __init__(self, exchange: Exchange, method: ServiceMethod, call: Any, caller: str) -> None:
        self._exchange = exchange
        self._caller = caller
        self._method = method
        self._call = call
        # The queue contains the lines whose outcome has not been yielded yet. After the last line
        # it contains None, or the error that ends the stream.
        self._sent: asyncio.Queue[_SentLine | HragError | None] = asyncio.Queue(_MAX_AHEAD)
        # The outcomes that have arrived from the indexer but were not yielded yet.
        self._received: deque[dict[str, Any]] = deque()

    async def outcomes(
        self, parts: AsyncIterator[bytes], budget_share: AbstractContextManager[Share]
    ) -> Parts:
        """Yields one line of JSON for each line of the request that is not blank.

        An error that ends the stream is yielded as the last line. If the error occurs before the
        first outcome, it is raised instead. `parts` are the parts of the request's body. Bytes that
        are in memory count in `budget_share`, the request's share of the byte budget.
        """
        sending = asyncio.ensure_future(self._send(parts, budget_share))
        is_first = True
        try:
            while (sent := await self._sent.get()) is not None:
                yield _line(await self._outcome(sent))
                is_first = False
            # All outcomes are yielded. If the indexer ended the stream with an error, this `read`
            # raises the error.
            await self._call.read()
        except (HragError, grpc.aio.AioRpcError) as error:
            stream_error = _restore_status(error)
            if is_first:
                raise stream_error from error
            yield _line({"streamError": error_of(stream_error).as_json()})
        finally:
            self._call.cancel()
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    async def _send(
        self, parts: AsyncIterator[bytes], budget_share: AbstractContextManager[Share]
    ) -> None:
        """Sends the lines to the indexer, and adds each sent line to the queue `_sent`.

        After the last line, adds None to the queue. If the lines cannot be read to the end, adds
        the error instead.
        """
        end = None
        try:
            if await is_admitted(self._call):
                await self._send_lines(parts, budget_share)
        except HragError as error:
            end = error
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call has ended. `outcomes` will read the next response of the call, and this read
            # raises the error that ended the call.
            pass
        await self._sent.put(end)

    async def _send_lines(
        self, parts: AsyncIterator[bytes], budget_share: AbstractContextManager[Share]
    ) -> None:
        with budget_share as share:
            max_bytes = self._exchange.max_bytes(self._method)
            idle_s = self._exchange.stream_idle_s
            async for line in lines_of(parts, max_bytes, idle_s, share):
                await self._forward(line)
        await self._call.done_writing()

    async def _forward(self, line: RequestLine) -> None:
        try:
            raw = line.content()
            conversion = self._exchange.conversion
            message = await conversion.encoded(self._method.request, raw, self._caller)
        except InvalidArgument as error:
            metrics.http_request_refused(error)
            await self._sent.put(_SentLine(line.number, error))
        else:
            await self._sent.put(_SentLine(line.number))
            await self._call.write(message)

    async def _outcome(self, sent: _SentLine | HragError) -> dict[str, Any]:
        if isinstance(sent, HragError):
            raise sent
        if sent.error is not None:
            outcome = error_outcome("", sent.error)
            return {"line": sent.number, **as_json(type(outcome), outcome.SerializeToString())}
        if not self._received:
            response = await self._call.read()
            if response is grpc.aio.EOF:
                raise ServiceUnavailable(
                    "the indexer ended the stream; send again the lines without an outcome"
                )
            self._received.extend(as_json(self._method.response, response)["outcomes"])
        return {"line": sent.number, **self._received.popleft()}


def _restore_status(error: HragError | grpc.aio.AioRpcError) -> HragError | grpc.aio.AioRpcError:
    """Returns ServiceUnavailable if grpc.aio has lost the status of `error`, else `error` itself.

    grpc.aio loses the status of a stream that the server ends while a line is being written.
    """
    if isinstance(error, grpc.aio.AioRpcError) and error.details() == _LOST_STATUS:
        return ServiceUnavailable(
            "the indexer ended the stream; send again the lines without an outcome"
        )
    return error


def _line(value: dict[str, Any]) -> bytes:
    return dumped(value) + b"\n"
