"""Checks the time limits of many entries, for example calls, in one thread.

All entries of one `Timeouts` have the same time limit, so the oldest entry expires first and
nothing has to be sorted. The limit is approximate: an entry may expire late by about a tenth of the
limit.
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

    Thread-safe. Every call of a server adds and removes entries, so a lock would be too slow, and
    only atomic operations of a dictionary are used. An entry that was removed does not expire, and
    an entry that has expired cannot be removed.
    """

    def __init__(self, limit_s: float, expire: Callable[[Entry], None], name: str) -> None:
        self._limit_s = limit_s
        self._expire = expire
        # The time at which each entry was added. The oldest entry is the first one.
        self._since_s: dict[Entry, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def add(self, entry: Entry) -> int:
        """Adds an entry, whose time limit starts now. Returns the count of entries."""
        self._since_s[entry] = time.monotonic()
        return len(self._since_s)

    def remove(self, entry: Entry) -> bool:
        """Removes an entry; returns False if the entry has expired or was removed before."""
        return self._since_s.pop(entry, None) is not None

    def entries(self) -> list[Entry]:
        """Returns the entries, oldest first."""
        return list(self._since_s)

    def pop_oldest(self, matches: Callable[[Entry], bool]) -> Entry | None:
        """Removes and returns the oldest entry for which `matches` returns True.

        Returns None if there is no such entry.
        """
        return next(
            (entry for entry in self.entries() if matches(entry) and self.remove(entry)), None
        )

    def close(self) -> list[Entry]:
        """Stops the thread that checks the limits; removes and returns the remaining entries."""
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
