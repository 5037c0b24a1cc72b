"""Deadlines."""

import math

import pytest

from hrag.deadline import NEVER, Deadline
from hrag.errors import DeadlineExceeded


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
