"""A threaded gRPC server with health, reflection, limits and a graceful stop."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hrag import tracing
from hrag.config import CommonSettings
from hrag.deadline import Deadline
from hrag.errors import ServiceUnavailable
from hrag.net.addresses import MAX_PORT
from hrag.rpc import health
from hrag.rpc.admission import CallThreads
from hrag.rpc.interceptor import Around
from hrag.rpc.protection import Protection
from hrag.rpc.rate_limiter import Rates

_UNLIMITED = -1
# Clients ping, between calls too, to keep a connection through proxies and to notice one that
# is dead; every 10 s at most, as grpc-go and grpc-java have it. Pings arrive less evenly than
# they are sent, and the third that comes early costs the connection: so half of that.
_MIN_PING_MS = 5_000
# And clients are pinged: one that vanished without closing its connection would keep its
# streams, and the thread of each, for hours. Proxies forget idle connections later than this.
_PING_MS = 60_000
_PING_ANSWER_MS = 20_000  # Not grpc.keepalive_timeout_ms, which grpcio 1.8x does not heed.
_HEALTH_CALLS = 64  # That may wait for a thread beside all others.
_CANCELLED_S = 0.5  # For handlers of cancelled calls to notice.


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens; `port` is the one it got where the address asked for 0."""

    grpc_server: grpc.Server
    health: health.Health
    threads: CallThreads
    service: str
    port: int

    def start(self) -> None:
        """Begins to answer: SERVING."""
        self.grpc_server.start()
        self.health.set(serving=True)

    def stop(self, drain_s: float) -> bool:
        """NOT_SERVING at once; running calls may finish within `drain_s` seconds.

        Returns whether they did. Those that did not are cancelled, but gRPC cannot stop
        their handlers, which go on in their threads.
        """
        self.health.set(serving=False)
        self.grpc_server.stop(drain_s).wait()
        ending = threading.Thread(target=self.threads.shutdown, daemon=True)
        ending.start()
        ending.join(_CANCELLED_S)
        return not ending.is_alive()


def build(
    settings: CommonSettings,
    protection: Protection,
    address: str,
    service: str,
    register: Callable[[grpc.Server], None],
    *,
    share_port: bool = False,
) -> Server:
    """Binds `address` or raises ServiceUnavailable; `service` is the full proto name.

    With `share_port`, other processes of this user that share it too may have the port;
    the kernel spreads connections over them. Otherwise, two services on one port are a
    mistake.
    """
    threads = CallThreads(settings.threads, settings.max_concurrent_calls)
    around = Around(protection.authenticate, Rates(protection.quota_of), threads)
    server = grpc.server(
        threads,
        interceptors=[*tracing.interceptors(), around],
        options=[
            ("grpc.so_reuseport", int(share_port)),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            ("grpc.max_send_message_length", _UNLIMITED),
            ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", _PING_MS),
            ("grpc.http2.ping_timeout_ms", _PING_ANSWER_MS),
        ],
        maximum_concurrent_rpcs=settings.max_concurrent_calls + _HEALTH_CALLS,
    )
    register(server)
    checks = health.Health(service, settings.max_concurrent_calls)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    if settings.reflection:
        names = (service, health.SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    return Server(server, checks, threads, service, _bind(server, address, protection))


def _bind(server: grpc.Server, address: str, protection: Protection) -> int:
    asked = address.rpartition(":")[2]
    if asked.isdecimal() and int(asked) > MAX_PORT:  # gRPC would take it modulo 65,536.
        raise ServiceUnavailable(f"cannot listen on {address}: ports are 0 to {MAX_PORT}")
    try:
        if protection.credentials is None:
            port: int = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, protection.credentials)
    except RuntimeError as error:
        raise ServiceUnavailable(
            f"cannot listen on {address}: it is in use or no address of this machine"
        ) from error
    return port


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """The caller's deadline, which ends early if it cancels the call or its connection ends."""
    remaining_s = context.time_remaining()
    return Deadline.after(math.inf if remaining_s is None else remaining_s, context.is_active)
