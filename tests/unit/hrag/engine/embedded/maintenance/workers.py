"""Runs a maintenance worker in the test's process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hrag.engine.embedded.maintenance.worker import MaintenanceWorker
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from tests.support.until import until

THRESHOLD = 20


class Clock:
    """A clock in seconds, which stands still until the test sets `now_s`."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def running(
    store: Store,
    threshold: int = THRESHOLD,
    grace_s: float = 0,
    clock: Callable[[], float] = time.monotonic,
    **options: Any,
) -> Iterator[EmbeddedWriter]:
    """Yields a writer that reports its commits to a running worker.

    `options` are limits or tasks of the worker.
    """
    worker = MaintenanceWorker(store, threshold, grace_s, clock, **options)
    worker.start()
    try:
        yield EmbeddedWriter(store, worker)
    finally:
        until(worker.close)


def segment_count(writer: EmbeddedWriter, name: str = "c") -> int:
    return len(writer.status(writer.open("t", name)).embedded.segments)
