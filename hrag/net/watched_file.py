"""What was read from files, read again once they change.

Looked at when the value is asked for, at most once a second, so a change counts within a
second of the next call; there is no thread. A file counts as changed when its time, size or
inode does, links followed: rewritten, replaced or a mounted secret that was swapped. Files
that have become unreadable or wrong are logged as an error, and the last good value stays:
half of an edit must not lock everybody out.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger()

_EVERY_S = 1.0

Value = TypeVar("Value")
_Signature = tuple[tuple[int, int, int] | None, ...]


class Watched(Generic[Value]):
    """Safe to ask from several threads: one looks at the files, the others do not wait."""

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], Value],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` raises OSError or ValueError for files that are missing or wrong."""
        self._paths = paths
        self._read = read
        self._clock = clock
        self._looking = Lock()
        self._next_look = clock() + _EVERY_S
        self._seen = self._signature()  # Before reading: a change in between is seen later.
        self._value = read()

    def __call__(self) -> Value:
        if self._clock() >= self._next_look and self._looking.acquire(blocking=False):
            try:
                self._look()
                self._next_look = self._clock() + _EVERY_S
            finally:
                self._looking.release()
        return self._value

    def _look(self) -> None:
        found = self._signature()
        if found == self._seen:
            return
        self._seen = found
        names = ", ".join(map(str, self._paths))
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            _log.error("reload_failed", files=names, problem=str(error), still="the last good one")
        else:
            _log.info("reloaded", files=names)

    def _signature(self) -> _Signature:
        return tuple(map(_signature, self._paths))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
