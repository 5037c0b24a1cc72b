"""Health checks and watches, `grpc.health.v1`. No call needs a credential.

A watcher is a client that calls Watch to receive every change of the state. At most half of the
calls that a server admits may be calls of Watch.

The package grpcio-health-checking has a servicer too, but that servicer is not used, for two
reasons. It sends to watchers while it holds its lock, and it acquires this lock in gRPC's only
event thread when a watcher disconnects. So a watcher that does not read can block the whole server,
and anybody may be a watcher. It also stores every service name that was ever watched. The servicer
in this module never sends while it holds a lock that is needed when a watcher disconnects, and it
never sends in a thread that runs calls.
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

# `Health.set` waits at most this long until the watchers have received the new state. Without this
# limit, a watcher that does not read would delay the stop of the server.
_NOTIFY_TIMEOUT_S = 0.5
_WATCHER_SHARE = 2  # One half of the calls that a server admits may be watches.


class Health(health_pb2_grpc.HealthServicer):
    """Serves the state of one service and of the whole server, whose name is "". Thread-safe."""

    def __init__(self, service: str, max_calls: int) -> None:
        """Sets the state to NOT_SERVING. `max_calls` is the limit of calls of the whole server."""
        self._names = ("", service)
        self._max_watchers = max(1, max_calls // _WATCHER_SHARE)
        self._lock = threading.Lock()
        self._serving = False
        self._watchers: set[_Watcher] = set()

    def set(self, *, serving: bool) -> None:
        """Changes the state and sends it to all watchers.

        Waits at most `_NOTIFY_TIMEOUT_S` seconds until the watchers have received the state.
        """
        with self._lock:
            self._serving = serving
            watchers = list(self._watchers)
        until = time.monotonic() + _NOTIFY_TIMEOUT_S
        for thread in [watcher.start_notifying() for watcher in watchers]:
            thread.join(max(0.0, until - time.monotonic()))

    def Check(self, request: Any, context: grpc.ServicerContext) -> pb.HealthCheckResponse:
        """Returns the state of a service; ends the call with NOT_FOUND for an unknown service."""
        name = _require_well_formed(request, context).service
        if name not in self._names:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._response()

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Returns the state of all services."""
        _require_well_formed(request, context)
        message: Any = pb  # The type stubs do not know HealthListResponse.
        return message.HealthListResponse(statuses=dict.fromkeys(self._names, self._response()))

    def Watch(  # type: ignore[override]
        self, request: Any, context: grpc.ServicerContext, send: Callable[[Any], None]
    ) -> None:
        """Streams the state until the caller or the server ends the call.

        The state of an unknown service is always SERVICE_UNKNOWN. The call ends with UNIMPLEMENTED
        if there are too many watchers. After this status, gRPC clients that watch the health of a
        server send their calls without a health check. After any other status, they would send no
        calls.
        """
        name = _require_well_formed(request, context).service
        watcher = _Watcher(partial(self._watch_response, name), send)
        if not self._add(watcher):
            problem = f"the limit of {self._max_watchers} watchers is reached; Check has no limit"
            context.abort(grpc.StatusCode.UNIMPLEMENTED, problem)
        if context.add_callback(partial(self._remove, watcher)):
            watcher.start_notifying()
        else:
            self._remove(watcher)

    # With this attribute, gRPC passes Watch a function `send` that sends one response. Watch
    # returns at once, and a watch occupies no thread.
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
        response = pb.HealthCheckResponse
        return response(status=response.SERVING if self._serving else response.NOT_SERVING)

    def _watch_response(self, name: str) -> pb.HealthCheckResponse:
        if name in self._names:
            return self._response()
        return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)


class _Watcher:
    """One call of Watch, which sends the state to its client whenever the state has changed.

    A lock ensures that only one response is sent to the client at a time.
    """

    def __init__(
        self, response: Callable[[], pb.HealthCheckResponse], send: Callable[[Any], None]
    ) -> None:
        self._response = response
        self._send = send
        self._sent: pb.HealthCheckResponse | None = None
        self._lock = threading.Lock()

    def start_notifying(self) -> threading.Thread:
        """Starts a thread that sends the current state to the client, and returns the thread.

        If the client has received this state already, the thread sends nothing. The thread blocks
        until the client reads the message or disconnects.
        """
        thread = threading.Thread(target=self._notify, daemon=True)
        thread.start()
        return thread

    def _notify(self) -> None:
        with self._lock:
            response = self._response()
            if response != self._sent:
                self._send(response)
                self._sent = response


def _require_well_formed(request: Any, context: grpc.ServicerContext) -> Any:
    """Returns the request; ends the call with an error if the request could not be parsed."""
    if isinstance(request, MalformedRequest):
        context.abort_with_status(status_codes.to_status(request.error))
    return request
