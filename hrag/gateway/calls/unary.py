"""Serves methods with one request and one response, in the Connect protocol."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.reply import JSON
from hrag.gateway.protojson import json_writer
from hrag.gateway.services.methods import ServiceMethod

PROTO = "application/proto"
MEDIA_TYPES = (JSON, PROTO)


def unary_endpoint(
    exchange: Exchange, method: ServiceMethod
) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of a method with one response."""
    return partial(_serve, exchange, method)


async def _serve(exchange: Exchange, method: ServiceMethod, request: Request) -> Response:
    is_json = call_headers.media_type(request) == JSON
    start = partial(exchange.started, method, request, is_json=is_json)
    if is_json:
        return await exchange.reply(
            request, start, JSON, partial(json_writer.write, method.response)
        )
    return await exchange.reply(request, start, PROTO)
