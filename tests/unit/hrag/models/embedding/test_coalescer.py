"""The coalescer: delays, batches, deadlines and errors of concurrent callers."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore
from threading import enumerate as enumerate_threads

import numpy as np
import pytest

from hrag.config import CommonSettings
from hrag.errors import Cancelled, DeadlineExceeded, EmbedderRejected, EmbedderUnavailable
from hrag.models.embedding import Vectors, coalescer
from hrag.models.embedding.coalescer import (
    MAX_DELAY_S,
    MAX_TEXT_BYTES,
    MAX_TEXTS,
    CoalescingEmbedder,
)
from hrag.models.embedding.embedder_factory import open_query_embedders
from hrag.models.embedding.hashing import HashEmbedder
from hrag.values.deadline import NEVER, Deadline
from tests.support.until import until

PATIENCE_S = 10
OCCUPYING = "occupying"


class Model(HashEmbedder):
    """Records its calls, blocks on texts that occupy it, rejects bad texts."""

    def __init__(self) -> None:
        super().__init__(16)
        self.requests: list[list[str]] = []
        self.begun = Semaphore(0)
        self.ends = Event()
        self.breaks: Exception | None = None

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        deadline.check("embedding")
        self.requests.append(list(texts))
        if any(text.startswith(OCCUPYING) for text in texts):
            self.begun.release()
            assert self.ends.wait(PATIENCE_S)
        elif self.breaks:
            raise self.breaks
        for number, text in enumerate(texts):
            if text.startswith("bad"):
                raise EmbedderRejected(f"refused: number {number} of {len(texts)}: {text}")
        return super().embed(texts, deadline)


class FakeSleep:
    """A replacement for `time.sleep` that lasts until the test ends it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.begun = Semaphore(0)
        self.ends = Event()
        self.breaks: Exception | None = None

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.begun.release()
        assert self.ends.wait(PATIENCE_S)
        if self.breaks:
            raise self.breaks


class Callers:
    """Callers in threads, each with one text."""

    def __init__(self, at_once: int = 1) -> None:
        self.model = Model()
        self.sleep = FakeSleep()
        self.embedder = CoalescingEmbedder(self.model, at_once, self.sleep)
        self._threads = ThreadPoolExecutor(2 * MAX_TEXTS)

    def start(self, text: str, deadline: Deadline = NEVER) -> "Future[Vectors]":
        return self._threads.submit(self.embedder.embed, [text], deadline)

    def occupy(self, times: int = 1) -> "list[Future[Vectors]]":
        """Starts requests that do not end."""
        pending = [self.start(f"{OCCUPYING} {number}") for number in range(times)]
        for _ in pending:
            assert self.model.begun.acquire(timeout=PATIENCE_S)
        return pending

    def share_batch(self, first: str, *others: str) -> "list[Future[Vectors]]":
        """Starts callers that share a batch; all have joined it when this returns."""
        pending = [self.start(first)]
        assert self.sleep.begun.acquire(timeout=PATIENCE_S)
        return pending + [self.start_waiting(text) for text in others]

    def start_waiting(self, text: str, deadline: Deadline = NEVER) -> "Future[Vectors]":
        """Starts a caller; returns when it is waiting for the request of another."""
        waits_now = Semaphore(0)

        def waits() -> bool:
            waits_now.release()
            return deadline.is_waiting()

        pending = self.start(text, Deadline(deadline.at_s, waits))
        assert waits_now.acquire(timeout=PATIENCE_S)
        return pending

    def end(self) -> None:
        self.sleep.ends.set()
        self.model.ends.set()
        self._threads.shutdown()


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers()
    yield callers
    callers.end()


def assert_right(pending: "Future[Vectors]", text: str) -> None:
    assert np.array_equal(pending.result(PATIENCE_S), HashEmbedder(16).embed([text]))


def threads_of_batches() -> list[str]:
    return [thread.name for thread in enumerate_threads() if thread.name == "coalesced"]


