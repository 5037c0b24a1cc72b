"""What happens around every call: errors become statuses, one log line is written.

Handlers raise `hrag.errors`; anything else is a fault of ours, which the client sees as
an id only, while the log has the traceback under the same id.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError

from hrag.errors import HragError, InternalError, InvalidArgument
from hrag.rpc import status

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands in for a request that is no message of its type."""

    problem: str


class Translate(grpc.ServerInterceptor):
    """Wraps the handlers of our services; others, such as health, pass unchanged."""

    def intercept_service(
        self, continuation: Callable[[Any], Any], call: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(call)
        if handler is None or not call.method.startswith("/hrag."):
            return handler
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _stream(call.method, handler.stream_stream, _readables),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _stream(call.method, handler.unary_stream, _readable),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _unary(call.method, handler.unary_unary),
            _lenient(handler.request_deserializer),
            handler.response_serializer,
        )


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """gRPC calls a request that it cannot read INTERNAL; the fault is the client's."""

    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError as error:
            return _Unreadable(str(error))

    return read


def _readable(request: Any) -> Any:
    if isinstance(request, _Unreadable):
        raise InvalidArgument(
            f"the request cannot be read: {request.problem}; it must be a message of the "
            "method's type, its strings in UTF-8, nested less than 100 deep",
            field="request",
        )
    return request


def _readables(requests: Iterable[Any]) -> Iterator[Any]:
    return map(_readable, requests)


def _unary(method: str, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def handler(request: Any, context: grpc.ServicerContext) -> Any:
        began = time.perf_counter()
        try:
            response = handle(_readable(request), context)
        except Exception as error:
            _fail(method, error, context, began)
        _log.debug("call", method=method, code="OK", ms=_ms(began))
        return response

    return handler


def _stream(
    method: str,
    handle: Callable[[Any, Any], Iterator[Any]],
    readable: Callable[[Any], Any],
) -> Callable[[Any, Any], Iterator[Any]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        began = time.perf_counter()
        try:
            yield from handle(readable(request), context)
        except Exception as error:
            if not context.is_active():
                return  # The client went away; there is no one to tell.
            _fail(method, error, context, began)
        _log.debug("call", method=method, code="OK", ms=_ms(began))

    return handler


def _fail(method: str, error: Exception, context: grpc.ServicerContext, began: float) -> NoReturn:
    known = explained(method, error)
    situation = status.situation_of(known)
    _log.info(
        "call", method=method, code=situation.code.name, reason=situation.reason, ms=_ms(began)
    )
    context.abort_with_status(status.to_status(known))
    raise AssertionError("abort_with_status raises")


def explained(method: str, error: Exception) -> HragError:
    """The error itself if we raised it, else an InternalError that the log explains."""
    if isinstance(error, HragError):
        return error
    fault = uuid.uuid4().hex[:12]
    _log.error("internal_error", method=method, id=fault, exc_info=error)
    return InternalError(f"internal error {fault}; the service's log has the details")


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1e3, 3)
