"""A check in a child process says what has ended it, and calls nothing else damage."""

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
def test_what_is_found_before_the_end_is_reported(folder, tmp_path, monkeypatch, signal, is_damage):
    script = tmp_path / "child"
    script.write_text(f"""#!/bin/sh\necho '{{"problem": "first"}}'\nkill -{signal} $$\n""")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(child_process, "run_module", run_module)  # Which other tests replace.
    first, last = check_apart(folder).problems
    assert first == "first"
    assert "what follows was not checked" in last
    assert ("damaged" in last) == is_damage
    assert ("restore a backup" in last) == is_damage


def test_a_store_that_is_busy_is_not_called_damaged(folder, monkeypatch, capsys):
    def busy(*_):
        raise TooBusy("6,144 read transactions are open")

    monkeypatch.setattr(check_process, "check", busy)
    check_process.main(folder, alone=False)
    assert json.loads(capsys.readouterr().out) == {
        "unavailable": "6,144 read transactions are open"
    }
