"""Work that runs queue of whoever takes its results."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from indexer_svc.prefetch_queue import PrefetchQueue
from tests.support.until import until

SOON_S = 10.0


class Source:
    """Batches of numbers that come as they are let through; counts those asked for."""

    def __init__(self, batches: Sequence[Sequence[int]], *, open_at: int = 1000) -> None:
        self.asked = 0
        self.finished = threading.Event()
        self._batches = batches
        self._gate = threading.Semaphore(open_at)

    def let(self, count: int) -> None:
        self._gate.release(count)

    def __iter__(self) -> Iterator[Sequence[int]]:
        try:
            for batch in self._batches:
                self.asked += 1
                assert self._gate.acquire(timeout=SOON_S)
                yield batch
        finally:
            self.finished.set()


def _queue(source: Source, capacity: float = 100.0) -> PrefetchQueue[int]:
    """Each number weighs itself."""
    queue = PrefetchQueue[int](float, capacity, "test")
    queue.start(source)
    return queue


def _all(queue: PrefetchQueue[int], capacity: float = 100.0) -> list[int]:
    found: list[int] = []
    while taken := queue.take(capacity, SOON_S):
        found += taken
    assert taken == []
    return found


def test_items_come_in_order() -> None:
    source = Source([[number] for number in range(500)])
    assert _all(_queue(source, 5), 3) == list(range(500))


def test_a_batch_comes_whole() -> None:
    queue = _queue(Source([[1, 2, 3], [], [4]]))
    assert queue.take(100, SOON_S) in ([1, 2, 3], [1, 2, 3, 4])
    assert _all(queue) in ([4], [])


def test_the_end_stays_the_end() -> None:
    queue = _queue(Source([]))
    assert queue.take(1, SOON_S) == []
    assert queue.take(1, SOON_S) == []


def test_all_that_waits_is_taken_up_to_the_capacity_given() -> None:
    source = Source([[number] for number in (4, 3, 2, 9, 1)])
    queue = _queue(source)
    assert source.finished.wait(SOON_S)
    assert queue.take(9, SOON_S) == [4, 3, 2]
    assert queue.take(5, SOON_S) == [9]
    assert queue.take(5, SOON_S) == [1]


def test_only_the_first_item_is_waited_for() -> None:
    source = Source([[1], [2], [3]], open_at=1)
    queue = _queue(source)
    assert queue.take(100, SOON_S) == [1]
    source.let(2)
    assert _all(queue) == [2, 3]


def test_gathering_goes_on_while_more_comes() -> None:
    source = Source([[number] for number in range(10)], open_at=1)
    queue = _queue(source)
    letting = threading.Thread(target=lambda: [(time.sleep(0.01), source.let(1)) for _ in "ab"])
    letting.start()
    queue.gather(100, 0.5)
    letting.join()
    assert queue.take(100, SOON_S) == [0, 1, 2]
    source.let(100)
    _all(queue)


def test_gathering_ends_when_the_capacity_is_full() -> None:
    queue = _queue(Source([[3], [4]], open_at=2))
    began = time.monotonic()
    queue.gather(3, SOON_S)
    assert time.monotonic() - began < SOON_S
    assert queue.take(100, SOON_S)[0] == 3  # type: ignore[index]


@pytest.mark.parametrize("stopped", [True, False])
def test_gathering_ends_with_the_source(stopped: bool) -> None:
    queue = _queue(Source([], open_at=0))
    if stopped:
        queue.stop()
    queue.gather(100, SOON_S)
    assert queue.take(100, SOON_S) == []


def test_a_wait_for_the_first_item_has_a_bound() -> None:
    source = Source([[1]], open_at=0)
    queue = _queue(source)
    assert queue.take(1, 0.01) is None
    source.let(1)
    assert queue.take(1, SOON_S) == [1]


def test_the_source_waits_when_enough_waits_to_be_taken() -> None:
    source = Source([[2]] * 20)
    queue = _queue(source, capacity=6)
    until(lambda: source.asked == 4)
    time.sleep(0.05)
    assert source.asked == 4  # Three wait, one found no capacity.
    assert queue.take(2, SOON_S) == [2]
    until(lambda: source.asked == 5)
    assert sum(_all(queue)) == 38


def test_a_batch_heavier_than_the_capacity_waits_alone() -> None:
    source = Source([[1], [50, 50], [1]])
    queue = _queue(source, capacity=10)
    until(lambda: source.asked == 2)
    assert queue.take(100, SOON_S) == [1]
    until(lambda: source.asked == 3)
    time.sleep(0.05)
    assert queue.take(1000, SOON_S) == [50, 50]
    assert queue.take(1000, SOON_S) == [1]


def test_what_the_source_raises_comes_after_its_items() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1]
        yield [2]
        raise RuntimeError("no more paper")

    queue = PrefetchQueue[int](float, 10, "test")
    queue.start(broken())
    assert queue.take(1, SOON_S) == [1]
    assert queue.take(2, SOON_S) == [2]
    with pytest.raises(RuntimeError, match="no more paper"):
        queue.take(1, SOON_S)
    assert queue.take(1, SOON_S) == []  # It is raised once.


def test_stop_wakes_a_taker() -> None:
    source = Source([[1]], open_at=0)
    queue = _queue(source)
    threading.Timer(0.05, queue.stop).start()
    assert queue.take(1, SOON_S) == []
    source.let(1)
    assert source.finished.wait(SOON_S)


def test_stop_ends_a_source_that_waits_for_capacity_and_drops_what_waits() -> None:
    source = Source([[2]] * 20)
    queue = _queue(source, capacity=2)
    until(lambda: source.asked == 2)
    queue.stop()
    assert source.finished.wait(SOON_S)
    assert source.asked == 2
    assert queue.take(100, SOON_S) == []


def test_stopped_before_it_starts_it_takes_one_batch_at_most() -> None:
    source = Source([[1]] * 5)
    queue = PrefetchQueue[int](float, 100, "test")
    queue.stop()
    queue.start(source)
    assert source.finished.wait(SOON_S)
    assert source.asked <= 1
    assert queue.take(1, SOON_S) == []
