"""Tests of modules that the engine runs in a child process with a new Python interpreter.

In all other tests, such modules run in forked processes, which start faster.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.store import child_process
from hrag.engine.embedded.store.child_process import run_module
from hrag.engine.embedded.store.environment import Store
from tests.support.servers.processes import children_of, is_alive
from tests.support.until import until

_WAIT_S = 30.0


def test_a_module_runs_in_a_new_interpreter(tmp_path: Path) -> None:
    ended = run_module("hrag.engine.embedded.store.page_probe", str(tmp_path / "none"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert str(tmp_path / "none") in ended.stderr


def test_a_store_is_checked_in_a_new_interpreter(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "run_module", run_module)
    assert check_apart(store.directory).problems == ()


@pytest.mark.parametrize("is_running", [False, True])
def test_a_child_ends_with_its_parent_even_if_the_parent_is_killed(
    tmp_path: Path, is_running: bool
) -> None:
    """The parent is killed while the child's interpreter is starting, or while the module runs."""
    began = tmp_path / "began"
    program = ["timeit", "-n1", "-r1", f"open({str(began)!r}, 'w'); import signal; signal.pause()"]
    start = f"from {run_module.__module__} import run_module; run_module(*{program})"
    parent = subprocess.Popen([sys.executable, "-c", start])
    try:
        until(lambda: bool(children_of(parent.pid)))
        (child,) = children_of(parent.pid)
        until(lambda: began.exists() or not is_running)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not is_alive(child))
