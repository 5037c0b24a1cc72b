"""One call: its checks, its limits, its reply, its end in metrics and log.

A call may be left open and run again, see `hrag.server.admission`; what is kept
of it between the runs is here.
"""

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import grpc
import structlog

from hrag.observe import audit, log, metrics, tracing
from hrag.observe.refusal_limiter import Refusal, RefusalLimiter
from hrag.server.admission.arrival import Behavior, requests_within
from hrag.server.admission.executor import PENDING, PLACEMENT, AdmissionExecutor, Lane
from hrag.server.admission.suspension import Suspended
from hrag.server.admission.unread_replies import UnreadReplies
from hrag.server.calls import call_audit, call_deadline, request_id
from hrag.server.calls.guard import CallGuard
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.values.errors import (
    DeadlineExceeded,
    HragError,
    InternalError,
    InvalidArgument,
    RateQuotaExceeded,
    TooBusy,
)
from hrag.wire import status_codes

_log = structlog.get_logger()

_STREAM_POLL_S = 1.0  # How often an idle stream's credential is checked.

GUARD: ContextVar[CallGuard] = ContextVar("guard")
"""The guard of a call, from its headers on."""


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


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What bounds the calls of a server.

    `deadline_s` is the deadline of a unary call without one, `idle_s` how long a stream may
    be idle; both in seconds.
    """

    executor: AdmissionExecutor
    rates: RateLimiter
    replies: UnreadReplies
    deadline_s: float
    idle_s: float


def rejecting(method: str, error: HragError) -> Behavior:
    """Returns a behavior that ends a call with `error` before it began.

    Of each second, a few rejections are logged one by one, the others as counts. Those of calls
    that are too many do as little as possible: metrics and the audit log count them.
    """

    def reject(_request: Any, context: grpc.ServicerContext) -> NoReturn:
        situation, call_id = status_codes.situation_of(error), request_id.request_id(context)
        code, reason = situation.code.name, situation.reason
        metrics.call_rejected(_short_name(method), code)
        if isinstance(error, TooBusy):
            audit.refused_unread(reason, _short_name(method))
        else:
            fields = {"request_id": call_id, **GUARD.get().log_fields()}
            log.CALL.set(lambda: fields)
            if _LIMITER.allows(Refusal(reason, method, fields.get("credential", ""))):
                _log.info("call", method=method, code=code, reason=reason)
            call_audit.ended(method, code, reason, None, context)
        _abort(context, status_codes.to_status(error), call_id)

    return reject


def _log_counts(counts: Mapping[Refusal, int]) -> None:
    for refusal, count in counts.items():
        _log.info("calls_rejected", **refusal._asdict(), count=count)


_LIMITER = RefusalLimiter(_log_counts)


def _abort(context: grpc.ServicerContext, ending: Any, call_id: str) -> NoReturn:
    trailers = (*ending.trailing_metadata, (request_id.REQUEST_ID, call_id))
    context.abort_with_status(ending._replace(trailing_metadata=trailers))
    raise AssertionError("abort_with_status raises")


def _short_name(method: str) -> str:
    return method.rpartition("/")[2]


class Call:
    """One call from its start to its log line; CANCELLED unless its code is set."""

    def __init__(
        self,
        method: str,
        deserialize: Callable[[bytes], Any],
        serialize: Callable[[Any], bytes],
        limits: CallLimits,
        context: grpc.ServicerContext,
    ) -> None:
        self.code = grpc.StatusCode.CANCELLED.name
        self._method = method
        self._deserialize = deserialize
        self._serialize = serialize
        self._limits = limits
        self._context = context
        self._guard = GUARD.get()
        self._id = request_id.request_id(context)
        self._reason = ""
        self._request: Any = None  # The last one that was parsed.
        self._is_admitted = False
        self._is_left_open = False
        # Messages of a stream: counts of their own, because two threads write them.
        self._received = self._answered = 0
        self._active_s = time.monotonic()  # When a stream last received or sent a message.
        self._started = time.perf_counter()
        call_deadline.start(context, self._default_s())
        context.set_trailing_metadata(((request_id.REQUEST_ID, self._id),))
        log.CALL.set(self._log_fields)
        metrics.call_started()

    def _default_s(self) -> float:
        """What is left, in seconds, to a caller who gave no deadline."""
        if PLACEMENT.get().lane is Lane.STREAM:
            return math.inf
        return self._limits.deadline_s - (time.monotonic() - PENDING.get().arrived_s)

    def admit(self, raw: bytes) -> Any:
        """Returns the parsed request if it is authorized and within its tenants' limits."""
        if self._is_admitted:  # It has waited, and its credential may have ended meanwhile.
            self._guard.authorize()
            return self._request
        self._authorized(raw)
        refusal = self._guard.try_acquire()
        if refusal is not None:
            _refuse(refusal)
        self._is_admitted = True
        return self._request

    def admit_each(self, requests: Any) -> Iterator[Any]:
        """Returns the requests of a stream, which is throttled rather than refused."""
        # Tells the client that it is authorized, before it has sent a message.
        self._context.send_initial_metadata(())
        ended = threading.Event()
        if not self._context.add_callback(ended.set):
            ended.set()
        received = requests_within(requests, _STREAM_POLL_S, self._check_stream)
        return map(partial(self._admit_throttled, ended), received)

    def _check_stream(self) -> None:
        """Raises if a stream is idle for too long, or its credential is no longer valid."""
        self._guard.authorize()
        idle_s = time.monotonic() - self._active_s
        if self._received <= self._answered and idle_s > self._limits.idle_s:
            raise DeadlineExceeded(
                f"the stream was idle for {idle_s:.0f} s; {self._limits.idle_s:g} s are allowed "
                "(HRAG_STREAM_IDLE_TIMEOUT_S)"
            )

    def _admit_throttled(self, ended: threading.Event, raw: bytes) -> Any:
        """Waits for the rate limit, if the deadline allows it.

        Nothing more is read meanwhile, so gRPC's flow control applies backpressure to the
        client.
        """
        self._received += 1
        self._active_s = time.monotonic()
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

    def encoded(self, response: Any) -> bytes:
        """Returns a response's message; handlers may have encoded it themselves."""
        return response if isinstance(response, bytes) else self._serialize(response)

    def reply(self, message: bytes) -> None:
        """Counts the only reply of the call as unread, until the call ends; raises TooBusy."""
        self._limits.replies.send(self._context, self._guard.account, len(message))

    def sent(self, response: Any) -> Iterator[bytes]:
        """Yields one response of a stream, and counts it as unread until gRPC has sent it.

        Raises Unauthenticated instead if the caller's credential is no longer valid.
        """
        self._guard.authorize()
        message = self.encoded(response)
        replies = self._limits.replies
        sending = replies.start(self._context, self._guard.account, len(message))
        try:
            yield message
        finally:
            replies.finish(sending)
        self._answered += len(getattr(response, "outcomes", "1"))
        self._active_s = time.monotonic()

    def fail(self, error: Exception) -> NoReturn:
        """Ends the call with the status of `error`, or leaves it open if it has to wait."""
        if isinstance(error, Suspended):
            try:
                self._leave_open(error)
            except TooBusy as refusal:
                error = refusal
        known = to_hrag_error(self._method, error)
        _forget_frames(error)
        situation = status_codes.situation_of(known)
        self.code, self._reason = situation.code.name, situation.reason
        tracing.call_failed(self.code, situation.code.value[0])
        _abort(self._context, status_codes.to_status(known), self._id)

    def _leave_open(self, reason: Suspended) -> NoReturn:
        """Ends the handler, which runs again later; raises TooBusy if too many calls wait."""
        pending = PENDING.get()
        then = self._limits.executor.suspend(pending, reason)
        self._is_left_open = True
        pending.leave_open(self._context, then)

    def finish(self) -> None:
        """Records and logs the call, unless it was left open: at `info` if it failed."""
        if self._is_left_open:
            self._is_left_open = False
            return
        seconds = time.perf_counter() - self._started
        metrics.call_finished(_short_name(self._method), self.code, seconds)
        ms = round(seconds * 1e3, 3)
        if self._reason:
            _log.info("call", method=self._method, code=self.code, reason=self._reason, ms=ms)
        else:
            _log.debug("call", method=self._method, code=self.code, ms=ms)
        call_audit.ended(self._method, self.code, self._reason, self._request, self._context)
        # What refers from the call's context to the call is a reference cycle. The generator of a
        # stream might be closed in another call's context.
        if _RUNNING.get() is self:
            log.CALL.set(None)
            call_deadline.end()
            _RUNNING.set(None)

    def _log_fields(self) -> dict[str, str]:
        return {"request_id": self._id, **self._guard.log_fields()}


_RUNNING: ContextVar[Call | None] = ContextVar("running", default=None)


def started(start_call: "StartCall", context: grpc.ServicerContext) -> Call:
    """Returns the call of this context: a new one, or the one that was left open."""
    call = _RUNNING.get()
    if call is None:
        call = start_call(context)
        _RUNNING.set(call)
    return call


def _refuse(refusal: RateQuotaExceeded) -> NoReturn:
    metrics.quota_refused(refusal.field)
    raise refusal


StartCall = Callable[[grpc.ServicerContext], Call]


def _forget_frames(error: BaseException | None) -> None:
    """Drops the tracebacks of an error and its causes: a logged one is in a reference cycle."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def to_hrag_error(method: str, error: Exception) -> HragError:
    """Returns `error` if it is an HragError, else an InternalError after logging `error`.

    The message of the InternalError holds an id that the log line repeats.
    """
    if isinstance(error, HragError):
        return error
    fault = uuid.uuid4().hex[:12]
    _log.error("internal_error", method=method, id=fault, exc_info=error)
    return InternalError(f"internal error {fault}; the service's log has the details")
