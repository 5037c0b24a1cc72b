"""Waits until other threads or processes have done something."""

import time
from collections.abc import Callable

_POLL_S = 0.005


def until(
    condition: Callable[[], object],
    timeout_s: float = 60.0,
    description: str = "the condition is true",
) -> None:
    """Waits until `condition` returns a true value. Fails after `timeout_s` seconds.

    Checks the condition once more after that time, because this process may have stood still
    meanwhile. `description` says what did not become true, in the message of the failure.
    """
    end = time.monotonic() + timeout_s
    is_late = False
    while not condition():
        assert not is_late, f"after {timeout_s} s still not: {description}"
        time.sleep(_POLL_S)
        is_late = time.monotonic() >= end
