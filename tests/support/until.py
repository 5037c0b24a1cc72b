"""Waits for what other threads and processes do."""

import time
from collections.abc import Callable

_POLL_S = 0.005


def until(true: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Waits until `true`, or fails."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(_POLL_S)
