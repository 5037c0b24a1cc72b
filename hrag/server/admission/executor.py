"""Admission control: which thread a call runs in, and when it is refused.

gRPC has a limit of its own (`maximum_concurrent_rpcs`), but its rejection names neither the
service nor a time to retry, it rejects health checks too, and it counts calls whose message
has not arrived. Here a call counts from the arrival of its message to its end. Those beyond
the limit are rejected in gRPC's event thread, so that a rejection never queues behind the
calls that are too many.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from enum import Enum, auto
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

import structlog

from hrag.observe import metrics
from hrag.server.admission.arrival import Behavior, PendingCall
from hrag.server.admission.byte_budget import ByteBudget
from hrag.server.admission.concurrency_limiter import ConcurrencyLimiter
from hrag.server.admission.cooperative_yield import RunningCalls
from hrag.server.admission.suspension import Suspended, SuspendedCalls
from hrag.server.admission.timeouts import Timeouts
from hrag.values.errors import (
    Cancelled,
    DeadlineExceeded,
    HragError,
    InvalidArgument,
    ServiceUnavailable,
    TooBusy,
)

_log = structlog.get_logger()

MAX_ARRIVING = 1024  # Calls whose message has not arrived. Beyond, one is ended.
# Calls that anybody may make, such as health checks, whose messages come with their headers. gRPC
# reads messages up to the largest request, so there are few.
MAX_ARRIVING_INLINE = 8
_INLINE_TIMEOUT_S = 2.0

_SUBMITTED: Future[None] = Future()  # gRPC counts calls by it, which nothing here needs.
_SUBMITTED.set_result(None)


class Lane(Enum):
    """Where a call runs.

    POOL: in a thread of the pool, once its message is there. OWN: in a thread of its own, once
    its message is there; for what mostly waits, such as an answer that a model writes.
    INLINE: in gRPC's event thread, once its message is there; for what takes no time, such as
    health checks. STREAM: in a thread of its own, from the start. REJECTED: at once, in gRPC's
    event thread.
    """

    POOL = auto()
    OWN = auto()
    INLINE = auto()
    STREAM = auto()
    REJECTED = auto()


class Placement(NamedTuple):
    """How the interceptor wants a call to be run.

    `refusing` returns the behavior that ends the call with an error, and `account` the tenant
    that a message counts for; it raises PermissionDenied. `caller` is the account of who calls
    while no message is there, empty for nobody in particular.
    """

    lane: Lane
    refusing: Callable[[HragError], Behavior]
    account: Callable[[bytes], str]
    caller: str = ""


PLACEMENT: ContextVar[Placement] = ContextVar("placement")
"""Set by the interceptor in the context of each call."""

PENDING: ContextVar[PendingCall] = ContextVar("pending")
"""The call that a handler runs for; not set in streams."""


class AdmissionExecutor:
    """Runs the calls of a server and counts them. Thread-safe.

    For gRPC it is the thread pool. A ThreadPoolExecutor would make a future and take four
    locks for each call.
    """

    def __init__(
        self,
        threads: int,
        max_calls: int,
        max_waiting: int,
        arrival_timeout_s: float,
        max_streams: int,
        max_unanswered_bytes: int,
    ) -> None:
        """`threads` calls of one tenant may run at once, one more if others call too.

        `max_calls` bounds the calls of the pool, running and waiting, and `max_waiting` those
        of one tenant that wait. `max_unanswered_bytes` bounds the requests of those calls.
        """
        self.streams = StreamThreads(max_streams, self._run)
        self._ready: SimpleQueue[PendingCall | None] = SimpleQueue()  # None ends a thread.
        self._max_calls = max_calls
        self._running = RunningCalls()
        self._tenants = ConcurrencyLimiter(threads, max_waiting, self._ready.put)
        self._suspended = SuspendedCalls(self._resume)
        self._calls = 0
        self._unanswered = ByteBudget(
            max_unanswered_bytes, "unanswered requests", "HRAG_MAX_UNANSWERED_BYTES"
        )
        self._counting = threading.Condition()  # Notified when no call is left.
        inline_timeout_s = min(arrival_timeout_s, _INLINE_TIMEOUT_S)
        self._arriving = Timeouts(
            arrival_timeout_s, partial(_end_late, arrival_timeout_s), "arrivals"
        )
        self._arriving_inline = Timeouts(
            inline_timeout_s, partial(_end_late, inline_timeout_s), "inline-arrivals"
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"call-{number}", daemon=True)
            for number in range(threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_full(self) -> bool:
        """True if the limit of running and waiting calls is reached."""
        return self._calls >= self._max_calls

    @property
    def too_busy(self) -> TooBusy:
        """The error for calls beyond the limit."""
        return TooBusy(
            f"the limit of {self._max_calls} running and waiting calls is reached "
            "(HRAG_MAX_CONCURRENT_CALLS)"
        )

    def submit(self, run: Callable[..., Any], /, *parts: Any, **_: Any) -> Future[Any]:
        """Called by gRPC, in its event thread, with the parts of a call."""
        call = PendingCall(run, *parts)
        placement = call.context[PLACEMENT]
        call.account, lane = placement.caller, placement.lane
        if lane is Lane.REJECTED:
            call.run()
        elif lane is Lane.STREAM:
            self._start_stream(call)
        elif lane is Lane.INLINE:
            call.account = call.peer_host()
            self._arriving_inline.add(call)
            call.receive(self._arrived_inline)
            if len(self._arriving_inline) > MAX_ARRIVING_INLINE:
                self._end_oldest(self._arriving_inline, MAX_ARRIVING_INLINE)
        else:
            call.context.run(PENDING.set, call)
            self._arriving.add(call)
            call.receive(self._arrived)
            if len(self._arriving) > MAX_ARRIVING:
                self._end_oldest(self._arriving, MAX_ARRIVING)
        return _SUBMITTED

    def _start_stream(self, call: PendingCall) -> None:
        self._count(1)
        try:
            self.streams.start(call)
        except TooBusy as error:
            self._end(call)
            _refuse(call, error)

    def suspend(self, call: PendingCall, reason: Suspended) -> Callable[[PendingCall], None]:
        """Lets a running call wait without its thread; returns what `leave_open` needs.

        It has counted, and counts, all the time. Raises TooBusy if too many of its tenant wait.
        """
        self._tenants.suspend(call.account)
        return partial(self._suspended.add, reason.with_traceback(None))

    def _resume(self, call: PendingCall) -> None:
        if call.context[PLACEMENT].lane is Lane.OWN:
            with suppress(TooBusy):  # Without a thread of its own it takes one of the pool.
                self.streams.start(call)
                self._tenants.release(call.account)
                return
        self._tenants.resume(call.account, call)

    def end_arriving(self) -> None:
        """Ends the calls whose message has not arrived, because the service is stopping."""
        for call in (*self._arriving.close(), *self._arriving_inline.close()):
            _refuse(call, ServiceUnavailable("the service is stopping"))

    def shutdown(self) -> None:
        """Waits for all calls and streams to end; none may come any more."""
        with self._counting:
            self._counting.wait_for(lambda: self._calls == 0)
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()
        self.streams.join()
        self._suspended.close()

    def _arrived(self, call: PendingCall) -> None:
        if not _has_arrived(call, self._arriving):
            return
        try:
            self._admit(call)
        except HragError as error:
            _refuse(call, error)

    def _admit(self, call: PendingCall) -> None:
        """Counts a call until `_end`, and begins it; raises an HragError to refuse it."""
        if self.is_full:
            raise self.too_busy
        placement = call.context[PLACEMENT]
        call.account = placement.account(call.message)
        self._unanswered.take(call.account, len(call.message))
        call.counted_bytes = len(call.message)
        self._count(1)
        try:
            self._begin(call, placement.lane)
        except HragError:
            self._end(call)
            raise

    def _begin(self, call: PendingCall, lane: Lane) -> None:
        """Runs a call at once or when it is its turn; raises TooBusy."""
        if lane is Lane.OWN:
            self.streams.check(call.account)
            self.streams.start(call)
        elif not self._tenants.enter(call.account, call):
            call.when_ended(partial(self._withdraw, call))

    def _withdraw(self, call: PendingCall) -> None:
        """Gives up a call whose caller has left, if it still waits for its first turn."""
        if not call.has_begun and self._tenants.withdraw(call.account, call):
            self._end(call)
            _refuse(
                call, Cancelled("the caller left, or its deadline passed, while the call waited")
            )

    def _arrived_inline(self, call: PendingCall) -> None:
        if _has_arrived(call, self._arriving_inline):
            call.run()

    def _end_oldest(self, arriving: Timeouts[PendingCall], limit: int) -> None:
        """Ends the oldest call of the account that has most: one caller ends no other's calls."""
        callers = Counter(call.account for call in arriving.entries())
        greediest = max(callers, key=callers.__getitem__, default="")
        oldest = arriving.pop_oldest(lambda call: call.account == greediest)
        if oldest is not None:
            problem = f"{limit} calls have not sent their requests; the oldest are ended"
            _refuse(oldest, TooBusy(problem))

    def _work(self) -> None:
        busy = metrics.threads_busy.track_inprogress()
        while (call := self._ready.get()) is not None:
            with busy, self._running.call(call.account):
                self._run(call)
            self._tenants.leave(call.account)
            del call  # Not kept while the thread is idle.

    def _run(self, call: PendingCall) -> None:
        has_ended = True
        try:
            has_ended = call.run()
        except Exception:
            _log.exception("call_failed")
        if has_ended:
            self._end(call)

    def _end(self, call: PendingCall) -> None:
        """Counts a call and its bytes no longer; once for each counted call, however it ended."""
        self._unanswered.give(call.account, call.counted_bytes)
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self._calls += change
            if self._calls == 0:
                self._counting.notify_all()


