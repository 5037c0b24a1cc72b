"""Cooperative scheduling: long calls yield to short calls of other tenants.

A call is short until it has used 10 ms of processor time, and long afterwards. A call that has a
dedicated thread, for example an answer, is long from its start.

Python runs one thread at a time, so a search of a few milliseconds takes twice as long while
another call computes for seconds. While a short call of another tenant runs, a long call sleeps
between two steps for as long as the last step took, but at most 5 ms. Long calls sleep one after
the other, so all of them together compute about as much as one. Operating systems favour short
tasks in the same way (multilevel feedback queue), but Python's interpreter lock has no priorities.
"""

import threading
import time
from collections.abc import Callable

# A call is short until its thread has used this processor time for the call. A plain search needs
# only a few milliseconds, so it stays short.
_SHORT_S = 0.01
# The longest sleep of a long call. After its sleep, the call runs its next step and then checks
# again whether short calls of other tenants run.
_LONGEST_SLEEP_S = 0.005


class RunningCalls:
    """Counts, for each tenant, its running calls that are short. Thread-safe.

    A call is short until it has used 10 ms of processor time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
        wall_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns the processor time of the calling thread, in seconds.

        `wall_clock` returns monotonic seconds. `sleep` blocks the calling thread for the given
        number of seconds.
        """
        self.clock = clock
        self.sleep = sleep
        self.wall_clock = wall_clock
        self._lock = threading.Lock()
        # The keys are the tenants that have running calls that are short.
        self._short: dict[str, int] = {}
        self._turn = threading.Lock()

    def call(self, tenant: str) -> "RunningCall":
        """Returns a RunningCall for a call of `tenant` that this thread runs in a `with` block."""
        return RunningCall(self, tenant)

    def count_short(self, tenant: str, change: int) -> None:
        """Adds `change` to the count of the tenant's running calls that are short.

        A call is short until it has used 10 ms of processor time.
        """
        with self._lock:
            count = self._short.get(tenant, 0) + change
            if count:
                self._short[tenant] = count
            else:
                del self._short[tenant]

    def has_short_of_others(self, tenant: str) -> bool:
        """Returns True if another tenant has a running call that is short.

        A call is short until it has used 10 ms of processor time.
        """
        return len(self._short) > (tenant in self._short)

    def sleep_for_others(self, tenant: str, seconds: float) -> None:
        """Sleeps if a short call of another tenant runs, after the long calls that sleep already.

        Returns without sleep if no such call runs when it is this call's turn.
        """
        if self.has_short_of_others(tenant):
            with self._turn:
                if self.has_short_of_others(tenant):
                    self.sleep(seconds)


class RunningCall:
    """A call that a thread runs, and the processor time that the call has used.

    A call is short until it has used 10 ms of processor time or has ended, and long afterwards. A
    RunningCall is a context manager: the call ends with the `with` block.
    """

    __slots__ = ("_began_s", "_calls", "_is_short", "_short_until_s", "_slept_s", "_tenant")

    def __init__(self, calls: RunningCalls, tenant: str) -> None:
        self._calls = calls
        self._tenant = tenant
        self._is_short = False

    def __enter__(self) -> "RunningCall":
        calls = self._calls
        self._began_s = self._slept_s = calls.clock()
        # The call cannot have used `_SHORT_S` of processor time before this time of the wall clock.
        # So the processor time, which needs a system call, is not read before this time.
        self._short_until_s = calls.wall_clock() + _SHORT_S
        self._is_short = True
        calls.count_short(self._tenant, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self.become_long()

    def yield_to_others(self) -> None:
        """Sleeps briefly if this call is long and a short call of another tenant runs.

        A call is short until it has used 10 ms of processor time, and long afterwards. Must be
        called in the thread of the call, between the steps of its work.
        """
        if self._calls.wall_clock() < self._short_until_s:
            return
        now_s = self._calls.clock()
        if now_s - self._began_s < _SHORT_S:
            return
        self.become_long()
        step_s = now_s - self._slept_s
        self._calls.sleep_for_others(self._tenant, min(step_s, _LONGEST_SLEEP_S))
        self._slept_s = now_s

    def become_long(self) -> None:
        """Stops counting the call as short, because it has used 10 ms or has ended."""
        if self._is_short:
            self._is_short = False
            self._calls.count_short(self._tenant, -1)
