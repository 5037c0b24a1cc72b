"""The concurrency limiter decides which calls of a tenant run, and which calls wait."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import TooBusy
from hrag.server.admission.concurrency_limiter import ConcurrencyLimiter

# While other tenants call, a tenant may use a quarter of the threads, which is one thread here.
THREADS = 4


class LimitedCalls:
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


def _calls_of_one_tenant(max_waiting: int = 3) -> LimitedCalls:
    """Returns a limiter for which `a` is the only tenant that has called recently."""
    calls = LimitedCalls(max_waiting)
    calls.enter("a", "first")
    calls.leave("a", "first")
    calls.now = 10.0
    return calls


def test_a_tenant_that_calls_alone_uses_all_threads() -> None:
    calls = _calls_of_one_tenant()
    calls.enter("a", "1", "2", "3", "4", "5")
    assert calls.running == ["1", "2", "3", "4"]


def test_a_tenant_uses_only_its_share_while_other_tenants_call() -> None:
    calls = _calls_of_one_tenant()
    calls.enter("b", "b1")
    calls.enter("a", "1", "2", "3")
    assert calls.running == ["b1", "1"]


def test_a_tenant_uses_only_its_share_for_a_second_after_a_call_of_another_tenant() -> None:
    calls = _calls_of_one_tenant()
    calls.enter("b", "b1")
    calls.leave("b", "b1")
    calls.enter("a", "1", "2", "3")
    assert calls.running == ["1"]
    calls.now += 1.5
    calls.leave("a", "1")
    assert calls.running == ["2", "3"]
    calls.enter("a", "4", "5", "6")
    assert len(calls.running) == THREADS


def test_waiting_calls_run_in_the_order_of_their_arrival() -> None:
    calls = _calls_of_one_tenant(10)
    calls.enter("a", *"1234567")
    for name in "1234":
        calls.leave("a", name)
    assert calls.running == ["5", "6", "7"]


def test_a_withdrawn_call_stops_waiting_and_never_runs() -> None:
    calls = _calls_of_one_tenant(2)
    calls.enter("a", *"123456")
    assert calls.limiter.withdraw("a", "5")  # type: ignore[arg-type]
    assert not calls.limiter.withdraw("a", "5")  # type: ignore[arg-type]
    assert not calls.limiter.withdraw("a", "1")  # type: ignore[arg-type]
    assert not calls.limiter.withdraw("b", "6")  # type: ignore[arg-type]
    calls.enter("a", "7")
    for name in "12":
        calls.leave("a", name)
    assert calls.running == ["3", "4", "6", "7"]


def test_calls_beyond_the_limit_of_waiting_calls_are_refused() -> None:
    calls = _calls_of_one_tenant(2)
    calls.enter("a", *"123456")
    with pytest.raises(TooBusy, match=r"'a' has 2 waiting calls.*HRAG_TENANT_MAX_WAITING_CALLS"):
        calls.enter("a", "7")
    calls.enter("b", "b1")
    assert calls.running[-1] == "b1"


def test_a_suspended_call_uses_no_thread_and_counts_as_waiting() -> None:
    calls = _calls_of_one_tenant(1)
    calls.enter("a", "1", "2", "3", "4")
    calls.limiter.suspend("a")
    calls.leave("a", "1")
    calls.enter("a", "5")
    with pytest.raises(TooBusy):
        calls.limiter.suspend("a")
    with pytest.raises(TooBusy):
        calls.enter("a", "6")
    calls.limiter.resume("a", "1")  # type: ignore[arg-type]
    assert calls.running == ["2", "3", "4", "5"]
    calls.leave("a", "2")
    assert calls.running == ["3", "4", "5", "1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=80))
def test_no_tenant_uses_more_than_all_threads_and_every_call_runs(
    steps: list[tuple[str, bool]],
) -> None:
    calls = LimitedCalls(100)
    entered: Counter[str] = Counter()
    finished = 0
    for number, (tenant, enters) in enumerate(steps):
        if enters:
            calls.enter(tenant, f"{tenant}{number}")
            entered[tenant] += 1
        elif running := [name for name in calls.running if name[0] == tenant]:
            calls.leave(tenant, running[0])
            finished += 1
        for checked in "abc":
            assert sum(name[0] == checked for name in calls.running) <= THREADS
    while calls.running:
        name = calls.running[0]
        calls.leave(name[0], name)
        finished += 1
    assert finished == entered.total()
    assert calls.limiter.tenants == frozenset()
