"""The interceptor of every call: it checks the caller and wraps the handler.

The interceptor decides in which lane (kind of thread) a call runs, and whether the call is
rejected. Handlers raise the errors of `hrag.errors`. Any other exception is a bug in hrag: the
client receives only an id of the error, and the log has the traceback with the same id.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from hrag.server.admission.lane import Lane
from hrag.server.auth import Authenticate
from hrag.server.calls import guard
from hrag.server.calls.call import (
    CallLimits,
    MalformedRequest,
    ServedMethod,
    ServerCall,
    running_call,
)
from hrag.server.calls.guard import CallGuard
from hrag.values.current_call import CURRENT
from hrag.values.errors import HragError

_OK = grpc.StatusCode.OK.name
# The maximum size, in bytes, of a request that needs no credential. This is enough for a health
# check, which only names a service.
_MAX_OPEN_BYTES = 1024
Deserializer: TypeAlias = Callable[[bytes], Any]
"""Parses the encoded request of a method. Raises DecodeError if the bytes are no request."""
NO_DESERIALIZERS: Mapping[str, Deserializer] = MappingProxyType({})


class _Wrapped(NamedTuple):
    """A served method, and its handler wrapped in the checks of every call."""

    handler: Any
    method: ServedMethod


class CallInterceptor(grpc.ServerInterceptor):
    """Wraps the handlers of all services, so that no call bypasses the checks of its CallGuard.

    A call without a valid credential is rejected before any of its messages is read. Health
    calls are open to everybody; the health servicer itself refuses malformed requests.
    """

    def __init__(
        self,
        authenticate: Authenticate | None,
        limits: CallLimits,
        deserializers: Mapping[str, Deserializer] = NO_DESERIALIZERS,
    ) -> None:
        """`authenticate` is None if no credential is needed.

        `deserializers` has the functions that parse the requests of some methods, by the full names
        of the methods. The requests of the others are parsed by protobuf.
        """
        self._authenticate = authenticate
        self._limits = limits
        self._deserializers = deserializers
        # The keys are the full names of methods. Only methods that the server has are stored, so
        # the dictionary stays small whatever names callers send.
        self._methods: dict[str, _Wrapped] = {}

    def intercept_service(
        self, continuation: Callable[[Any], Any], call: grpc.HandlerCallDetails
    ) -> Any:
        """Returns the wrapped handler of a call, or a handler that rejects the call.

        Returns None if the server has no such method.
        """
        wrapped = self._methods.get(call.method)
        if wrapped is None:
            handler = continuation(call)
            if handler is None:
                return None
            wrapped = self._methods[call.method] = self._wrap(call.method, handler)
        call_guard = CallGuard(
            call.method, self._authenticate, self._limits.rates, call.invocation_metadata
        )
        server_call = ServerCall(wrapped.method, call_guard, self._limits)
        CURRENT.set(server_call)
        try:
            if call.method not in guard.OPEN:
                self._check(server_call)
        except HragError as error:
            server_call.lane = Lane.REJECTED
            # gRPC starts the handler of a stream before it reads a message. So the rejection is
            # returned as a handler of a stream, and no message of the rejected call is read.
            return grpc.stream_stream_rpc_method_handler(server_call.rejection(error))
        return wrapped.handler

    def _check(self, call: ServerCall) -> None:
        """Sets the account: the tenant id or credential id against whose limits the call counts.

        Raises TooBusy, Unauthenticated or PermissionDenied if the call is rejected.
        """
        executor = self._limits.executor
        if executor.is_full:
            raise executor.too_busy
        call.guard.authorize()
        account = call.guard.account
        if call.lane is Lane.STREAM:
            executor.streams.check(account)
        call.account = account

    def _wrap(self, name: str, handler: Any) -> _Wrapped:
        deserialize = _catch_malformed(self._deserializers.get(name, handler.request_deserializer))
        method = partial(ServedMethod, name, deserialize, handler.response_serializer)
        if name in guard.OPEN:
            return _Wrapped(_parse_short_requests(handler, deserialize), method(Lane.INLINE))
        if handler.request_streaming and handler.response_streaming:
            stream = _wrap_stream(handler.stream_stream, ServerCall.admit_each)
            stream_handler: Any = grpc.stream_stream_rpc_method_handler(stream)
            return _Wrapped(stream_handler, method(Lane.STREAM))
        if handler.response_streaming:
            answer = _wrap_stream(handler.unary_stream, ServerCall.admit)
            answer_handler: Any = grpc.unary_stream_rpc_method_handler(answer)
            return _Wrapped(answer_handler, method(Lane.DEDICATED))
        if handler.request_streaming:
            raise TypeError(f"{name}: a stream of requests with one response is not supported")
        unary = _wrap_unary(handler.unary_unary)
        return _Wrapped(grpc.unary_unary_rpc_method_handler(unary), method(Lane.POOL))


def _catch_malformed(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Returns a deserializer that returns a MalformedRequest if `deserialize` raises an error.

    If the deserializer raised the error, gRPC would end the call with INTERNAL, although the client
    made the mistake.
    """

    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError as error:
            return MalformedRequest(str(error))

    return read


def _parse_short_requests(handler: Any, deserialize: Callable[[bytes], Any]) -> Any:
    """Returns the handler of a method that needs no credential; it parses only short requests.

    A request of more than `_MAX_OPEN_BYTES` bytes becomes a MalformedRequest. The handler runs in
    gRPC's event thread, so it must do little work.
    """

    def read(message: bytes) -> Any:
        if len(message) > _MAX_OPEN_BYTES:
            return MalformedRequest(f"it has {len(message)} bytes, {_MAX_OPEN_BYTES} are allowed")
        return deserialize(message)

    return handler._replace(request_deserializer=read)


def _wrap_unary(handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def handler(raw: Any, context: grpc.ServicerContext) -> bytes:
        call = running_call(context)
        try:
            reply = call.encode(handle(call.admit(raw), context))
            call.reply(reply)
            call.code = _OK
        except Exception as error:
            call.fail(error)
        finally:
            call.finish()
        return reply

    return handler


def _wrap_stream(
    handle: Callable[[Any, Any], Iterator[Any]], admit: Callable[[ServerCall, Any], Any]
) -> Callable[[Any, Any], Iterator[Any]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        call = running_call(context)
        try:
            for response in handle(admit(call, request), context):
                yield from call.send(response)
            call.code = _OK
        except Exception as error:
            if not context.is_active():
                return  # The call has ended already, so nobody would receive the error.
            call.fail(error)
        finally:
            call.finish()

    return handler
