"""Calls between their headers and their handler, without a thread.

grpcio reads the message of a unary request in the thread that will handle it, so a caller
that sends headers and no message holds that thread. Here the read starts in gRPC's event
thread, the call takes a thread when the message is there, and a message that does not come
within a time limit ends the call. A handler may also leave its call open and be run again
later, so that a call that waits for something holds no thread either.

grpcio has no public interface for this. This module is the only one that uses its internals:
the arguments with which `grpc._server` submits a call to its thread pool, `_receive_message`,
`rpc_errors` and `callbacks` of `_RPCState`, `peer` of a call, `_common`, and `_RequestIterator`.
The tests of this module notice their change.
"""

import time
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, NoReturn

import grpc
import structlog
from grpc import _common, _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]

_log = structlog.get_logger()

_NO_FLAGS = 0

Behavior = Callable[[Any, grpc.ServicerContext], Any]
"""What handles a call: takes the request and the context, returns the response."""


class PendingCall:
    """A call that waits for its message, or for its handler to run, the first time or again.

    `message` is a unary request as it arrived, and `account` the tenant that it counts for, or
    who calls while that is not known: of a call that anybody may make, the peer's address. It
    arrived at `arrived_s`, by `time.monotonic`; `counted_bytes` of it count as unanswered.
    `has_begun` is true once its handler has run.
    One thread at a time uses a call.
    """

    __slots__ = (
        "_argument",
        "_behavior",
        "_formats",
        "_respond",
        "_rpc",
        "_run",
        "_state",
        "_then",
        "account",
        "arrived_s",
        "counted_bytes",
        "has_begun",
        "message",
    )

    def __init__(
        self,
        run: Callable[..., Any],
        respond: Callable[..., None],
        rpc: Any,
        state: Any,
        behavior: Behavior,
        argument: Callable[[], Any],
        *formats: Any,
    ) -> None:
        """Takes what grpcio submits to its thread pool.

        `argument` waits for a unary request, or returns the iterator of a stream. `formats`
        are the request's deserializer and the response's serializer.
        """
        self._run: Any = run
        self._respond = respond
        self._rpc = rpc
        self._state = state
        self._behavior = behavior
        self._argument: Any = argument
        self.account = ""
        self.message: Any = None
        self.arrived_s = 0.0
        self.counted_bytes = 0
        self.has_begun = False
        self._formats = formats
        self._then: Callable[[PendingCall], None] | None = None

    @property
    def context(self) -> Context:
        """The context that all code of this call runs in."""
        context: Context = self._state.context
        return context

    def peer_host(self) -> str:
        """Returns the caller's address without its port."""
        return _common.decode(self._rpc.call.peer()).rpartition(":")[0]

    def receive(self, arrived: Callable[["PendingCall"], None]) -> None:
        """Starts to read the message; gRPC's event thread calls `arrived` when it is there.

        It also does when the call has ended first; then `has_message` is false.
        """
        read = _server._receive_message(self._state, self._rpc.call, self._formats[0])

        def completed(event: Any) -> Any:
            ending = read(event)
            try:
                arrived(self)
            except Exception:  # It would end gRPC's event thread.
                _log.exception("arrival_failed")
            return ending

        with self._state.condition:
            self._rpc.call.start_server_batch(
                (cygrpc.ReceiveMessageOperation(_NO_FLAGS),), completed
            )
            self._state.due.add(_server._RECEIVE_MESSAGE_TOKEN)

    def take_message(self) -> bool:
        """Keeps the message that has arrived for `run`; False if the call ended without one."""
        with self._state.condition:
            self.message, self._state.request = self._state.request, None
        self._argument = self._get_message
        self.arrived_s = time.monotonic()
        return self.message is not None

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once the call has ended or its caller has left; at once if so.

        Otherwise in gRPC's event thread.
        """
        state = self._state
        if state is None:  # It has run meanwhile, and ended.
            callback()
            return
        with state.condition:
            callbacks = state.callbacks
            if callbacks is not None:
                callbacks.append(callback)
        if callbacks is None:
            callback()

    def run(self) -> bool:
        """Runs the handler in this thread and responds; False if the call was left open."""
        self.has_begun = True
        self._run(
            self._respond, self._rpc, self._state, self._behavior, self._argument, *self._formats
        )
        then, self._then = self._then, None
        if then is None:
            self._forget()
            return True
        self._state.rpc_errors.clear()  # Their tracebacks refer to this call.
        then(self)
        return False

    def refuse(self, behavior: Behavior) -> None:
        """Ends a call that has not begun to run with `behavior`, which aborts it."""
        self._run(self._respond, self._rpc, self._state, behavior, lambda: b"", None, None)
        self._forget()

    def _forget(self) -> None:
        """Breaks the reference cycles of a call that has ended: its context refers to it.

        Until the garbage collector came, they would keep its message, whose size that does not
        know.
        """
        self._run = self._argument = self._rpc = self._state = self.message = None

    def _get_message(self) -> Any:
        return self.message

    def leave_open(
        self, context: grpc.ServicerContext, then: Callable[["PendingCall"], None]
    ) -> NoReturn:
        """Ends the handler, not its call: to be called by the handler, in its thread.

        When the thread has left the call, it calls `then`, which sees to it that `run` is
        called again.
        """
        self._then = then
        # An error of this list means to grpcio that the call's end is somebody else's matter.
        error = grpc.RpcError()
        context._state.rpc_errors.append(error)  # type: ignore[attr-defined]
        try:
            raise error
        finally:
            del error  # The frame would refer to the error, and the error to the frame.


def requests_within(requests: Any, poll_s: float, check: Callable[[], None]) -> Iterator[bytes]:
    """Yields the messages of a stream of requests.

    While none comes, calls `check` every `poll_s` seconds; what it raises ends the stream.
    """
    while True:
        with requests._state.condition:
            try:
                requests._raise_or_start_receive_message()
            except StopIteration:
                return
        while (message := _poll(requests, poll_s)) is None:
            check()
        if message is _END:
            return
        yield message


_END = object()


def _poll(requests: Any, timeout_s: float) -> Any:
    """Returns the next message, _END, or None if none came within `timeout_s`."""
    until = time.monotonic() + timeout_s
    with requests._state.condition:
        while True:
            try:
                message = requests._look_for_request()
            except StopIteration:
                return _END
            remaining_s = until - time.monotonic()
            if message is not None or remaining_s <= 0:
                return message
            requests._state.condition.wait(remaining_s)
