"""Admission control: the executor that calls run in, bounded in running and queued calls.

gRPC has a limit of its own (`maximum_concurrent_rpcs`), but its rejection names neither the
service nor a time to retry, and it rejects health checks too. Here calls are counted when
gRPC submits them, and the interceptor rejects calls beyond the limit in gRPC's event thread,
so that a rejection never queues behind the calls that are too many.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class AdmissionExecutor(ThreadPoolExecutor):
    """Runs calls in `threads` threads and counts them, queued ones included. Thread-safe."""

    def __init__(self, threads: int, max_calls: int) -> None:
        """`max_calls` is the limit that `is_full` reports; `submit` does not enforce it."""
        super().__init__(threads, thread_name_prefix="call")
        self.max_calls = max_calls
        self._calls = 0
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """True if `max_calls` calls are running or queued."""
        return self._calls >= self.max_calls

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits a call, which counts until its future is done."""
        self._count(1)
        future = super().submit(run, *args, **kwargs)
        future.add_done_callback(lambda _done: self._count(-1))
        return future

    def _count(self, change: int) -> None:
        with self._lock:
            self._calls += change


class InlineExecutor(ThreadPoolExecutor):
    """Runs each call in the thread that submits it, before `submit` returns.

    A ThreadPoolExecutor because gRPC accepts nothing else; it never starts a thread.
    """

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Returns a future that is done; an exception is set in it, not raised."""
        future: Future[Any] = Future()
        try:
            future.set_result(run(*args, **kwargs))
        except Exception as error:  # Whoever reads the future raises it.
            future.set_exception(error)
        return future
