"""Deadlines."""

import math

import pytest

from hrag.deadline import NEVER, Deadline
from hrag.errors import Cancelled, DeadlineExceeded


def test_a_deadline_ahead_lets_work_go_on() -> None:
    deadline = Deadline.after(60)
    deadline.check("embedding")
    assert 59 < deadline.remaining_s <= 60


@pytest.mark.parametrize("seconds", [0, -1, -math.inf])
def test_a_deadline_that_has_passed_names_the_stage(seconds: float) -> None:
    with pytest.raises(DeadlineExceeded, match="the deadline passed while embedding"):
        Deadline.after(seconds).check("embedding")


def test_never_does_not_come() -> None:
    NEVER.check("anything")
    assert NEVER.remaining_s == math.inf


def test_a_caller_that_is_gone_is_told_from_a_deadline_that_has_passed() -> None:
    with pytest.raises(Cancelled, match="the caller went away while embedding"):
        Deadline.after(60, lambda: False).check("embedding")
    with pytest.raises(DeadlineExceeded):
        Deadline.after(-1, lambda: False).check("embedding")


def test_within_comes_no_later_and_is_the_same_callers() -> None:
    assert 59 < NEVER.within(60).remaining_s <= 60
    assert Deadline.after(-1).within(60).remaining_s <= -1
    with pytest.raises(Cancelled):
        Deadline(waits=lambda: False).within(60).check("embedding")
