"""A threaded gRPC server: health, reflection, limits, keepalive and a graceful stop."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hrag.config import CommonSettings
from hrag.host.addresses import MAX_PORT, cannot_listen
from hrag.observe import tracing
from hrag.server.admission.executor import AdmissionExecutor
from hrag.server.admission.unread_replies import UnreadReplies
from hrag.server.calls.call import CallLimits
from hrag.server.calls.interceptor import NO_DESERIALIZERS, CallInterceptor, Deserializer
from hrag.server.calls.metadata_limit import MetadataLimiter
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.server.serving import health_service
from hrag.server.serving.protection import Protection
from hrag.values.errors import ServiceUnavailable

_UNLIMITED = -1
# A connection is closed if its HTTP/2 or TLS handshake is not complete after this time. The HTTP/2
# handshake includes that the client acknowledges the server's SETTINGS. gRPC's limits of metadata
# apply only after that.
_HANDSHAKE_TIMEOUT_MS = 10_000
# The limit of open calls on one connection. A client queues calls beyond this limit and reports no
# error. So this limit is so high that a client reaches another limit of the server first. The error
# of that other limit says what to do.
_CALLS_PER_CONNECTION = 1024
# A call waits in gRPC's queue until the event thread takes it. If more calls wait, gRPC ends calls
# of any caller with CANCELLED, without details, and hrag never learns of these calls. By default,
# this begins at 1,000 calls, which one caller can send in a moment. A waiting call needs 16 KB, so
# a full queue needs 260 MB.
_MAX_PENDING_CALLS = 16_384
_CANCEL_GRACE_S = 0.5  # The handlers of cancelled calls have this time to end.


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """How often connections are pinged, and how long they exist. All times are in milliseconds."""

    min_ping_ms: int = 5_000
    """The shortest interval at which a client may send keepalive pings.

    Clients send pings, also between calls, to keep a connection open through proxies and to detect
    a broken connection. grpc-go and grpc-java send at most one ping every 10 s. Pings arrive less
    evenly than they are sent, and gRPC closes a connection at the third ping that is too early. So
    a client may send a ping every 5 s, half of this interval.
    """
    ping_interval_ms: int = 60_000
    """The interval at which the server pings each client.

    Otherwise a client that disappears without closing its connection would occupy its streams, with
    a thread for each, for hours. Proxies drop idle connections after a longer time than this.
    """
    ping_timeout_ms: int = 20_000
    """The time in which a client must acknowledge a ping of the server."""
    max_age_ms: int = 120_000
    """The time after which the server asks a connection to end.

    The number of connections is limited, and an idle connection would use one of them for ever. The
    calls of an ending connection continue, and the client opens a new connection for its next call.
    grpc.max_connection_idle_ms would end only idle connections, but with an error: clients log it,
    and the Node client fails a call that it starts at that moment.
    """


DEFAULT_CONNECTION_POLICY = ConnectionPolicy()


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is bound to a port.

    `port` is the port at which the server listens, also if `address` has the port 0.
    """

    grpc_server: grpc.Server
    health: health_service.Health
    limits: CallLimits
    service: str
    address: str
    port: int

    def start(self) -> None:
        """Starts to answer calls, and reports SERVING to health checks."""
        self.grpc_server.start()
        self.health.set(serving=True)

    def stop(self, drain_s: float) -> bool:
        """Reports NOT_SERVING to health checks; running calls may finish within `drain_s` seconds.

        Then the remaining calls are cancelled. gRPC cannot stop the handlers of cancelled calls,
        so these handlers may continue in their threads. Returns True if all handlers have ended.
        """
        self.health.set(serving=False)
        executor = self.limits.executor
        stopped = self.grpc_server.stop(drain_s)
        executor.end_arriving()
        stopped.wait()
        self.limits.replies.close()
        ending = threading.Thread(target=executor.shutdown, daemon=True)
        ending.start()
        ending.join(_CANCEL_GRACE_S)
        return not ending.is_alive()


def build(
    settings: CommonSettings,
    protection: Protection,
    address: str,
    service: str,
    register: Callable[[grpc.Server], None],
    *,
    share_port: bool = False,
    connections: ConnectionPolicy = DEFAULT_CONNECTION_POLICY,
    deserializers: Mapping[str, Deserializer] = NO_DESERIALIZERS,
) -> Server:
    """Returns a server that is bound to `address` and not yet started.

    `service` is the full name of the service in the proto file. The function `register` adds the
    servicer of this service to the gRPC server that it receives. With `share_port`, other processes
    of the same user may bind the port too (SO_REUSEPORT), and the kernel distributes connections
    among all these processes. `connections` limits pings and the age of connections.
    `deserializers` parse the requests of some methods, see `CallInterceptor`. Raises
    ServiceUnavailable if the address cannot be bound.
    """
    limits = _limits(settings, protection)
    interceptors = [
        MetadataLimiter(limits),
        *tracing.interceptors(),
        CallInterceptor(protection.authenticate, limits, deserializers),
    ]
    server = grpc.server(
        limits.executor,  # type: ignore[arg-type]  # gRPC uses only `submit` of a pool.
        interceptors=interceptors,
        options=[
            ("grpc.so_reuseport", int(share_port)),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            ("grpc.max_send_message_length", _UNLIMITED),
            ("grpc.http2.min_ping_interval_without_data_ms", connections.min_ping_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", connections.ping_interval_ms),
            # grpcio 1.8x ignores grpc.keepalive_timeout_ms, so this option of HTTP/2 is used.
            ("grpc.http2.ping_timeout_ms", connections.ping_timeout_ms),
            ("grpc.max_allowed_incoming_connections", settings.max_connections),
            ("grpc.max_connection_age_ms", connections.max_age_ms),
            ("grpc.max_concurrent_streams", _CALLS_PER_CONNECTION),
            ("grpc.server.max_pending_requests", _MAX_PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING_CALLS),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
            ("grpc.http2.settings_timeout", _HANDSHAKE_TIMEOUT_MS),
        ],
    )
    register(server)
    checks = health_service.Health(service)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if settings.reflection:
        names = (service, health_service.SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    port = _bind(server, address, protection)
    return Server(server, checks, limits, service, address, port)


def _limits(settings: CommonSettings, protection: Protection) -> CallLimits:
    executor = AdmissionExecutor(
        settings.threads,
        settings.max_concurrent_calls,
        settings.tenant_max_waiting_calls or max(1, settings.max_concurrent_calls // 2),
        settings.arrival_timeout_s,
        settings.max_streams,
        settings.max_unanswered_bytes,
    )
    return CallLimits(
        executor,
        RateLimiter(protection.quota_of),
        UnreadReplies(settings.max_unread_bytes, settings.send_timeout_s),
        settings.default_deadline_s,
        settings.stream_idle_timeout_s,
    )


def _bind(server: grpc.Server, address: str, protection: Protection) -> int:
    requested = address.rpartition(":")[2]
    # A port above MAX_PORT is refused here, because gRPC would silently use the port modulo 65,536.
    if requested.isdecimal() and int(requested) > MAX_PORT:
        raise ServiceUnavailable(
            f"cannot listen on {address}: the port must be from 0 to {MAX_PORT}"
        )
    try:
        if protection.credentials is None:
            port: int = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, protection.credentials)
    except RuntimeError as error:
        raise cannot_listen(address) from error
    return port
