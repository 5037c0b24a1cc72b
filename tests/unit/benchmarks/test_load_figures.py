"""Figures of a load test: percentiles and goodput, which show stalls of the server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.load import generator
from benchmarks.load.figures import UNSENT, Figures, Outcome, joined
from benchmarks.load.generator import drive
from benchmarks.load.work import Work

RATE = 200.0


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when no task can run.

    So a load of a second takes a moment, and a busy machine does not change its figures.
    """

    now_s = 0.0
    _ready: Any
    _scheduled: Any

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        if self._scheduled and not self._ready:
            self.now_s = max(self.now_s, self._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> FakeTimeLoop:
    loop = FakeTimeLoop()
    monkeypatch.setattr(generator, "time", SimpleNamespace(monotonic=loop.time))
    return loop


def _run_load(loop, send, *, duration_s=1.0, max_in_flight=1000):
    work = Work(rate=RATE, duration_s=duration_s)
    numbers = range(work.count)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(drive(work, send, numbers, loop.time(), max_in_flight))


def test_latency_counts_from_the_due_time_and_for_successful_calls_only():
    late = Outcome(due_s=1.0, sent_s=1.5, ended_s=1.6, code="OK")
    failed = Outcome(due_s=1.0, sent_s=1.0, ended_s=9.0, code="UNAVAILABLE")
    figures = Figures([late, failed])
    assert figures.took_ms.tolist() == [pytest.approx(600)]
    assert sorted(figures.late_ms.tolist()) == [0.0, pytest.approx(500)]
    assert figures.codes == {"OK": 1, "UNAVAILABLE": 1}


def test_goodput_counts_calls_that_succeeded_within_the_time():
    outcomes = [Outcome(0.0, 0.0, ended / 10, "OK") for ended in range(30)]
    outcomes += [Outcome(0.0, 0.0, 0.5, "RESOURCE_EXHAUSTED")] * 100
    assert Figures(outcomes).goodput(0, 2) == 10
    assert Figures(outcomes).goodput(1, 3) == 10


def test_figures_of_several_processes_are_joined_in_the_order_of_due_times():
    even, odd = (
        Figures([Outcome(due / 10, 0.0, 0.0, "OK") for due in range(first, 10, 2)])
        for first in (0, 1)
    )
    assert [outcome.due_s for outcome in joined([odd, even]).outcomes] == [
        due / 10 for due in range(10)
    ]


def test_a_report_has_percentiles_and_codes_of_searches_and_writes():
    outcomes = [Outcome(0.0, 0.0, (1 + number) / 1000, "OK") for number in range(1000)]
    outcomes.append(Outcome(0.0, 0.0, 0.0, "UNAVAILABLE", writes=True))
    report = "\n".join(Figures(outcomes).lines(1.0))
    assert "1,001 calls: OK 1,000, UNAVAILABLE 1" in report
    assert "p50 501.00" in report
    assert "p99.9 1000.00" in report
    assert "TOO SLOW" not in report
    assert next(Figures(outcomes).of_kind(writes=True).lines(1.0)) == "1 calls: UNAVAILABLE 1"
    assert list(Figures([]).lines(1.0)) == ["no calls"]


def test_percentiles_show_a_server_that_stalls(loop):
    """The server stalls for half a second of one second.

    Half of the calls are due during the stall, and they wait.
    """
    began = []

    async def send(number):
        began.append(loop.time())
        at = began[-1] - began[0]
        await asyncio.sleep(max(0.0, 0.75 - at) if at > 0.25 else 0.0)
        return "OK"

    figures = _run_load(loop, send)
    assert figures.codes == {"OK": RATE}
    waited = (figures.took_ms > 50).sum() / RATE
    # The expected share is 0.45: all calls of the stall except those of its last 50 ms.
    assert 0.4 <= waited <= 0.9
    assert figures.took_ms.max() > 400


def test_a_load_generator_that_stalls_is_reported_as_too_slow(loop):
    async def send(number):
        if number == 50:
            loop.now_s += 0.4
        return "OK"

    figures = _run_load(loop, send)
    assert (figures.took_ms > 50).sum() >= 60
    assert "TOO SLOW" in "\n".join(figures.lines(1.0))


def test_a_slow_server_does_not_slow_the_load_down(loop):
    async def send(number):
        await asyncio.sleep(0.3)
        return "OK"

    figures = _run_load(loop, send, duration_s=0.5)
    sent = [outcome.sent_s for outcome in figures.outcomes]
    assert len(sent) == RATE * 0.5
    # If each call were sent after the reply to the call before, the calls would take 30 s.
    assert max(sent) < 5


def test_calls_beyond_the_limit_in_flight_are_counted_as_unsent(loop):
    async def send(number):
        await asyncio.sleep(1.5)
        return "OK"

    figures = _run_load(loop, send, duration_s=0.1, max_in_flight=5)
    assert figures.codes == {"OK": 5, UNSENT: 15}
