"""Creates the routes and the HTTP server of the gateway, and serves until it is stopped."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from socket import socket
from ssl import SSLContext
from typing import Any

import structlog
from starlette.middleware.cors import CORSMiddleware

from hrag.config import GatewaySettings
from hrag.gateway.calls import ingest_call, server_stream, unary
from hrag.gateway.calls.exchange import Exchange
from hrag.gateway.calls.ingest_call import ingest_endpoint
from hrag.gateway.calls.server_stream import server_stream_endpoint
from hrag.gateway.calls.unary import unary_endpoint
from hrag.gateway.dify import retrieval_route
from hrag.gateway.health_route import health_routes
from hrag.gateway.http.http_server import HttpServer
from hrag.gateway.http.routes import Application, Route
from hrag.gateway.http.static_files import page, static_routes
from hrag.gateway.original_download import original_endpoint
from hrag.gateway.protojson.json_writer import dumped
from hrag.gateway.reference.openapi import document
from hrag.gateway.reference.original_path import ORIGINAL
from hrag.gateway.reference.proto_comments import read_comments
from hrag.gateway.rest import rest_routes
from hrag.gateway.services.channels import ServiceChannels
from hrag.gateway.services.methods import METHODS, ServiceMethod
from hrag.host.listener import listen
from hrag.observe import metrics
from hrag.observe.metrics import Reading, file_readings
from hrag.server.serving.metrics_access import open_metrics_access
from hrag.server.serving.metrics_server import serve_metrics
from hrag.server.serving.protection import require_protection
from hrag.server.serving.service_process import report_serving
from hrag.server.serving.tls import server_context
from hrag.wire.stream_admission import REQUEST_ID

_log = structlog.get_logger()

_FILES = files("hrag.gateway")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_EVERY_INTERFACE = ("0.0.0.0", "[::]")
_POST = ("POST",)
_GET = ("GET",)
_CORS_HEADERS = (
    *("authorization", "content-type", "connect-protocol-version", "connect-timeout-ms"),
    *("traceparent", "tracestate", REQUEST_ID, "range", "if-range"),
)
# Pages of other origins may read these headers of replies. The last ones are those of an original.
_EXPOSED_HEADERS = (
    *("retry-after", REQUEST_ID),
    *("content-disposition", "etag", "accept-ranges", "content-range"),
)
_CORS_S = 3600  # Browsers may cache the reply to a CORS preflight request for this many seconds.


def serve(
    settings: GatewaySettings,
    stopping: threading.Event,
    on_serving: Callable[[int], None] = lambda _port: report_serving(),
) -> None:
    """Serves until `stopping` is set; calls `on_serving` with the port when it begins to serve.

    Raises SettingsError if a setting is invalid, and ServiceUnavailable if an address cannot be
    bound.
    """
    require_protection(settings, settings.address)
    tls = server_context(settings)
    access = open_metrics_access(settings, settings.metrics_address)
    collectors = (metrics.INSTRUMENTS, metrics.Readings(_readings))
    with (
        listen(settings.address) as listening,
        serve_metrics(settings.metrics_address, *collectors, access=access),
    ):
        asyncio.run(_serve(settings, listening, tls, stopping, on_serving))


def _readings() -> Iterator[Reading]:
    """Yields the metrics that are read at each scrape: the version and the state of the files."""
    yield Reading("hrag_build_info", 1, {"version": version("hrag")})
    yield from file_readings()


async def _serve(
    settings: GatewaySettings,
    listening: socket,
    tls: Callable[[], SSLContext] | None,
    stopping: threading.Event,
    on_serving: Callable[[int], None],
) -> None:
    services = ServiceChannels(settings)
    exchange = Exchange(settings, services)
    application = Application(routes(exchange), _hosts(settings))
    server = HttpServer(_with_cors(application, settings.origins), listening, settings, tls)
    server.start()
    port = listening.getsockname()[1]
    _log.info("serving", address=settings.address, port=port)
    on_serving(port)
    try:
        await asyncio.to_thread(stopping.wait)
        _log.info("stopping", drain_s=settings.drain_s)
        await server.close(settings.drain_s)
    finally:
        await services.close()
        exchange.conversion.close()


def routes(exchange: Exchange) -> Mapping[str, Route]:
    """Returns all routes of the gateway; the key is the path."""
    return {
        **static_routes(_FILES / "explorer", "/"),
        **static_routes(_FILES / "docs", "/docs"),
        "/openapi.json": page("openapi.json", dumped(document(METHODS, read_comments()))),
        **health_routes(exchange.services),
        "/retrieval": retrieval_route(exchange),
        ORIGINAL: Route(original_endpoint(exchange), _GET),
        **rest_routes(exchange),
        **{method.path: _method_route(exchange, method) for method in METHODS},
    }


def _method_route(exchange: Exchange, method: ServiceMethod) -> Route:
    if method.descriptor.client_streaming:
        return Route(ingest_endpoint(exchange, method), _POST, ingest_call.MEDIA_TYPES)
    if method.descriptor.server_streaming:
        return Route(server_stream_endpoint(exchange, method), _POST, server_stream.MEDIA_TYPES)
    return Route(unary_endpoint(exchange, method), _POST, unary.MEDIA_TYPES)


def _hosts(settings: GatewaySettings) -> frozenset[str]:
    """Returns the host names that the `host` header of a request may contain."""
    bind_host = settings.address.rpartition(":")[0].lower()
    bound = () if bind_host in _EVERY_INTERFACE else (bind_host,)
    return frozenset((*_LOOPBACK, *bound, *settings.hosts))


def _with_cors(application: Any, origins: Sequence[str]) -> Any:
    """Returns the application with CORS headers for the web pages of `origins`.

    A browser lets only these pages, and the gateway's pages, read the replies.
    """
    if not origins:
        return application
    return CORSMiddleware(
        application,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=_CORS_HEADERS,
        expose_headers=_EXPOSED_HEADERS,
        max_age=_CORS_S,
    )
