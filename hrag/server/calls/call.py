"""The state of one call: its checks, its limits, its reply, and its entries in metrics and log.

A handler may leave its call open and run again later (see `hrag.server.admission`). `Call` keeps
the state of the call between these runs.
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

_STREAM_POLL_S = 1.0  # The credential of an idle stream is checked at this interval.

GUARD: ContextVar[CallGuard] = ContextVar("guard")
"""The guard of the current call. It is set as soon as the call's headers have arrived."""


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    """Replaces a request that cannot be parsed; `problem` is the parser's message."""

    problem: str

    @property
    def error(self) -> InvalidArgument:
        """The error that ends the call."""
        return InvalidArgument(
            f"the request cannot be parsed: {self.problem}; it must be a message of the "
            "method's type, its strings in UTF-8, nested less than 100 deep",
            field="request",
        )


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of the calls of a server.

    `deadline_s` is the deadline, in seconds, of a unary call whose client sets none. `idle_s` is
    the number of seconds that a stream may be idle.
    """

    executor: AdmissionExecutor
    rates: RateLimiter
    replies: UnreadReplies
    deadline_s: float
    idle_s: float


def rejection_behavior(method: str, error: HragError) -> Behavior:
    """Returns a behavior that ends a call with `error` before its handler runs.

    In each second, the first few rejections have a log line each; the others are logged as
    counts. If the server has too many calls (TooBusy), a rejection does as little work as
    possible: metrics and the audit log count it, and it has no log line.
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
    """One call, from its start to its log line.

    `code` is the name of the gRPC status code with which it ends. It is CANCELLED until the
    handler succeeds or fails.
    """

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
        self._request: Any = None  # The last request that was parsed.
        self._is_admitted = False
        self._is_left_open = False
        # The messages of a stream. There are two counters because two threads write them.
        self._received = self._answered = 0
        # The time at which a stream last received or sent a message.
        self._active_s = time.monotonic()
        self._started = time.perf_counter()
        call_deadline.start(context, self._default_s())
        context.set_trailing_metadata(((request_id.REQUEST_ID, self._id),))
        log.CALL.set(self._log_fields)
        metrics.call_started()

    def _default_s(self) -> float:
        """Returns the seconds that remain for a call without a deadline from its client."""
        if PLACEMENT.get().lane is Lane.STREAM:
            return math.inf
        return self._limits.deadline_s - (time.monotonic() - PENDING.get().arrived_s)

    def admit(self, raw: bytes) -> Any:
        """Returns the parsed request if it is authorized and within the limits of its tenants.

        Otherwise raises the HragError that ends the call.
        """
        if self._is_admitted:
            # The call has waited, and its credential may have expired or been revoked meanwhile.
            self._guard.authorize()
            return self._request
        self._authorize_and_parse(raw)
        refusal = self._guard.try_acquire()
        if refusal is not None:
            _refuse(refusal)
        self._is_admitted = True
        return self._request

    def admit_each(self, requests: Any) -> Iterator[Any]:
        """Returns an iterator over the parsed requests of a stream.

        A stream that exceeds a rate limit is throttled, not refused.
        """
        # The initial metadata informs the client that it is authorized before it sends a message.
        self._context.send_initial_metadata(())
        ended = threading.Event()
        if not self._context.add_callback(ended.set):
            ended.set()
        received = requests_within(requests, _STREAM_POLL_S, self._check_stream)
        return map(partial(self._admit_throttled, ended), received)

    def _check_stream(self) -> None:
        """Raises DeadlineExceeded if the stream is idle for too long.

        Raises Unauthenticated or PermissionDenied if its credential is no longer valid.
        """
        self._guard.authorize()
        idle_s = time.monotonic() - self._active_s
        if self._received <= self._answered and idle_s > self._limits.idle_s:
            raise DeadlineExceeded(
                f"the stream was idle for {idle_s:.0f} s; {self._limits.idle_s:g} s are allowed "
                "(HRAG_STREAM_IDLE_TIMEOUT_S)"
            )

    def _admit_throttled(self, ended: threading.Event, raw: bytes) -> Any:
        """Returns the parsed request after the rate limit permits it.

        Raises RateQuotaExceeded if the deadline passes before that. No further message is read
        meanwhile, so gRPC's flow control applies backpressure to the client.
        """
        self._received += 1
        self._active_s = time.monotonic()
        request = self._authorize_and_parse(raw)
        while (refusal := self._guard.try_acquire()) is not None:
            wait_s, remaining_s = refusal.retry_s or 0.0, self._context.time_remaining()
            if remaining_s is not None and wait_s > remaining_s:
                _refuse(refusal)
            metrics.document_throttled()
            if ended.wait(wait_s):
                # The call has ended, so nobody receives this error; it only ends the handler.
                raise refusal
        return request

    def _authorize_and_parse(self, raw: bytes) -> Any:
        """Returns the parsed request of an authorized caller.

        The request is parsed only after authorization, because a parsed message may need seventy
        times the memory of its encoded form.
        """
        identity = self._guard.authorize()
        request = self._deserialize(raw)
        if isinstance(request, MalformedRequest):
            raise request.error
        self._request = request
        self._guard.check_tenants(identity, request)
        return request

    def encode(self, response: Any) -> bytes:
        """Returns the encoded response. A handler may have encoded it already, as `bytes`."""
        return response if isinstance(response, bytes) else self._serialize(response)

    def reply(self, message: bytes) -> None:
        """Counts the only reply of the call as unread until the call ends.

        Raises TooBusy if there are too many bytes of unread replies.
        """
        self._limits.replies.send(self._context, self._guard.account, len(message))

    def send(self, response: Any) -> Iterator[bytes]:
        """Yields one encoded response of a stream and counts it as unread until gRPC has sent it.

        Raises Unauthenticated if the caller's credential is no longer valid, and TooBusy if there
        are too many bytes of unread replies.
        """
        self._guard.authorize()
        message = self.encode(response)
        replies = self._limits.replies
        sending = replies.start(self._context, self._guard.account, len(message))
        try:
            yield message
        finally:
            replies.finish(sending)
        self._answered += len(getattr(response, "outcomes", "1"))
        self._active_s = time.monotonic()

    def fail(self, error: Exception) -> NoReturn:
        """Ends the call with the status of `error`.

        If `error` is Suspended, leaves the call open instead, so that it can wait.
        """
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
        """Ends this run of the handler; the executor runs the handler again later.

        Raises TooBusy if too many calls wait.
        """
        pending = PENDING.get()
        add_suspended = self._limits.executor.suspend(pending, reason)
        self._is_left_open = True
        pending.leave_open(self._context, add_suspended)

    def finish(self) -> None:
        """Records the call in metrics, log and audit log, unless it was left open.

        A failed call is logged at `info`, a successful one at `debug`.
        """
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
        # The references from the call's context to the call form a reference cycle, so they are
        # dropped. The check is needed because the generator of a stream might be closed in the
        # context of another call.
        if _RUNNING.get() is self:
            log.CALL.set(None)
            call_deadline.end()
            _RUNNING.set(None)

    def _log_fields(self) -> dict[str, str]:
        return {"request_id": self._id, **self._guard.log_fields()}


_RUNNING: ContextVar[Call | None] = ContextVar("running", default=None)


def current_call(start_call: "StartCall", context: grpc.ServicerContext) -> Call:
    """Returns the call that was left open in this context, else a new call."""
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
    """Drops the tracebacks of an error and of its causes.

    A logged error would otherwise be part of a reference cycle.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def to_hrag_error(method: str, error: Exception) -> HragError:
    """Returns `error` if it is an HragError. Otherwise logs it and returns an InternalError.

    The message of the InternalError contains an id, and the log line has the same id.
    """
    if isinstance(error, HragError):
        return error
    fault = uuid.uuid4().hex[:12]
    _log.error("internal_error", method=method, id=fault, exc_info=error)
    return InternalError(f"internal error {fault}; the service's log has the details")
