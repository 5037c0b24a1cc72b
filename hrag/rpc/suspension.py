"""Calls that wait for something without a thread.

A handler that cannot go on yet raises `Suspended`. Its thread is freed, and the handler is
called again, from its beginning, when what it waits for has come or its time has passed.
"""

import threading
from collections.abc import Callable

from hrag.deadline import Deadline
from hrag.rpc.arrival import PendingCall

_POLL_S = 0.005
_MARGIN_S = 2 * _POLL_S  # What a handler needs to say that its time has passed.


class Suspended(Exception):
    """Raised by a handler that has to wait until `is_ready`, within `deadline`.

    `is_ready` is called often, in another thread; what it raises makes the handler run again.
    """

    def __init__(self, is_ready: Callable[[], bool], deadline: Deadline) -> None:
        super().__init__()
        self._is_ready = is_ready
        self._deadline = deadline

    @property
    def is_over(self) -> bool:
        """True if the handler should run again."""
        if self._deadline.remaining_s <= _MARGIN_S or not self._deadline.is_waiting():
            return True
        try:
            return self._is_ready()
        except Exception:  # The handler meets the same error and reports it.
            return True


def has_time_to_wait(deadline: Deadline) -> bool:
    """False where a handler must end its call rather than raise `Suspended`."""
    return deadline.remaining_s > _MARGIN_S


class SuspendedCalls:
    """Resumes calls when they need not wait any longer. Thread-safe."""

    def __init__(self, resume: Callable[[PendingCall], None]) -> None:
        self._resume = resume
        self._lock = threading.Lock()
        self._calls: list[tuple[Suspended, PendingCall]] = []
        self._watching = False

    def add(self, reason: Suspended, call: PendingCall) -> None:
        """Resumes `call` once `reason` is over."""
        with self._lock:
            self._calls.append((reason, call))
            if self._watching:
                return
            self._watching = True
        threading.Thread(target=self._watch, name="suspended", daemon=True).start()

    def _watch(self) -> None:
        """Ends when no call is left: mostly, none waits."""
        pause = threading.Event()
        while True:
            with self._lock:
                calls = list(self._calls)
                if not calls:
                    self._watching = False
                    return
            over = [each for each in calls if each[0].is_over]
            with self._lock:
                self._calls = [each for each in self._calls if each not in over]
            for _, call in over:
                self._resume(call)
            pause.wait(_POLL_S)
