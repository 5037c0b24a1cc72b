"""Calls that wait for something without a thread.

A handler that cannot go on yet raises `Suspended`. Its thread is freed, and the handler is
called again, from its beginning, when what it waits for has come or its time has passed.
"""

import threading
from collections import deque
from collections.abc import Callable

import structlog

from hrag.server.admission.arrival import PendingCall
from hrag.values.deadline import OF_CALL, Deadline

_log = structlog.get_logger()

_POLL_S = 0.005
_MARGIN_S = 2 * _POLL_S  # What a handler needs to say that its time has passed.
_ASKING_S = 0.5  # A store that does not answer holds up other calls no longer than that.


class Suspended(Exception):
    """Raised by a handler that has to wait until `is_ready`, within `deadline`.

    `is_ready` is called often, in another thread and with a short deadline of its own; what it
    raises makes the handler run again.
    """

    def __init__(self, is_ready: Callable[[], bool], deadline: Deadline) -> None:
        super().__init__()
        self._is_ready = is_ready
        self._deadline = deadline

    @property
    def is_past(self) -> bool:
        """True if its time has passed, or nobody waits for the call any more."""
        return self._deadline.remaining_s <= _MARGIN_S or not self._deadline.is_waiting()

    def is_ready(self) -> bool:
        """Returns True if the handler should run again."""
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
        self._calls: deque[tuple[Suspended, PendingCall]] = deque()
        self._waking = threading.Event()  # There are calls, or it is to end.
        self._closing = threading.Event()
        # From the beginning: when no further thread can be had, calls may wait already.
        self._thread = threading.Thread(target=self._watch, name="suspended", daemon=True)
        self._thread.start()

    def add(self, reason: Suspended, call: PendingCall) -> None:
        """Resumes `call` once it need not wait for `reason`."""
        self._calls.append((reason, call))
        self._waking.set()

    def close(self) -> None:
        """Stops watching; to be called when no call is left."""
        self._closing.set()
        self._waking.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._waking.wait() and not self._closing.is_set():
            self._waking.clear()
            self._look()
            if self._calls:
                self._waking.set()
            self._closing.wait(_POLL_S)

    def _look(self) -> None:
        """Resumes the calls whose time has passed, then those that are ready.

        Where asking takes long, those that were not asked come first the next time.
        """
        waiting: deque[tuple[Suspended, PendingCall]] = deque()
        for _ in range(len(self._calls)):
            reason, call = self._calls.popleft()
            if reason.is_past:
                self._resume_one(call)
            else:
                waiting.append((reason, call))
        asked = []
        asking = Deadline.after(_ASKING_S)
        OF_CALL.set(asking)
        while waiting and asking.remaining_s > 0:
            reason, call = waiting.popleft()
            if reason.is_ready():
                self._resume_one(call)
            else:
                asked.append((reason, call))
        self._calls.extend([*waiting, *asked])

    def _resume_one(self, call: PendingCall) -> None:
        try:
            self._resume(call)
        except Exception:  # The other calls still wait.
            _log.exception("resume_failed")
