"""Time limits for many things at once, watched by one thread.

All entries of one `Timeouts` have the same limit, so the oldest expires first and nothing is
sorted. Limits are kept roughly: an entry expires up to a tenth of the limit late.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger()

_MIN_POLL_S, _MAX_POLL_S = 0.02, 1.0
_POLLS_PER_LIMIT = 10

Entry = TypeVar("Entry", bound=Hashable)


class Timeouts(Generic[Entry]):
    """Calls `expire` once for each entry that is not removed within `limit_s` seconds.

    Thread-safe. Of `remove` and `expire`, exactly one gets an entry.
    """

    def __init__(self, limit_s: float, expire: Callable[[Entry], None], name: str) -> None:
        self._limit_s = limit_s
        self._expire = expire
        self._since_s: dict[Entry, float] = {}  # In the order of their times.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Number of entries that neither expired nor were removed."""
        return len(self._since_s)

    def add(self, entry: Entry) -> None:
        """Starts the time of an entry."""
        with self._lock:
            self._since_s[entry] = time.monotonic()

    def remove(self, entry: Entry) -> bool:
        """Stops the time of an entry; False if it has expired, or was removed before."""
        with self._lock:
            return self._since_s.pop(entry, None) is not None

    def pop_oldest(self) -> Entry | None:
        """Removes and returns the entry with the least time left; None without entries."""
        with self._lock:
            oldest = next(iter(self._since_s), None)
            if oldest is not None:
                del self._since_s[oldest]
            return oldest

    def close(self) -> list[Entry]:
        """Stops watching; returns the entries that are left, which will not expire."""
        self._closing.set()
        self._thread.join()
        with self._lock:
            left = list(self._since_s)
            self._since_s.clear()
        return left

    def _watch(self) -> None:
        poll_s = min(max(self._limit_s / _POLLS_PER_LIMIT, _MIN_POLL_S), _MAX_POLL_S)
        while not self._closing.wait(poll_s):
            for entry in self._pop_expired(time.monotonic() - self._limit_s):
                try:
                    self._expire(entry)
                except Exception:
                    _log.exception("timeout_failed")

    def _pop_expired(self, until_s: float) -> list[Entry]:
        with self._lock:
            expired = []
            for entry, since_s in self._since_s.items():
                if since_s > until_s:
                    break
                expired.append(entry)
            for entry in expired:
                del self._since_s[entry]
        return expired
