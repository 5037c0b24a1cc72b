"""The threads that calls run in, and how calls past the limit are refused.

gRPC's own limit says neither whose it is nor when to come again, and it refuses health too.
So calls are counted as they are given to the threads, and what comes past the limit is
refused right where calls are accepted: it does not wait behind those that are too many.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class CallThreads(ThreadPoolExecutor):
    """Runs calls; knows how many there are, those that wait for a thread included."""

    def __init__(self, threads: int, most_calls: int) -> None:
        super().__init__(threads, thread_name_prefix="call")
        self.most_calls = most_calls
        self._calls = 0
        self._counting = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether one more would be too many."""
        return self._calls >= self.most_calls

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As its base, counting until the call has ended."""
        self._count(1)
        future = super().submit(run, *args, **kwargs)
        future.add_done_callback(lambda _ended: self._count(-1))
        return future

    def _count(self, change: int) -> None:
        with self._counting:
            self._calls += change


class AtOnce(ThreadPoolExecutor):
    """Runs what it is given before `submit` returns, in the thread that asks.

    gRPC takes only an executor of this class; no thread of it is ever started.
    """

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs it; an exception is in the future."""
        future: Future[Any] = Future()
        try:
            future.set_result(run(*args, **kwargs))
        except Exception as error:  # The future has it.
            future.set_exception(error)
        return future
