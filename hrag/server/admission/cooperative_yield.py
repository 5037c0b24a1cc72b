"""Long calls yield to short ones of other tenants.

Python runs one thread at a time, so a search of milliseconds takes twice as long beside a call
that computes for seconds. While a short call of another tenant runs, a long one sleeps between
its steps for as long as it has computed. Operating systems favour short tasks in the same way
(multilevel feedback queue); Python's interpreter lock knows no priorities.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHORT_S = 0.01  # Processor time of a call's thread. A plain search takes a few milliseconds.
_LONGEST_SLEEP_S = 0.005  # Before the call looks again whether others run.

_LOCAL = threading.local()


def yield_to_others() -> None:
    """Sleeps if the call of this thread has computed for long; to be called between its steps."""
    call: _RunningCall | None = getattr(_LOCAL, "call", None)
    if call is not None:
        call.yield_to_others()


class RunningCalls:
    """The running calls of a server that are short so far, by tenant. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
        wall_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns the processor time of the calling thread, in seconds."""
        self.clock = clock
        self.sleep = sleep
        self.wall_clock = wall_clock
        self._lock = threading.Lock()
        self._short: Counter[str] = Counter()

    @contextmanager
    def call(self, tenant: str) -> Iterator[None]:
        """What this thread does inside is a call of `tenant`."""
        call = _LOCAL.call = _RunningCall(self, tenant)
        try:
            yield
        finally:
            call.become_long()
            del _LOCAL.call

    def count_short(self, tenant: str, change: int) -> None:
        with self._lock:
            self._short[tenant] += change
            if not self._short[tenant]:
                del self._short[tenant]

    def has_short_of_others(self, tenant: str) -> bool:
        """True if a short call of another tenant runs."""
        return len(self._short) > (tenant in self._short)


class _RunningCall:
    """A call in its thread; short until it has computed for long, or has ended."""

    __slots__ = ("_began_s", "_is_short", "_others", "_short_until_s", "_slept_s", "_tenant")

    def __init__(self, others: RunningCalls, tenant: str) -> None:
        self._others = others
        self._tenant = tenant
        self._began_s = self._slept_s = others.clock()
        # Until then nobody asks for processor time, which is a system call.
        self._short_until_s = others.wall_clock() + _SHORT_S
        self._is_short = True
        others.count_short(tenant, 1)

    def yield_to_others(self) -> None:
        if self._others.wall_clock() < self._short_until_s:
            return
        now_s = self._others.clock()
        if now_s - self._began_s < _SHORT_S:
            return
        self.become_long()
        if self._others.has_short_of_others(self._tenant):
            self._others.sleep(min(now_s - self._slept_s, _LONGEST_SLEEP_S))
        self._slept_s = now_s

    def become_long(self) -> None:
        if self._is_short:
            self._is_short = False
            self._others.count_short(self._tenant, -1)
