"""Waits until other threads or processes have done something."""

import time
from collections.abc import Callable

PATIENCE_S = 60.0
"""The seconds for which a test waits for something that takes a moment on an idle machine."""
GROWING_S = (1.0, 4.0, 16.0, 64.0)
"""Deadlines, in seconds, of calls that must begin their work and end by their deadline.

A test tries them one after the other: a slow machine does not begin the work before the first.
"""
_POLL_S = 0.005


def until(
    condition: Callable[[], object],
    timeout_s: float = PATIENCE_S,
    description: str = "the condition is true",
) -> None:
    """Waits until `condition` returns a true value. Fails after `timeout_s` seconds.

    The condition is evaluated once more after this time, because this process itself may have been
    stopped meanwhile. `description` says what did not become true, in the message of the failure.
    """
    end = time.monotonic() + timeout_s
    while True:
        is_over = time.monotonic() >= end
        if condition():
            return
        assert not is_over, f"after {timeout_s} s still not: {description}"
        time.sleep(_POLL_S)
