"""Long calls make way for short ones of other tenants.

Python runs one thread at a time, so a search of milliseconds takes twice as long beside a call
that computes for seconds. While a short call of another tenant runs, a long one pauses between
its steps for as long as it has computed. Operating systems favour short tasks in the same way
(multilevel feedback queue).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHORT_S = 0.01  # Processor time of a call's thread. A plain search takes a few milliseconds.
_LONGEST_PAUSE_S = 0.005  # Before the call looks again whether others run.

_LOCAL = threading.local()


def pause() -> None:
    """Lets others run if the call of this thread has had its turn; to be called between steps."""
    turn: _Turn | None = getattr(_LOCAL, "turn", None)
    if turn is not None:
        turn.pause()


class Courtesy:
    """The running calls of a server, as far as they are short. Thread-safe."""

    def __init__(
        self,
        clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock` returns the processor time of the calling thread, in seconds."""
        self.clock = clock
        self.sleep = sleep
        self._lock = threading.Lock()
        self._short: Counter[str] = Counter()

    @contextmanager
    def turn(self, tenant: str) -> Iterator[None]:
        """Runs a call of `tenant` in this thread."""
        turn = _LOCAL.turn = _Turn(self, tenant)
        try:
            yield
        finally:
            turn.become_long()
            del _LOCAL.turn

    def count_short(self, tenant: str, change: int) -> None:
        with self._lock:
            self._short[tenant] += change
            if not self._short[tenant]:
                del self._short[tenant]

    def are_others_short(self, tenant: str) -> bool:
        """True if a short call of another tenant runs."""
        return len(self._short) > (tenant in self._short)


class _Turn:
    """A call in its thread."""

    __slots__ = ("_began_s", "_courtesy", "_is_short", "_paused_s", "_tenant")

    def __init__(self, courtesy: Courtesy, tenant: str) -> None:
        self._courtesy = courtesy
        self._tenant = tenant
        self._began_s = self._paused_s = courtesy.clock()
        self._is_short = True
        courtesy.count_short(tenant, 1)

    def pause(self) -> None:
        now_s = self._courtesy.clock()
        if now_s - self._began_s < _SHORT_S:
            return
        self.become_long()
        if self._courtesy.are_others_short(self._tenant):
            self._courtesy.sleep(min(now_s - self._paused_s, _LONGEST_PAUSE_S))
        self._paused_s = now_s

    def become_long(self) -> None:
        if self._is_short:
            self._is_short = False
            self._courtesy.count_short(self._tenant, -1)
