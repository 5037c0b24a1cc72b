"""Work ends with an error when its deadline has passed or when its caller has left."""

import math
import time
from concurrent.futures import Future
from threading import Timer

import pytest

from hrag.errors import Cancelled, DeadlineExceeded
from hrag.values.deadline import NEVER, Deadline


def test_a_deadline_that_has_not_passed_raises_nothing() -> None:
    deadline = Deadline.after(60)
    deadline.check("embedding")
    assert 59 < deadline.remaining_s <= 60


@pytest.mark.parametrize("seconds", [0, -1, -math.inf])
def test_the_error_of_a_passed_deadline_names_the_stage(seconds: float) -> None:
    with pytest.raises(DeadlineExceeded, match="the deadline passed while embedding"):
        Deadline.after(seconds).check("embedding")


def test_work_without_a_deadline_never_times_out() -> None:
    NEVER.check("anything")
    assert NEVER.remaining_s == math.inf


def test_work_is_cancelled_when_its_caller_leaves_before_the_deadline() -> None:
    with pytest.raises(Cancelled, match="the call was cancelled while embedding"):
        Deadline.after(60, lambda: False).check("embedding")
    with pytest.raises(DeadlineExceeded):
        Deadline.after(-1, lambda: False).check("embedding")


def test_a_shortened_deadline_is_never_later_and_keeps_its_caller() -> None:
    assert 59 < NEVER.within(60).remaining_s <= 60
    assert Deadline.after(-1).within(60).remaining_s <= -1
    with pytest.raises(Cancelled):
        Deadline(is_waiting=lambda: False).within(60).check("embedding")


def test_work_for_several_callers_has_the_latest_of_their_deadlines() -> None:
    late, early = Deadline.after(60), Deadline.after(30)
    assert Deadline.of_any([early, late]).at_s == late.at_s
    assert Deadline.of_any([early, NEVER]).remaining_s == math.inf
    with pytest.raises(DeadlineExceeded):
        Deadline.of_any([Deadline.after(-1), Deadline.after(-2)]).check("embedding")


def test_work_for_several_callers_continues_while_any_of_them_waits() -> None:
    left, late = Deadline(is_waiting=lambda: False), Deadline.after(-1)
    Deadline.of_any([left, late, NEVER]).check("embedding")
    with pytest.raises(Cancelled):
        Deadline.of_any([left, late]).check("embedding")


def test_the_result_of_another_thread_is_returned() -> None:
    work: Future[int] = Future()
    Timer(0.02, work.set_result, [7]).start()
    assert Deadline.after(60).result_of(work, "waiting") == 7
    assert Deadline.after(-1).result_of(work, "waiting") == 7, "it is available"


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("raised by the work")])
def test_the_error_of_another_thread_is_raised(error: Exception) -> None:
    work: Future[int] = Future()
    Timer(0.02, work.set_exception, [error]).start()
    with pytest.raises(type(error)) as caught:
        NEVER.result_of(work, "waiting")
    assert caught.value is error


def test_waiting_for_a_thread_ends_at_the_deadline_or_when_the_caller_leaves() -> None:
    work: Future[int] = Future()
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="the deadline passed while waiting"):
        Deadline.after(0.02).result_of(work, "waiting")
    is_waiting = iter([True, True])
    with pytest.raises(Cancelled, match="the call was cancelled while waiting"):
        Deadline(is_waiting=lambda: next(is_waiting, False)).result_of(work, "waiting")
    assert time.monotonic() - began < 30
    work.set_result(7)  # The work was not cancelled, because other callers may wait for it.
