"""Holds back commits of a collection for a moment, so that its copy can take its place."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from hrag.values.deadline import Deadline

# A commit that waits checks its deadline, and whether its caller has left, at this interval.
_CHECK_S = 0.05


class CommitGate:
    """Holds back commits of some collections of this process. Thread-safe."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._closed: Counter[int] = Counter()

    @contextmanager
    def closed(self, collection: int) -> Iterator[None]:
        """Holds back commits of the collection with this id while the `with` block runs.

        Commits that `wait` has already let pass are not held back.
        """
        with self._changed:
            self._closed[collection] += 1
        try:
            yield
        finally:
            with self._changed:
                self._closed -= Counter([collection])
                self._changed.notify_all()

    def wait(self, collection: int, deadline: Deadline) -> None:
        """Waits while commits of the collection with this id are held back.

        Raises DeadlineExceeded or Cancelled.
        """
        with self._changed:
            while self._closed[collection]:
                deadline.check("waiting for the collection to be embedded again")
                self._changed.wait(min(_CHECK_S, deadline.remaining_s))
