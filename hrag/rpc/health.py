"""grpc.health.v1: whether a service serves, for whoever asks; nobody needs a credential.

The library's own servicer holds its lock while it sends to one who watches and takes it in
gRPC's only thread of events when another leaves, which then waits for ever: strangers could
stop a whole server so. It also keeps every name that was ever watched. Here nothing is sent
under a lock that a leaving watcher takes, nor in a thread that calls need, because who does
not read holds up who sends; and watchers leave half of the calls to others.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from hrag.errors import TooBusy
from hrag.rpc import status
from hrag.rpc.interceptor import Unreadable

SERVICE = pb.DESCRIPTOR.services_by_name["Health"].full_name

_TOLD_S = 0.5  # For watchers to hear of a change; one who does not read holds up nobody.
_SHARE = 2  # Of the calls that a server runs and queues, one in so many may be a watcher's.


class Health(health_pb2_grpc.HealthServicer):
    """One service's state, which is also that of the server as a whole, the empty name."""

    def __init__(self, service: str, max_calls: int) -> None:
        self._names = ("", service)
        self._most = max(1, max_calls // _SHARE)
        self._lock = threading.Lock()
        self._serving = False
        self._watchers: set[_Watcher] = set()

    def set(self, *, serving: bool) -> None:
        """Tells everybody who watches, too."""
        with self._lock:
            self._serving = serving
            watchers = list(self._watchers)
        until = time.monotonic() + _TOLD_S
        for telling in [watcher.start_telling() for watcher in watchers]:
            telling.join(max(0.0, until - time.monotonic()))

    def Check(self, request: Any, context: grpc.ServicerContext) -> pb.HealthCheckResponse:
        name = _readable(request, context).service
        if name not in self._names:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._response()

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        _readable(request, context)
        message: Any = pb  # Its types are of a version without this call.
        return message.HealthListResponse(statuses=dict.fromkeys(self._names, self._response()))

    def Watch(  # type: ignore[override]
        self, request: Any, context: grpc.ServicerContext, send: Callable[[Any], None]
    ) -> None:
        """Ends when its caller goes, or the server. An unknown service stays unknown."""
        name = _readable(request, context).service
        watcher = _Watcher(partial(self._watched, name), send)
        if not self._enter(watcher):
            problem = f"{self._most} calls watch already, which is as many as may"
            context.abort_with_status(status.to_status(TooBusy(problem)))
        if context.add_callback(partial(self._leave, watcher)):
            watcher.start_telling()
        else:
            self._leave(watcher)

    # gRPC calls Watch with `send` then, and no thread is held while somebody watches.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _enter(self, watcher: "_Watcher") -> bool:
        with self._lock:
            if len(self._watchers) == self._most:
                return False
            self._watchers.add(watcher)
            return True

    def _leave(self, watcher: "_Watcher") -> None:
        with self._lock:
            self._watchers.discard(watcher)

    def _response(self) -> pb.HealthCheckResponse:
        known = pb.HealthCheckResponse
        return known(status=known.SERVING if self._serving else known.NOT_SERVING)

    def _watched(self, name: str) -> pb.HealthCheckResponse:
        if name in self._names:
            return self._response()
        return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)


class _Watcher:
    """Somebody who watches: told one thing at a time, what is true by then, if it is new."""

    def __init__(
        self, response: Callable[[], pb.HealthCheckResponse], send: Callable[[Any], None]
    ) -> None:
        self._response = response
        self._send = send
        self._told: pb.HealthCheckResponse | None = None
        self._lock = threading.Lock()

    def start_telling(self) -> threading.Thread:
        """In a thread of its own, which waits until the watcher takes it or goes."""
        telling = threading.Thread(target=self._tell, daemon=True)
        telling.start()
        return telling

    def _tell(self) -> None:
        with self._lock:
            response = self._response()
            if response != self._told:
                self._send(response)
                self._told = response


def _readable(request: Any, context: grpc.ServicerContext) -> Any:
    """The request, unless it is none: then the call ends."""
    if isinstance(request, Unreadable):
        context.abort_with_status(status.to_status(request.error))
    return request
