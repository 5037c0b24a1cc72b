"""Limits of a worker's time and memory. A worker that exceeds a limit is killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.peers.memory import children, descendants, resident_bytes
from benchmarks.peers.session import PeerFailed, Session

_POLL_S = 0.5
_STOP_S = 30.0
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum seconds of a call, and the maximum memory of a worker and its descendants."""

    seconds: float
    memory_bytes: float

    def exceeded(self, seconds: float, memory_bytes: float) -> str | None:
        """Returns a text about the limit that is exceeded; None if no limit is exceeded."""
        if memory_bytes > self.memory_bytes:
            return f"more than {self.memory_bytes / _GB:g} GB of memory after {seconds:,.0f} s"
        if seconds > self.seconds:
            return f"more than {self.seconds:,.0f} s"
        return None


class Watch:
    """Measures a worker during its `with` block, and kills it if it exceeds a limit."""

    def __init__(self, pid: int, limits: Limits) -> None:
        self._pid = pid
        self._limits = limits
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_bytes = 0
        self.exceeded: str | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL_S):
            memory_bytes = resident_bytes([self._pid, *descendants(self._pid)])
            self.peak_bytes = max(self.peak_bytes, memory_bytes)
            self.exceeded = self._limits.exceeded(time.monotonic() - self._began, memory_bytes)
            if self.exceeded is not None:
                kill(self._pid)
                return


@contextmanager
def within(session: Session, limits: Limits, action: str) -> Iterator[Watch]:
    """Watches a call of a session.

    If the call exceeds a limit, raises PeerFailed with `action` and the limit.
    """
    with Watch(session.pid, limits) as watch:
        try:
            yield watch
        except PeerFailed as error:
            if watch.exceeded is None:
                raise
            raise PeerFailed(f"{action} took {watch.exceeded}") from error


def kill(pid: int) -> None:
    """Kills a worker and its descendants; returns when all of them have ended.

    Servers get time to end by themselves, because only they can free their shared memory.
    PostgreSQL shuts down at SIGINT, if its first process receives it.
    """
    servers, worker_descendants = children(pid), descendants(pid)
    _send(pid, signal.SIGKILL)
    for server in servers:
        _send(server, signal.SIGINT)
    end = time.monotonic() + _STOP_S
    while any(map(_is_running, servers)) and time.monotonic() < end:
        time.sleep(_POLL_S)
    for descendant in worker_descendants:
        _send(descendant, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_running(pid: int) -> bool:
    """True if a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] not in "ZX"
