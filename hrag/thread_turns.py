"""How often threads take turns at Python's interpreter lock: often beside long computations.

A thread that waits for the lock gets it after the switch interval, at the latest. A short
interval lets others go on beside a thread that computes for long; where all compute for a
moment, it only adds turns, and each wakes a thread.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OFTEN_S = 0.0002  # Python's own 5 ms are the time of several searches.


class _Turns:
    """The switch interval, of which a process has one. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._computations = 0
        self._usual_s = 0.0

    @contextmanager
    def computing_for_long(self) -> Iterator[None]:
        """While the block runs, in any thread, threads take turns every 0.2 ms."""
        with self._lock:
            if not self._computations:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(_OFTEN_S)
            self._computations += 1
        try:
            yield
        finally:
            with self._lock:
                self._computations -= 1
                if not self._computations:
                    sys.setswitchinterval(self._usual_s)


computing_for_long = _Turns().computing_for_long
