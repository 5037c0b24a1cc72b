"""A bounded queue that a background thread fills ahead of its consumer.

The thread iterates a source and queues the next items while the consumer works on the previous
items. The total weight of the queued items is limited. So a source that is faster than the consumer
has to wait. The consumer gets the items in the order of the source. If the source raises an error,
`take` raises this error after all items that came before the error.

A queue that has ended refers neither to its source nor to an error. The frames of an error's
traceback refer to the queue and to the items. If the queue also referred to the error, this
reference cycle would keep queue and items in memory until the garbage collector runs. This module
does not depend on documents.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class PrefetchQueue(Generic[Item]):
    """A queue that a thread fills from a source. Only one other thread may take items.

    The source is an iterable of batches; a batch is a list of items. The items in the queue have a
    total weight of at most `capacity`. Exception: a batch that weighs more than `capacity` is
    queued as soon as the queue is empty.

    The arguments are `weigh`, which returns the weight of an item, `capacity`, the thread's `name`,
    and `sleep`, which the method `gather` calls with a count of seconds in order to wait.
    """

    def __init__(
        self,
        weigh: Callable[[Item], float],
        capacity: float,
        name: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._weigh = weigh
        self._capacity = capacity
        self._name = name
        self._sleep = sleep
        self._waiting: deque[Item] = deque()
        self._weight = 0.0
        # This list is empty, or has the one error that the source has raised. `take` removes this
        # error from the list and raises it.
        self._failures: list[Exception] = []
        self._ended = False
        self._stopped = False
        lock = threading.Lock()
        self._filled = threading.Condition(lock)
        self._emptied = threading.Condition(lock)

    def start(self, batches: Iterable[Sequence[Item]]) -> None:
        """Starts the thread that iterates `batches` and queues their items. Call this once."""
        thread = threading.Thread(target=self._run, args=(batches,), name=self._name, daemon=True)
        thread.start()

    def gather(self, capacity: float, pause_s: float) -> None:
        """Waits until an item is queued, and then for further items. Removes no item.

        Returns once the queued items weigh at least `capacity` in total, or once no further item
        has arrived within `pause_s` seconds. The parameter `capacity` may differ from the capacity
        of the queue.
        """
        with self._filled:
            self._filled.wait_for(self._has_result)
        before = 0
        while before < len(self._waiting) and self._weight < capacity:
            before = len(self._waiting)
            self._sleep(pause_s)

    def take(self, capacity: float, timeout_s: float | None = None) -> list[Item] | None:
        """Removes the first items from the queue and returns them in order.

        The returned items weigh at most `capacity` in total. An item that weighs more is returned
        alone. Waits until at least one item is queued, but not for further items. Returns None if
        no item arrived within `timeout_s` seconds. Returns an empty list at the end of the source
        or after `stop`. If the source has raised an error, raises this error once, after all items
        have been returned.
        """
        with self._filled:
            if not self._filled.wait_for(self._has_result, timeout_s):
                return None
            if self._stopped:
                return []
            if not self._waiting and self._failures:
                raise self._failures.pop()
            batch = self._take_queued(capacity)
            self._emptied.notify()
            return batch

    def stop(self) -> None:
        """Discards all items and ends the queue: `take` returns an empty list from now on.

        Does not wait for the thread that fills the queue. This thread ends once the source returns
        its next batch. If the source waits for something, the caller must end this wait.
        """
        with self._filled:
            self._stopped = True
            self._waiting.clear()
            self._failures.clear()
            self._filled.notify_all()
            self._emptied.notify_all()

    def _has_result(self) -> bool:
        return bool(self._waiting) or self._ended or self._stopped

    def _take_queued(self, capacity: float) -> list[Item]:
        batch: list[Item] = []
        weight = 0.0
        while self._waiting:
            next_weight = self._weigh(self._waiting[0])
            if batch and weight + next_weight > capacity:
                break
            weight += next_weight
            batch.append(self._waiting.popleft())
        self._weight = self._weight - weight if self._waiting else 0.0
        return batch

    def _run(self, batches: Iterable[Sequence[Item]]) -> None:
        try:
            for batch in batches:
                if not self._put(batch):
                    return
        except Exception as error:
            with self._filled:
                if not self._stopped:
                    self._failures.append(error)
        finally:
            with self._filled:
                self._ended = True
                self._filled.notify()

    def _put(self, batch: Sequence[Item]) -> bool:
        """Waits until a batch fits into the queue, adds it, and returns True.

        Returns False, without adding the batch, after `stop`.
        """
        weight = sum(map(self._weigh, batch))
        with self._filled:
            self._emptied.wait_for(lambda: self._stopped or self._has_capacity(weight))
            if self._stopped:
                return False
            self._waiting.extend(batch)
            self._weight += weight
            self._filled.notify()
        return True

    def _has_capacity(self, weight: float) -> bool:
        return not self._waiting or self._weight + weight <= self._capacity
