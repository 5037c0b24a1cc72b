"""SIGTERM and SIGHUP end a command as Ctrl-C does: the command cleans up and is audited."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.config import EngineSettings
from hrag.engine import open_engine
from tests.support.servers.forked import HRAG, program_with_output
from tests.support.servers.processes import children_of, is_alive
from tests.support.until import until

_INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_ENGINES = ["--from", "embedded", "--to", "postgres"]
_ADMINISTRATION = "hrag.engine.embedded.admin.administration.EmbeddedAdministration"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as engine:
        engine.writer()
    return folder


@pytest.fixture(autouse=True)
def _ignore_signals() -> Iterator[None]:
    """Makes signals do nothing to this process, unless a command installs a handler."""
    before = [signal.signal(number, lambda *_: None) for number in _SIGNALS]
    yield
    for number, handler in zip(_SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _SIGNALS)
@pytest.mark.parametrize(
    ("command", "work", "recorded"),
    [
        (["backup", "b"], f"{_ADMINISTRATION}.backup", True),
        (["restore", "b"], f"{_ADMINISTRATION}.restore", True),
        (["check"], f"{_ADMINISTRATION}.check", False),
        (["check", "--repair"], f"{_ADMINISTRATION}.repair", True),
        (["vacuum"], f"{_ADMINISTRATION}.vacuum", True),
        (["reindex"], f"{_ADMINISTRATION}.reindex", True),
        (["migrate", *_ENGINES], "hrag.engine.open_engine", True),
        (["migrate", *_ENGINES, "--verify-only"], "hrag.engine.open_engine", False),
    ],
)
def test_a_signal_interrupts_every_command(
    store, tmp_path, monkeypatch, number, command, work, recorded
):
    monkeypatch.setattr(work, lambda *_: signal.raise_signal(number))
    records = tmp_path / "audit.log"
    records.touch()
    monkeypatch.setenv("HRAG_AUDIT_FILE", str(records))
    monkeypatch.setenv("HRAG_POSTGRES_DSN", "postgresql://db/hrag")
    result = CliRunner().invoke(app, [*command, "--data-dir", str(store)])
    assert result.exit_code == _INTERRUPTED
    assert outcomes(records) == ["FAILED"] * recorded


@pytest.mark.parametrize("number", _SIGNALS)
def test_an_interrupted_backup_leaves_no_file_and_no_process(store, tmp_path, monkeypatch, number):
    """Neither a part of the copy nor the process that checks the copy remains."""
    monkeypatch.setenv("HRAG_AUDIT_FILE", str(tmp_path / "audit.log"))
    command = [*HRAG, "backup", str(tmp_path / "b"), "--data-dir", str(store)]
    with program_with_output(*command) as (program, lines):
        assert "checking the copy\n" in lines
        while not (children := children_of(program.pid)):
            assert program.poll() is None
        os.kill(program.pid, number)
        assert program.wait(30) == _INTERRUPTED
    # A child process that has only just started ends by itself.
    until(lambda: not any(map(is_alive, children)))
    assert {path.name for path in tmp_path.iterdir()} == {"store", "audit.log"}
    assert outcomes(tmp_path / "audit.log") == ["FAILED"]


def test_a_signal_that_is_ignored_stays_ignored(store):
    """`nohup` relies on this."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    CliRunner().invoke(app, ["check", "--data-dir", str(store)])
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


def outcomes(records: Path) -> list[str]:
    """Returns the outcomes in the audit log."""
    return [json.loads(line)["outcome"] for line in records.read_text().splitlines()]
