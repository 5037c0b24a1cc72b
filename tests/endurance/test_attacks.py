"""Health checks and other tenants' searches stay quick during several attacks at once."""

from pathlib import Path

import pytest

from tests.attacks.observed import health_s, memory_bytes, p99_s, threads_of
from tests.attacks.world import (
    HALF_OPEN,
    IDLE_STREAMS,
    UNREAD,
    everything_at_once,
    guarded_services,
)
from tests.endurance.processes import MB
from tests.endurance.report import Report
from tests.support.servers.processes import fresh
from tests.support.until import until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(300)]

SEARCHES = 1000


def test_health_and_searches_of_others_stay_quick_under_attack(
    tmp_path: Path, report: Report
) -> None:
    with guarded_services(tmp_path, fresh) as guarded:
        processes = (guarded.services.retriever, guarded.services.indexer)
        p99_s(guarded.search, 300)
        quiet = p99_s(guarded.search, SEARCHES)
        memory = [memory_bytes(process) for process in processes]
        threads = [threads_of(process) for process in processes]
        with everything_at_once(guarded):
            health = max(health_s(process) for process in processes * 20)
            attacked = p99_s(guarded.search, SEARCHES)
            grown = [
                memory_bytes(process) - before
                for process, before in zip(processes, memory, strict=True)
            ]
        attacks = (
            f"{HALF_OPEN} half-open calls, {IDLE_STREAMS} idle streams, {UNREAD} unread replies"
        )
        report.at_most(100, health * 1e3, f"{attacks}: the slowest health check", "ms")
        report.record("p99 of another tenant's searches, quiet", f"{quiet * 1e3:.2f} ms")
        report.at_most(3, attacked / quiet, "p99 of another tenant's searches, to quiet", "x")
        report.at_most(300, max(grown) / MB, "the memory of a service grows by", "MB")
        for process, before in zip(processes, threads, strict=True):
            until(lambda process=process, before=before: threads_of(process) <= before)
    assert report.missed == []
