"""The interceptor around every call: where it runs, whether it is rejected, how it is wrapped.

Handlers raise `hrag.errors`. Any other exception is a fault of hrag: the client receives only
an id, under which the log has the traceback.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from hrag.server.admission.arrival import Behavior
from hrag.server.admission.executor import PLACEMENT, Lane, Placement
from hrag.server.auth import Authenticate
from hrag.server.calls import guard
from hrag.server.calls.call import (
    GUARD,
    Call,
    CallLimits,
    MalformedRequest,
    StartCall,
    rejecting,
    started,
)
from hrag.server.calls.guard import CallGuard
from hrag.values.errors import HragError

_OK = grpc.StatusCode.OK.name
_MAX_OPEN_BYTES = 1024  # Of a request that needs no credential: a health check names a service.


class _Method(NamedTuple):
    """A served method: its wrapped handler, where it runs, how its calls are refused."""

    handler: Any
    lane: Lane
    refusing: Callable[[HragError], Behavior]


class CallInterceptor(grpc.ServerInterceptor):
    """Wraps the handlers of all services, so that no call bypasses the guard.

    A call without a valid credential is rejected before any of its messages is read. Health
    calls are open to everybody; their servicer refuses malformed requests itself.
    """

    def __init__(self, authenticate: Authenticate | None, limits: CallLimits) -> None:
        """`authenticate` is None where no credential is needed."""
        self._authenticate = authenticate
        self._limits = limits
        self._methods: dict[str, _Method] = {}  # Only served methods, so it is small.

    def intercept_service(
        self, continuation: Callable[[Any], Any], call: grpc.HandlerCallDetails
    ) -> Any:
        """Returns the wrapped handler, or one that rejects the call."""
        method = self._methods.get(call.method)
        if method is None:
            handler = continuation(call)
            if handler is None:
                return None
            method = self._methods[call.method] = self._wrap(call.method, handler)
        own = CallGuard(
            call.method, self._authenticate, self._limits.rates, call.invocation_metadata
        )
        GUARD.set(own)
        try:
            caller = "" if call.method in guard.OPEN else self._check(method, own)
        except HragError as error:
            PLACEMENT.set(Placement(Lane.REJECTED, method.refusing, own.account_of))
            # A handler of streams, so that gRPC reads no message.
            return grpc.stream_stream_rpc_method_handler(method.refusing(error))
        PLACEMENT.set(Placement(method.lane, method.refusing, own.account_of, caller))
        return method.handler

    def _check(self, method: _Method, own: CallGuard) -> str:
        """Returns the account of who calls; raises TooBusy, Unauthenticated or PermissionDenied."""
        executor = self._limits.executor
        if executor.is_full:
            raise executor.too_busy
        own.authorize()
        if method.lane is Lane.STREAM:
            executor.streams.check(own.account)
        return own.account

    def _wrap(self, method: str, handler: Any) -> _Method:
        deserialize = _tolerant(handler.request_deserializer)
        refusing = partial(rejecting, method)
        if method in guard.OPEN:
            return _Method(_reading_little(handler, deserialize), Lane.INLINE, refusing)
        start_call = partial(Call, method, deserialize, handler.response_serializer, self._limits)
        if handler.request_streaming and handler.response_streaming:
            wrapped = _stream(start_call, handler.stream_stream, Call.admit_each)
            streaming: Any = grpc.stream_stream_rpc_method_handler(wrapped)
            return _Method(streaming, Lane.STREAM, refusing)
        if handler.response_streaming:
            wrapped = _stream(start_call, handler.unary_stream, Call.admit)
            answering: Any = grpc.unary_stream_rpc_method_handler(wrapped)
            return _Method(answering, Lane.OWN, refusing)
        if handler.request_streaming:
            raise TypeError(f"{method}: no service has calls of this kind")
        unary = _unary(start_call, handler.unary_unary)
        return _Method(grpc.unary_unary_rpc_method_handler(unary), Lane.POOL, refusing)


def _tolerant(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Returns MalformedRequest where `deserialize` raises.

    gRPC would end the call with INTERNAL, although the fault is the client's.
    """

    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError as error:
            return MalformedRequest(str(error))

    return read


def _reading_little(handler: Any, deserialize: Callable[[bytes], Any]) -> Any:
    """Returns the handler of an open method with requests of any size, which parses short ones.

    It runs in gRPC's event thread, for callers whom nobody knows.
    """

    def read(message: bytes) -> Any:
        if len(message) > _MAX_OPEN_BYTES:
            return MalformedRequest(f"it has {len(message)} bytes, {_MAX_OPEN_BYTES} are allowed")
        return deserialize(message)

    return handler._replace(request_deserializer=read)


def _unary(start_call: StartCall, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def handler(raw: Any, context: grpc.ServicerContext) -> bytes:
        call = started(start_call, context)
        try:
            reply = call.encoded(handle(call.admit(raw), context))
            call.reply(reply)
            call.code = _OK
        except Exception as error:
            call.fail(error)
        finally:
            call.finish()
        return reply

    return handler


def _stream(
    start_call: StartCall,
    handle: Callable[[Any, Any], Iterator[Any]],
    admit: Callable[[Call, Any], Any],
) -> Callable[[Any, Any], Iterator[Any]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        call = started(start_call, context)
        try:
            for response in handle(admit(call, request), context):
                yield from call.sent(response)
            call.code = _OK
        except Exception as error:
            if not context.is_active():
                return  # The client has gone; nobody would receive the error.
            call.fail(error)
        finally:
            call.finish()

    return handler
