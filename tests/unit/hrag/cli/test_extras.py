"""Commands that need an extra or the compiled kernels say so if these are not installed."""

import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from hrag.cli import extras
from hrag.cli.app import app
from hrag.values.installation import install_command

ROOT = Path(__file__).resolve().parents[4]
COMMANDS = [
    *("serve", "demo", "check", "backup copy", "restore copy", "vacuum", "reindex", "eval x.csv"),
    "compare x.md --questions x.csv",
    "migrate --from embedded --to postgres",
    "postgres migrate",
    *("keys list --file x", "keys create --tenant t --file x", "keys revoke x --file x"),
]


def _last_line(command: str) -> str:
    result = CliRunner().invoke(app, command.split(), env={"NO_COLOR": "1"})
    assert result.exit_code == 6
    return result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_server_extra_the_error_names_it_in_one_line(command, monkeypatch):
    monkeypatch.setattr(extras, "MODULES", ("lmdb", "not_installed_anywhere"))
    name = " ".join(command.split()[: 2 if command.startswith(("keys", "postgres")) else 1])
    assert _last_line(command) == (
        f"error: hrag {name} needs the server parts: {install_command('server')} "
        "(not_installed_anywhere is not installed)\n"
    )


@pytest.mark.parametrize(
    ("command", "name", "extra"),
    [
        ("mcp", "mcp", "mcp"),
        ("gateway", "gateway", "gateway"),
        ("serve --http 127.0.0.1:0", "serve --http", "gateway"),
    ],
)
def test_without_a_package_of_another_extra_the_error_names_that_extra(
    command, name, extra, monkeypatch
):
    def missing(_module: str) -> None:
        raise ModuleNotFoundError("No module named 'h11'", name="h11")

    monkeypatch.setattr(extras, "import_module", missing)
    assert _last_line(command) == (
        f"error: hrag {name} needs the {extra} parts: {install_command(extra)} "
        "(h11 is not installed)\n"
    )


@pytest.mark.parametrize("command", ["serve", "gateway"])
def test_without_a_compiled_kernel_the_error_names_it_in_one_line(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "hrag_fast._climb", None)
    monkeypatch.delitem(sys.modules, "hrag_fast")
    monkeypatch.delitem(sys.modules, "hrag.gateway.protojson.json_writer", raising=False)
    monkeypatch.delitem(sys.modules, "hrag.gateway.app", raising=False)
    line = _last_line(command)
    needs = f"error: hrag {command} needs the compiled kernels: hrag_fast._climb is not "
    assert line.startswith(needs)
    assert "install g++" in line
    assert line.count("\n") == 1


def test_the_checked_modules_are_the_packages_of_the_server_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    server = project["optional-dependencies"]["server"]
    # hrag always requires these packages. The extra only restricts their versions.
    always = {Requirement(requirement).name for requirement in project["dependencies"]}
    required = {Requirement(requirement).name for requirement in server} - always
    distributions = packages_distributions()
    listed = {distributions[module][0] for module in extras.MODULES}
    assert {*map(canonicalize_name, listed)} == {*map(canonicalize_name, required)}
