"""An HTTP server for metrics, in Prometheus' text format, on a port of its own.

Strangers reach this port too, so a connection costs little: it has a thread of its own, of
which there are few, and little time to send a request of few bytes and to take the answer. Of
connections that have sent no request, a new one replaces the oldest, so that idle ones never
lock Prometheus out. Handshakes of TLS happen in these threads too, never where connections
are accepted.
"""

import hmac
import io
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, SOCK_STREAM, getaddrinfo, socket
from typing import Any, Protocol, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric

from hrag.host.addresses import cannot_listen
from hrag.observe import audit
from hrag.server.serving.metrics_access import OPEN, MetricsAccess

_log = structlog.get_logger()

MAX_CONNECTIONS = 32  # Each with a thread. Prometheus has one, or two where it is doubled.
MAX_REQUEST_BYTES = 16 * 1024  # Request line and headers; bodies are not read.
REQUEST_S = 3.0  # For handshake and request.
CONNECTION_S = 15.0  # In all; Prometheus gives up a scrape after ten seconds by default.
_MAX_COLLECTIONS = 2  # At once: each reads the counters of every collection.
_REAP_S = 0.5
_SCHEME = "bearer "
_END = b"\r\n\r\n"


class Collector(Protocol):
    """A source of metrics."""

    def collect(self) -> Iterable[Metric]:
        """Returns the current metrics."""


@contextmanager
def serve_metrics(
    address: str, *collectors: Collector, access: MetricsAccess = OPEN
) -> Iterator[int]:
    """Serves the metrics of `collectors` at `address`, `host:port`; yields the bound port.

    Serves nothing and yields 0 if `address` is empty. Raises ServiceUnavailable if the
    address cannot be bound.
    """
    if not address:
        yield 0
        return
    registry = CollectorRegistry()
    for each in collectors:
        registry.register(each)
    try:
        server = _Server(address, access)
    except OSError as error:
        raise cannot_listen(address, "metrics") from error
    server.set_app(_guarded(make_wsgi_app(registry), access))
    thread = threading.Thread(
        target=server.serve_forever, args=(_REAP_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_Application = Callable[[dict[str, Any], Callable[..., Any]], Sequence[bytes]]


def _guarded(application: _Application, access: MetricsAccess) -> _Application:
    """Returns `application` behind the token and a limit of concurrent collections."""
    collecting = threading.BoundedSemaphore(_MAX_COLLECTIONS)

    def handle(environ: dict[str, Any], start_response: Callable[..., Any]) -> Sequence[bytes]:
        if not _is_authorized(environ, access):
            audit.refused("UNAUTHENTICATED", "metrics", peer=environ["REMOTE_ADDR"])
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return [b"the metrics need a valid token: Authorization: Bearer <token>\n"]
        try:
            with collecting:
                return application(environ, start_response)
        except Exception as error:
            _log.error("metrics_failed", exc_info=error)
            start_response("500 Internal Server Error", [])
            return [b"the metrics cannot be collected; the service's log has the details\n"]

    return handle


def _is_authorized(environ: dict[str, Any], access: MetricsAccess) -> bool:
    if access.token is None:
        return True
    given = environ.get("HTTP_AUTHORIZATION", "")
    if given[: len(_SCHEME)].lower() != _SCHEME:
        return False
    # WSGI decodes headers as Latin-1.
    return hmac.compare_digest(given[len(_SCHEME) :].strip().encode("latin-1"), access.token())


class _Connection:
    """An accepted connection; other threads than its own may end it."""

    def __init__(self, accepted: socket) -> None:
        self.socket = accepted
        self.has_asked = False
        self._started = time.monotonic()
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """True if it has sent no request yet, and nobody has ended it."""
        return not self.has_asked and not self._ended

    @property
    def is_late(self) -> bool:
        """True if it has used up its time."""
        limit_s = CONNECTION_S if self.has_asked else REQUEST_S
        return time.monotonic() - self._started > limit_s

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Makes the handshake; raises OSError."""
        self.socket = encrypted = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        encrypted.do_handshake()

    def end(self) -> None:
        """Wakes its thread, whatever it waits for, so that it ends."""
        self._ended = True
        with suppress(OSError):
            # Not the method of an SSLSocket, which would turn encryption off.
            socket.shutdown(self.socket, SHUT_RDWR)


class _Server(WSGIServer):
    """A server with a bounded number of connections, each with a thread of its own."""

    request_queue_size = 128

    def __init__(self, address: str, access: MetricsAccess) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.address_family = getaddrinfo(host, port, type=SOCK_STREAM)[0][0]
        self._tls = access.tls
        self._lock = threading.Lock()
        self._connections: dict[_Connection, None] = {}  # Oldest first.
        super().__init__((host, int(port)), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for the connection, or closes it while there are too many."""
        connection = _Connection(request)
        if not self._admit(connection):
            self.shutdown_request(request)
            return
        try:
            serving = (connection, client_address)
            threading.Thread(target=self._serve, args=serving, daemon=True).start()
        except RuntimeError:  # The system has no more threads.
            self._close(connection)

    def service_actions(self) -> None:
        """Ends the connections that have used up their time; called twice a second."""
        with self._lock:
            late = [each for each in self._connections if each.is_late]
        for each in late:
            each.end()

    def _admit(self, connection: _Connection) -> bool:
        """Ends the oldest idle connection for a new one; its thread may take a moment to end."""
        with self._lock:
            count = len(self._connections)
            if count >= MAX_CONNECTIONS:
                oldest = next((each for each in self._connections if each.is_idle), None)
                if oldest is None or count >= 2 * MAX_CONNECTIONS:
                    return False
                oldest.end()
            self._connections[connection] = None
            return True

    def _serve(self, connection: _Connection, client_address: Any) -> None:
        try:
            connection.socket.settimeout(REQUEST_S)
            if self._tls is not None:
                connection.encrypt(self._tls())
            _Handler(connection, client_address, self)
        except OSError:
            pass  # The other side has gone, was too slow, or knows no TLS.
        finally:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self.shutdown_request(connection.socket)
        with self._lock:
            del self._connections[connection]


class _Handler(WSGIRequestHandler):
    """Reads one request of limited size, and answers it."""

    def __init__(self, connection: _Connection, client_address: Any, server: _Server) -> None:
        self._connection = connection
        super().__init__(connection.socket, client_address, server)

    def handle(self) -> None:
        """Answers only what has arrived as a whole: nothing else is parsed."""
        request = self._read_request()
        if request is not None:
            self._connection.has_asked = True
            self.connection.settimeout(CONNECTION_S)
            self.rfile = io.BytesIO(request)
            super().handle()

    def _read_request(self) -> bytes | None:
        request = b""
        while _END not in request:
            received = self.connection.recv(MAX_REQUEST_BYTES)
            request += received
            if not received or len(request) > MAX_REQUEST_BYTES:
                return None
        return request

    def log_message(self, *_: Any) -> None:
        """Logs nothing: a stranger could fill the disk."""

    def get_stderr(self) -> TextIO:
        """Returns a place for messages about connections that broke; nobody reads it."""
        return io.StringIO()
