"""Values read from files, reloaded when the files change.

The files are checked when the value is requested, at most once a second; there is no thread.
A file has changed if its times, size or inode have, symbolic links followed: so it may be
rewritten, replaced, or be a mounted secret that is swapped. If a changed file is unreadable or
invalid, an error is logged and the last valid value stays: half an edit must not lock everybody
out. It is read again at each check, since what was wrong may be no part of the file.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

import structlog

_log = structlog.get_logger()

_CHECK_INTERVAL_S = 1.0

Value = TypeVar("Value")
_Signature = tuple[tuple[int, ...] | None, ...]


class WatchedFile(Generic[Value]):
    """The current value of one file, or of several that are read together.

    Thread-safe: one thread checks the files, the others do not wait for it.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], Value],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` returns the value; it raises OSError or ValueError for missing or invalid files.

        The first read happens here, and raises the same.
        """
        self._paths = paths
        self._read = read
        self._clock = clock
        self._checking = Lock()
        self._next_check = clock() + _CHECK_INTERVAL_S
        self._loaded = self._signature()  # Before reading: a change in between is noticed later.
        self._failed: _Signature | None = None  # Of what could not be read, and has been logged.
        self._value = read()

    def __call__(self) -> Value:
        """Returns the value, reloaded if the files have changed."""
        if self._clock() >= self._next_check and self._checking.acquire(blocking=False):
            try:
                self._check()
                self._next_check = self._clock() + _CHECK_INTERVAL_S
            finally:
                self._checking.release()
        return self._value

    def _check(self) -> None:
        found = self._signature()
        if found == self._loaded:
            return
        names = ", ".join(map(str, self._paths))
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            if found != self._failed:
                _log.error(
                    "reload_failed",
                    files=names,
                    problem=str(error),
                    effect="the last valid version stays in use",
                )
            self._failed = found
        else:
            self._loaded, self._failed = found, None
            _log.info("reloaded", files=names)

    def _signature(self) -> _Signature:
        return tuple(map(_signature, self._paths))


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
