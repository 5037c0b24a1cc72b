"""The unit of systemd in `deploy` is valid, and its command and its settings are those of hrag."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from hrag.cli.app import app
from tests.support.manuals import ROOT

UNIT = ROOT / "deploy" / "hrag.service"
_OPTION = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def options() -> dict[str, str]:
    """The options of the unit; those that occur several times are joined."""
    options: dict[str, str] = {}
    for name, value in _OPTION.findall(UNIT.read_text("utf-8")):
        options[name] = f"{options.get(name, '')} {value}".strip()
    return options


def test_the_unit_starts_a_command_of_hrag(options: dict[str, str]) -> None:
    program, command = options["ExecStart"].split(" ", 1)
    assert Path(program).name == "hrag"
    assert command in typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_unit_sets_variables_of_hrag(options: dict[str, str]) -> None:
    known = (ROOT / ".env.example").read_text("utf-8")
    variables = dict(each.split("=", 1) for each in shlex.split(options["Environment"]))
    for name in variables:
        assert f"\n{name}=" in known
    assert variables["HRAG_DATA_DIR"] == f"/var/lib/{options['StateDirectory']}"


def test_a_stop_has_time_for_running_calls(options: dict[str, str]) -> None:
    drain = re.search(r"^HRAG_DRAIN_S=(\d+)", (ROOT / ".env.example").read_text(), re.MULTILINE)
    assert drain is not None
    assert int(options["TimeoutStopSec"]) > 2 * int(drain[1])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """The unit is checked with a program that exists, because hrag is not installed in /opt."""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text("utf-8")
    unit.write_text(re.sub(r"^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (
        0,
        [],
    )
