"""Finds out whether a call lets other threads run, which means that it releases Python's lock."""

import sys
from collections.abc import Callable
from threading import Lock, Thread

# A call that releases the lock for a moment only may have it back before another thread has woken
# up. With so many calls, the other thread gets it at least once.
_CALLS = 3000
# While calls are watched, no thread takes the lock from another one that does not release it.
_INTERVAL_S = 1000.0


def can_run_during(call: Callable[[], object]) -> bool:
    """Calls `call` many times. Returns True if another thread ran before the last call ended."""
    gate, ran = Lock(), []
    gate.acquire()

    def run() -> None:
        with gate:
            ran.append(True)

    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_INTERVAL_S)
    try:
        # `start` returns when the thread waits at the gate, because only then it releases the lock.
        thread = Thread(target=run)
        thread.start()
        gate.release()
        for _ in range(_CALLS):
            call()
        has_run = bool(ran)
    finally:
        sys.setswitchinterval(before_s)
    thread.join()
    return has_run
