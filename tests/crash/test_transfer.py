"""A transfer that is killed goes on when it is run again: nothing is lost, nothing comes twice."""

import signal
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tests.crash import statements
from tests.crash.transfer_at_point import engine_of, transferred
from tests.support.documents.random_stores import contents, fill, vectors
from tests.support.servers.forked import ran

_POINTS = ("put.written", "put.committed")
_TOLERANCE = 1e-3  # Of components that were stored in 16 bits.


def _killed_at_each_commit(source: str, target: str, point: str) -> None:
    """Each run is killed at the second commit of its own, until one has no second."""
    with closing(engine_of(source)) as engine:
        fill(engine.writer(), 3, 6)
    kills = count()
    while True:
        ended = ran("-m", "tests.crash.transfer_at_point", source, target, point, "2")
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        next(kills)
    assert next(kills) >= 3
    report = transferred(source, target)
    assert (report.differences, report.copied) == ((), 0)
    with closing(engine_of(source)) as one, closing(engine_of(target)) as other:
        assert contents(other.reader()) == contents(one.reader())
        for each, copy in zip(vectors(one.reader()), vectors(other.reader()), strict=True):
            assert np.allclose(each, copy, atol=_TOLERANCE)
        assert other.administration().check().problems == ()


@pytest.mark.parametrize("point", _POINTS)
def test_a_transfer_killed_at_each_commit_loses_and_repeats_nothing(
    tmp_path: Path, point: str
) -> None:
    _killed_at_each_commit(str(tmp_path / "source"), str(tmp_path / "target"), point)


@pytest.mark.postgres
@pytest.mark.parametrize("point", statements.POINTS)
def test_a_transfer_to_postgresql_goes_on_after_each_kill(
    tmp_path: Path, postgres_dsn: str, point: str
) -> None:
    _killed_at_each_commit(str(tmp_path / "source"), postgres_dsn, point)


@pytest.mark.postgres
@pytest.mark.parametrize("point", _POINTS)
def test_a_transfer_from_postgresql_goes_on_after_each_kill(
    tmp_path: Path, postgres_dsn: str, point: str
) -> None:
    _killed_at_each_commit(postgres_dsn, str(tmp_path / "target"), point)
