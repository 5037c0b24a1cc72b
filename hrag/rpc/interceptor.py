"""What happens around every call: it is checked, counted, logged; errors become statuses.

Handlers raise `hrag.errors`; anything else is a fault of ours, which the client sees as
an id only, while the log has the traceback under the same id.
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

from hrag import log, metrics, tracing
from hrag.auth import Authenticate
from hrag.errors import HragError, InternalError, InvalidArgument, RateQuotaExceeded, TooBusy
from hrag.rpc import guard, request_id, status
from hrag.rpc.admission import AtOnce, CallThreads
from hrag.rpc.rate_limiter import Rates

_log = structlog.get_logger()

_OK = grpc.StatusCode.OK.name
_AT_ONCE = AtOnce()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in for a request that is no message of its type."""

    problem: str

    @property
    def error(self) -> InvalidArgument:
        return InvalidArgument(
            f"the request cannot be read: {self.problem}; it must be a message of the "
            "method's type, its strings in UTF-8, nested less than 100 deep",
            field="request",
        )


class Around(grpc.ServerInterceptor):
    """Wraps the handlers of all services, so that no call comes past the guard.

    Only health passes, which is open to everybody; it refuses itself what cannot be read.
    """

    def __init__(
        self, authenticate: Authenticate | None, rates: Rates, threads: CallThreads
    ) -> None:
        """`authenticate` checks credentials; None asks for none. `rates` counts calls.

        Calls run in `threads`; past those that it takes they are refused.
        """
        self._authenticate = authenticate
        self._rates = rates
        self._threads = threads
        self._wrapped: dict[str, Any] = {}  # By method: of those that are served, so few.
        self._too_many = status.to_status(
            TooBusy(
                f"{threads.most_calls} calls are running or waiting already, as many as "
                "HRAG_MAX_CONCURRENT_CALLS allows"
            )
        )

    def intercept_service(
        self, continuation: Callable[[Any], Any], call: grpc.HandlerCallDetails
    ) -> Any:
        wrapped = self._wrapped.get(call.method)
        if wrapped is None:
            handler = continuation(call)
            if handler is None:
                return None
            wrapped = self._wrapped[call.method] = self._wrap(call.method, handler)
        if self._threads.full and call.method not in guard.OPEN:
            return _refusing(call.method, self._too_many)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Any:
        read, write = _lenient(handler.request_deserializer), _sent(handler.response_serializer)
        if method in guard.OPEN:
            return handler._replace(request_deserializer=read)
        begun = partial(_Call, method, self._authenticate, read, self._rates)
        if handler.request_streaming and handler.response_streaming:
            wrapped = _stream(begun, handler.stream_stream, _Call.each_admitted)
            return grpc.stream_stream_rpc_method_handler(wrapped, None, write)
        if handler.response_streaming:
            wrapped = _stream(begun, handler.unary_stream, _Call.admitted)
            return grpc.unary_stream_rpc_method_handler(wrapped, None, write)
        if handler.request_streaming:
            raise TypeError(f"{method}: no service has calls of this kind")
        return grpc.unary_unary_rpc_method_handler(_unary(begun, handler.unary_unary), None, write)


def _refusing(method: str, told: grpc.Status) -> Any:
    """Refuses any kind of call: of a stream, gRPC need not read even the first message.

    There may be many at once, so this does as little as it can; metrics have their number.
    """

    def refuse(_requests: Any, context: grpc.ServicerContext) -> NoReturn:
        metrics.call_refused(_name(method), told.code.name)
        _end_with(context, told, request_id.request_id(context))

    refuse.experimental_thread_pool = _AT_ONCE  # type: ignore[attr-defined]  # As gRPC asks.
    return grpc.stream_stream_rpc_method_handler(refuse)


def _end_with(context: grpc.ServicerContext, told: Any, named_id: str) -> NoReturn:
    named = (*told.trailing_metadata, (request_id.REQUEST_ID, named_id))
    context.abort_with_status(told._replace(trailing_metadata=named))
    raise AssertionError("abort_with_status raises")


def _name(method: str) -> str:
    return method.rpartition("/")[2]


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """gRPC calls a request that it cannot read INTERNAL; the fault is the client's."""

    def read(message: bytes) -> Any:
        try:
            return deserialize(message)
        except DecodeError as error:
            return Unreadable(str(error))

    return read


