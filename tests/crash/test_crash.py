"""A store loses no acknowledged write, and has no half write, whenever a process is killed.

SIGKILL ends the process, but not the machine: the kernel keeps what was not synced. What a power
loss leaves is the subject of `test_power_loss.py`.
"""

import random
from pathlib import Path

import pytest

from hrag.engine.embedded.store import failpoints
from tests.crash.harness import MIN_RECALL, CrashRun, Kill, Tally, planned

_SEED = 20_250_711
_FEW_POINTS = ("put.committed", "segment.renamed")
# A kill takes some seconds, so most runs kill at a few of the points only. `make test-endurance`
# kills at each of them several times.
_DRAWN_POINTS = 6


def _run(data_dir: Path, kills: list[Kill], seed: int, capsys: pytest.CaptureFixture[str]) -> Tally:
    run = CrashRun(data_dir, seed)
    try:
        run.run(kills)
    finally:
        run.close()
        with capsys.disabled():
            lines = [f"\n{len(kills)} kills planned from seed {seed}", *run.tally.lines()]
            print(*lines, sep="\n")  # noqa: T201 - a run reports its figures
    return run.tally


@pytest.mark.timeout(600)
def test_a_few_kills_lose_no_acknowledged_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kills = planned(random.Random(_SEED), _FEW_POINTS, 1, 1)
    tally = _run(tmp_path / "store", kills, _SEED, capsys)
    assert tally.kills.total() == 3
    assert tally.losses == 0
    assert tally.recall >= MIN_RECALL


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_kills_at_drawn_crash_points_lose_no_acknowledged_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = _drawn_seed()
    source = random.Random(seed)
    points = source.sample(failpoints.POINTS, _DRAWN_POINTS)
    tally = _run(tmp_path / "store", planned(source, points, 1, _DRAWN_POINTS), seed, capsys)
    assert set(points) <= set(tally.kills)
    assert tally.losses == 0
    assert tally.recall >= MIN_RECALL


@pytest.mark.endurance
@pytest.mark.timeout(2400)
def test_two_hundred_kills_lose_no_acknowledged_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = _drawn_seed()
    kills = planned(random.Random(seed), failpoints.POINTS, 5, 140)
    tally = _run(tmp_path / "store", kills, seed, capsys)
    assert tally.kills.total() >= 200
    assert {point for point in failpoints.POINTS if tally.kills[point] < 2} == set()
    assert tally.done.acknowledged > 1000
    assert tally.losses == 0
    assert tally.recall >= MIN_RECALL


def _drawn_seed() -> int:
    """Returns a new random seed. The run prints its seed, so that it can be repeated."""
    return random.SystemRandom().randrange(1 << 32)
