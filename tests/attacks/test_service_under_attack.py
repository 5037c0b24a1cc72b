"""Health checks, another tenant's calls and the memory of all services while they are attacked.

The bounds allow for a busy machine, and time in which the machine stops does not count.
`make bench-attacks` has the bounds for a quiet machine.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attacks.attackers import ATTACKS
from tests.attacks.observer import Bounds, Observation, Observer, observed_services
from tests.attacks.uptime_clock import uptime_s
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.stores import in_postgres

pytestmark = pytest.mark.attacks

_ATTACK_S = 3.0
_BOUNDS = Bounds(health_s=1.0, p50_ratio=3.0, p99_ratio=10.0, p50_floor_s=0.02, p99_floor_s=0.25)
_WITHOUT_RATIOS = replace(_BOUNDS, p50_ratio=math.inf, p99_ratio=math.inf)
_OTHER_BOUNDS = {
    # gRPC expands the references before the service sees them.
    "references": replace(_WITHOUT_RATIOS, health_s=5.0, recovery_s=5.0, growth_bytes=1 << 30),
    # A new call waits until the headers of the calls before it have been checked.
    "half_open": replace(_BOUNDS, p99_ratio=math.inf),
    "resets": replace(_BOUNDS, p99_ratio=math.inf),
}
_NEEDS_CHAT_MODEL = "answers"
_ON_POSTGRES = ("batches", "filters")


@pytest.fixture(scope="module")
def observer(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Observer]:
    with observed_services(tmp_path_factory.mktemp("observed"), clock=uptime_s) as observer:
        yield observer


@pytest.fixture(scope="module")
def quiet(observer: Observer) -> Observation:
    return observer.observe(_ATTACK_S)


@pytest.mark.parametrize("name", sorted({*ATTACKS} - {_NEEDS_CHAT_MODEL}))
def test_others_are_served_during_an_attack(
    observer: Observer, quiet: Observation, name: str
) -> None:
    attacked = observer.under_attack(name, _ATTACK_S)
    assert list(attacked.missed(quiet, _OTHER_BOUNDS.get(name, _BOUNDS))) == []


@pytest.mark.usefixtures("_no_settings_from_outside")
def test_others_are_served_while_a_model_writes_markers(tmp_path: Path) -> None:
    with observed_services(tmp_path, chat_model=True, clock=uptime_s) as observer:
        quiet = observer.observe(_ATTACK_S)
        attacked = observer.under_attack(_NEEDS_CHAT_MODEL, _ATTACK_S)
    assert list(attacked.missed(quiet, _BOUNDS)) == []


@pytest.fixture(scope="module")
def observer_on_postgres(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    _no_settings_from_outside: None,
) -> Iterator[Observer]:
    folder = tmp_path_factory.mktemp("postgres")
    with in_postgres(postgres), observed_services(folder, clock=uptime_s) as observer:
        yield observer


@pytest.fixture(scope="module")
def quiet_on_postgres(observer_on_postgres: Observer) -> Observation:
    return observer_on_postgres.observe(_ATTACK_S)


@pytest.mark.parametrize("name", _ON_POSTGRES)
def test_others_are_served_by_postgres_during_an_attack(
    observer_on_postgres: Observer, quiet_on_postgres: Observation, name: str
) -> None:
    attacked = observer_on_postgres.under_attack(name, _ATTACK_S)
    assert list(attacked.missed(quiet_on_postgres, _BOUNDS)) == []
