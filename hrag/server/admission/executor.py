"""Admission control: decides in which thread a call runs, and when a call is refused.

gRPC itself has a limit of calls (`maximum_concurrent_rpcs`). But its rejection contains neither the
name of the service nor a retry delay, it also rejects health checks, and it counts calls whose
message has not arrived. In this module, a call counts from the arrival of its message to its end.
Calls beyond the limit are rejected in gRPC's event thread, so that a rejection never waits in a
queue behind other calls.
"""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import structlog

from hrag.observe import metrics
from hrag.server.admission.arrival import PendingCall, submitted_call
from hrag.server.admission.byte_budget import ByteBudget
from hrag.server.admission.concurrency_limiter import ConcurrencyLimiter
from hrag.server.admission.cooperative_yield import RunningCall, RunningCalls
from hrag.server.admission.lane import Lane
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

# At most this many calls may wait for their request message to arrive. If a new call exceeds this
# limit, a waiting call is ended: the oldest waiting call of the caller with the most waiting calls.
MAX_ARRIVING = 1024
# The limit of calls that need no credential, for example health checks, and whose message has not
# arrived. A low limit is enough, because these messages usually arrive together with the headers.
# A low limit is also necessary: gRPC reads large requests even from callers without a credential,
# so each of these calls may need as much memory as the largest allowed request.
MAX_ARRIVING_INLINE = 8
# The time in which the message of a call that needs no credential must arrive, in seconds.
_INLINE_TIMEOUT_S = 2.0

# gRPC expects a future for each call, and uses the futures to count calls. This server does not
# need gRPC's count, so all calls share this future.
_SUBMITTED: Future[None] = Future()
_SUBMITTED.set_result(None)