def raised(pending: "Future[Vectors]") -> BaseException | None:
    return pending.exception(PATIENCE_S)


# The following tests cover delays and batches.


def test_a_single_caller_is_never_delayed(callers: Callers) -> None:
    for text in ("a", "b", "a"):
        assert_right(callers.start(text), text)
    assert callers.model.requests == [["a"], ["b"], ["a"]]
    assert callers.sleep.seconds == []


def test_the_delay_is_shorter_than_a_millisecond() -> None:
    assert 0 < MAX_DELAY_S < 0.001


def test_texts_that_arrive_while_the_model_is_busy_share_a_request(callers: Callers) -> None:
    """They wait only for MAX_DELAY_S; the request that makes the model busy continues."""
    callers.occupy()
    texts = ["a", "b", "猫", ""]
    pending = callers.share_batch(*texts)
    assert callers.sleep.seconds == [MAX_DELAY_S]
    assert len(callers.model.requests) == 1
    callers.sleep.ends.set()
    for caller, text in zip(pending, texts, strict=True):
        assert_right(caller, text)
    assert callers.model.requests[1:] == [texts]


def test_a_text_that_arrives_after_the_delay_joins_the_next_batch(callers: Callers) -> None:
    callers.occupy()
    callers.sleep.ends.set()
    for text in ("a", "b"):
        assert_right(callers.start(text), text)
    assert callers.model.requests[1:] == [["a"], ["b"]]
    assert callers.sleep.seconds == [MAX_DELAY_S] * 2


def test_a_model_with_capacity_is_not_busy() -> None:
    callers = Callers(at_once=3)
    callers.occupy(2)
    assert_right(callers.start("a"), "a")
    assert callers.sleep.seconds == []
    callers.occupy()
    pending = callers.share_batch("b", "c")
    callers.end()
    for caller, text in zip(pending, "bc", strict=True):
        assert_right(caller, text)


def test_equal_texts_cost_as_much_as_different_ones(callers: Callers) -> None:
    """Otherwise the time of a query would reveal that another tenant asks the same now."""
    callers.occupy()
    pending = callers.share_batch("a", "b", "a")
    callers.sleep.ends.set()
    pending[0].result(PATIENCE_S)[:] = 0
    assert_right(pending[1], "b")
    assert_right(pending[2], "a")
    assert callers.model.requests[1:] == [["a", "b", "a"]]


