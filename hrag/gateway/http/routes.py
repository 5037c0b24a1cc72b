"""The ASGI application: it calls the handler that the path of a request determines.

The application also assigns an id to every request, and turns every error into a reply.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path

from hrag.gateway.http import call_headers
from hrag.gateway.http.connect_error import ConnectError, error_of
from hrag.gateway.http.reply import error_reply
from hrag.observe import metrics
from hrag.server.calls.call import to_hrag_error
from hrag.server.calls.request_id import is_request_id, new_request_id
from hrag.values.errors import HragError, InvalidArgument, PermissionDenied, ServiceUnavailable
from hrag.values.ids import quoted
from hrag.wire.stream_admission import REQUEST_ID

Endpoint = Callable[[Request], Awaitable[Response]]
ErrorForm = Callable[[Request, ConnectError], bytes]
"""Returns the body of the reply for a request that failed."""

# Each of these headers defines where the body ends. If a request has both headers, the gateway
# could use one and a proxy in front of the gateway the other. Then they would disagree on the end
# of the request, and a second request could hide in the body.
_AMBIGUOUS = InvalidArgument(
    "the request has the headers content-length and transfer-encoding; only one is allowed",
    field="transfer-encoding",
)
_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
_READ = ("GET", "HEAD")
_PORT = re.compile(r":[0-9]*$")


def _connect_form(_request: Request, error: ConnectError) -> bytes:
    return error.encoded()


@dataclass(frozen=True, slots=True)
class Route:
    """The handler of a path, with the HTTP methods and media types that the handler accepts."""

    endpoint: Endpoint
    methods: tuple[str, ...] = _READ
    media_types: tuple[str, ...] = ()
    """The media types that a request's body may have; empty if the handler reads no body."""
    error_form: ErrorForm = _connect_form
    """The form of all errors at this path; by default that of the Connect protocol."""


class Application:
    """The ASGI application of the gateway.

    It refuses a request whose header `host` names none of the hosts that the gateway serves.
    """

    def __init__(self, routes: Mapping[str, Route], hosts: frozenset[str]) -> None:
        """Creates the application.

        The keys of `routes` are paths. A part of a path in braces, such as `{id}`, stands for any
        text without a slash; the handler finds this text in `request.path_params`, with its escapes
        decoded.
        """
        self._routes = routes
        self._patterns = [
            (compile_path(path)[0], route) for path, route in routes.items() if "{" in path
        ]
        self._hosts = hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request; every error becomes a reply."""
        request = Request(scope, receive)
        connection = request.state.connection
        connection.begin(asyncio.current_task())
        try:
            await self._answer(request, send)
        except asyncio.CancelledError:
            pass  # The client disconnected while the reply was being sent, or the gateway stops.
        finally:
            connection.end()

    async def _answer(self, request: Request, send: Any) -> None:
        client_id = request.headers.get(REQUEST_ID, "")
        request.state.request_id = client_id if is_request_id(client_id) else new_request_id()
        reply = await self._reply(request)
        reply.headers[REQUEST_ID] = request.state.request_id
        await reply(request.scope, request.receive, send)

    async def _reply(self, request: Request) -> Response:
        route = self._route(request)

        def refusal(error: Exception) -> Response:
            return _refusal(route, request, error_of(error))

        try:
            self._check_host(request)
            if "transfer-encoding" in request.headers and "content-length" in request.headers:
                reply = refusal(_AMBIGUOUS)
                reply.headers["connection"] = "close"
                return reply
            return await _serve(route, request)
        except (HragError, grpc.aio.AioRpcError) as error:
            return refusal(error)
        except (asyncio.CancelledError, ClientDisconnect):
            # The request was cancelled, because the gateway stops or the client has disconnected.
            # If the client has disconnected, the message "the gateway is stopping" is wrong, but
            # nobody reads this reply.
            return refusal(ServiceUnavailable("the gateway is stopping"))
        except Exception as error:
            return refusal(to_hrag_error(request.url.path, error))

    def _route(self, request: Request) -> Route | None:
        """Returns the route of the request's path; None if the gateway serves nothing there.

        Escapes such as %2F in the path are decoded only where the path of a route has a part in
        braces, and the slashes are found before that. A proxy in front of the gateway may allow
        only some paths, and must compare the same path as the gateway.
        """
        path = _raw_path(request)
        for pattern, route in self._patterns:
            if match := pattern.fullmatch(path):
                values = match.groupdict()
                request.scope["path_params"] = {k: unquote(v) for k, v in values.items()}
                return route
        return None if "{" in path else self._routes.get(path)

    def _check_host(self, request: Request) -> None:
        """Raises PermissionDenied if the header `host` is not one of the gateway's hosts.

        This prevents DNS rebinding: a foreign page makes its host name point to this address, so
        that the browser lets the page read the gateway's replies.
        """
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if _PORT.search(host) else host
        if name.lower() not in self._hosts:
            raise PermissionDenied(
                f"the header host is {quoted(host)}; this gateway serves "
                f"{', '.join(sorted(self._hosts))} (HRAG_HTTP_HOSTS)"
            )


def _raw_path(request: Request) -> str:
    return str(request.scope["raw_path"].decode("latin-1"))


async def _serve(route: Route | None, request: Request) -> Response:
    path = quoted(_raw_path(request))
    if route is None:
        problem = f"the gateway serves nothing at the path {path}; /docs lists what it serves"
        return _not_served(route, request, 404, problem)
    if request.method not in route.methods:
        allowed = ", ".join(route.methods)
        problem = f"the method is {quoted(request.method)}; {path} allows {allowed}"
        return _not_served(route, request, 405, problem, {"allow": allowed})
    media_type = call_headers.media_type(request)
    if route.media_types and media_type not in route.media_types:
        allowed = ", ".join(route.media_types)
        problem = f"the header content-type is {quoted(media_type)}; it must be one of {allowed}"
        return _not_served(route, request, 415, problem, {"accept-post": allowed})
    return await route.endpoint(request)


def _not_served(
    route: Route | None,
    request: Request,
    http_status: int,
    problem: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Returns the reply to a request whose path, method or media type the gateway does not serve.

    HTTP has a status for each of these cases, and gRPC has only UNIMPLEMENTED.
    """
    metrics.http_refused("route")
    reply = _refusal(route, request, ConnectError(_UNIMPLEMENTED, problem))
    reply.status_code = http_status
    reply.headers.update(headers or {})
    return reply


def _refusal(route: Route | None, request: Request, error: ConnectError) -> Response:
    form = _connect_form if route is None else route.error_form
    return error_reply(error, form(request, error))
