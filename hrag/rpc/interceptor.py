"""The interceptor around every call: admission, authorization, metrics, logs, errors.

Handlers raise `hrag.errors`. Any other exception is a fault of hrag: the client receives only
an id, under which the log has the traceback.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError

from hrag import audit, log, metrics, tracing
from hrag.auth import Authenticate
from hrag.errors import HragError, InternalError, InvalidArgument, RateQuotaExceeded, TooBusy
from hrag.rpc import call_audit, guard, request_id, status
from hrag.rpc.admission import AdmissionExecutor, InlineExecutor
from hrag.rpc.rate_limiter import RateLimiter

_log = structlog.get_logger()

_OK = grpc.StatusCode.OK.name
_TOO_BUSY = status.TABLE[TooBusy].reason
_INLINE = InlineExecutor()


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    """Stands in for a request that could not be parsed."""

    problem: str

    @property
    def error(self) -> InvalidArgument:
        """The error to end the call with."""
        return InvalidArgument(
            f"the request cannot be parsed: {self.problem}; it must be a message of the "
            "method's type, its strings in UTF-8, nested less than 100 deep",
            field="request",
        )


class CallInterceptor(grpc.ServerInterceptor):
    """Wraps the handlers of all services, so that no call bypasses the guard.

    Health calls are open to everybody and pass unwrapped; their servicer refuses malformed
    requests itself.
    """

    def __init__(
        self,
        authenticate: Authenticate | None,
        rate_limiter: RateLimiter,
        executor: AdmissionExecutor,
    ) -> None:
        """`authenticate` is None where no credential is needed.

        `executor` is the one that the server runs calls in; calls are rejected while it is
        full.
        """
        self._authenticate = authenticate
        self._rate_limiter = rate_limiter
        self._executor = executor
        self._wrapped: dict[str, Any] = {}  # By method; only served methods, so it is small.
        self._too_busy = status.to_status(
            TooBusy(
                f"the limit of {executor.max_calls} running and waiting calls is reached "
                "(HRAG_MAX_CONCURRENT_CALLS)"
            )
        )

    def intercept_service(
        self, continuation: Callable[[Any], Any], call: grpc.HandlerCallDetails
    ) -> Any:
        """Returns the wrapped handler, or one that rejects the call."""
        wrapped = self._wrapped.get(call.method)
        if wrapped is None:
            handler = continuation(call)
            if handler is None:
                return None
            wrapped = self._wrapped[call.method] = self._wrap(call.method, handler)
        if self._executor.is_full and call.method not in guard.OPEN:
            return _rejecting_handler(call.method, self._too_busy)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Any:
        deserialize = _tolerant(handler.request_deserializer)
        serialize = _or_encoded(handler.response_serializer)
        if method in guard.OPEN:
            return handler._replace(request_deserializer=deserialize)
        start_call = partial(_Call, method, self._authenticate, deserialize, self._rate_limiter)
        if handler.request_streaming and handler.response_streaming:
            wrapped = _stream(start_call, handler.stream_stream, _Call.admit_each)
            return grpc.stream_stream_rpc_method_handler(wrapped, None, serialize)
        if handler.response_streaming:
            wrapped = _stream(start_call, handler.unary_stream, _Call.admit)
            return grpc.unary_stream_rpc_method_handler(wrapped, None, serialize)
        if handler.request_streaming:
            raise TypeError(f"{method}: no service has calls of this kind")
        wrapped = _unary(start_call, handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(wrapped, None, serialize)


def _rejecting_handler(method: str, rejection: grpc.Status) -> Any:
    """Returns a handler that ends a call of any kind with `rejection`.

    As a stream handler it makes gRPC read no message. Rejections may be many at once, so
    they do as little as possible: they are counted, but not logged.
    """

    def reject(_requests: Any, context: grpc.ServicerContext) -> NoReturn:
        metrics.call_rejected(_short_name(method), rejection.code.name)
        audit.refused_unread(_TOO_BUSY, _short_name(method))
        _abort(context, rejection, request_id.request_id(context))

    # gRPC reads this attribute; the call is rejected in its event thread.
    reject.experimental_thread_pool = _INLINE  # type: ignore[attr-defined]
    return grpc.stream_stream_rpc_method_handler(reject)


def _abort(context: grpc.ServicerContext, ending: Any, call_id: str) -> NoReturn:
    trailers = (*ending.trailing_metadata, (request_id.REQUEST_ID, call_id))
    context.abort_with_status(ending._replace(trailing_metadata=trailers))
    raise AssertionError("abort_with_status raises")


def _short_name(method: str) -> str:
    return method.rpartition("/")[2]


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


def _or_encoded(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Lets a handler return bytes that it has encoded itself."""

    def write(message: Any) -> bytes:
        return message if isinstance(message, bytes) else serialize(message)

    return write


