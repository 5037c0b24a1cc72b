"""After an outage of PostgreSQL, no connection stays in a wrong state, and no call fails.

An outage can happen at each statement of each call. A few seeded outages are tested by default, all
of them and a thousand in total in the group `endurance`.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import pytest

from tests.crash.postgres_calls import CALLS, MAINTENANCE
from tests.crash.postgres_outages import LONG_S, QUICK, SLOW, Kind, Site, site
from tests.support.servers.postgres_server import PostgresServer, why_not

pytestmark = pytest.mark.postgres

_SEED = 20_261_126
_FEW = 42
_MANY = 1000
# In the long run, one of this many outages is a slow one.
_SLOW_EVERY = 12


@dataclass
class OutageRun:
    """Causes outages at statements of calls, and verifies that calls succeed afterwards."""

    site: Site
    seed: int
    outages: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def run(self, name: str, kind_name: str, kind: Kind, at: int | None = None) -> None:
        """Causes an outage in the call `name`, at its statement `at` or at a random one."""
        # The statements of the call are new to the connection, are about to be prepared, or are
        # prepared.
        for _ in range(self._draw.randrange(3)):
            CALLS[name](self.site.direct)
        if at is None:
            at = 1 + self._draw.randrange(self.site.count_points(name, kind))
        try:
            happened = self._interrupt(name, kind, at)
            self.site.verify(name, kind, self._draw.choice(list(CALLS)))
        except BaseException as error:
            error.add_note(f"seed {self.seed}, {kind_name} at statement {at} of {name}")
            raise
        if happened:
            self.outages[kind_name] += 1
            self.calls[name] += 1

    def _interrupt(self, name: str, kind: Kind, at: int) -> bool:
        """Causes an outage in a call; returns False if the call sends fewer statements.

        If the machine pauses, a caller's deadline may pass before the statement. Then the call is
        repeated with a later deadline.
        """
        factors = (1, 8, 64) if kind.deadline_s < LONG_S else (1,)
        kinds = (replace(kind, deadline_s=factor * kind.deadline_s) for factor in factors)
        return any(self.site.interrupt(name, each, at) for each in kinds)

    def interrupt_maintenance(self, every: int) -> None:
        """Ends maintenance at every `every`-th exchange with the server, and continues it.

        Fails unless the store is sound after each interruption, and all work is completed later.
        """
        kinds = [name for name, kind in QUICK.items() if kind.at_waits]
        for name in MAINTENANCE:
            exchanges = self.site.count_points(name, QUICK[kinds[0]])
            for at in range(1 + self._draw.randrange(every), 1 + exchanges, every):
                kind = self._draw.choice(kinds)
                self.run(name, kind, QUICK[kind], at)
                self.site.direct.assert_complete()
            self.site.direct.finish()


@pytest.fixture(scope="module")
def outage_site() -> Iterator[Site]:
    if problem := why_not():
        pytest.skip(problem)
    with closing(PostgresServer()) as server, site(server, server.dsn()) as built:
        yield built


def test_a_few_outages_leave_no_connection_in_a_wrong_state(outage_site: Site) -> None:
    """Each call is interrupted several times, and each quick kind of outage occurs."""
    run = OutageRun(outage_site, _SEED)
    draw = random.Random(_SEED)
    kinds = [*QUICK] * (_FEW // len(QUICK) + 1)
    names = [*CALLS] * (_FEW // len(CALLS) + 1)
    draw.shuffle(names)
    for name, kind in zip(names, kinds[:_FEW], strict=False):
        run.run(name, kind, QUICK[kind])
    assert run.outages.keys() == QUICK.keys()


def test_maintenance_that_ends_at_some_steps_is_completed_later(outage_site: Site) -> None:
    run = OutageRun(outage_site, _SEED)
    run.interrupt_maintenance(every=40)
    assert run.calls.keys() <= set(MAINTENANCE)
    assert run.outages.total() >= len(MAINTENANCE)


@pytest.mark.endurance
@pytest.mark.timeout(1800)
def test_maintenance_that_ends_at_any_step_is_completed_later(
    outage_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    run = OutageRun(outage_site, random.SystemRandom().randrange(1 << 32))
    run.interrupt_maintenance(every=1)
    assert run.calls.keys() == set(MAINTENANCE)
    with capsys.disabled():
        print(f"\nseed {run.seed}: maintenance was ended {dict(run.calls)}")  # noqa: T201 - a run reports its figures


@pytest.mark.endurance
@pytest.mark.timeout(3600)
def test_a_thousand_outages_at_all_statements_leave_no_connection_in_a_wrong_state(
    outage_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    draw, run = random.Random(seed), OutageRun(outage_site, seed)
    points = [
        (name, at)
        for name in CALLS
        for at in range(1, 1 + outage_site.count_points(name, QUICK["cancelled"]))
    ]
    draw.shuffle(points)
    try:
        while run.outages.total() < _MANY or points:
            name, at = points.pop() if points else (draw.choice(list(CALLS)), None)
            kinds = SLOW if draw.randrange(_SLOW_EVERY) == 0 else QUICK
            kind = draw.choice(list(kinds))
            run.run(name, kind, kinds[kind], at)
    finally:
        with capsys.disabled():
            print(f"\nseed {seed}: {run.outages.total()} outages: {dict(run.outages)}")  # noqa: T201 - a run reports its figures
    assert run.outages.keys() == QUICK.keys() | SLOW.keys()
    assert run.calls.keys() == CALLS.keys()
