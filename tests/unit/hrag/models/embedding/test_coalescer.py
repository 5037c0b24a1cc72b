"""The coalescer combines the texts of concurrent callers into batches."""

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
from tests.support.until import PATIENCE_S, until

OCCUPYING = "occupying"


class Model(HashEmbedder):
    """A fake model that records its calls.

    It blocks on texts that begin with OCCUPYING, and rejects texts that begin with `bad`.
    """

    def __init__(self) -> None:
        super().__init__(16)
        self.requests: list[list[str]] = []
        self.begins = Semaphore(0)
        self.may_end = Event()
        self.error: Exception | None = None

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        deadline.check("embedding")
        self.requests.append(list(texts))
        if any(text.startswith(OCCUPYING) for text in texts):
            self.begins.release()
            assert self.may_end.wait(PATIENCE_S)
        elif self.error:
            raise self.error
        for index, text in enumerate(texts):
            if text.startswith("bad"):
                raise EmbedderRejected(f"refused: text {index} of {len(texts)}: {text}")
        return super().embed(texts, deadline)


class FakeSleep:
    """A replacement for `time.sleep` that returns when the test sets `may_end`."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.begins = Semaphore(0)
        self.may_end = Event()
        self.error: Exception | None = None

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.begins.release()
        assert self.may_end.wait(PATIENCE_S)
        if self.error:
            raise self.error


class Callers:
    """Starts callers of a coalescing embedder in threads. Each caller has one text."""

    def __init__(self, max_requests: int = 1) -> None:
        self.model = Model()
        self.sleep = FakeSleep()
        self.embedder = CoalescingEmbedder(self.model, max_requests, self.sleep)
        self._threads = ThreadPoolExecutor(2 * MAX_TEXTS)

    def start(self, text: str, deadline: Deadline = NEVER) -> "Future[Vectors]":
        return self._threads.submit(self.embedder.embed, [text], deadline)

    def occupy(self, times: int = 1) -> "list[Future[Vectors]]":
        """Starts requests that run until the test sets `model.may_end`.

        Returns when the model has received all of them.
        """
        pending = [self.start(f"{OCCUPYING} {number}") for number in range(times)]
        for _ in pending:
            assert self.model.begins.acquire(timeout=PATIENCE_S)
        return pending

    def share_batch(self, first: str, *others: str) -> "list[Future[Vectors]]":
        """Starts callers that share a batch. Returns when all of them have joined the batch."""
        pending = [self.start(first)]
        assert self.sleep.begins.acquire(timeout=PATIENCE_S)
        return pending + [self.start_waiting(text) for text in others]

    def start_waiting(self, text: str, deadline: Deadline = NEVER) -> "Future[Vectors]":
        """Starts a caller; returns when it is waiting for the request of another caller."""
        waits_now = Semaphore(0)

        def waits() -> bool:
            waits_now.release()
            return deadline.is_waiting()

        pending = self.start(text, Deadline(deadline.at_s, waits))
        assert waits_now.acquire(timeout=PATIENCE_S)
        return pending

    def end(self) -> None:
        self.sleep.may_end.set()
        self.model.may_end.set()
        self._threads.shutdown()


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers()
    yield callers
    callers.end()


def assert_vector_of(pending: "Future[Vectors]", text: str) -> None:
    assert np.array_equal(pending.result(PATIENCE_S), HashEmbedder(16).embed([text]))


def threads_of_batches() -> list[str]:
    return [thread.name for thread in enumerate_threads() if thread.name == "coalesced"]


def error_of(pending: "Future[Vectors]") -> BaseException | None:
    return pending.exception(PATIENCE_S)


# The following tests cover delays and batches.


def test_a_single_caller_is_never_delayed(callers: Callers) -> None:
    for text in ("a", "b", "a"):
        assert_vector_of(callers.start(text), text)
    assert callers.model.requests == [["a"], ["b"], ["a"]]
    assert callers.sleep.seconds == []


def test_the_delay_is_shorter_than_a_millisecond() -> None:
    assert 0 < MAX_DELAY_S < 0.001


def test_texts_that_arrive_while_the_model_is_busy_share_a_request(callers: Callers) -> None:
    """These texts wait for MAX_DELAY_S, but not for the end of the running request."""
    callers.occupy()
    texts = ["a", "b", "猫", ""]
    pending = callers.share_batch(*texts)
    assert callers.sleep.seconds == [MAX_DELAY_S]
    assert len(callers.model.requests) == 1
    callers.sleep.may_end.set()
    for caller, text in zip(pending, texts, strict=True):
        assert_vector_of(caller, text)
    assert callers.model.requests[1:] == [texts]


def test_a_text_that_arrives_after_the_delay_joins_the_next_batch(callers: Callers) -> None:
    callers.occupy()
    callers.sleep.may_end.set()
    for text in ("a", "b"):
        assert_vector_of(callers.start(text), text)
    assert callers.model.requests[1:] == [["a"], ["b"]]
    assert callers.sleep.seconds == [MAX_DELAY_S] * 2


def test_no_text_is_delayed_while_the_model_can_run_another_request() -> None:
    callers = Callers(max_requests=3)
    callers.occupy(2)
    assert_vector_of(callers.start("a"), "a")
    assert callers.sleep.seconds == []
    callers.occupy()
    pending = callers.share_batch("b", "c")
    callers.end()
    for caller, text in zip(pending, "bc", strict=True):
        assert_vector_of(caller, text)


def test_equal_texts_of_a_batch_are_all_sent(callers: Callers) -> None:
    """A faster reply to a duplicate would reveal that another tenant sends the same query."""
    callers.occupy()
    pending = callers.share_batch("a", "b", "a")
    callers.sleep.may_end.set()
    pending[0].result(PATIENCE_S)[:] = 0
    assert_vector_of(pending[1], "b")
    assert_vector_of(pending[2], "a")
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


def test_a_text_of_the_largest_size_is_coalesced(callers: Callers) -> None:
    callers.occupy()
    callers.share_batch("x" * MAX_TEXT_BYTES)


def test_a_batch_has_at_most_max_texts(callers: Callers) -> None:
    callers.occupy()
    texts = [str(number) for number in range(MAX_TEXTS)]
    pending = callers.share_batch(*texts)
    next_batch = callers.share_batch("one", "more")
    callers.sleep.may_end.set()
    for caller, text in zip([*pending, *next_batch], [*texts, "one", "more"], strict=True):
        assert_vector_of(caller, text)
    assert sorted(callers.model.requests[1:], key=len) == [["one", "more"], texts]


# The following tests cover errors.


def test_a_rejected_text_does_not_fail_the_others(callers: Callers) -> None:
    """Only the caller of a rejected text receives the error."""
    callers.occupy()
    good, bad, other = callers.share_batch("a", "bad 1", "bad 2")
    callers.sleep.may_end.set()
    assert_vector_of(good, "a")
    assert str(error_of(bad)) == "refused: text 0 of 1: bad 1"
    assert str(error_of(other)) == "refused: text 0 of 1: bad 2"
    batch, *alone = callers.model.requests[1:]
    assert batch == ["a", "bad 1", "bad 2"]
    assert sorted(alone) == [["a"], ["bad 1"], ["bad 2"]]


def test_a_text_that_was_rejected_alone_is_not_sent_again(callers: Callers) -> None:
    assert isinstance(error_of(callers.start("bad")), EmbedderRejected)
    callers.occupy()
    pending = callers.share_batch("bad", "bad")
    callers.sleep.may_end.set()
    assert all(isinstance(error_of(caller), EmbedderRejected) for caller in pending)
    assert callers.model.requests[2:] == [["bad", "bad"]]


def test_texts_are_not_sent_again_if_every_text_would_be_rejected(callers: Callers) -> None:
    callers.occupy()
    error = callers.model.error = EmbedderRejected("no", every_text=True)
    pending = callers.share_batch("a", "b")
    callers.sleep.may_end.set()
    assert [error_of(caller) for caller in pending] == [error] * 2
    assert callers.model.requests[1:] == [["a", "b"]]


@pytest.mark.parametrize("error", [EmbedderUnavailable("down"), RuntimeError("an internal error")])
def test_other_errors_are_raised_to_all_callers(callers: Callers, error: Exception) -> None:
    (occupying,) = callers.occupy()
    callers.model.error = error
    pending = callers.share_batch("a", "b")
    callers.sleep.may_end.set()
    assert [error_of(caller) for caller in pending] == [error] * 2
    callers.model.error = None
    callers.model.may_end.set()
    occupying.result(PATIENCE_S)
    callers.sleep.seconds.clear()
    assert_vector_of(callers.start("c"), "c")
    assert callers.sleep.seconds == [], "no request is running any more"


def test_an_error_during_the_delay_is_raised_to_all_callers_of_the_batch(callers: Callers) -> None:
    callers.occupy()
    callers.sleep.error = RuntimeError("an internal error")
    pending = callers.share_batch("a", "b")
    callers.sleep.may_end.set()
    assert [error_of(caller) for caller in pending] == [callers.sleep.error] * 2
    callers.sleep.error = None
    assert_vector_of(callers.start("c"), "c")
    assert len(callers.sleep.seconds) == 2, "the last caller did not join the failed batch"


# The following tests cover deadlines and cancellation.


def test_each_caller_waits_only_until_its_deadline(callers: Callers) -> None:
    callers.occupy()
    pending = callers.share_batch("a", "b")
    late = callers.start("c", Deadline.after(0.02))
    assert isinstance(error_of(late), DeadlineExceeded)
    callers.sleep.may_end.set()
    for caller, text in zip(pending, "ab", strict=True):
        assert_vector_of(caller, text)


def test_a_cancelled_caller_leaves_its_batch(callers: Callers) -> None:
    callers.occupy()
    waiting = Event()
    waiting.set()
    pending = callers.share_batch("a")
    leaving = callers.start_waiting("b", Deadline(is_waiting=waiting.is_set))
    waiting.clear()
    assert isinstance(error_of(leaving), Cancelled)
    callers.sleep.may_end.set()
    assert_vector_of(pending[0], "a")


@pytest.mark.parametrize("leaving", [Deadline(is_waiting=lambda: False), Deadline.after(-1)])
def test_the_request_continues_after_the_caller_that_sent_it_has_left(
    callers: Callers, leaving: Deadline
) -> None:
    callers.occupy()
    callers.start(f"{OCCUPYING} too", leaving)
    assert callers.sleep.begins.acquire(timeout=PATIENCE_S)
    pending = callers.start_waiting("a")
    callers.sleep.may_end.set()
    assert callers.model.begins.acquire(timeout=PATIENCE_S)
    callers.model.may_end.set()
    assert_vector_of(pending, "a")


@pytest.mark.parametrize("error", [DeadlineExceeded, Cancelled])
def test_the_first_caller_may_leave_while_the_request_hangs(
    callers: Callers, error: type[Exception]
) -> None:
    """The first caller has started the batch, but the request continues for the other callers."""
    callers.occupy()
    waiting = Event()
    waiting.set()
    at_s = time.monotonic() + (0.3 if error is DeadlineExceeded else 60)
    first = callers.start(f"{OCCUPYING} too", Deadline(at_s, waiting.is_set))
    assert callers.sleep.begins.acquire(timeout=PATIENCE_S)
    other = callers.start_waiting("a")
    callers.sleep.may_end.set()
    assert callers.model.begins.acquire(timeout=PATIENCE_S)
    if error is Cancelled:
        waiting.clear()
    assert isinstance(error_of(first), error)
    assert not other.done()
    callers.model.may_end.set()
    assert_vector_of(other, "a")


def test_the_count_of_hanging_batches_is_limited(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While MAX_BATCHES batches run, each other text is sent alone and without a delay."""
    monkeypatch.setattr(coalescer, "MAX_BATCHES", 1)
    (occupying,) = callers.occupy()
    hanging = callers.share_batch(f"{OCCUPYING} too", "a")
    callers.sleep.may_end.set()
    assert callers.model.begins.acquire(timeout=PATIENCE_S)
    for text in ("b", "c"):
        assert_vector_of(callers.start(text), text)
    assert len(callers.sleep.seconds) == 1
    assert len(threads_of_batches()) == 1
    callers.model.may_end.set()
    assert_vector_of(hanging[1], "a")
    assert_vector_of(occupying, f"{OCCUPYING} 0")
    until(lambda: not threads_of_batches())
    callers.model.may_end.clear()
    callers.sleep.may_end.clear()
    callers.occupy()
    callers.share_batch("d", "e")


