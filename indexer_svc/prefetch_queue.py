"""A stage of work that runs ahead of whoever takes its results.

Its source is iterated in a thread of its own, so that it works on the next items while
the taker works on those before. What waits in between is bounded by weight: a source that
is quicker than its taker waits. Items come out in the order they went in; what the source
raises comes out after all items before it. Knows nothing of documents.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """Iterates a source of batches once started; one thread takes from it.

    At most `room` weighs what waits, but a batch that is heavier waits alone.
    """

    def __init__(
        self,
        batches: Iterable[Sequence[Item]],
        weigh: Callable[[Item], float],
        room: float,
        name: str,
    ) -> None:
        self._batches = batches
        self._weigh = weigh
        self._room = room
        self._waiting: deque[Item] = deque()
        self._weight = 0.0
        self._failure: Exception | None = None
        self._ended = False
        self._stopped = False
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._emptied = threading.Condition(lock)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins to iterate."""
        self._thread.start()

    def gather(self, room: float, pause_s: float) -> None:
        """Waits for an item, and then for more until `room` is full or a pause brings none."""
        with self._filled:
            self._filled.wait_for(self._answerable)
        before = 0
        while before < len(self._waiting) and self._weight < room:
            before = len(self._waiting)
            time.sleep(pause_s)

    def take(self, room: float, timeout_s: float | None = None) -> list[Item] | None:
        """All that waits now, in order, as far as it weighs `room` at most; one item at least.

        Waits for the first item only, and returns None if none came within `timeout_s`.
        The empty list is the end: of the source, or of all by `stop`. Raises what the
        source raised.
        """
        with self._filled:
            if not self._filled.wait_for(self._answerable, timeout_s):
                return None
            if self._stopped:
                return []
            if not self._waiting and self._failure is not None:
                raise self._failure
            taken = self._taken(room)
            self._emptied.notify()
            return taken

    def stop(self) -> None:
        """Ends it for both sides; returns at once, though the source may be at work still.

        A source that waits for something else has to be woken by whoever has it wait.
        """
        with self._filled:
            self._stopped = True
            self._waiting.clear()
            self._filled.notify_all()
            self._emptied.notify_all()

    def _answerable(self) -> bool:
        return bool(self._waiting) or self._ended or self._stopped

    def _taken(self, room: float) -> list[Item]:
        taken: list[Item] = []
        weight = 0.0
        while self._waiting:
            next_weight = self._weigh(self._waiting[0])
            if taken and weight + next_weight > room:
                break
            weight += next_weight
            taken.append(self._waiting.popleft())
        self._weight = self._weight - weight if self._waiting else 0.0
        return taken

    def _run(self) -> None:
        try:
            for batch in self._batches:
                if not self._put(batch):
                    return
        except Exception as error:
            self._failure = error  # For the taker, whose call it is.
        finally:
            self._batches = ()  # It may refer back to this, and hold what nobody takes.
            with self._filled:
                self._ended = True
                self._filled.notify()

    def _put(self, batch: Sequence[Item]) -> bool:
        """Adds a batch once there is room; False if there is no taker any more."""
        weight = sum(map(self._weigh, batch))
        with self._filled:
            self._emptied.wait_for(lambda: self._stopped or self._has_room(weight))
            if self._stopped:
                return False
            self._waiting.extend(batch)
            self._weight += weight
            self._filled.notify()
        return True

    def _has_room(self, weight: float) -> bool:
        return not self._waiting or self._weight + weight <= self._room
