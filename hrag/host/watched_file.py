"""Values that are read from files and reloaded when the files change.

No caller waits for a file system. Each value has a thread that checks its files twice a second, and
a file system that does not answer holds up only this thread. So a change takes effect within a
second, even if nobody asks for the value.

A file has changed if its times, size or inode have changed; symbolic links are followed. So a
change is noticed if the file is rewritten, if another file replaces it, if its mode changes, or if
it is a mounted secret whose link is changed. If a changed file cannot be read or is invalid, an
error is logged and the last valid value stays in use, because an incomplete edit must not lock
everybody out. The file is then read again at each check, because the cause of the problem may be
outside the file.
"""

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Thread
from typing import Any, Generic, TypeVar

import structlog

from hrag.host.operator_files import read_operator_file

_log = structlog.get_logger()

READ_LIMIT_S = 5.0
"""The time within which files must be read. Files on a local disk need milliseconds."""
# The interval of checks. It is half a second, so that a change takes effect within a second even if
# the machine is busy.
_CHECK_INTERVAL_S = 0.5

Value = TypeVar("Value")
Result = TypeVar("Result")
_Signature = tuple[tuple[int, ...] | None, ...]
"""The times, size and inode of each file; None for a file that cannot be examined."""

# All watched files of this process.
_ALL: "weakref.WeakSet[WatchedFile[Any]]" = weakref.WeakSet()


class WatchedFile(Generic[Value]):
    """A value that is read from one file or from several files, and reloaded when they change.

    Call the object to get the current value. The call never waits. Thread-safe.
    """

    def __init__(
        self, setting: str, paths: Sequence[Path], parse: Callable[[Sequence[bytes]], Value]
    ) -> None:
        """Reads the value for the first time.

        `setting` is the name of the setting that contains the paths; metrics show it. `parse`
        returns the value from the contents of the files, and raises ValueError if they are invalid.
        The constructor raises the same error, and the errors of `read_operator_file`. Raises
        TimeoutError, which is an OSError, if the files are not read within READ_LIMIT_S.
        """
        self.setting = setting
        self._paths = paths
        self._parse = parse
        # How the files looked before they were read for the current value, and before they were
        # read for the last time. If a file changes while it is read, the next check detects the
        # change.
        self._loaded: _Signature = ()
        self._seen: _Signature = ()
        # The last problem, and how the files looked then. While both are the same, the problem is
        # not logged again.
        self._failure: tuple[str, _Signature] | None = None
        self._unfinished: Future[Value | None] | None = None
        self._value: Value = self._result_within_limit(_started(self._read))
        self._loaded = self._seen
        _ALL.add(self)
        Thread(target=_watch, args=(weakref.ref(self),), name="files", daemon=True).start()

    def __call__(self) -> Value:
        """Returns the value."""
        return self._value

    @property
    def is_failing(self) -> bool:
        """True if the files cannot be read or are invalid, so that an earlier value is in use."""
        return self._failure is not None

    def check(self) -> None:
        """Reads the files again if they have changed; waits for them at most READ_LIMIT_S.

        The thread of this object calls this method. No other thread may call it at the same time.
        """
        # A reading that has not ended keeps its thread. So no other reading begins before its end.
        reading = self._unfinished or _started(self._read_if_changed)
        self._unfinished = None
        try:
            value = self._result_within_limit(reading)
        except Exception as error:  # A defect of `parse` must not end the thread either.
            if not reading.done():
                self._unfinished = reading
            self._report(str(error))
            return
        if value is not None:
            self._value, self._loaded = value, self._seen
        if value is not None or self._failure is not None:
            self._failure = None
            _log.info("reloaded", files=self._names)

    def _report(self, problem: str) -> None:
        failure = problem, self._seen
        if failure != self._failure:
            _log.error(
                "reload_failed",
                files=self._names,
                problem=problem,
                effect="the last valid version stays in use",
            )
        self._failure = failure

    def _result_within_limit(self, reading: "Future[Result]") -> Result:
        if not wait((reading,), READ_LIMIT_S).done:
            raise TimeoutError(
                f"{self._names} could not be read within {READ_LIMIT_S:g} s, because the file "
                "system does not answer"
            )
        return reading.result()

    def _read_if_changed(self) -> Value | None:
        """Returns the value, or None if the files have not changed since they were loaded."""
        return None if self._signature() == self._loaded else self._read()

    def _read(self) -> Value:
        self._seen = self._signature()
        return self._parse([read_operator_file(path) for path in self._paths])

    def _signature(self) -> _Signature:
        return tuple(map(_signature, self._paths))

    @property
    def _names(self) -> str:
        return ", ".join(map(str, self._paths))


def failing_settings() -> Mapping[str, bool]:
    """Returns a dictionary from each setting with watched files to True if they are failing."""
    failing: dict[str, bool] = {}
    for watched in list(_ALL):
        failing[watched.setting] = failing.get(watched.setting, False) or watched.is_failing
    return failing


def _watch(reference: "weakref.ref[WatchedFile[Any]]") -> None:
    """Checks the files until nothing uses the object any more."""
    while True:
        time.sleep(_CHECK_INTERVAL_S)
        watched = reference()
        if watched is None:
            return
        watched.check()
        del watched


def _started(work: Callable[[], Result]) -> "Future[Result]":
    """Starts `work` in a new thread, and returns the future of its result.

    The thread does not prevent the process from exiting.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="file", daemon=True).start()
    return future


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
