"""Waits until other threads or processes have done something."""

import time
from collections.abc import Callable

_POLL_S = 0.005


def until(true: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Waits until `true` returns a true value. Fails after `timeout_s` seconds."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"the condition was not true within {timeout_s} s"
        time.sleep(_POLL_S)
