"""Values that are read from files and reloaded when the files change.

The files are checked when the value is requested, at most once a second; there is no thread. A
file has changed if its times, size or inode have changed; symbolic links are followed. So a change
is noticed if the file is rewritten, if another file replaces it, or if it is a mounted secret whose
link is changed. If a changed file is unreadable or invalid, an error is logged and the last valid
value stays in use, because an incomplete edit must not lock everybody out. The file is then read
again at each check, because the cause of the problem may be outside the file.
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
"""The times, size and inode of each file; None for a file that cannot be examined."""


class WatchedFile(Generic[Value]):
    """A value that is read from one file or from several files, and reloaded when they change.

    Call the object to get the value.

    Thread-safe: while one thread checks the files, other threads get the previous value without
    waiting.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], Value],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the value for the first time.

        `read` returns the value, and raises OSError or ValueError if a file is missing or invalid.
        The constructor raises the same errors. `clock` returns monotonic seconds.
        """
        self._paths = paths
        self._read = read
        self._clock = clock
        self._checking = Lock()
        self._next_check = clock() + _CHECK_INTERVAL_S
        # The times, sizes and inodes of the files are recorded before the files are read. So if a
        # file changes between these two steps, the next check detects the change.
        self._loaded = self._signature()
        # The times, sizes and inodes that the files had at the last failed read. While they do not
        # change, the error is not logged again.
        self._failed: _Signature | None = None
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
        current = self._signature()
        if current == self._loaded:
            return
        names = ", ".join(map(str, self._paths))
        try:
            self._value = self._read()
        except (OSError, ValueError) as error:
            if current != self._failed:
                _log.error(
                    "reload_failed",
                    files=names,
                    problem=str(error),
                    effect="the last valid version stays in use",
                )
            self._failed = current
        else:
            self._loaded, self._failed = current, None
            _log.info("reloaded", files=names)

    def _signature(self) -> _Signature:
        return tuple(map(_signature, self._paths))


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
