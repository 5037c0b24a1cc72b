"""Suspended calls: they wait for a condition without a thread.

A handler that cannot continue yet raises `Suspended`, which ends the handler, so its thread becomes
free. The handler is called again, from its beginning, when the condition is true or the deadline of
the call is about to pass.
"""

import threading
from collections import deque
from collections.abc import Callable

import structlog

from hrag.server.admission.arrival import PendingCall
from hrag.values.current_call import CURRENT, DeadlineOnly
from hrag.values.deadline import Deadline

_log = structlog.get_logger()

_POLL_S = 0.005  # The conditions of the suspended calls are checked at this interval.
# A handler runs again this long before the deadline, so that it can still report the timeout.
_MARGIN_S = 2 * _POLL_S
# A check of the conditions of all suspended calls stops after this time. So if the store does not
# answer, calls whose deadline is about to pass wait only for this time until they are resumed.
_CHECKING_S = 0.5


class Suspended(Exception):
    """Raised by a handler that has to wait until `is_ready` returns True or `deadline` passes.

    `is_ready` is called often, in another thread and with a separate, short deadline. If it raises
    an exception, the handler runs again.
    """

    def __init__(self, is_ready: Callable[[], bool], deadline: Deadline) -> None:
        super().__init__()
        self._is_ready = is_ready
        self._deadline = deadline

    @property
    def is_past(self) -> bool:
        """True if the call's deadline is about to pass, or the client has cancelled the call."""
        return self._deadline.remaining_s <= _MARGIN_S or not self._deadline.is_waiting()

    def is_ready(self) -> bool:
        """Returns True if the handler must run again.

        This is so if the condition is true, or if the check of the condition raises an exception.
        """
        try:
            return self._is_ready()
        except Exception:  # The handler runs again, gets this error and reports it.
            return True


def has_time_to_wait(deadline: Deadline) -> bool:
    """Returns True if a handler may raise `Suspended`, because `deadline` is not about to pass."""
    return deadline.remaining_s > _MARGIN_S


class SuspendedCalls:
    """Resumes each suspended call when its condition is true or its deadline is about to pass.

    Thread-safe.
    """

    def __init__(self, resume: Callable[[PendingCall], None]) -> None:
        self._resume = resume
        self._calls: deque[tuple[Suspended, PendingCall]] = deque()
        # The event is set while calls are suspended, so that the thread checks them. It is also set
        # to end the thread.
        self._waking = threading.Event()
        self._closing = threading.Event()
        # The thread starts now, because the operating system may refuse to start a thread later,
        # when calls wait.
        self._thread = threading.Thread(target=self._watch, name="suspended", daemon=True)
        self._thread.start()

    def add(self, reason: Suspended, call: PendingCall) -> None:
        """Adds a suspended call. This method returns immediately.

        A thread checks the condition of `reason`. It resumes `call` once the condition is true or
        the deadline of the call is about to pass.
        """
        self._calls.append((reason, call))
        self._waking.set()

    def close(self) -> None:
        """Stops the thread that checks the conditions. No suspended call may be left."""
        self._closing.set()
        self._waking.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._waking.wait() and not self._closing.is_set():
            self._waking.clear()
            self._check_calls()
            if self._calls:
                self._waking.set()
            self._closing.wait(_POLL_S)

    def _check_calls(self) -> None:
        """Resumes the calls whose deadline is about to pass, then those whose condition is true.

        Stops after `_CHECKING_S` seconds. Then the next run of this method begins with the calls
        whose conditions this run did not check.
        """
        waiting: deque[tuple[Suspended, PendingCall]] = deque()
        for _ in range(len(self._calls)):
            reason, call = self._calls.popleft()
            if reason.is_past:
                self._resume_one(call)
            else:
                waiting.append((reason, call))
        checked = []
        checking = Deadline.after(_CHECKING_S)
        CURRENT.set(DeadlineOnly(checking))
        while waiting and checking.remaining_s > 0:
            reason, call = waiting.popleft()
            if reason.is_ready():
                self._resume_one(call)
            else:
                checked.append((reason, call))
        self._calls.extend([*waiting, *checked])

    def _resume_one(self, call: PendingCall) -> None:
        try:
            self._resume(call)
        except Exception:  # The thread must continue, because other calls still wait.
            _log.exception("resume_failed")
