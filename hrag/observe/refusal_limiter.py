"""Refusals that get a line in a log, and those that are only counted.

Anybody may be refused as often as they like, so that lines without a limit would fill the disk.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

OTHERS = "(others)"

_WINDOW_S = 1.0
_LINES_PER_KIND = 5  # Refusals of one reason, method and credential in one window.
_LINES = 100  # Refusals of one window in all; also the number of counts.


class Refusal(NamedTuple):
    """What refusals are counted by; `credential` is an id, empty if none is valid."""

    reason: str
    method: str
    credential: str


class RefusalLimiter:
    """Which refusals get a line of their own; the others are counted. Thread-safe.

    `write` receives the counts at most once a second, from a thread of its own.
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
        """Returns True if the refusal shall be written, else counts it."""
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
        """Counts a refusal; `write` gets the count within a second."""
        with self._lock:
            if refusal not in self._counts and len(self._counts) >= _LINES:
                refusal = refusal._replace(method=OTHERS, credential=OTHERS)
            self._counts[refusal] += 1
            starts, self._flushing = not self._flushing, True
        if starts:
            self._start_timer()

    def _start_timer(self) -> None:
        timer = threading.Timer(self._window_s, self.flush)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # The system has no more threads; the next refusal tries again.
            with self._lock:
                self._flushing = False

    def flush(self) -> None:
        """Writes the counts now."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._flushing = False
        if counts:
            self._write(counts)
