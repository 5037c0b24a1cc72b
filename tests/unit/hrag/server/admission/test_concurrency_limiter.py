"""The concurrency limiter: which calls of a tenant run, and which calls wait."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooBusy
from hrag.server.admission.concurrency_limiter import ConcurrencyLimiter

THREADS = 4  # A tenant that is not alone may use a quarter of them, which is one.


class World:
    """A limiter, its clock, and the running calls that it has started."""

    def __init__(self, max_waiting: int = 3) -> None:
        self.now = 0.0
        self.running: list[Any] = []
        self.limiter = ConcurrencyLimiter(
            THREADS, max_waiting, self.running.append, lambda: self.now
        )

    def enter(self, tenant: str, *names: str) -> None:
        for name in names:
            self.limiter.enter(tenant, name)  # type: ignore[arg-type]

    def leave(self, tenant: str, name: str) -> None:
        self.running.remove(name)
        self.limiter.leave(tenant)


def _alone(max_waiting: int = 3) -> World:
    """Returns a world in which only tenant `a` has called for some time."""
    world = World(max_waiting)
    world.enter("a", "first")
    world.leave("a", "first")
    world.now = 10.0
    return world


def test_a_tenant_alone_may_take_all_threads() -> None:
    world = _alone()
    world.enter("a", "1", "2", "3", "4", "5")
    assert world.running == ["1", "2", "3", "4"]


def test_while_others_call_a_tenant_has_its_share() -> None:
    world = _alone()
    world.enter("b", "b1")
    world.enter("a", "1", "2", "3")
    assert world.running == ["b1", "1"]


def test_a_tenant_has_only_its_share_for_a_second_after_anothers_call() -> None:
    world = _alone()
    world.enter("b", "b1")
    world.leave("b", "b1")
    world.enter("a", "1", "2", "3")
    assert world.running == ["1"]
    world.now += 1.5
    world.leave("a", "1")
    assert world.running == ["2", "3"]
    world.enter("a", "4", "5", "6")
    assert len(world.running) == THREADS


def test_waiting_calls_run_in_their_order() -> None:
    world = _alone(10)
    world.enter("a", *"1234567")
    for name in "1234":
        world.leave("a", name)
    assert world.running == ["5", "6", "7"]


def test_a_call_that_is_withdrawn_gives_its_place_to_another() -> None:
    world = _alone(2)
    world.enter("a", *"123456")
    assert world.limiter.withdraw("a", "5")  # type: ignore[arg-type]
    assert not world.limiter.withdraw("a", "5")  # type: ignore[arg-type]
    assert not world.limiter.withdraw("a", "1")  # type: ignore[arg-type]
    assert not world.limiter.withdraw("b", "6")  # type: ignore[arg-type]
    world.enter("a", "7")
    for name in "12":
        world.leave("a", name)
    assert world.running == ["3", "4", "6", "7"]


def test_calls_beyond_the_limit_of_waiting_ones_are_refused() -> None:
    world = _alone(2)
    world.enter("a", *"123456")
    with pytest.raises(TooBusy, match=r"'a' has 2 waiting calls.*HRAG_TENANT_MAX_WAITING_CALLS"):
        world.enter("a", "7")
    world.enter("b", "b1")
    assert world.running[-1] == "b1"


def test_a_suspended_call_waits_without_a_thread_and_counts() -> None:
    world = _alone(1)
    world.enter("a", "1", "2", "3", "4")
    world.limiter.suspend("a")
    world.leave("a", "1")
    world.enter("a", "5")
    with pytest.raises(TooBusy):
        world.limiter.suspend("a")
    with pytest.raises(TooBusy):
        world.enter("a", "6")
    world.limiter.resume("a", "1")  # type: ignore[arg-type]
    assert world.running == ["2", "3", "4", "5"]
    world.leave("a", "2")
    assert world.running == ["3", "4", "5", "1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=80))
def test_no_tenant_has_more_than_the_threads_and_every_call_runs(
    steps: list[tuple[str, bool]],
) -> None:
    world = World(100)
    entered: Counter[str] = Counter()
    done = 0
    for number, (tenant, enters) in enumerate(steps):
        if enters:
            world.enter(tenant, f"{tenant}{number}")
            entered[tenant] += 1
        elif running := [name for name in world.running if name[0] == tenant]:
            world.leave(tenant, running[0])
            done += 1
        for other in "abc":
            assert sum(name[0] == other for name in world.running) <= THREADS
    while world.running:
        name = world.running[0]
        world.leave(name[0], name)
        done += 1
    assert done == entered.total()
    assert world.limiter._tenants == {}
