"""Texts of callers who ask at once: who waits, for how long, what is sent, who gets what."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore

import numpy as np
import pytest

from hrag.config import CommonSettings
from hrag.deadline import NEVER, Deadline
from hrag.embedding import Vectors
from hrag.embedding.coalescer import MAX_DELAY_S, MAX_TEXT_BYTES, MAX_TEXTS, CoalescingEmbedder
from hrag.embedding.factory import open_query_embedder
from hrag.embedding.hashing import HashEmbedder
from hrag.errors import Cancelled, DeadlineExceeded, EmbedderRejected, EmbedderUnavailable

PATIENCE_S = 10
OCCUPYING = "occupying"


class Model(HashEmbedder):
    """Notes what it is asked; keeps what occupies it until told; refuses what is bad."""

    def __init__(self) -> None:
        super().__init__(16)
        self.asked: list[list[str]] = []
        self.begun = Semaphore(0)
        self.ends = Event()
        self.breaks: Exception | None = None

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        deadline.check("embedding")
        self.asked.append(list(texts))
        if any(text.startswith(OCCUPYING) for text in texts):
            self.begun.release()
            assert self.ends.wait(PATIENCE_S)
        elif self.breaks:
            raise self.breaks
        for number, text in enumerate(texts):
            if text.startswith("bad"):
                raise EmbedderRejected(f"refused: number {number} of {len(texts)}: {text}")
        return super().embed(texts, deadline)


class Hold:
    """A pause that lasts until it is told to end."""

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
    """Ask for one text each, in threads of their own."""

    def __init__(self, at_once: int = 1) -> None:
        self.model = Model()
        self.hold = Hold()
        self.together = CoalescingEmbedder(self.model, at_once, self.hold)
        self._threads = ThreadPoolExecutor(2 * MAX_TEXTS)

    def ask(self, text: str, deadline: Deadline = NEVER) -> "Future[Vectors]":
        return self._threads.submit(self.together.embed, [text], deadline)

    def occupy(self, times: int = 1) -> "list[Future[Vectors]]":
        """Requests that do not end."""
        asked = [self.ask(f"{OCCUPYING} {number}") for number in range(times)]
        for _ in asked:
            assert self.model.begun.acquire(timeout=PATIENCE_S)
        return asked

    def ask_in_company(self, first: str, *others: str) -> "list[Future[Vectors]]":
        """All wait for each other once this returns."""
        asked = [self.ask(first)]
        assert self.hold.begun.acquire(timeout=PATIENCE_S)
        return asked + [self.follow(text) for text in others]

    def follow(self, text: str, deadline: Deadline = NEVER) -> "Future[Vectors]":
        """Asks, and waits until it waits for somebody else's request."""
        waits_now = Semaphore(0)

        def waits() -> bool:
            waits_now.release()
            return deadline.is_waiting()

        asked = self.ask(text, Deadline(deadline.at_s, waits))
        assert waits_now.acquire(timeout=PATIENCE_S)
        return asked

    def end(self) -> None:
        self.hold.ends.set()
        self.model.ends.set()
        self._threads.shutdown()


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers()
    yield callers
    callers.end()


def assert_right(asked: "Future[Vectors]", text: str) -> None:
    assert np.array_equal(asked.result(PATIENCE_S), HashEmbedder(16).embed([text]))


def raised(asked: "Future[Vectors]") -> BaseException | None:
    return asked.exception(PATIENCE_S)


# Who waits


def test_who_asks_alone_is_never_held(callers: Callers) -> None:
    for text in ("a", "b", "a"):
        assert_right(callers.ask(text), text)
    assert callers.model.asked == [["a"], ["b"], ["a"]]
    assert callers.hold.seconds == []


def test_a_hold_is_shorter_than_a_millisecond() -> None:
    assert 0 < MAX_DELAY_S < 0.001


