"""An HTTP server for metrics, in Prometheus' text format, on a separate port.

Strangers may reach this port too, so a connection must not cost much. Each connection has a
thread, the count of connections is limited, the size of a request is limited, and there is a time
limit for sending the request and for reading the reply. If there are too many connections, a new
connection replaces the oldest connection that has sent no request. So idle connections never lock
Prometheus out. The TLS handshake happens in the thread of the connection, never in the thread that
accepts connections.
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
from hrag.server.serving.metrics_access import UNRESTRICTED, MetricsAccess

_log = structlog.get_logger()

# The limit of connections. Each connection has a thread. A Prometheus server needs one connection.
MAX_CONNECTIONS = 32
# The maximum size of the request line and the headers together. A body is not read.
MAX_REQUEST_BYTES = 16 * 1024
REQUEST_S = 3.0  # The client must complete the TLS handshake and send its request in this time.
# The time limit of a whole connection. It is longer than the ten seconds after which Prometheus
# ends a scrape by default.
CONNECTION_S = 15.0
# The limit of scrapes that run at the same time. The limit is low because each scrape reads the
# counters of every collection.
_MAX_SCRAPES = 2
# At this interval, connections that have exceeded their time limit are ended.
_REAP_S = 0.5
_SCHEME = "bearer "
_END = b"\r\n\r\n"


class Collector(Protocol):
    """A source of metrics, for Prometheus' client library."""

    def collect(self) -> Iterable[Metric]:
        """Returns the current metrics; Prometheus calls this at each scrape."""


@contextmanager
def serve_metrics(
    address: str, *collectors: Collector, access: MetricsAccess = UNRESTRICTED
) -> Iterator[int]:
    """Serves the metrics of `collectors` during the `with` block; yields the port.

    `address` is `host:port`. If it is empty, serves nothing and yields 0. Raises
    ServiceUnavailable if the address cannot be bound.
    """
    if not address:
        yield 0
        return
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    try:
        server = _Server(address, access)
    except OSError as error:
        raise cannot_listen(address, "metrics") from error
    server.set_app(_guard(make_wsgi_app(registry), access))
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


def _guard(application: _Application, access: MetricsAccess) -> _Application:
    """Returns a WSGI application that checks the token and then calls `application`.

    At most `_MAX_SCRAPES` calls of `application` run at the same time; further calls wait.
    """
    scraping = threading.BoundedSemaphore(_MAX_SCRAPES)

    def handle(environ: dict[str, Any], start_response: Callable[..., Any]) -> Sequence[bytes]:
        if not _is_authorized(environ, access):
            audit.refused("UNAUTHENTICATED", "metrics", peer=environ["REMOTE_ADDR"])
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return [b"the metrics need a valid token: Authorization: Bearer <token>\n"]
        try:
            with scraping:
                return application(environ, start_response)
        except Exception as error:
            _log.error("metrics_failed", exc_info=error)
            start_response("500 Internal Server Error", [])
            return [b"the metrics cannot be collected; the service's log has the details\n"]

    return handle


def _is_authorized(environ: dict[str, Any], access: MetricsAccess) -> bool:
    if access.token is None:
        return True
    header = environ.get("HTTP_AUTHORIZATION", "")
    if header[: len(_SCHEME)].lower() != _SCHEME:
        return False
    # WSGI decodes headers as Latin-1. Encoding them as Latin-1 restores the bytes that were sent.
    return hmac.compare_digest(header[len(_SCHEME) :].strip().encode("latin-1"), access.token())


class _Connection:
    """An accepted connection. Any thread may end it."""

    def __init__(self, accepted: socket) -> None:
        self.socket = accepted
        self.has_request = False
        self._started = time.monotonic()
        self._ended = False

    @property
    def is_idle(self) -> bool:
        """True if the connection is open and the client has not sent its request yet."""
        return not self.has_request and not self._ended

    @property
    def is_late(self) -> bool:
        """True if the connection is older than its time limit.

        The limit is `REQUEST_S` before the request was received, and `CONNECTION_S` afterwards.
        """
        limit_s = CONNECTION_S if self.has_request else REQUEST_S
        return time.monotonic() - self._started > limit_s

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Performs the TLS handshake; raises OSError if it fails."""
        self.socket = encrypted = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        encrypted.do_handshake()

    def end(self) -> None:
        """Shuts the socket down, so that a thread that waits for the connection wakes and ends."""
        self._ended = True
        with suppress(OSError):
            # SSLSocket.shutdown would also end the encryption, which another thread may be using.
            # So socket.shutdown is called, which only shuts the connection down.
            socket.shutdown(self.socket, SHUT_RDWR)


class _Server(WSGIServer):
    """An HTTP server with a limited count of connections and one thread for each connection."""

    request_queue_size = 128

    def __init__(self, address: str, access: MetricsAccess) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.address_family = getaddrinfo(host, port, type=SOCK_STREAM)[0][0]
        self._tls = access.tls
        self._lock = threading.Lock()
        self._connections: dict[_Connection, None] = {}  # The oldest connection comes first.
        super().__init__((host, int(port)), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for the connection, or closes the connection if there are too many."""
        connection = _Connection(request)
        if not self._admit(connection):
            self.shutdown_request(request)
            return
        try:
            serving = (connection, client_address)
            threading.Thread(target=self._serve, args=serving, daemon=True).start()
        except RuntimeError:  # The operating system refuses a new thread.
            self._close(connection)

    def service_actions(self) -> None:
        """Ends the connections that have exceeded their time limit.

        The base class calls this method twice a second.
        """
        with self._lock:
            late = [connection for connection in self._connections if connection.is_late]
        for connection in late:
            connection.end()

    def _admit(self, connection: _Connection) -> bool:
        """Returns True if the connection may be served.

        If there are MAX_CONNECTIONS connections already, ends the oldest connection that has sent
        no request. The thread of the ended connection may need a moment to end. So for a short time
        there may be up to 2 * MAX_CONNECTIONS connections.
        """
        with self._lock:
            count = len(self._connections)
            if count >= MAX_CONNECTIONS:
                oldest = next((open_ for open_ in self._connections if open_.is_idle), None)
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
            pass  # The client has disconnected, was too slow, or does not speak TLS.
        finally:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self.shutdown_request(connection.socket)
        with self._lock:
            del self._connections[connection]


class _Handler(WSGIRequestHandler):
    """Reads one request of limited size and answers it."""

    def __init__(self, connection: _Connection, client_address: Any, server: _Server) -> None:
        self._connection = connection
        super().__init__(connection.socket, client_address, server)

    def handle(self) -> None:
        """Reads all headers of the request first, then answers the request.

        An incomplete request is neither parsed nor answered.
        """
        request = self._read_request()
        if request is not None:
            self._connection.has_request = True
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
        """Logs nothing, because a stranger could fill the disk with log lines."""

    def get_stderr(self) -> TextIO:
        """Returns a stream that discards the messages about broken connections."""
        return io.StringIO()