def test_a_batch_of_one_caller_needs_no_thread(callers: Callers) -> None:
    callers.occupy()
    hanging = callers.start(f"{OCCUPYING} too")
    callers.sleep.may_end.set()
    assert callers.model.begins.acquire(timeout=PATIENCE_S)
    assert not threads_of_batches()
    callers.model.may_end.set()
    assert_vector_of(hanging, f"{OCCUPYING} too")


def test_a_batch_without_callers_is_not_sent(callers: Callers) -> None:
    callers.occupy()
    waiting = Event()
    waiting.set()
    pending = callers.start("a", Deadline(is_waiting=waiting.is_set))
    assert callers.sleep.begins.acquire(timeout=PATIENCE_S)
    late = callers.start("b", Deadline.after(0.02))
    assert isinstance(error_of(late), DeadlineExceeded)
    waiting.clear()
    callers.sleep.may_end.set()
    assert isinstance(error_of(pending), Cancelled)
    assert len(callers.model.requests) == 1


# The following tests cover many concurrent callers, and which embedders coalesce their requests.


def test_each_of_many_callers_gets_the_vector_of_its_text() -> None:
    class Slow(HashEmbedder):
        def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
            sizes.append(len(texts))
            time.sleep(0.002)  # Other callers can join the next batch during this slow request.
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
    ("embedder", "is_coalesced"), [("hash:8", False), ("builtin", False), ("openai", True)]
)
def test_only_requests_to_an_endpoint_are_coalesced(
    embedder: str, is_coalesced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HRAG_EMBEDDER", embedder)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    opened = open_query_embedders(CommonSettings())
    assert isinstance(opened.queries, CoalescingEmbedder) is is_coalesced
    assert opened.passages is opened.queries
