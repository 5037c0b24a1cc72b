"""Health checks and watches, `grpc.health.v1`. No call needs a credential.

A watcher is a client that calls Watch to receive every change of the state. A watch occupies no
thread: its messages are sent by gRPC's event thread, one at a time. The number of watches is
limited, for strangers (callers without a credential, from another machine) to a lower number.

The package grpcio-health-checking has a servicer too, but that servicer is not used, for two
reasons. It sends to watchers while it holds its lock, and it acquires this lock in gRPC's only
event thread when a watcher disconnects. So a watcher that does not read can block the whole server,
and anybody may be a watcher. It also stores every service name that was ever watched.
"""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from hrag.host.addresses import is_loopback, peer_address
from hrag.server.admission.arrival import MessageSender
from hrag.server.calls.call import MalformedRequest, known_account
from hrag.wire import status_codes

SERVICE = pb.DESCRIPTOR.services_by_name["Health"].full_name

# `Health.set` waits at most this long until the watchers have received the new state. Without this
# limit, a watcher that does not read would delay the stop of the server.
_NOTIFY_TIMEOUT_S = 0.5
# A watch needs 21 KB of memory, so the watches of all callers together need at most 200 MB.
_MAX_STRANGERS = 1024
_MAX_OF_ADDRESS = 128
_MAX_KNOWN = 8192
_MAX_OF_ACCOUNT = 4096
_THIS_MACHINE = "this machine"


class Health(health_pb2_grpc.HealthServicer):
    """Serves the state of one service and of the whole server, whose name is "". Thread-safe."""

    def __init__(
        self, service: str, open_sender: Callable[[Any], MessageSender] = MessageSender
    ) -> None:
        """Sets the state to NOT_SERVING. `open_sender` returns the sender of a call's messages."""
        self._names = ("", service)
        self._open_sender = open_sender
        # Waiting threads are notified when a watcher has received a state.
        self._received = threading.Condition()
        self._serving = False
        self._watchers: set[_Watcher] = set()
        self._strangers = _WatchLimit(
            "callers without a credential", _MAX_STRANGERS, _MAX_OF_ADDRESS
        )
        self._known = _WatchLimit("callers with a credential", _MAX_KNOWN, _MAX_OF_ACCOUNT)

    def set(self, *, serving: bool) -> None:
        """Changes the state and sends it to all watchers.

        Waits at most `_NOTIFY_TIMEOUT_S` seconds until the watchers have received the state.
        """
        with self._received:
            self._serving = serving
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher.notify()
        with self._received:
            self._received.wait_for(
                lambda: not any(watcher.is_sending for watcher in watchers), _NOTIFY_TIMEOUT_S
            )

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
        self, request: Any, context: grpc.ServicerContext, _send: Any
    ) -> None:
        """Sends the state of a service now and after each change, until the client leaves.

        The state of an unknown service is always SERVICE_UNKNOWN. The call ends with UNIMPLEMENTED
        if there are too many watchers. After this status, gRPC clients that watch the health of a
        server send their calls without a health check. After any other status, they would send no
        calls.
        """
        name = _require_well_formed(request, context).service
        limit, account = self._limit_of(context)
        problem = limit.enter(account)
        if problem:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, problem)
        watcher = _Watcher(
            partial(self._watch_response, name), self._open_sender(context), self._notify_received
        )
        with self._received:
            self._watchers.add(watcher)
        leave = partial(self._leave, watcher, limit, account)
        if context.add_callback(leave):
            watcher.notify()
        else:
            leave()

    # With this attribute, gRPC passes Watch a function that sends a response and waits until it is
    # sent. Watch does not use that function, but returns at once and leaves its call open.
    Watch.experimental_non_blocking = True  # type: ignore[attr-defined]

    def _limit_of(self, context: grpc.ServicerContext) -> "tuple[_WatchLimit, str]":
        """Returns the limit against which a watch counts, and the account of its caller.

        Callers on this machine are known, so that a supervisor can always watch its service.
        """
        account = known_account()
        if account:
            return self._known, account
        address = peer_address(context.peer())
        if is_loopback(address):
            return self._known, _THIS_MACHINE
        return self._strangers, address.rpartition(":")[0]

    def _leave(self, watcher: "_Watcher", limit: "_WatchLimit", account: str) -> None:
        limit.leave(account)
        with self._received:
            self._watchers.discard(watcher)
            self._received.notify_all()

    def _notify_received(self) -> None:
        with self._received:
            self._received.notify_all()

    def _response(self) -> pb.HealthCheckResponse:
        response = pb.HealthCheckResponse
        return response(status=response.SERVING if self._serving else response.NOT_SERVING)

    def _watch_response(self, name: str) -> pb.HealthCheckResponse:
        if name in self._names:
            return self._response()
        return pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)


class _Watcher:
    """One call of Watch, which sends the state to its client whenever the state has changed.

    Only one message at a time is on its way to the client. If the state changes meanwhile, the
    latest state is sent afterwards.
    """

    def __init__(
        self,
        response: Callable[[], pb.HealthCheckResponse],
        sender: MessageSender,
        received: Callable[[], None],
    ) -> None:
        """`received` is called when the client has received a state or has left."""
        self.is_sending = False
        self._response = response
        self._sender = sender
        self._received = received
        self._sent: pb.HealthCheckResponse | None = None
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Starts to send the current state, if the client has not received it already."""
        with self._lock:
            self._start_sending()

    def _start_sending(self) -> None:
        response = self._response()
        if not self.is_sending and response != self._sent:
            self._sent = response
            self.is_sending = self._sender.start(response.SerializeToString(), self._end_sending)

    def _end_sending(self) -> None:
        with self._lock:
            self.is_sending = False
            self._start_sending()
        self._received()


class _WatchLimit:
    """Counts the watches of a group of callers; refuses watches beyond a limit. Thread-safe."""

    def __init__(self, callers: str, max_watches: int, max_of_account: int) -> None:
        self._callers = callers
        self._max_watches = max_watches
        self._max_of_account = max_of_account
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def enter(self, account: str) -> str:
        """Counts a watch and returns ""; returns the problem if the watch exceeds a limit."""
        with self._lock:
            if self._counts.total() >= self._max_watches:
                return f"{self._callers} have {self._max_watches} watches; Check has no limit"
            if self._counts[account] >= self._max_of_account:
                return f"{account} has {self._max_of_account} watches; Check has no limit"
            self._counts[account] += 1
            return ""

    def leave(self, account: str) -> None:
        """Stops counting a watch. An account without watches is forgotten."""
        with self._lock:
            self._counts[account] -= 1
            if not self._counts[account]:
                del self._counts[account]


def _require_well_formed(request: Any, context: grpc.ServicerContext) -> Any:
    """Returns the request; ends the call with an error if the request could not be parsed."""
    if isinstance(request, MalformedRequest):
        context.abort_with_status(status_codes.to_status(request.error))
    return request
