"""Tests of the check in a child process, which may end before it has checked everything.

Only a signal that damaged pages cause means that the store is damaged.
"""

import json
import sys

import pytest

from hrag.engine.embedded.admin import check_process
from hrag.engine.embedded.admin.check_process import check_apart
from hrag.engine.embedded.store import child_process
from hrag.engine.embedded.store.child_process import run_module
from hrag.engine.embedded.store.environment import open_for_writing
from hrag.errors import TooBusy


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "store"
    open_for_writing(folder).close()
    return folder


@pytest.mark.parametrize(
    ("signal", "is_damage"), [("SEGV", True), ("BUS", True), ("KILL", False), ("TERM", False)]
)
def test_problems_found_before_the_process_ended_are_reported(
    folder, tmp_path, monkeypatch, signal, is_damage
):
    script = tmp_path / "child"
    script.write_text(f"""#!/bin/sh\necho '{{"problem": "first"}}'\nkill -{signal} $$\n""")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    # A fixture of all tests replaces `run_module`. This test needs the original function.
    monkeypatch.setattr(child_process, "run_module", run_module)
    first, last = check_apart(folder).problems
    assert first == "first"
    assert "what follows was not checked" in last
    assert ("damaged" in last) == is_damage
    assert ("restore a backup" in last) == is_damage


def test_a_busy_store_is_not_reported_as_damaged(folder, monkeypatch, capsys):
    def busy(*_):
        raise TooBusy("6,144 read transactions are open")

    monkeypatch.setattr(check_process, "check", busy)
    check_process.main(folder, alone=False)
    assert json.loads(capsys.readouterr().out) == {
        "unavailable": "6,144 read transactions are open"
    }
