"""Cooperative scheduling: long calls yield to short calls of other tenants.

Python runs one thread at a time, so a search of a few milliseconds takes twice as long while
another call computes for seconds. While a short call of another tenant runs, a long call sleeps
between its steps for as long as it has computed. Operating systems favour short tasks in the same
way (multilevel feedback queue), but Python's interpreter lock has no priorities.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A call counts as short until its thread has used this processor time. A plain search needs only a
# few milliseconds, so it stays short.
_SHORT_S = 0.01
# A long call sleeps at most this long before it checks again whether short calls run.
_LONGEST_SLEEP_S = 0.005


class RunningCalls:
    """Counts, for each tenant, the running calls that are short so far. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
        wall_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns the processor time of the calling thread, in seconds.

        `wall_clock` returns monotonic seconds.
        """
        self.clock = clock
        self.sleep = sleep
        self.wall_clock = wall_clock
        self._lock = threading.Lock()
        self._short: Counter[str] = Counter()

    @contextmanager
    def call(self, tenant: str) -> Iterator["RunningCall"]:
        """Counts the work of this thread inside the block as a call of `tenant`."""
        call = RunningCall(self, tenant)
        try:
            yield call
        finally:
            call.become_long()

    def count_short(self, tenant: str, change: int) -> None:
        """Adds `change` to the count of the tenant's short calls."""
        with self._lock:
            self._short[tenant] += change
            if not self._short[tenant]:
                del self._short[tenant]

    def has_short_of_others(self, tenant: str) -> bool:
        """Returns True if a short call of another tenant runs."""
        return len(self._short) > (tenant in self._short)


class RunningCall:
    """A call in its thread. It is short until it has used 10 ms of processor time or has ended."""

    __slots__ = ("_began_s", "_calls", "_is_short", "_short_until_s", "_slept_s", "_tenant")

    def __init__(self, calls: RunningCalls, tenant: str) -> None:
        self._calls = calls
        self._tenant = tenant
        self._began_s = self._slept_s = calls.clock()
        # Before this time the call cannot have used `_SHORT_S` of processor time. So the processor
        # time is not read, because reading it needs a system call.
        self._short_until_s = calls.wall_clock() + _SHORT_S
        self._is_short = True
        calls.count_short(tenant, 1)

    def yield_to_others(self) -> None:
        """Sleeps if the call is long and a short call of another tenant runs.

        Must be called in the thread of the call. A call should call this between its steps.
        """
        if self._calls.wall_clock() < self._short_until_s:
            return
        now_s = self._calls.clock()
        if now_s - self._began_s < _SHORT_S:
            return
        self.become_long()
        if self._calls.has_short_of_others(self._tenant):
            self._calls.sleep(min(now_s - self._slept_s, _LONGEST_SLEEP_S))
        self._slept_s = now_s

    def become_long(self) -> None:
        """Stops counting the call as short."""
        if self._is_short:
            self._is_short = False
            self._calls.count_short(self._tenant, -1)
