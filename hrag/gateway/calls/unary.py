"""Methods with one request and one response, as the Connect protocol has them."""

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.reply import JSON, json_reply
from hrag.gateway.services.methods import Method

PROTO = "application/proto"
MEDIA_TYPES = (JSON, PROTO)


def unary_endpoint(exchange: Exchange, method: Method) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of a method."""
    return partial(_serve, exchange, method)


async def _serve(exchange: Exchange, method: Method, request: Request) -> Response:
    media_type = call_headers.media_type(request)
    with exchange.budget.share() as share:
        is_json = media_type == JSON
        response = await (await exchange.started(method, request, share, is_json=is_json))
        share.take(len(response))
        if is_json:
            return json_reply(await exchange.conversion.written(method.response, response))
        return json_reply(response, PROTO)
