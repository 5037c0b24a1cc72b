"""Methods with one request and one response, as the Connect protocol has them."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.http import call_headers
from hrag.gateway.http.reply import JSON, CountedReply
from hrag.gateway.services.methods import Method

PROTO = "application/proto"
MEDIA_TYPES = (JSON, PROTO)


def unary_endpoint(exchange: Exchange, method: Method) -> Callable[[Request], Awaitable[Response]]:
    """Returns the handler of a method."""
    return partial(_serve, exchange, method)


async def _serve(exchange: Exchange, method: Method, request: Request) -> Response:
    is_json = call_headers.media_type(request) == JSON
    with ExitStack() as held:
        share = held.enter_context(exchange.share(request))
        response = await (await exchange.started(method, request, share, is_json=is_json))
        share.take(len(response))
        if is_json:
            response = await exchange.conversion.written(method.response, response)
        share.hold(len(response))
        return CountedReply(response, JSON if is_json else PROTO, held.pop_all())
