"""Health checks and watches, `grpc.health.v1`. No call needs a credential.

The servicer of grpcio-health-checking sends to watchers while it holds its lock, and takes
that lock in gRPC's only event thread when a watcher leaves. A watcher that does not read can
so block the whole server, and anybody may watch. It also keeps every service name that was
ever watched. Here nothing is sent under a lock that a leaving watcher needs, nor in a thread
that calls need, and watchers may hold only a part of the calls.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from hrag.server.calls.call import MalformedRequest
from hrag.wire import status_codes

SERVICE = pb.DESCRIPTOR.services_by_name["Health"].full_name

_NOTIFY_TIMEOUT_S = 0.5  # For watchers to take a change; one that does not read delays nobody.
_WATCHER_SHARE = 2  # One in so many of the calls that a server admits may be a watch.


class Health(health_pb2_grpc.HealthServicer):
    """The state of one service, and of the server as a whole (the empty name). Thread-safe."""

    def __init__(self, service: str, max_calls: int) -> None:
        """Starts as NOT_SERVING. `max_calls` is how many calls the server admits."""
        self._names = ("", service)
        self._max_watchers = max(1, max_calls // _WATCHER_SHARE)
        self._lock = threading.Lock()
        self._serving = False
        self._watchers: set[_Watcher] = set()

    def set(self, *, serving: bool) -> None:
        """Changes the state and notifies all watchers; waits briefly until they have it."""
        with self._lock:
            self._serving = serving
            watchers = list(self._watchers)
        until = time.monotonic() + _NOTIFY_TIMEOUT_S
        for thread in [watcher.start_notifying() for watcher in watchers]:
            thread.join(max(0.0, until - time.monotonic()))

    def Check(self, request: Any, context: grpc.ServicerContext) -> pb.HealthCheckResponse:
        """Ends with NOT_FOUND for an unknown service."""
        name = _well_formed(request, context).service
        if name not in self._names:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._response()

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Returns the state of all services."""
        _well_formed(request, context)
        message: Any = pb  # The type stubs are of a version without this call.
        return message.HealthListResponse(statuses=dict.fromkeys(self._names, self._response()))

    def Watch(  # type: ignore[override]
        self, request: Any, context: grpc.ServicerContext, send: Callable[[Any], None]
    ) -> None:
        """Streams the state until the caller or the server ends it.

        An unknown service is SERVICE_UNKNOWN throughout. Ends with UNIMPLEMENTED if there are
        too many watchers: to a client that checks health before it calls, that means to call
        without, and anything else not to call at all.
        """
        name = _well_formed(request, context).service
        watcher = _Watcher(partial(self._watch_response, name), send)
        if not self._add(watcher):
            problem = f"the limit of {self._max_watchers} watchers is reached; Check has none"
            context.abort(grpc.StatusCode.UNIMPLEMENTED, problem)
        if context.add_callback(partial(self._remove, watcher)):
            watcher.start_notifying()
        else:
            self._remove(watcher)

    # gRPC then calls Watch with `send`, and no thread is held while somebody watches.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _add(self, watcher: "_Watcher") -> bool:
        with self._lock:
            if len(self._watchers) == self._max_watchers:
                return False
            self._watchers.add(watcher)
            return True

    def _remove(self, watcher: "_Watcher") -> None:
        with self._lock:
            self._watchers.discard(watcher)

    def _response(self) -> pb.HealthCheckResponse:
        known = pb.HealthCheckResponse
        return known(status=known.SERVING if self._serving else known.NOT_SERVING)

    def _watch_response(self, name: str) -> pb.HealthCheckResponse:
        if name in self._names:
            return self._response()
        return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)


class _Watcher:
    """One watching call. Sends one response at a time, the current one, if it is new."""

    def __init__(
        self, response: Callable[[], pb.HealthCheckResponse], send: Callable[[Any], None]
    ) -> None:
        self._response = response
        self._send = send
        self._sent: pb.HealthCheckResponse | None = None
        self._lock = threading.Lock()

    def start_notifying(self) -> threading.Thread:
        """Sends in a thread of its own, which blocks until the watcher reads or leaves."""
        thread = threading.Thread(target=self._notify, daemon=True)
        thread.start()
        return thread

    def _notify(self) -> None:
        with self._lock:
            response = self._response()
            if response != self._sent:
                self._send(response)
                self._sent = response


def _well_formed(request: Any, context: grpc.ServicerContext) -> Any:
    """Returns the request; ends the call if it could not be parsed."""
    if isinstance(request, MalformedRequest):
        context.abort_with_status(status_codes.to_status(request.error))
    return request
