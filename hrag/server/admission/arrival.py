"""Receives the messages of calls without a thread for each call.

grpcio reads the message of a unary request in the thread that will handle the request. So a caller
that sends headers and no message would occupy this thread. In this module, gRPC's event thread
starts to read the message, and the call gets a thread when its message has arrived. If the message
does not arrive within a time limit, the call ends. A handler may also leave its call open and be
run again later, so that a call that waits for something occupies no thread either.

grpcio also sends a message in a thread that waits until the client has read the message. A
`MessageSender` only starts to send it, so a call that sends messages now and then needs no thread.

grpcio has no public interface for this. So this module uses internals of grpcio; no other module
uses them. The internals are the arguments with which `grpc._server` submits a call to its thread
pool, `_receive_message`, `_RPCState`, `_is_rpc_state_active`, `_possibly_finish_call`, the
operations that start a batch, `peer` of a call, `_common`, `_RequestIterator`, and two attributes
of a context. If a version of grpcio changes these internals, the tests of this module fail.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import grpc
import structlog
from grpc import _common, _server
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from hrag.server.admission.cooperative_yield import RunningCall
from hrag.server.admission.lane import Lane
from hrag.values.current_call import CURRENT, Call
from hrag.values.errors import HragError

_log = structlog.get_logger()

_NO_FLAGS = 0

Behavior = Callable[[Any, grpc.ServicerContext], Any]
"""The type of the functions that handle calls.

