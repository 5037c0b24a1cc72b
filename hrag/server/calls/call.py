"""The state of one call: its checks, its limits, its reply, and its entries in metrics and log.

A handler may leave its call open and run again later (see `PendingCall.leave_open`). `ServerCall`
stores the state of the call between these runs.
"""

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NoReturn, cast

import grpc
import structlog

from hrag.observe import audit, metrics, tracing
from hrag.observe.refusal_limiter import Refusal, RefusalLimiter
from hrag.server.admission.arrival import Behavior, PendingCall, requests_within
from hrag.server.admission.executor import AdmissionExecutor
from hrag.server.admission.lane import Lane
from hrag.server.admission.suspension import Suspended
from hrag.server.admission.unread_replies import UnreadReplies
from hrag.server.auth import Role
from hrag.server.calls import call_audit, request_id
from hrag.server.calls.call_deadline import deadline_from
from hrag.server.calls.guard import CallGuard
from hrag.server.calls.rate_limiter import RateLimiter
from hrag.values.current_call import CURRENT, NO_CALL
from hrag.values.errors import (
    DeadlineExceeded,
    HragError,
    InternalError,
    InvalidArgument,
    RateQuotaExceeded,
    TooBusy,
)
from hrag.wire import status_codes
from hrag.wire.stream_admission import REQUEST_ID

_log = structlog.get_logger()

_CANCELLED = grpc.StatusCode.CANCELLED.name
_STREAM_POLL_S = 1.0  # The credential of an idle stream is checked at this interval.