class AdmissionExecutor:
    """Runs the calls of a server and counts the calls. Thread-safe.

    gRPC uses this executor as its thread pool. A ThreadPoolExecutor would be slower, because it
    creates a future and acquires four locks for each call.
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
        """Starts the threads of the pool: `threads` threads and one more.

        At most `threads` threads of the pool run calls of the same tenant. `max_calls` is the limit
        of running and waiting calls of all tenants together. `max_waiting` is the limit of waiting
        calls of one tenant. `arrival_timeout_s` is the time in which the message of a call must
        arrive. `max_streams` is the limit of calls in dedicated threads. `max_unanswered_bytes` is
        the limit of the total size of the requests that have no reply yet.
        """
        self.streams = DedicatedThreads(max_streams, self._run_dedicated)
        # The calls that a thread of the pool may run now. A thread that takes the value None from
        # this queue ends.
        self._ready: SimpleQueue[PendingCall | None] = SimpleQueue()
        self._max_calls = max_calls
        self._running = RunningCalls()
        self.limiter = ConcurrencyLimiter(threads, max_waiting, self._ready.put)
        self._suspended = SuspendedCalls(self._resume)
        self._calls = 0
        self._unanswered = ByteBudget(
            max_unanswered_bytes, "unanswered requests", "HRAG_MAX_UNANSWERED_BYTES"
        )
        # This lock protects `_calls`. `_all_ended` is set when `_calls` is 0 and no call may be
        # submitted any more.
        self._counting = threading.Lock()
        self._is_stopping = False
        self._all_ended = threading.Event()
        inline_timeout_s = min(arrival_timeout_s, _INLINE_TIMEOUT_S)
        self._arriving = Timeouts(
            arrival_timeout_s, partial(_end_overdue, arrival_timeout_s), "arrivals"
        )
        self._arriving_inline = Timeouts(
            inline_timeout_s, partial(_end_overdue, inline_timeout_s), "inline-arrivals"
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
    def calls(self) -> int:
        """The count of running and waiting calls, including streams and suspended calls."""
        return self._calls

    @property
    def unanswered_bytes(self) -> int:
        """The total size, in bytes, of the requests that have no reply yet."""
        return self._unanswered.total_bytes

    @property
    def too_busy(self) -> TooBusy:
        """A new error for a call that exceeds the limit of running and waiting calls."""
        return TooBusy(
            f"the limit of {self._max_calls} running and waiting calls is reached "
            "(HRAG_MAX_CONCURRENT_CALLS)"
        )

    def submit(self, run: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        """Accepts a call and decides where it runs. gRPC calls this method in its event thread.

        The parameters are those of `PendingCall.attach`.
        """
        call = submitted_call(run, *arguments)
        lane = call.lane
        if lane is Lane.REJECTED:
            call.run()
        elif lane is Lane.STREAM:
            self._start_stream(call)
        elif lane is Lane.INLINE:
            call.account = call.peer_host()
            count = self._arriving_inline.add(call)
            call.receive(self._arrived_inline)
            if count > MAX_ARRIVING_INLINE:
                self._end_oldest(self._arriving_inline, MAX_ARRIVING_INLINE)
        else:
            count = self._arriving.add(call)
            call.receive(self._arrived)
            if count > MAX_ARRIVING:
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
        """Suspends a running call: the call waits for the condition of `reason`, without a thread.

        Returns the function to pass to `PendingCall.leave_open` as `then`. A suspended call still
        counts against the server's limit of calls. Raises TooBusy if too many calls of the tenant
        wait.
        """
        self.limiter.suspend(call.account)
        return partial(self._suspended.add, reason.with_traceback(None))

    def _resume(self, call: PendingCall) -> None:
        if call.lane is Lane.DEDICATED:
            # If the operating system refuses a new thread, the call runs in a thread of the pool.
            with suppress(TooBusy):
                self.streams.start(call)
                self.limiter.release(call.account)
                return
        self.limiter.resume(call.account, call)

    def end_arriving(self) -> None:
        """Ends the calls whose message has not arrived, because the service is stopping."""
        for call in (*self._arriving.close(), *self._arriving_inline.close()):
            _refuse(call, ServiceUnavailable("the service is stopping"))

    def shutdown(self) -> None:
        """Waits for all calls and streams to end, then ends the threads.

        No call may be submitted any more.
        """
        self._is_stopping = True
        self._count(0)
        self._all_ended.wait()
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()
        self.streams.join()
        self._suspended.close()

    def _arrived(self, call: PendingCall) -> None:
        if not _accept_arrival(call, self._arriving):
            return
        try:
            self._admit(call)
        except HragError as error:
            _refuse(call, error)

    def _admit(self, call: PendingCall) -> None:
        """Starts a call. The call counts against the server's limits until `_end` is called.

        If the call exceeds a limit, raises the HragError with which the call must be refused.
        """
        if self.is_full:
            raise self.too_busy
        call.account = call.account_of(call.message)
        self._unanswered.take(call.account, len(call.message))
        call.counted_bytes = len(call.message)
        self._count(1)
        try:
            self._begin(call)
        except HragError:
            self._end(call)
            raise

    def _begin(self, call: PendingCall) -> None:
        """Runs a call now, or adds it to the waiting calls of its tenant.

        Raises TooBusy if the call needs a dedicated thread and none is free, or if too many calls
        of the tenant wait.
        """
        if call.lane is Lane.DEDICATED:
            self.streams.check(call.account)
            self.streams.start(call)
        elif not self.limiter.enter(call.account, call):
            call.when_ended(partial(self._withdraw, call))

    def _withdraw(self, call: PendingCall) -> None:
        """Ends a call that the client has cancelled, or whose deadline has passed.

        Does nothing if the call's handler has been started already.
        """
        if not call.has_begun and self.limiter.withdraw(call.account, call):
            self._end(call)
            _refuse(
                call, Cancelled("the caller left, or its deadline passed, while the call waited")
            )

    def _arrived_inline(self, call: PendingCall) -> None:
        if _accept_arrival(call, self._arriving_inline):
            call.run()

    def _end_oldest(self, arriving: Timeouts[PendingCall], limit: int) -> None:
        """Ends one of the calls in `arriving`, whose messages have not arrived.

        The call is chosen from the account (tenant id, credential id or address) that has the most
        calls in `arriving`. The oldest call of this account is ended. So a caller that starts many
        calls ends only its own calls.
        """
        callers = Counter(call.account for call in arriving.entries())
        greediest = max(callers, key=callers.__getitem__, default="")
        oldest = arriving.pop_oldest(lambda call: call.account == greediest)
        if oldest is not None:
            problem = (
                f"the requests of more than {limit} calls have not arrived; "
                "the oldest of these calls are ended"
            )
            _refuse(oldest, TooBusy(problem))

    def _work(self) -> None:
        while (call := self._ready.get()) is not None:
            metrics.threads_busy.change(1)
            try:
                with self._running.call(call.account) as running:
                    self._run(call, running)
            finally:
                metrics.threads_busy.change(-1)
            self.limiter.leave(call.account)
            # Without `del`, a thread that waits for a call would keep the last call in memory.
            del call

    def _run_dedicated(self, call: PendingCall) -> None:
        with self._running.call(call.account) as running:
            # This call waits for a model or for messages most of the time. If it were short, it
            # would delay long calls of other tenants while it waits.
            running.become_long()
            self._run(call, running)

    def _run(self, call: PendingCall, running: RunningCall) -> None:
        has_ended = True
        try:
            has_ended = call.run(running)
        except Exception:
            _log.exception("call_failed")
        if has_ended:
            self._end(call)

    def _end(self, call: PendingCall) -> None:
        """Stops counting a call and its bytes.

        This method must be called exactly once for each counted call, also if the call was refused
        or failed.
        """
        self._unanswered.give(call.account, call.counted_bytes)
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self._calls += change
            if self._is_stopping and self._calls == 0:
                self._all_ended.set()


class DedicatedThreads:
    """Runs calls that may last for long, each in a new thread. Thread-safe.

    These calls are streams of documents, and answers that a chat model writes. `check` allows at
    most `max_streams` of these threads at the same time, and for one account (a tenant id or a
    credential id) at most half of `max_streams`.
    """

    def __init__(self, max_streams: int, run: Callable[[PendingCall], None]) -> None:
        self._max_streams = max_streams
        self._max_of_account = max(1, max_streams // 2)
        self._run_call = run
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, str] = {}

    def __len__(self) -> int:
        """Returns the count of dedicated threads, each of which runs one call."""
        return len(self._threads)

    def check(self, account: str) -> None:
        """Raises TooBusy if `account` may not start another call in a dedicated thread.

        `account` is a tenant id or a credential id. It is empty if neither of them is known; then
        only the limit for all accounts together applies.
        """
        with self._lock:
            if len(self._threads) >= self._max_streams:
                raise TooBusy(
                    f"the limit of {self._max_streams} open streams is reached (HRAG_MAX_STREAMS)"
                )
            count = sum(user == account for user in self._threads.values()) if account else 0
        if count >= self._max_of_account:
            raise TooBusy(
                f"{account} has {count} open streams; one tenant or credential may have at most "
                f"half of the {self._max_streams} streams that HRAG_MAX_STREAMS allows"
            )

    def start(self, call: PendingCall) -> None:
        """Runs the call in a new thread.

        Raises TooBusy if the operating system refuses the thread.
        """
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
        """Waits until all dedicated threads have ended."""
        for thread in list(self._threads):
            thread.join()

    def _run(self, call: PendingCall) -> None:
        try:
            self._run_call(call)
        finally:
            with self._lock:
                del self._threads[threading.current_thread()]


def _end_overdue(limit_s: float, call: PendingCall) -> None:
    problem = (
        f"the request did not arrive within {limit_s:g} s (HRAG_ARRIVAL_TIMEOUT_S; "
        f"{_INLINE_TIMEOUT_S:g} s at most for health checks)"
    )
    _refuse(call, DeadlineExceeded(problem))


def _accept_arrival(call: PendingCall, arriving: Timeouts[PendingCall]) -> bool:
    """Returns True if the message of the call has arrived and the call was not ended before.

    Removes the call from `arriving`. If the call has no message, ends it with InvalidArgument.
    """
    if not arriving.remove(call):
        return False
    if call.take_message():
        return True
    _refuse(call, InvalidArgument("the call has no request message", field="request"))
    return False


def _refuse(call: PendingCall, error: HragError) -> None:
    call.refuse(call.rejection(error))
