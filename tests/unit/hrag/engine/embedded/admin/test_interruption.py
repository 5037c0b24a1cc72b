"""Tests that kill a backup, a restore and a vacuum at one step after another.

A step is any function call in the code of these operations. One process prepares a store and forks
a child for each kill, so hundreds of kills take only seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import os, shutil, signal, sys
from contextlib import closing
from pathlib import Path

import structlog
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))

from hrag.engine.embedded.admin import backup, check, vacuum
from hrag.engine.embedded.store import environment, location, store_locks
from hrag.host import durable_files
from tests.unit.hrag.engine.embedded.admin.test_vacuum import contents, make_store

base, operation = Path(sys.argv[1]), sys.argv[2]
original, at, made = base / "original", base / "at", base / "made"
MODULES = (backup, vacuum, location, store_locks, durable_files, environment, shutil)
WATCHED = {module.__file__ for module in MODULES}


def say_nothing(line):
    pass


def back_up():
    with closing(environment.open_for_reading(at)) as opened:
        backup.backup(opened, made, say_nothing)


def restore():
    backup.restore(original / "backup", at, say_nothing)


def prepare():
    for folder in (at, made, base / "made.partial"):
        shutil.rmtree(folder, ignore_errors=True)
    if operation != "restore":
        shutil.copytree(original / "store", at)


def run_until(step):
    left = step

    def count(frame, event, argument):
        nonlocal left
        if event in ("call", "c_call") and frame.f_code.co_filename in WATCHED:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    {"vacuum": lambda: vacuum.vacuum(at), "backup": back_up, "restore": restore}[operation]()
    sys.setprofile(None)


def killed_at(step):
    child = os.fork()
    if child == 0:
        try:
            run_until(step)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def verify(expected):
    if operation == "restore":
        assert not (at / "data.mdb").exists() or contents(at) == expected
        if not (at / "data.mdb").exists():
            restore()
    if operation == "backup":
        assert not made.exists() or contents(made) == expected
        if not made.exists():
            back_up()
        assert contents(made) == expected
        assert [path.name for path in base.iterdir() if "partial" in path.name] == []
    assert contents(at) == expected
    with closing(environment.open_for_writing(at)) as opened:
        assert check.check(opened).problems == ()
    assert not (at / "vacuum.tmp").exists()


make_store(original / "store", documents=6)
with closing(environment.open_for_reading(original / "store")) as opened:
    backup.backup(opened, original / "backup", say_nothing)
expected = contents(original / "store")
kills, stride = 0, int(sys.argv[3])
while True:
    prepare()
    if not killed_at(kills * stride):
        break
    kills += 1
    verify(expected)
verify(expected)
print(kills)
"""


OPERATIONS = ("vacuum", "backup", "restore")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_is_killed_is_done_completely_or_not_at_all(
    tmp_path: Path, operation: str
) -> None:
    assert count_kills(tmp_path, operation, stride=23) > 5


@pytest.mark.endurance
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_killed_at_many_steps_is_done_completely_or_not_at_all(
    tmp_path: Path, operation: str
) -> None:
    """Kills at every sixth step. Killing at every step would take a quarter of an hour."""
    assert count_kills(tmp_path, operation, stride=6) >= 20


def count_kills(folder: Path, operation: str, stride: int) -> int:
    """Kills the operation at every `stride`-th step, each time in a new run; counts the kills."""
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, str(folder), operation, str(stride)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)
