"""A limited number of answers are written at the same time, in total and for one tenant."""

from contextlib import ExitStack

import pytest

from hrag.errors import TooBusy
from retriever_svc.answer_slots import AnswerSlots


class Clock:
    """A clock that shows the time in seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_tenant_may_use_all_slots_while_no_other_tenant_asks() -> None:
    slots = AnswerSlots(3, Clock())
    with ExitStack() as open_slots:
        for _ in range(3):
            open_slots.enter_context(slots.slot("a"))
        with pytest.raises(TooBusy, match="3 answers are being written, which is as many"):
            open_slots.enter_context(slots.slot("a"))
    with slots.slot("a"):
        pass


def test_a_tenant_may_use_half_of_the_slots_while_other_tenants_ask() -> None:
    clock = Clock()
    slots = AnswerSlots(4, clock)
    with ExitStack() as open_slots:
        open_slots.enter_context(slots.slot("b"))
        open_slots.enter_context(slots.slot("a"))
        open_slots.enter_context(slots.slot("a"))
        with pytest.raises(TooBusy, match=r"2 answers .* tenant 'a'"):
            open_slots.enter_context(slots.slot("a"))
        open_slots.enter_context(slots.slot("b"))
    clock.now = 61.0
    with ExitStack() as open_slots:
        open_slots.enter_context(slots.slot("b"))
        clock.now = 130.0
        for _ in range(3):
            open_slots.enter_context(slots.slot("b"))
