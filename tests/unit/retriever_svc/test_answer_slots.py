"""How many answers are written at once, and for whom."""

from contextlib import ExitStack

import pytest

from hrag.errors import TooBusy
from retriever_svc.answer_slots import AnswerSlots


class Clock:
    """Seconds that pass when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_tenant_alone_may_have_all_slots() -> None:
    slots = AnswerSlots(3, Clock())
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(slots.slot("a"))
        with pytest.raises(TooBusy, match="3 answers are being written, which is as many"):
            held.enter_context(slots.slot("a"))
    with slots.slot("a"):
        pass


def test_while_others_ask_a_tenant_has_half_of_the_slots() -> None:
    clock = Clock()
    slots = AnswerSlots(4, clock)
    with ExitStack() as held:
        held.enter_context(slots.slot("b"))
        held.enter_context(slots.slot("a"))
        held.enter_context(slots.slot("a"))
        with pytest.raises(TooBusy, match=r"2 answers .* tenant 'a'"):
            held.enter_context(slots.slot("a"))
        held.enter_context(slots.slot("b"))
    clock.now = 61.0
    with ExitStack() as held:
        held.enter_context(slots.slot("b"))
        clock.now = 130.0
        for _ in range(3):
            held.enter_context(slots.slot("b"))