def _unary(
    start_call: "_StartCall", handle: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    def handler(request: Any, context: grpc.ServicerContext) -> Any:
        call = start_call(context)
        try:
            response = handle(call.admit(request), context)
            call.code = _OK
        except Exception as error:
            call.fail(error)
        finally:
            call.finish()
        return response

    return handler


def _stream(
    start_call: "_StartCall",
    handle: Callable[[Any, Any], Iterator[Any]],
    admit: Callable[["_Call", Any], Any],
) -> Callable[[Any, Any], Iterator[Any]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        call = start_call(context)
        try:
            yield from handle(admit(call, request), context)
            call.code = _OK
        except Exception as error:
            if not context.is_active():
                return  # The client has gone; nobody would receive the error.
            call.fail(error)
        finally:
            call.finish()

    return handler


class _Call:
    """One call from its start to its log line; CANCELLED unless its code is set."""

    def __init__(
        self,
        method: str,
        authenticate: Authenticate | None,
        deserialize: Callable[[bytes], Any],
        rate_limiter: RateLimiter,
        context: grpc.ServicerContext,
    ) -> None:
        self.code = grpc.StatusCode.CANCELLED.name
        self._method = method
        self._deserialize = deserialize
        self._context = context
        self._guard = guard.CallGuard(method, authenticate, rate_limiter, context)
        self._id = request_id.request_id(context)
        self._reason = ""
        self._request: Any = None
        self._started = time.perf_counter()
        context.set_trailing_metadata(((request_id.REQUEST_ID, self._id),))
        log.CALL.set(self._log_fields)
        metrics.call_started()

    def admit(self, raw: bytes) -> Any:
        """Returns the parsed request if it is authorized and within its tenants' rate limits."""
        request = self._authorized(raw)
        refusal = self._guard.try_acquire()
        if refusal is not None:
            _refuse(refusal)
        return request

    def admit_each(self, requests: Iterable[bytes]) -> Iterator[Any]:
        """Returns the requests of a stream, which is throttled rather than refused."""
        self._guard.authorize()
        self._guard.send_headers()
        ended = threading.Event()
        if not self._context.add_callback(ended.set):
            ended.set()
        return map(partial(self._admit_throttled, ended), requests)

    def _admit_throttled(self, ended: threading.Event, raw: bytes) -> Any:
        """Waits for the rate limit, if the deadline allows it.

        Nothing more is read meanwhile, so gRPC's flow control applies backpressure to the
        client.
        """
        request = self._authorized(raw)
        while (refusal := self._guard.try_acquire()) is not None:
            wait_s, remaining_s = refusal.retry_s or 0.0, self._context.time_remaining()
            if remaining_s is not None and wait_s > remaining_s:
                _refuse(refusal)
            metrics.document_throttled()
            if ended.wait(wait_s):
                raise refusal  # The call has ended, so nobody receives it; it ends the handler.
        return request

    def _authorized(self, raw: bytes) -> Any:
        """Returns the parsed request.

        It is parsed only after authorization: in memory, a message may take seventy times
        its size on the wire.
        """
        identity = self._guard.authorize()
        request = self._deserialize(raw)
        if isinstance(request, MalformedRequest):
            raise request.error
        self._request = request
        self._guard.check_tenants(identity, request)
        return request

    def fail(self, error: Exception) -> NoReturn:
        """Ends the call with the status of `error`."""
        known = to_hrag_error(self._method, error)
        situation = status.situation_of(known)
        self.code, self._reason = situation.code.name, situation.reason
        tracing.call_failed(self.code, situation.code.value[0])
        _abort(self._context, status.to_status(known), self._id)

    def finish(self) -> None:
        """Records and logs the call: at `info` if it failed, else at `debug`."""
        seconds = time.perf_counter() - self._started
        metrics.call_finished(_short_name(self._method), self.code, seconds)
        ms = round(seconds * 1e3, 3)
        if self._reason:
            _log.info("call", method=self._method, code=self.code, reason=self._reason, ms=ms)
        else:
            _log.debug("call", method=self._method, code=self.code, ms=ms)
        call_audit.ended(self._method, self.code, self._reason, self._request, self._context)
        log.CALL.set(None)

    def _log_fields(self) -> dict[str, str]:
        return {"request_id": self._id, **self._guard.log_fields()}


def _refuse(refusal: RateQuotaExceeded) -> NoReturn:
    metrics.quota_refused(refusal.field)
    raise refusal


_StartCall = Callable[[grpc.ServicerContext], _Call]


def to_hrag_error(method: str, error: Exception) -> HragError:
    """Returns `error` if it is an HragError, else an InternalError after logging `error`.

    The message of the InternalError holds an id that the log line repeats.
    """
    if isinstance(error, HragError):
        return error
    fault = uuid.uuid4().hex[:12]
    _log.error("internal_error", method=method, id=fault, exc_info=error)
    return InternalError(f"internal error {fault}; the service's log has the details")
