"""A clock that counts only the time in which this machine runs.

A machine may stop for some seconds, for example a virtual machine whose host is busy. The tests of
attacks have bounds for the seconds that a service may need, and a stop must not exceed them.
"""

import threading
import time

_TICK_S = 0.01
# A longer time between two ticks is a stop of the machine or of this process, and counts as this.
_LONGEST_S = 0.1


class UptimeClock:
    """Returns the seconds in which the machine has run since the clock was made. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = 0.0
        self._last_s = time.monotonic()
        threading.Thread(target=self._tick, name="uptime clock", daemon=True).start()

    def __call__(self) -> float:
        with self._lock:
            now_s = time.monotonic()
            self._seconds += min(now_s - self._last_s, _LONGEST_S)
            self._last_s = now_s
            return self._seconds

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK_S)
            self()


uptime_s = UptimeClock()