Such a function receives the request and grpcio's context of a call, and returns the response.
"""


class PendingCall(Call, ABC):
    """A call whose message has not arrived, or whose handler has not run or has to run again.

    The interceptor creates this object when the headers of the call have arrived. All code of the
    call runs in a context (`contextvars`) in which this object is the current call. The attributes
    are:

    - `lane`: the kind of thread in which the call runs.
    - `account`: the id of the tenant against whose limits the call counts. Before the tenant is
      known, it is a tenant id or credential id from the caller's credential (`CallGuard.account`).
      Without a credential, it is empty. For a health check, which needs no credential, it is the
      caller's address.
    - `message`: the unary request. It is parsed if the method needs no credential, otherwise it is
      encoded bytes. It is None before the request has arrived, and for streams of requests.
    - `arrived_s`: the time at which the message arrived, by `time.monotonic`.
    - `counted_bytes`: how many bytes of the message count against the limit of requests without a
      reply (HRAG_MAX_UNANSWERED_BYTES).
    - `has_begun`: True once the handler has been started.
    - `running`: the `RunningCall` that counts the processor time of the handler. It is None if the
      handler runs in gRPC's event thread.

    Only one thread at a time may use a PendingCall.
    """

    account = ""
    message: Any = None
    arrived_s = 0.0
    counted_bytes = 0
    has_begun = False
    running: RunningCall | None = None
    _then: "Callable[[PendingCall], None] | None" = None

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    @abstractmethod
    def account_of(self, message: bytes) -> str:
        """Returns the tenant id or credential id against whose limits an encoded request counts.

        Raises PermissionDenied if the caller may not act for the tenant of the request.
        """

    @abstractmethod
    def rejection(self, error: HragError) -> Behavior:
        """Returns a function that gRPC calls instead of the handler; it ends the call with `error`.

        gRPC passes the request and its context of the call to this function.
        """

    def yield_to_others(self) -> None:
        """Sleeps briefly if this call is long and a short call of another tenant runs.

        A call is short until it has used 10 ms of processor time, and long afterwards.
        """
        if self.running is not None:
            self.running.yield_to_others()

    @property
    def is_left_open(self) -> bool:
        """True if the handler has called `leave_open` in its current run.

        Then the handler ends, but the call stays open and waits until the handler is started again.
        """
        return self._then is not None

    def attach(
        self,
        run: Callable[..., Any],
        respond: Callable[..., None],
        rpc: Any,
        state: Any,
        behavior: Behavior,
        argument: Callable[[], Any],
        *formats: Any,
    ) -> None:
        """Stores the arguments with which grpcio submits this call to its thread pool.

        `argument` is a function: for a unary request it waits for the request and returns it, for
        a stream it returns the iterator of requests. `formats` are the deserializer of the request
        and the serializer of the response.
        """
        self._run: Any = run
        self._respond = respond
        self._rpc = rpc
        self._state = state
        self._behavior: Any = behavior
        self._argument: Any = argument
        self._formats = formats

    def peer_host(self) -> str:
        """Returns the caller's address without its port."""
        return _common.decode(self._rpc.call.peer()).rpartition(":")[0]

    def activity_check(self) -> Callable[[], bool]:
        """Returns a function that returns False once the call has ended or the client has left.

        Unlike `is_active` of grpcio's context, the function takes no lock: it only reads two
        attributes. It does not refer to this call.
        """
        return partial(_server._is_rpc_state_active, self._state)

    def receive(self, arrived: Callable[["PendingCall"], None]) -> None:
        """Starts to read the message. Once it has arrived, gRPC's event thread calls `arrived`.

        Must be called in gRPC's event thread while it submits the call, because it then holds the
        lock of the call. `arrived` is also called if the call ends before its message arrives. In
        this case, `take_message` returns False.
        """
        read = _server._receive_message(self._state, self._rpc.call, self._formats[0])

        def completed(event: Any) -> Any:
            ending = read(event)
            try:
                arrived(self)
            except Exception:  # An exception that leaves `completed` would end gRPC's event thread.
                _log.exception("arrival_failed")
            return ending

        operation = cygrpc.ReceiveMessageOperation(_NO_FLAGS)
        self._rpc.call.start_server_batch((operation,), completed)
        self._state.due.add(_server._RECEIVE_MESSAGE_TOKEN)

    def take_message(self) -> bool:
        """Stores the message that has arrived, so that `run` passes the message to the handler.

        Must be called in gRPC's event thread, the only one that sets the message. Returns False if
        the call ended before its message arrived.
        """
        self.message, self._state.request = self._state.request, None
        self._argument = self._get_message
        self.arrived_s = time.monotonic()
        return self.message is not None

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, when the call has ended or the client has cancelled the call.

        If the call has ended already, calls `callback` immediately in this thread. Otherwise
        gRPC's event thread calls `callback` later.
        """
        state = self._state
        if state is None:  # `_forget` was called, so the call has ended.
            callback()
            return
        with state.condition:
            callbacks = state.callbacks
            if callbacks is not None:
                callbacks.append(callback)
        if callbacks is None:
            callback()

    def run(self, running: RunningCall | None = None) -> bool:
        """Runs the handler in this thread and responds.

        `running` counts the processor time of the handler; it is None in gRPC's event thread.
        Returns True if the call has ended, and False if the handler left the call open and has to
        be run again.
        """
        self.has_begun = True
        self.running = running
        self._run(
            self._respond, self._rpc, self._state, self._behavior, self._argument, *self._formats
        )
        then, self._then = self._then, None
        if then is None:
            self._forget()
            return True
        # The tracebacks of these errors refer to this call. The errors are removed, because they
        # would form reference cycles with the call.
        self._state.rpc_errors.clear()
        then(self)
        return False

    def refuse(self, behavior: Behavior) -> None:
        """Ends a call whose handler has not begun.

        `behavior` is called instead of the handler and aborts the call with an error.
        """
        self._run(self._respond, self._rpc, self._state, behavior, lambda: b"", None, None)
        self._forget()

    def _forget(self) -> None:
        """Breaks the reference cycles of a call that has ended.

        The call refers to its context, and the context to the call. In this cycle, the message
        would stay in memory until the next garbage collection. Python's garbage collector counts
        objects, not bytes, so it may run late even if the message is large.
        """
        self._run = self._argument = self._behavior = self._rpc = self._state = None
        self.message = None

    def _get_message(self) -> Any:
        return self.message

    def leave_open(
        self, context: grpc.ServicerContext, then: Callable[["PendingCall"], None]
    ) -> NoReturn:
        """Ends the handler but leaves its call open, so that the call waits without a thread.

        The handler must call this method in its thread. The method raises an exception that ends
        the handler. After that, `run` calls `then` with this call; `then` must arrange that `run`
        is called again later, which starts the handler again.
        """
        self._then = then
        # If a handler raises an error that is in `rpc_errors`, grpcio does not end the call.
        error = grpc.RpcError()
        context._state.rpc_errors.append(error)  # type: ignore[attr-defined]
        try:
            raise error
        finally:
            del error  # Without `del`, frame and error would form a reference cycle.


class MessageSender:
    """Sends messages to the caller of an open call, without a thread. Thread-safe."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._call = context._rpc_event.call  # type: ignore[attr-defined]
        self._state = context._state  # type: ignore[attr-defined]

    def start(self, message: bytes, sent: Callable[[], None]) -> bool:
        """Starts to send a message. Returns False if the call has ended.

        Once the client has received the message, or the call has ended, gRPC's event thread calls
        `sent`. Until then, no other message may be started.
        """
        state = self._state
        with state.condition:
            if not _server._is_rpc_state_active(state):
                return False
            operations = [cygrpc.SendMessageOperation(message, _NO_FLAGS)]
            if state.initial_metadata_allowed:
                operations.insert(0, _server._get_initial_metadata_operation(state, None))
                state.initial_metadata_allowed = False
            self._call.start_server_batch(operations, partial(self._completed, sent))
            state.due.add(_server._SEND_MESSAGE_TOKEN)
        return True

    def _completed(self, sent: Callable[[], None], _event: Any) -> Any:
        with self._state.condition:
            ending = _server._possibly_finish_call(self._state, _server._SEND_MESSAGE_TOKEN)
        try:
            sent()
        except Exception:  # An exception that leaves this method would end gRPC's event thread.
            _log.exception("send_failed")
        return ending


def submitted_call(
    run: Callable[..., Any], respond: Callable[..., None], rpc: Any, state: Any, *arguments: Any
) -> PendingCall:
    """Returns the PendingCall of a call that grpcio submits to its thread pool.

    The parameters are those of `PendingCall.attach`, which stores them in the PendingCall.
    """
    call: PendingCall = state.context[CURRENT]
    call.attach(run, respond, rpc, state, *arguments)
    return call


def requests_within(requests: Any, poll_s: float, check: Callable[[], None]) -> Iterator[bytes]:
    """Yields the messages of a stream of requests.

    While no message arrives, calls `check` every `poll_s` seconds. An exception that `check`
    raises ends the stream.
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
    """Waits for the next message of a stream and returns it.

    Returns _END if the stream has ended, and None if no message arrived within `timeout_s`.
    """
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
