"""Long calls yield to short calls of other tenants."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from hrag.server.admission.arrival import Behavior, PendingCall
from hrag.server.admission.cooperative_yield import RunningCalls
from hrag.server.admission.executor import AdmissionExecutor
from hrag.server.admission.lane import Lane
from hrag.values.current_call import CURRENT
from hrag.values.errors import HragError

# A step uses this processor time. After three steps (over 10 ms), a call counts as long.
_STEP_S = 1 / 256


class RunningCall(PendingCall):
    """A call whose handler runs, so that its message is counted and it is not rejected."""

    def account_of(self, message: bytes) -> str:
        raise AssertionError("the call has been counted")

    def rejection(self, error: HragError) -> Behavior:
        raise AssertionError("the call has been admitted")


class Calls:
    """Calls that each run in a thread of their own, with a fake clock of processor time."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self._thread = threading.local()
        self._running = RunningCalls(self._now_s, self.slept_s.append, self._now_s)
        self._ending = ExitStack()

    def start(self, tenant: str) -> ThreadPoolExecutor:
        """Starts a call that runs until `end`, and returns its thread."""
        thread = self._ending.enter_context(ThreadPoolExecutor(1))
        counted = self._running.call(tenant)
        call = RunningCall(Lane.POOL)
        call.running = thread.submit(counted.__enter__).result()
        thread.submit(CURRENT.set, call)
        self._ending.callback(lambda: thread.submit(counted.__exit__, None, None, None).result())
        return thread

    def compute(self, thread: ThreadPoolExecutor, seconds: float) -> None:
        """Runs a step of a call that needs `seconds` of processor time."""
        thread.submit(self._compute, seconds).result()

    def end(self) -> None:
        """Ends all calls, and asserts that no short call is counted any more."""
        self._ending.close()
        assert not self._running.has_short_of_others("")

    def _compute(self, seconds: float) -> None:
        self._thread.s = self._now_s() + seconds
        CURRENT.get().yield_to_others()

    def _now_s(self) -> float:
        return getattr(self._thread, "s", 0.0)


@pytest.fixture
def calls() -> Iterator[Calls]:
    calls = Calls()
    yield calls
    calls.end()


def test_a_long_call_sleeps_as_long_as_it_computed_while_a_short_call_runs(
    calls: Calls,
) -> None:
    call = calls.start("a")
    calls.compute(call, _STEP_S)
    calls.start("b")
    calls.compute(call, _STEP_S)
    assert calls.slept_s == []
    for seconds in (_STEP_S, _STEP_S / 2, 1):
        calls.compute(call, seconds)
    assert calls.slept_s == [0.005, _STEP_S / 2, 0.005]


def test_a_long_call_does_not_sleep_while_only_its_tenant_calls(calls: Calls) -> None:
    calls.start("a")
    calls.compute(calls.start("a"), 1)
    assert calls.slept_s == []


def test_long_calls_of_two_tenants_do_not_yield_to_each_other(calls: Calls) -> None:
    both = calls.start("a"), calls.start("b")
    for call in both:
        calls.compute(call, 1)
    # The call of tenant `a` slept while the call of tenant `b` was short.
    assert calls.slept_s == [0.005]
    for call in both:
        calls.compute(call, 1)
    assert calls.slept_s == [0.005]


def test_long_calls_sleep_one_after_the_other() -> None:
    """If all of them slept at the same time, they would also compute at the same time."""
    sleeping = threading.Semaphore(1)
    slept = []

    def sleep(seconds: float) -> None:
        assert sleeping.acquire(blocking=False), "another long call sleeps"
        time.sleep(seconds)
        sleeping.release()
        slept.append(seconds)

    running = RunningCalls(sleep=sleep)

    def sleep_often() -> None:
        for _ in range(10):
            running.sleep_for_others("a", 0.001)

    with running.call("b"), ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(sleep_often) for _ in range(4)]:
            done.result()
    assert len(slept) == 40


def test_a_computation_outside_a_call_does_not_sleep(calls: Calls) -> None:
    calls.start("a")
    with ThreadPoolExecutor(1) as thread:
        calls.compute(thread, 1)
    assert calls.slept_s == []


def test_processor_time_is_not_read_before_enough_wall_time_has_passed() -> None:
    readings = []

    def clock() -> float:
        readings.append(1)
        return 0.0

    with RunningCalls(clock, wall_clock=lambda: 0.0).call("a") as call:
        readings_at_start = len(readings)
        for _ in range(10):
            call.yield_to_others()
    assert len(readings) == readings_at_start


class AnsweringCall(RunningCall):
    """A call in a dedicated thread that records what counts its processor time."""

    counted_by: Any = None

    def run(self, running: Any = None) -> bool:
        self.counted_by = running
        return True


def test_a_call_in_a_dedicated_thread_yields_too() -> None:
    executor = AdmissionExecutor(1, 10, 10, 10.0, 10, 1 << 20)
    call = AnsweringCall(Lane.DEDICATED)
    executor.streams.start(call)
    executor.streams.join()
    assert call.counted_by is not None