def _sent(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A handler may have encoded its response already."""

    def write(message: Any) -> bytes:
        return message if isinstance(message, bytes) else serialize(message)

    return write


def _unary(begun: "_Begun", handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def handler(request: Any, context: grpc.ServicerContext) -> Any:
        call = begun(context)
        try:
            response = handle(call.admitted(request), context)
            call.code = _OK
        except Exception as error:
            call.fail(error)
        finally:
            call.end()
        return response

    return handler


def _stream(
    begun: "_Begun",
    handle: Callable[[Any, Any], Iterator[Any]],
    admitted: Callable[["_Call", Any], Any],
) -> Callable[[Any, Any], Iterator[Any]]:
    def handler(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        call = begun(context)
        try:
            yield from handle(admitted(call, request), context)
            call.code = _OK
        except Exception as error:
            if not context.is_active():
                return  # The client went away; there is no one to tell.
            call.fail(error)
        finally:
            call.end()

    return handler


class _Call:
    """One call, which ends as its client's going away does unless told otherwise."""

    def __init__(
        self,
        method: str,
        authenticate: Authenticate | None,
        read: Callable[[bytes], Any],
        rates: Rates,
        context: grpc.ServicerContext,
    ) -> None:
        self.code = grpc.StatusCode.CANCELLED.name
        self._method = method
        self._read = read
        self._context = context
        self._guarded = guard.Call(method, authenticate, rates, context)
        self._id = request_id.request_id(context)
        self._reason = ""
        self._began = time.perf_counter()
        context.set_trailing_metadata(((request_id.REQUEST_ID, self._id),))
        log.CALL.set(self._fields)
        metrics.call_began()

    def admitted(self, raw: bytes) -> Any:
        """The request, if it is one, the guard lets it pass and its tenant may call now."""
        request = self._checked(raw)
        refusal = self._guarded.count()
        if refusal is not None:
            _refuse(refusal)
        return request

    def each_admitted(self, requests: Iterable[bytes]) -> Iterator[Any]:
        """The same for each of a stream, which is slowed down rather than refused."""
        self._guarded.admit()
        self._guarded.welcome()
        ended = threading.Event()
        if not self._context.add_callback(ended.set):
            ended.set()
        return map(partial(self._admitted_in_time, ended), requests)

    def _admitted_in_time(self, ended: threading.Event, raw: bytes) -> Any:
        """Waits until the tenant may call, if the deadline allows it.

        Nothing more is read meanwhile, so gRPC's flow control holds the client up.
        """
        request = self._checked(raw)
        while (refusal := self._guarded.count()) is not None:
            wait_s, remaining_s = refusal.retry_s or 0.0, self._context.time_remaining()
            if remaining_s is not None and wait_s > remaining_s:
                _refuse(refusal)
            metrics.stream_slowed()
            if ended.wait(wait_s):
                raise refusal  # For nobody; what asks ends.
        return request

    def _checked(self, raw: bytes) -> Any:
        """It is read only for those who are admitted.

        In memory, a message may be seventy times as large as on the wire.
        """
        identity = self._guarded.admit()
        request = self._read(raw)
        if isinstance(request, Unreadable):
            raise request.error
        self._guarded.check(identity, request)
        return request

    def fail(self, error: Exception) -> NoReturn:
        """Ends the call with what the error means to its client."""
        known = explained(self._method, error)
        situation = status.situation_of(known)
        self.code, self._reason = situation.code.name, situation.reason
        tracing.failed(self.code, situation.code.value[0])
        _end_with(self._context, status.to_status(known), self._id)

    def end(self) -> None:
        """Counts and logs it; failures louder than the rest."""
        seconds = time.perf_counter() - self._began
        metrics.call_ended(_name(self._method), self.code, seconds)
        ms = round(seconds * 1e3, 3)
        if self._reason:
            _log.info("call", method=self._method, code=self.code, reason=self._reason, ms=ms)
        else:
            _log.debug("call", method=self._method, code=self.code, ms=ms)
        log.CALL.set(None)

    def _fields(self) -> dict[str, str]:
        return {"request_id": self._id, **self._guarded.described()}


def _refuse(refusal: RateQuotaExceeded) -> NoReturn:
    metrics.quota_refused(refusal.field)
    raise refusal


_Begun = Callable[[grpc.ServicerContext], _Call]


def explained(method: str, error: Exception) -> HragError:
    """The error itself if we raised it, else an InternalError that the log explains."""
    if isinstance(error, HragError):
        return error
    fault = uuid.uuid4().hex[:12]
    _log.error("internal_error", method=method, id=fault, exc_info=error)
    return InternalError(f"internal error {fault}; the service's log has the details")
