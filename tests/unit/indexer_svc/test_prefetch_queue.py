"""A prefetch queue works ahead of its consumer, within its capacity."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from indexer_svc.prefetch_queue import PrefetchQueue
from tests.support.until import PATIENCE_S, until


class Source:
    """A source of batches of numbers. It yields a batch only after the batch was released.

    At the start, so many batches are `released`; `release` releases more. `requested` counts the
    batches that the queue has asked for.
    """

    def __init__(self, batches: Sequence[Sequence[int]], *, released: int = 1000) -> None:
        self.requested = 0
        self.finished = threading.Event()
        self._batches = batches
        self._released_batches = threading.Semaphore(released)

    def release(self, count: int) -> None:
        self._released_batches.release(count)

    def __iter__(self) -> Iterator[Sequence[int]]:
        try:
            for batch in self._batches:
                self.requested += 1
                assert self._released_batches.acquire(timeout=PATIENCE_S)
                yield batch
        finally:
            self.finished.set()


def _queue(source: Source, capacity: float = 100.0) -> PrefetchQueue[int]:
    """Returns a started queue of numbers. The weight of a number is the number itself."""
    queue = PrefetchQueue[int](float, capacity, "test")
    queue.start(source)
    return queue


def _take_all(queue: PrefetchQueue[int], capacity: float = 100.0) -> list[int]:
    """Takes items until the queue ends, and returns all of them."""
    items: list[int] = []
    while batch := queue.take(capacity, PATIENCE_S):
        items += batch
    assert batch == []
    return items


def test_items_are_taken_in_the_order_of_the_source() -> None:
    source = Source([[number] for number in range(500)])
    assert _take_all(_queue(source, 5), 3) == list(range(500))


def test_a_batch_is_queued_as_a_whole() -> None:
    queue = _queue(Source([[1, 2, 3], [], [4]]))
    assert queue.take(100, PATIENCE_S) in ([1, 2, 3], [1, 2, 3, 4])
    assert _take_all(queue) in ([4], [])


def test_after_the_end_every_take_returns_an_empty_list() -> None:
    queue = _queue(Source([]))
    assert queue.take(1, PATIENCE_S) == []
    assert queue.take(1, PATIENCE_S) == []


def test_a_take_returns_the_queued_items_up_to_a_weight() -> None:
    source = Source([[number] for number in (4, 3, 2, 9, 1)])
    queue = _queue(source)
    assert source.finished.wait(PATIENCE_S)
    assert queue.take(9, PATIENCE_S) == [4, 3, 2]
    assert queue.take(5, PATIENCE_S) == [9]
    assert queue.take(5, PATIENCE_S) == [1]


def test_a_take_waits_only_for_the_first_item() -> None:
    source = Source([[1], [2], [3]], released=1)
    queue = _queue(source)
    assert queue.take(100, PATIENCE_S) == [1]
    source.release(2)
    assert _take_all(queue) == [2, 3]


def test_gather_waits_as_long_as_items_arrive() -> None:
    """One item arrives during each of the first two pauses, and none during the third."""
    source = Source([[number] for number in range(10)], released=1)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) < 3:
            source.release(1)
            # The queue asks the source for the next batch once it has stored this batch.
            until(lambda: source.requested == len(pauses) + 2)

    queue = PrefetchQueue[int](float, 100.0, "test", pause)
    queue.start(source)
    queue.gather(100, 0.5)
    assert pauses == [0.5] * 3
    assert queue.take(100, PATIENCE_S) == [0, 1, 2]
    source.release(100)
    _take_all(queue)


def test_gather_ends_when_enough_items_are_queued() -> None:
    queue = _queue(Source([[3], [4]], released=2))
    began = time.monotonic()
    queue.gather(3, PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert queue.take(100, PATIENCE_S)[0] == 3  # type: ignore[index]


@pytest.mark.parametrize("stopped", [True, False])
def test_gather_ends_with_the_source(stopped: bool) -> None:
    queue = _queue(Source([], released=0))
    if stopped:
        queue.stop()
    queue.gather(100, PATIENCE_S)
    assert queue.take(100, PATIENCE_S) == []


def test_a_wait_for_the_first_item_ends_at_its_timeout() -> None:
    source = Source([[1]], released=0)
    queue = _queue(source)
    assert queue.take(1, 0.01) is None
    source.release(1)
    assert queue.take(1, PATIENCE_S) == [1]


def test_the_source_waits_while_the_queue_is_full() -> None:
    source = Source([[2]] * 20)
    queue = _queue(source, capacity=6)
    # Three batches are queued, and the fourth one waits for capacity.
    until(lambda: source.requested == 4)
    assert queue.take(2, PATIENCE_S) == [2]
    until(lambda: source.requested == 5)
    assert source.requested == 5
    assert sum(_take_all(queue)) == 38


def test_a_batch_heavier_than_the_capacity_is_queued_alone() -> None:
    weighed: list[int] = []

    def weigh(number: int) -> float:
        weighed.append(number)
        return number

    source = Source([[1], [50, 50], [2]])
    queue = PrefetchQueue[int](weigh, 10, "test")
    queue.start(source)
    until(lambda: source.requested == 2)
    assert queue.take(100, PATIENCE_S) == [1]
    # The queue weighs the third batch just before the batch has to wait for capacity.
    until(lambda: 2 in weighed)
    assert queue.take(1000, PATIENCE_S) == [50, 50]
    assert queue.take(1000, PATIENCE_S) == [2]


def test_an_error_of_the_source_is_raised_after_its_items() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1]
        yield [2]
        raise RuntimeError("no more paper")

    queue = PrefetchQueue[int](float, 10, "test")
    queue.start(broken())
    assert queue.take(1, PATIENCE_S) == [1]
    assert queue.take(2, PATIENCE_S) == [2]
    with pytest.raises(RuntimeError, match="no more paper"):
        queue.take(1, PATIENCE_S)
    assert queue.take(1, PATIENCE_S) == []  # The error is raised only once.


def test_stop_ends_a_take_that_waits() -> None:
    source = Source([[1]], released=0)
    queue = _queue(source)
    threading.Timer(0.05, queue.stop).start()
    assert queue.take(1, PATIENCE_S) == []
    source.release(1)
    assert source.finished.wait(PATIENCE_S)


def test_stop_ends_a_source_that_waits_and_drops_the_queued_items() -> None:
    source = Source([[2]] * 20)
    queue = _queue(source, capacity=2)
    until(lambda: source.requested == 2)
    queue.stop()
    assert source.finished.wait(PATIENCE_S)
    assert source.requested == 2
    assert queue.take(100, PATIENCE_S) == []


def test_a_queue_stopped_before_its_start_reads_at_most_one_batch() -> None:
    source = Source([[1]] * 5)
    queue = PrefetchQueue[int](float, 100, "test")
    queue.stop()
    queue.start(source)
    assert source.finished.wait(PATIENCE_S)
    assert source.requested <= 1
    assert queue.take(1, PATIENCE_S) == []