def test_those_who_ask_while_the_model_is_busy_share_a_request(callers: Callers) -> None:
    """They wait for the hold's end alone: the request that makes the model busy goes on."""
    callers.occupy()
    texts = ["a", "b", "猫", ""]
    asked = callers.ask_in_company(*texts)
    assert callers.hold.seconds == [MAX_DELAY_S]
    assert len(callers.model.asked) == 1
    callers.hold.ends.set()
    for each, text in zip(asked, texts, strict=True):
        assert_right(each, text)
    assert callers.model.asked[1:] == [texts]


def test_who_comes_after_the_hold_waits_for_the_next(callers: Callers) -> None:
    callers.occupy()
    callers.hold.ends.set()
    for text in ("a", "b"):
        assert_right(callers.ask(text), text)
    assert callers.model.asked[1:] == [["a"], ["b"]]
    assert callers.hold.seconds == [MAX_DELAY_S] * 2


def test_a_model_with_room_for_more_is_not_busy() -> None:
    callers = Callers(at_once=3)
    callers.occupy(2)
    assert_right(callers.ask("a"), "a")
    assert callers.hold.seconds == []
    callers.occupy()
    asked = callers.ask_in_company("b", "c")
    callers.end()
    for each, text in zip(asked, "bc", strict=True):
        assert_right(each, text)


def test_equal_texts_are_sent_once_and_given_apart(callers: Callers) -> None:
    callers.occupy()
    asked = callers.ask_in_company("a", "b", "a")
    callers.hold.ends.set()
    asked[0].result(PATIENCE_S)[:] = 0
    assert_right(asked[1], "b")
    assert_right(asked[2], "a")
    assert callers.model.asked[1:] == [["a", "b"]]


