"""Serves methods with a stream of responses, as a Connect stream or as server-sent events.

A request in plain JSON is answered by events. The name of an event is the name of the field that
the response sets, and the event's data is the value of the field. If the call fails before the
first response, the reply has the HTTP status of the error; a later error is the event `error`. In a
Connect stream every error is in the last frame. In both kinds of streams, the call is cancelled if
the client disconnects.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.envelope import end_frame, framed, only_message
from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.connect_error import error_of
from hrag.gateway.http.reply import JSON, Parts, StreamReply
from hrag.gateway.protojson import json_writer
from hrag.gateway.protojson.json_writer import dumped
from hrag.gateway.services.methods import ServiceMethod
from hrag.values.errors import HragError

CONNECT_JSON = "application/connect+json"
CONNECT_PROTO = "application/connect+proto"
EVENTS = "text/event-stream"
MEDIA_TYPES = (JSON, CONNECT_JSON, CONNECT_PROTO)

# The interval of heartbeats while no response arrives. Proxies close connections that are silent
# for a minute.
_HEARTBEAT_S = 15.0
_HEARTBEAT = b": heartbeat\n\n"

_Convert = Callable[[bytes], Awaitable[bytes]]


def server_stream_endpoint(
    exchange: Exchange, method: ServiceMethod
) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of a method with a stream of responses."""
    return partial(_serve, exchange, method)


async def _serve(exchange: Exchange, method: ServiceMethod, request: Request) -> Response:
    media_type = call_headers.media_type(request)
    if media_type == JSON:
        call = await _start(exchange, method, request, is_json=True)
        first = await _read_first(call)
        request.state.connection.accept()
        to_event = partial(exchange.converted, request, partial(_event, method))
        return StreamReply(_events(to_event, call, first), EVENTS)
    is_json = media_type == CONNECT_JSON
    try:
        call = await _start(exchange, method, request, is_json=is_json, message_in=only_message)
    except (HragError, grpc.aio.AioRpcError) as error:
        return StreamReply(_error_frames(error), media_type)
    accept = request.state.connection.accept
    write = partial(json_writer.write, method.response)
    to_frame: _Convert = partial(exchange.converted, request, write) if is_json else _unchanged
    return StreamReply(_frames(to_frame, call, accept), media_type)


async def _start(exchange: Exchange, method: ServiceMethod, request: Request, **body: Any) -> Any:
    with exchange.share(request) as share:
        return await exchange.started(method, request, share, **body)


async def _read_first(call: Any) -> Any:
    """Returns the first response, or `grpc.aio.EOF` if there is none.

    Cancels the call if the current task is cancelled.
    """
    try:
        return await call.read()
    except asyncio.CancelledError:
        call.cancel()
        raise


async def _error_frames(error: Exception) -> Parts:
    yield end_frame(error_of(error))


async def _unchanged(response: bytes) -> bytes:
    return response


async def _frames(converted: _Convert, call: Any, accept: Callable[[], None]) -> Parts:
    """Yields each response of `call` as a frame of a Connect stream, and then the last frame.

    `converted` converts a response to the content of its frame.

    Calls `accept`, which marks the caller as accepted, after each response has arrived: a response
    means that the service has accepted the caller's credential.
    """
    try:
        while (response := await call.read()) is not grpc.aio.EOF:
            accept()
            yield framed(await converted(response))
        yield end_frame(None)
    except grpc.aio.AioRpcError as error:
        yield end_frame(error_of(error))
    finally:
        call.cancel()


async def _events(converted: _Convert, call: Any, response: Any) -> Parts:
    """Yields each response of `call` as a server-sent event, and heartbeats between the events.

    `converted` converts a response to an event. `response` is the first response of the call.
    """
    reading: asyncio.Task[Any] | None = None
    try:
        while response is not grpc.aio.EOF:
            yield await converted(response)
            reading = asyncio.ensure_future(call.read())
            while not (await asyncio.wait({reading}, timeout=_HEARTBEAT_S))[0]:
                yield _HEARTBEAT
            response = reading.result()
    except grpc.aio.AioRpcError as error:
        yield _encoded_event("error", error_of(error).encoded())
    finally:
        call.cancel()
        if reading is not None:
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await reading


def _event(method: ServiceMethod, response: bytes) -> bytes:
    ((name, value),) = json_writer.as_json(method.response, response).items()
    return _encoded_event(name, dumped(value))


def _encoded_event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
