"""The engine's programs run in interpreters of their own; elsewhere, tests fork them."""

from pathlib import Path

import pytest

from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.store import child_process
from hrag.engine.embedded.store.child_process import run_module
from hrag.engine.embedded.store.environment import Store


def test_a_program_runs_in_an_interpreter_of_its_own(tmp_path: Path) -> None:
    ended = run_module("hrag.engine.embedded.store.page_probe", str(tmp_path / "none"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert str(tmp_path / "none") in ended.stderr


def test_a_store_is_checked_by_such_a_program(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "run_module", run_module)
    assert check_apart(store.directory).problems == ()