@pytest.mark.parametrize(
    "texts",
    [[], ["a", "b"], ["x" * (MAX_TEXT_BYTES + 1)], ["猫" * (MAX_TEXT_BYTES // 3 + 1)]],
    ids=["none", "two", "long", "long in bytes"],
)
def test_what_would_keep_others_waiting_goes_by_itself(callers: Callers, texts: list[str]) -> None:
    callers.occupy()
    expected = HashEmbedder(16).embed(texts)
    assert np.array_equal(callers.together.embed(texts), expected)
    assert callers.hold.seconds == []


def test_the_longest_text_that_shares(callers: Callers) -> None:
    callers.occupy()
    callers.ask_in_company("x" * MAX_TEXT_BYTES)


def test_a_request_has_a_limit(callers: Callers) -> None:
    callers.occupy()
    texts = [str(number) for number in range(MAX_TEXTS)]
    asked = callers.ask_in_company(*texts)
    one_more = callers.ask_in_company("one", "more")
    callers.hold.ends.set()
    for each, text in zip([*asked, *one_more], [*texts, "one", "more"], strict=True):
        assert_right(each, text)
    assert sorted(callers.model.asked[1:], key=len) == [["one", "more"], texts]


# What goes wrong


def test_a_refused_text_does_not_spoil_the_others(callers: Callers) -> None:
    """Nor does anybody learn of it who has not sent it."""
    callers.occupy()
    good, bad, other = callers.ask_in_company("a", "bad 1", "bad 2")
    callers.hold.ends.set()
    assert_right(good, "a")
    assert str(raised(bad)) == "refused: number 0 of 1: bad 1"
    assert str(raised(other)) == "refused: number 0 of 1: bad 2"
    together, *alone = callers.model.asked[1:]
    assert together == ["a", "bad 1", "bad 2"]
    assert sorted(alone) == [["a"], ["bad 1"], ["bad 2"]]


def test_a_text_that_was_refused_alone_is_not_sent_again(callers: Callers) -> None:
    assert isinstance(raised(callers.ask("bad")), EmbedderRejected)
    callers.occupy()
    asked = callers.ask_in_company("bad", "bad")
    callers.hold.ends.set()
    assert all(isinstance(raised(each), EmbedderRejected) for each in asked)
    assert callers.model.asked.count(["bad"]) == 2


@pytest.mark.parametrize("error", [EmbedderUnavailable("down"), RuntimeError("a fault of ours")])
def test_what_meets_all_is_told_all_and_ends(callers: Callers, error: Exception) -> None:
    (occupying,) = callers.occupy()
    callers.model.breaks = error
    asked = callers.ask_in_company("a", "b")
    callers.hold.ends.set()
    assert [raised(each) for each in asked] == [error] * 2
    callers.model.breaks = None
    callers.model.ends.set()
    occupying.result(PATIENCE_S)
    callers.hold.seconds.clear()
    assert_right(callers.ask("c"), "c")
    assert callers.hold.seconds == [], "nothing is under way any more"


def test_a_hold_that_fails_keeps_nobody(callers: Callers) -> None:
    callers.occupy()
    callers.hold.breaks = RuntimeError("a fault of ours")
    asked = callers.ask_in_company("a", "b")
    callers.hold.ends.set()
    assert [raised(each) for each in asked] == [callers.hold.breaks] * 2
    callers.hold.breaks = None
    assert_right(callers.ask("c"), "c")
    assert len(callers.hold.seconds) == 2, "it was not joined to those that had failed"


# Who leaves


def test_each_waits_no_longer_than_its_own_deadline(callers: Callers) -> None:
    callers.occupy()
    asked = callers.ask_in_company("a", "b")
    late = callers.follow("c", Deadline.after(0.02))
    assert isinstance(raised(late), DeadlineExceeded)
    callers.hold.ends.set()
    for each, text in zip(asked, "ab", strict=True):
        assert_right(each, text)


def test_who_is_cancelled_leaves(callers: Callers) -> None:
    callers.occupy()
    there = Event()
    there.set()
    asked = callers.ask_in_company("a")
    gone = callers.follow("b", Deadline(is_waiting=there.is_set))
    there.clear()
    assert isinstance(raised(gone), Cancelled)
    callers.hold.ends.set()
    assert_right(asked[0], "a")


@pytest.mark.parametrize("left", [Deadline(is_waiting=lambda: False), Deadline.after(-1)])
def test_the_request_is_not_bound_to_who_sends_it(callers: Callers, left: Deadline) -> None:
    callers.occupy()
    callers.ask(f"{OCCUPYING} too", left)
    assert callers.hold.begun.acquire(timeout=PATIENCE_S)
    asked = callers.follow("a")
    callers.hold.ends.set()
    assert callers.model.begun.acquire(timeout=PATIENCE_S)
    callers.model.ends.set()
    assert_right(asked, "a")


def test_nothing_is_sent_for_nobody(callers: Callers) -> None:
    callers.occupy()
    there = Event()
    there.set()
    asked = callers.ask("a", Deadline(is_waiting=there.is_set))
    assert callers.hold.begun.acquire(timeout=PATIENCE_S)
    late = callers.follow("b", Deadline.after(0.02))
    assert isinstance(raised(late), DeadlineExceeded)
    there.clear()
    callers.hold.ends.set()
    assert isinstance(raised(asked), Cancelled)
    assert len(callers.model.asked) == 1


# All of it


def test_many_callers_get_their_own_vectors() -> None:
    class Slow(HashEmbedder):
        def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
            sizes.append(len(texts))
            time.sleep(0.002)
            return super().embed(texts, deadline)

    sizes: list[int] = []
    together = CoalescingEmbedder(Slow(16), 1)
    texts = [str(number % 300) for number in range(1000)]
    with ThreadPoolExecutor(40) as threads:
        vectors = threads.map(lambda text: together.embed([text], Deadline.after(60)), texts)
    assert np.array_equal(np.concatenate(list(vectors)), HashEmbedder(16).embed(texts))
    assert max(sizes) <= MAX_TEXTS
    assert len(sizes) < len(texts) / 2


@pytest.mark.parametrize(
    ("embedder", "shares"), [("hash:8", False), ("builtin", True), ("openai", True)]
)
def test_what_is_slower_than_a_hold_shares(
    embedder: str, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HRAG_EMBEDDER", embedder)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert isinstance(open_query_embedder(CommonSettings()), CoalescingEmbedder) is shares
