"""If a transfer is killed, the next run continues it, and no document is lost or copied twice."""

import signal
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.crash import statements
from tests.crash.transfer_at_point import engine_of, transferred
from tests.support.documents.random_stores import contents, fill, vectors
from tests.support.servers.forked import ran

_POINTS = ("put.written", "put.committed")
# The components of vectors are stored in 16 bits.
_TOLERANCE = 1e-3


def _killed_at_each_commit(source: str, target: str, point: str) -> None:
    """Runs a transfer again and again; each run kills itself at its second commit.

    The last run has no second commit and completes the transfer. Fails unless both stores then have
    the same contents.
    """
    with closing(engine_of(source)) as engine:
        fill(engine.writer(), 3, 6)
    kills = 0
    while True:
        process = ran("-m", "tests.crash.transfer_at_point", source, target, point, "2")
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.stderr
        kills += 1
    assert kills >= 3
    report = transferred(source, target)
    assert (report.differences, report.copied) == ((), 0)
    with closing(engine_of(source)) as original, closing(engine_of(target)) as copy:
        assert contents(copy.reader()) == contents(original.reader())
        pairs = zip(vectors(original.reader()), vectors(copy.reader()), strict=True)
        for vector, copied_vector in pairs:
            assert np.allclose(vector, copied_vector, atol=_TOLERANCE)
        assert copy.administration().check().problems == ()


@pytest.mark.parametrize("point", _POINTS)
def test_a_transfer_killed_at_each_commit_loses_and_repeats_no_document(
    tmp_path: Path, point: str
) -> None:
    _killed_at_each_commit(str(tmp_path / "source"), str(tmp_path / "target"), point)


@pytest.mark.postgres
@pytest.mark.parametrize("point", statements.POINTS)
def test_a_transfer_to_postgresql_continues_after_each_kill(
    tmp_path: Path, postgres_dsn: str, point: str
) -> None:
    _killed_at_each_commit(str(tmp_path / "source"), postgres_dsn, point)


@pytest.mark.postgres
@pytest.mark.parametrize("point", _POINTS)
def test_a_transfer_from_postgresql_continues_after_each_kill(
    tmp_path: Path, postgres_dsn: str, point: str
) -> None:
    _killed_at_each_commit(postgres_dsn, str(tmp_path / "target"), point)
