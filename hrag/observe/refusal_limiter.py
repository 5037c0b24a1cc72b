"""Decides which refusals get a line in a log, and which are only counted.

Anybody can cause any number of refusals, so without a limit their lines would fill the disk.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

OTHERS = "(others)"
"""The method and credential under which a refusal is counted if there are too many counters."""

# The log lines are limited in windows of this length.
_WINDOW_S = 1.0
# In one window, at most this many refusals with equal reason, method and credential get a log line.
_LINES_PER_KIND = 5
# This is the value of two limits. In one window, at most this many refusals get a log line. The
# others are only counted, with one counter for equal reason, method and credential. Once there are
# this many counters, refusals that would need a new counter are counted under OTHERS, with one
# counter for each reason.
_LINES = 100


class Refusal(NamedTuple):
    """A call that was refused. Refusals with equal fields share a counter.

    `credential` is the id of a credential; it is empty if the caller has no valid one.
    """

    reason: str
    method: str
    credential: str


class RefusalLimiter:
    """Decides which refusals get a log line each, and counts the others. Thread-safe.

    A separate thread calls `write` with the counts, at most once a second.
    """

    def __init__(
        self,
        write: Callable[[Mapping[Refusal, int]], None],
        clock: Callable[[], float] = time.monotonic,
        window_s: float = _WINDOW_S,
    ) -> None:
        self._write = write
        self._clock = clock
        self._window_s = window_s
        self._lock = threading.Lock()
        self._ends = 0.0
        self._lines: Counter[Refusal] = Counter()
        self._counts: Counter[Refusal] = Counter()
        self._flushing = False

    def allows(self, refusal: Refusal) -> bool:
        """Returns True if the refusal gets a log line. Otherwise counts it and returns False."""
        with self._lock:
            now = self._clock()
            if now >= self._ends:
                self._lines.clear()
                self._ends = now + self._window_s
            if self._lines[refusal] < _LINES_PER_KIND and self._lines.total() < _LINES:
                self._lines[refusal] += 1
                return True
        self.count(refusal)
        return False

    def count(self, refusal: Refusal) -> None:
        """Counts a refusal. Within a second, a separate thread passes the count to `write`."""
        with self._lock:
            if refusal not in self._counts and len(self._counts) >= _LINES:
                refusal = refusal._replace(method=OTHERS, credential=OTHERS)
            self._counts[refusal] += 1
            must_start, self._flushing = not self._flushing, True
        if must_start:
            self._start_timer()

    def _start_timer(self) -> None:
        timer = threading.Timer(self._window_s, self.flush)
        timer.daemon = True
        try:
            timer.start()
        # The system cannot start another thread now. The next refusal tries again to start it.
        except RuntimeError:
            with self._lock:
                self._flushing = False

    def flush(self) -> None:
        """Calls `write` with the counts of refusals, if there are any, and sets the counts to 0."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._flushing = False
        if counts:
            self._write(counts)