@dataclass(frozen=True, slots=True)
class MalformedRequest:
    """Takes the place of a request that cannot be parsed. `problem` is the parser's message."""

    problem: str

    @property
    def error(self) -> InvalidArgument:
        """The error with which the call ends if its request cannot be parsed."""
        return InvalidArgument(
            f"the request cannot be parsed: {self.problem}; it must be a message of the "
            "method's type, its strings in UTF-8, nested less than 100 deep",
            field="request",
        )


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of the calls of a server.

    `executor` limits the count of concurrent calls, `rates` the calls per second of each tenant,
    and `replies` the bytes of replies that clients have not read. `deadline_s` is the deadline, in
    seconds, of a unary call whose client sets none. `idle_s` is the time in seconds for which a
    stream may be idle.
    """

    executor: AdmissionExecutor
    rates: RateLimiter
    replies: UnreadReplies
    deadline_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class ServedMethod:
    """A gRPC method that this server serves.

    `name` is its full name, for example `/hrag.v1.RetrieverService/Search`. `deserialize` parses a
    request and `serialize` encodes a response. `lane` says in which kind of thread the method's
    calls run.
    """

    name: str
    deserialize: Callable[[bytes], Any]
    serialize: Callable[[Any], bytes]
    lane: Lane


def _log_counts(counts: Mapping[Refusal, int]) -> None:
    for refusal, count in counts.items():
        _log.info("calls_rejected", **refusal._asdict(), count=count)


REFUSALS = RefusalLimiter(_log_counts)
"""Decides which refused calls and ended connections have a log line each."""


def _abort(context: grpc.ServicerContext, status: Any, call_id: str) -> NoReturn:
    trailers = (*status.trailing_metadata, (REQUEST_ID, call_id))
    context.abort_with_status(status._replace(trailing_metadata=trailers))
    raise AssertionError("abort_with_status returned, although it must raise")


@cache  # A server has few methods, and unknown methods have one name.
def _short_name(method: str) -> str:
    return method.rpartition("/")[2]


class ServerCall(PendingCall):
    """One call, from the arrival of its headers until its log line is written.

    This object stores the whole state of the call. All code of the call runs in a context in which
    this object is the current call. `guard` knows the caller, the caller's role, and the tenants
    for which the caller may act. `code` is the name of the gRPC status code with which the call
    ends. It is CANCELLED until the handler succeeds or fails.
    """

    code = _CANCELLED
    _context: Any = None  # gRPC's context of the call; None until the handler first starts.
    _id = ""
    _reason = ""
    _request: Any = None  # The last request that was parsed.
    _is_admitted = False
    # The counts of received and of answered messages of a stream. One thread counts the received
    # messages, and another thread the answered messages. A single counter of the messages without
    # an answer would be changed by both threads.
    _received = 0
    _answered = 0

    def __init__(self, method: ServedMethod, guard: CallGuard, limits: CallLimits) -> None:
        super().__init__(method.lane)
        self.guard = guard
        self._method = method
        self._limits = limits

    def account_of(self, message: bytes) -> str:
        """Returns the tenant id or credential id against whose limits an encoded request counts.

        Raises PermissionDenied if the caller may not act for the tenant of the request.
        """
        return self.guard.account_of(message)

    def rejection(self, error: HragError) -> Behavior:
        """Returns a function that gRPC calls instead of the handler; it ends the call with `error`.

        If `error` is TooBusy, the server has too many calls, so the function does as little work as
        possible: the rejection is counted in metrics and in the audit log, and has no log line.

        For other errors, each of the first few rejections of a second has a log line. The other
        rejections of the second are only counted, and the counts are logged.
        """
        # The traceback is removed, because the error, its traceback, the frame and this call would
        # form a reference cycle.
        _forget_frames(error)
        return partial(self._reject, error)

    def _reject(self, error: HragError, _request: Any, context: grpc.ServicerContext) -> NoReturn:
        situation, call_id = status_codes.situation_of(error), request_id.request_id(context)
        method, code, reason = self._method.name, situation.code.name, situation.reason
        metrics.call_rejected(_short_name(method), code)
        if isinstance(error, TooBusy):
            audit.refused_unread(reason, _short_name(method))
        else:
            self._id = call_id
            if REFUSALS.allows(Refusal(reason, method, self.log_fields().get("credential", ""))):
                _log.info("call", method=method, code=code, reason=reason)
            call_audit.record_end(method, code, reason, None, context)
        _abort(context, status_codes.to_status(error), call_id)

    def start(self, context: grpc.ServicerContext) -> None:
        """Prepares the first run of the handler; does nothing in a later run of the same call."""
        if self._context is not None:
            return
        self._context = context
        self._id = request_id.request_id(context)
        # The time at which a stream last received or sent a message.
        self._active_s = self._started_s = time.monotonic()
        self.deadline = deadline_from(context, self._default_s(), self.activity_check())
        context.set_trailing_metadata(((REQUEST_ID, self._id),))
        metrics.call_started()

    def _default_s(self) -> float:
        """Returns the remaining seconds of a call whose client sets no deadline.

        Returns infinity for a stream, because a stream without a deadline has no time limit.
        """
        if self.lane is Lane.STREAM:
            return math.inf
        return self._limits.deadline_s - (self._started_s - self.arrived_s)

    def admit(self, raw: bytes) -> Any:
        """Returns the parsed request if the caller is authorized and its rate limits permit it.

        Otherwise raises the HragError that ends the call.
        """
        if self._is_admitted:
            # The handler left the call open in an earlier run. The credential may have expired or
            # been revoked since, so the credential is verified again.
            self.guard.authorize()
            return self._request
        self._authorize_and_parse(raw)
        refusal = self.guard.try_acquire()
        if refusal is not None:
            _refuse(refusal)
        self._is_admitted = True
        return self._request

    def admit_each(self, requests: Any) -> Iterator[Any]:
        """Returns an iterator over the parsed requests of a stream.

        A stream that exceeds a rate limit is slowed down, not refused.
        """
        # The initial metadata, with the request id, is sent at once. Its arrival shows the client
        # that it is authorized, before the client sends a message.
        self._context.send_initial_metadata(((REQUEST_ID, self._id),))
        ended = threading.Event()
        if not self._context.add_callback(ended.set):
            ended.set()
        received = requests_within(requests, _STREAM_POLL_S, self._check_stream)
        return map(partial(self._admit_throttled, ended), received)

    def _check_stream(self) -> None:
        """Raises DeadlineExceeded if the stream is idle for too long.

        Raises Unauthenticated or PermissionDenied if the caller's credential is no longer valid.
        """
        self.guard.authorize()
        idle_s = time.monotonic() - self._active_s
        if self._received <= self._answered and idle_s > self._limits.idle_s:
            raise DeadlineExceeded(
                f"the stream was idle for {idle_s:.0f} s; {self._limits.idle_s:g} s are allowed "
                "(HRAG_STREAM_IDLE_TIMEOUT_S)"
            )

    def _admit_throttled(self, ended: threading.Event, raw: bytes) -> Any:
        """Waits until the rate limit permits the request, then returns the parsed request.

        Raises RateQuotaExceeded if the deadline would pass during the wait. During the wait, no
        further message is read, so gRPC's flow control slows the client down.
        """
        self._received += 1
        self._active_s = time.monotonic()
        request = self._authorize_and_parse(raw)
        while (refusal := self.guard.try_acquire()) is not None:
            wait_s = refusal.retry_s or 0.0
            if wait_s > self.deadline.remaining_s:
                _refuse(refusal)
            metrics.document_throttled()
            if ended.wait(wait_s):
                # The call has ended, so nobody receives this error. It only ends the handler.
                raise refusal
        return request

    def _authorize_and_parse(self, raw: bytes) -> Any:
        """Checks the caller's credential, then returns the parsed request.

        The request is parsed only after this check, because a parsed message may need seventy times
        the memory of its encoded form.
        """
        identity = self.guard.authorize()
        request = self._method.deserialize(raw)
        if isinstance(request, MalformedRequest):
            raise request.error
        self._request = request
        self.guard.check_tenants(identity, request)
        return request

    def encode(self, response: Any) -> bytes:
        """Returns the encoded response. A response of type `bytes` is encoded already."""
        return response if isinstance(response, bytes) else self._method.serialize(response)

    def reply(self, message: bytes) -> None:
        """Counts `message`, the only reply of a unary call, as unread until the call ends.

        Raises TooBusy if there are too many bytes of unread replies.
        """
        self._limits.replies.send(self._context, self.guard.account, len(message))

    def send(self, response: Any) -> Iterator[bytes]:
        """Yields one encoded response of a stream and counts it as unread until gRPC has sent it.

        Raises Unauthenticated if the caller's credential is no longer valid, and TooBusy if there
        are too many bytes of unread replies.
        """
        self.guard.authorize()
        message = self.encode(response)
        replies = self._limits.replies
        sending = replies.start(self._context, self.guard.account, len(message))
        try:
            yield message
        finally:
            replies.finish(sending)
        self._answered += len(getattr(response, "outcomes", "1"))
        self._active_s = time.monotonic()

    def fail(self, error: Exception) -> NoReturn:
        """Ends the call with the gRPC status that belongs to `error`.

        If `error` is Suspended, the handler has to wait. In this case, the call stays open, and the
        handler runs again later.
        """
        if isinstance(error, Suspended):
            try:
                self._suspend(error)
            except TooBusy as refusal:
                error = refusal
        known = to_hrag_error(self._method.name, error)
        metrics.size_refused(known)
        _forget_frames(error)
        situation = status_codes.situation_of(known)
        self.code, self._reason = situation.code.name, situation.reason
        tracing.call_failed(self.code, situation.code.value[0])
        _abort(self._context, status_codes.to_status(known), self._id)

    def _suspend(self, reason: Suspended) -> NoReturn:
        """Ends this run of the handler; the executor runs the handler again later.

        Raises TooBusy if too many calls of the tenant wait.
        """
        self.leave_open(self._context, self._limits.executor.suspend(self, reason))

    def finish(self) -> None:
        """Records the end of the call in metrics, log and audit log.

        Does nothing if the handler left the call open, because then the handler runs again later.
        A failed call is logged at the level `info`, a successful call at the level `debug`.
        """
        if self.is_left_open:
            return
        method, seconds = self._method.name, time.monotonic() - self._started_s
        metrics.call_finished(_short_name(method), self.code, seconds)
        ms = round(seconds * 1e3, 3)
        if self._reason:
            _log.info("call", method=method, code=self.code, reason=self._reason, ms=ms)
        else:
            _log.debug("call", method=method, code=self.code, ms=ms)
        call_audit.record_end(method, self.code, self._reason, self._request, self._context)
        # The call and its context refer to each other. The reference from the context to the call
        # is removed, so that no reference cycle remains. The condition is needed because Python may
        # close the generator of a stream in the context of another call.
        if CURRENT.get() is self:
            CURRENT.set(NO_CALL)

    def log_fields(self) -> dict[str, str]:
        """Returns the fields of each log line of the call: request id, tenants and credential id.

        Returns no fields as long as the call has no request id. The request id is set by `start`,
        or by the rejection of the call if the rejection may be logged.
        """
        return {"request_id": self._id, **self.guard.log_fields()} if self._id else {}


def running_call(context: grpc.ServicerContext) -> ServerCall:
    """Returns the current call; starts it first if this is the first run of its handler."""
    call = cast("ServerCall", CURRENT.get())
    call.start(context)
    return call


def caller_role() -> Role:
    """Returns the role of the caller whose call this thread handles.

    Without authentication, every caller has the role admin.
    """
    call = CURRENT.get()
    return call.guard.role if isinstance(call, ServerCall) else Role.READ


def known_account() -> str:
    """Returns the account of the caller whose call this thread handles.

    Returns "" if the caller has no valid credential.
    """
    call = CURRENT.get()
    return call.guard.known_account() if isinstance(call, ServerCall) else ""


def _refuse(refusal: RateQuotaExceeded) -> NoReturn:
    metrics.quota_refused(refusal.field)
    raise refusal


def _forget_frames(error: BaseException | None) -> None:
    """Removes the tracebacks of an error and of its causes.

    With its traceback, an error that is logged or sent later would be part of a reference cycle.
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