class StreamThreads:
    """A thread for each stream and answer, because it holds it for as long as it lasts."""

    def __init__(self, max_streams: int, run: Callable[[PendingCall], None]) -> None:
        self._max_streams = max_streams
        self._max_of_account = max(1, max_streams // 2)
        self._run_call = run
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, str] = {}

    def __len__(self) -> int:
        """Number of open streams."""
        return len(self._threads)

    def check(self, account: str) -> None:
        """Raises TooBusy unless `account` may open a stream; empty stands for nobody known."""
        with self._lock:
            if len(self._threads) >= self._max_streams:
                raise TooBusy(f"{self._max_streams} streams are open (HRAG_MAX_STREAMS)")
            own = sum(each == account for each in self._threads.values()) if account else 0
        if own >= self._max_of_account:
            raise TooBusy(
                f"{account} has {own} open streams, half of the {self._max_streams} that "
                "HRAG_MAX_STREAMS allows"
            )

    def start(self, call: PendingCall) -> None:
        """Runs the call in a thread of its own; raises TooBusy if none can be had."""
        thread = threading.Thread(target=self._run, args=(call,), name="stream", daemon=True)
        with self._lock:
            self._threads[thread] = call.account
        try:
            thread.start()
        except RuntimeError as error:
            with self._lock:
                del self._threads[thread]
            raise TooBusy("the service can start no further thread") from error

    def join(self) -> None:
        """Waits for all streams to end."""
        for thread in list(self._threads):
            thread.join()

    def _run(self, call: PendingCall) -> None:
        try:
            self._run_call(call)
        finally:
            with self._lock:
                del self._threads[threading.current_thread()]


def _end_late(limit_s: float, call: PendingCall) -> None:
    problem = (
        f"the request did not arrive within {limit_s:g} s (HRAG_ARRIVAL_TIMEOUT_S; "
        f"{_INLINE_TIMEOUT_S:g} s at most for health checks)"
    )
    _refuse(call, DeadlineExceeded(problem))


def _has_arrived(call: PendingCall, arriving: Timeouts[PendingCall]) -> bool:
    """True if the call may begin: it has a message and was not ended before."""
    if not arriving.remove(call):
        return False
    if call.take_message():
        return True
    _refuse(call, InvalidArgument("the call has no request message", field="request"))
    return False


def _refuse(call: PendingCall, error: HragError) -> None:
    call.refuse(call.context[PLACEMENT].refusing(error))
