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

    Thread-safe, by operations of a dictionary that are atomic: every call adds and removes an
    entry or two. Of `remove` and `expire`, exactly one gets an entry.
    """

    def __init__(self, limit_s: float, expire: Callable[[Entry], None], name: str) -> None:
        self._limit_s = limit_s
        self._expire = expire
        self._since_s: dict[Entry, float] = {}  # In the order of their times.
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Number of entries that neither expired nor were removed."""
        return len(self._since_s)

    def add(self, entry: Entry) -> None:
        """Starts the time of an entry."""
        self._since_s[entry] = time.monotonic()

    def remove(self, entry: Entry) -> bool:
        """Stops the time of an entry; False if it has expired, or was removed before."""
        return self._since_s.pop(entry, None) is not None

    def entries(self) -> list[Entry]:
        """Returns the entries, those with the least time left first."""
        return list(self._since_s)

    def pop_oldest(self, wanted: Callable[[Entry], bool]) -> Entry | None:
        """Removes and returns the wanted entry with the least time left; None without one."""
        return next((each for each in self.entries() if wanted(each) and self.remove(each)), None)

    def close(self) -> list[Entry]:
        """Stops watching; returns the entries that are left, which will not expire."""
        self._closing.set()
        self._thread.join()
        return [entry for entry in self.entries() if self.remove(entry)]

    def _watch(self) -> None:
        poll_s = min(max(self._limit_s / _POLLS_PER_LIMIT, _MIN_POLL_S), _MAX_POLL_S)
        while not self._closing.wait(poll_s):
            until_s = time.monotonic() - self._limit_s
            for entry, since_s in list(self._since_s.items()):
                if since_s > until_s:
                    break
                if self.remove(entry):
                    self._expire_one(entry)

    def _expire_one(self, entry: Entry) -> None:
        try:
            self._expire(entry)
        except Exception:
            _log.exception("timeout_failed")