@pytest.mark.parametrize(
    "texts",
    [[], ["a", "b"], ["x" * (MAX_TEXT_BYTES + 1)], ["猫" * (MAX_TEXT_BYTES // 3 + 1)]],
    ids=["none", "two", "long", "long in bytes"],
)
def test_several_texts_and_long_texts_are_not_coalesced(callers: Callers, texts: list[str]) -> None:
    callers.occupy()
    expected = HashEmbedder(16).embed(texts)
    assert np.array_equal(callers.embedder.embed(texts), expected)
    assert callers.sleep.seconds == []


def test_the_longest_text_that_is_coalesced(callers: Callers) -> None:
    callers.occupy()
    callers.share_batch("x" * MAX_TEXT_BYTES)


def test_a_batch_has_a_limit(callers: Callers) -> None:
    callers.occupy()
    texts = [str(number) for number in range(MAX_TEXTS)]
    pending = callers.share_batch(*texts)
    one_more = callers.share_batch("one", "more")
    callers.sleep.ends.set()
    for caller, text in zip([*pending, *one_more], [*texts, "one", "more"], strict=True):
        assert_right(caller, text)
    assert sorted(callers.model.requests[1:], key=len) == [["one", "more"], texts]


# The following tests cover errors.


def test_a_rejected_text_does_not_fail_the_others(callers: Callers) -> None:
    """Other callers do not receive its error."""
    callers.occupy()
    good, bad, other = callers.share_batch("a", "bad 1", "bad 2")
    callers.sleep.ends.set()
    assert_right(good, "a")
    assert str(raised(bad)) == "refused: number 0 of 1: bad 1"
    assert str(raised(other)) == "refused: number 0 of 1: bad 2"
    batch, *alone = callers.model.requests[1:]
    assert batch == ["a", "bad 1", "bad 2"]
    assert sorted(alone) == [["a"], ["bad 1"], ["bad 2"]]


def test_a_text_that_was_rejected_alone_is_not_sent_again(callers: Callers) -> None:
    assert isinstance(raised(callers.start("bad")), EmbedderRejected)
    callers.occupy()
    pending = callers.share_batch("bad", "bad")
    callers.sleep.ends.set()
    assert all(isinstance(raised(caller), EmbedderRejected) for caller in pending)
    assert callers.model.requests[2:] == [["bad", "bad"]]


def test_texts_are_not_sent_again_if_every_text_would_be_rejected(callers: Callers) -> None:
    callers.occupy()
    error = callers.model.breaks = EmbedderRejected("no", every_text=True)
    pending = callers.share_batch("a", "b")
    callers.sleep.ends.set()
    assert [raised(caller) for caller in pending] == [error] * 2
    assert callers.model.requests[1:] == [["a", "b"]]


@pytest.mark.parametrize("error", [EmbedderUnavailable("down"), RuntimeError("an internal error")])
def test_other_errors_are_raised_to_all_callers(callers: Callers, error: Exception) -> None:
    (occupying,) = callers.occupy()
    callers.model.breaks = error
    pending = callers.share_batch("a", "b")
    callers.sleep.ends.set()
    assert [raised(caller) for caller in pending] == [error] * 2
    callers.model.breaks = None
    callers.model.ends.set()
    occupying.result(PATIENCE_S)
    callers.sleep.seconds.clear()
    assert_right(callers.start("c"), "c")
    assert callers.sleep.seconds == [], "no request is running any more"


def test_a_delay_that_fails_fails_all_callers(callers: Callers) -> None:
    callers.occupy()
    callers.sleep.breaks = RuntimeError("an internal error")
    pending = callers.share_batch("a", "b")
    callers.sleep.ends.set()
    assert [raised(caller) for caller in pending] == [callers.sleep.breaks] * 2
    callers.sleep.breaks = None
    assert_right(callers.start("c"), "c")
    assert len(callers.sleep.seconds) == 2, "it did not join the failed batch"


# The following tests cover deadlines and cancellation.


def test_each_caller_waits_until_its_own_deadline(callers: Callers) -> None:
    callers.occupy()
    pending = callers.share_batch("a", "b")
    late = callers.start_waiting("c", Deadline.after(0.02))
    assert isinstance(raised(late), DeadlineExceeded)
    callers.sleep.ends.set()
    for caller, text in zip(pending, "ab", strict=True):
        assert_right(caller, text)


def test_a_cancelled_caller_leaves(callers: Callers) -> None:
    callers.occupy()
    waiting = Event()
    waiting.set()
    pending = callers.share_batch("a")
    gone = callers.start_waiting("b", Deadline(is_waiting=waiting.is_set))
    waiting.clear()
    assert isinstance(raised(gone), Cancelled)
    callers.sleep.ends.set()
    assert_right(pending[0], "a")


@pytest.mark.parametrize("leaving", [Deadline(is_waiting=lambda: False), Deadline.after(-1)])
def test_the_request_outlives_the_caller_that_sends_it(callers: Callers, leaving: Deadline) -> None:
    callers.occupy()
    callers.start(f"{OCCUPYING} too", leaving)
    assert callers.sleep.begun.acquire(timeout=PATIENCE_S)
    pending = callers.start_waiting("a")
    callers.sleep.ends.set()
    assert callers.model.begun.acquire(timeout=PATIENCE_S)
    callers.model.ends.set()
    assert_right(pending, "a")


@pytest.mark.parametrize("error", [DeadlineExceeded, Cancelled])
def test_the_first_caller_leaves_while_the_request_hangs(
    callers: Callers, error: type[Exception]
) -> None:
    """It started the batch, but the request belongs to the others as well."""
    callers.occupy()
    waiting = Event()
    waiting.set()
    at_s = time.monotonic() + (0.3 if error is DeadlineExceeded else 60)
    first = callers.start(f"{OCCUPYING} too", Deadline(at_s, waiting.is_set))
    assert callers.sleep.begun.acquire(timeout=PATIENCE_S)
    other = callers.start_waiting("a")
    callers.sleep.ends.set()
    assert callers.model.begun.acquire(timeout=PATIENCE_S)
    if error is Cancelled:
        waiting.clear()
    assert isinstance(raised(first), error)
    assert not other.done()
    callers.model.ends.set()
    assert_right(other, "a")


def test_hanging_requests_of_several_callers_are_bounded(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit each text is sent alone, without a delay and in its caller's thread."""
    monkeypatch.setattr(coalescer, "MAX_BATCHES", 1)
    (occupying,) = callers.occupy()
    hanging = callers.share_batch(f"{OCCUPYING} too", "a")
    callers.sleep.ends.set()
    assert callers.model.begun.acquire(timeout=PATIENCE_S)
    for text in ("b", "c"):
        assert_right(callers.start(text), text)
    assert len(callers.sleep.seconds) == 1
    assert len(threads_of_batches()) == 1
    callers.model.ends.set()
    assert_right(hanging[1], "a")
    assert_right(occupying, f"{OCCUPYING} 0")
    until(lambda: not threads_of_batches())
    callers.model.ends.clear()
    callers.sleep.ends.clear()
    callers.occupy()
    callers.share_batch("d", "e")


def test_a_batch_of_one_caller_needs_no_thread(callers: Callers) -> None:
    callers.occupy()
    hanging = callers.start(f"{OCCUPYING} too")
    callers.sleep.ends.set()
    assert callers.model.begun.acquire(timeout=PATIENCE_S)
    assert not threads_of_batches()
    callers.model.ends.set()
    assert_right(hanging, f"{OCCUPYING} too")


def test_a_batch_without_callers_is_not_sent(callers: Callers) -> None:
    callers.occupy()
    waiting = Event()
    waiting.set()
    pending = callers.start("a", Deadline(is_waiting=waiting.is_set))
    assert callers.sleep.begun.acquire(timeout=PATIENCE_S)
    late = callers.start_waiting("b", Deadline.after(0.02))
    assert isinstance(raised(late), DeadlineExceeded)
    waiting.clear()
    callers.sleep.ends.set()
    assert isinstance(raised(pending), Cancelled)
    assert len(callers.model.requests) == 1


# The following tests cover load.


def test_many_callers_get_their_own_vectors() -> None:
    class Slow(HashEmbedder):
        def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
            sizes.append(len(texts))
            time.sleep(0.002)
            return super().embed(texts, deadline)

    sizes: list[int] = []
    embedder = CoalescingEmbedder(Slow(16), 1)
    texts = [str(number % 300) for number in range(1000)]
    with ThreadPoolExecutor(40) as threads:
        vectors = threads.map(lambda text: embedder.embed([text], Deadline.after(60)), texts)
    assert np.array_equal(np.concatenate(list(vectors)), HashEmbedder(16).embed(texts))
    assert max(sizes) <= MAX_TEXTS
    assert len(sizes) < len(texts) / 2


@pytest.mark.parametrize(
    ("embedder", "shares"), [("hash:8", False), ("builtin", False), ("openai", True)]
)
def test_requests_to_an_endpoint_are_coalesced(
    embedder: str, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HRAG_EMBEDDER", embedder)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    opened = open_query_embedders(CommonSettings())
    assert isinstance(opened.queries, CoalescingEmbedder) is shares
    assert opened.passages is opened.queries
