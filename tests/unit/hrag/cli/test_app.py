"""Every command has help, reports an error in one line, and starts fast."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from hrag.cli import store
from hrag.cli.app import app
from hrag.cli.help_values import argument_name
from hrag.cli.processes import free_addresses
from hrag.config import EngineSettings
from hrag.engine import CheckReport, open_engine
from hrag.errors import NotSupported
from hrag.types import SearchMode
from hrag.v1.indexer_pb2_grpc import IndexerServiceServicer
from tests.support.servers.servers import INDEXER, serving


def _command_names(group: Any) -> Iterator[str]:
    """Yields the names of all commands, for example `keys create`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from (f"{name} {subcommand}" for subcommand in _command_names(command))
        else:
            yield name


COMMANDS = tuple(_command_names(get_command(app)))


# Signs of code in help: a variable in angle brackets, a comparison, or a Python object.
_NOT_PROSE = re.compile(r"<[A-Za-z_{|]|\bx ?[<>]|object at|typing\.|<class")
GUIDE = Path(__file__).resolve().parents[4] / "docs/guide/command-line.md"


def _run(*arguments: str, **settings: str):
    settings = {"NO_COLOR": "1", "COLUMNS": "100", **settings}
    return CliRunner().invoke(app, arguments, env=settings)


def test_version_is_the_version_of_the_package():
    result = _run("--version")
    assert (result.exit_code, result.output) == (0, f"hrag {version('hrag')}\n")


def test_help_explains_the_terms_and_lists_the_commands():
    output = _run("--help").output
    assert all(word in output for word in ("chunks", "leaves", "passages"))
    assert {command.split()[0] for command in COMMANDS} <= set(output.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(command):
    result = _run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"  hrag {command}" in result.output


@pytest.mark.parametrize(
    "command", sorted({"", *COMMANDS, *(command.split()[0] for command in COMMANDS)})
)
def test_help_is_prose_and_describes_every_option(command):
    """The output is so wide that each option is one row.

    Comparisons, such as `date<2020-01-01`, are the only use of the sign <. A switch has no values.
    """
    result = _run(*command.split(), "--help", COLUMNS="1500")
    assert result.exit_code == 0
    lines = [line.rstrip(" │") for line in result.output.splitlines()]
    assert [line for line in lines if _NOT_PROSE.search(line)] == []
    described = get_command(app)
    for name in command.split():
        described = described.commands[name]
    for parameter in described.params:
        row = next((line for line in lines if _begins(line, parameter)), "")
        assert row.endswith((".", ")", "]")), (parameter.name, row)
        if parameter.param_type_name == "option" and not parameter.is_flag:
            assert re.search(rf"{parameter.opts[0]}\s+(-\w\s+)?(?!-)\S+", row), row


def _begins(line: str, parameter: Any) -> bool:
    is_argument = parameter.param_type_name == "argument"
    name = argument_name(parameter) if is_argument else parameter.opts[0]
    return re.match(rf"│[* ]+{re.escape(name)}(,|\.|\s)", line) is not None


@pytest.mark.parametrize("command", ["search", "answer", "mcp"])
def test_the_modes_are_listed_with_their_help(command):
    result = _run(command, "--help", COLUMNS="400")
    assert " | ".join(SearchMode) in result.output
    assert "auto_merge: a larger chunk only where enough of its children matched" in result.output


def test_the_guide_lists_every_command():
    guide = GUIDE.read_text("utf-8")
    assert [command for command in COMMANDS if f"`hrag {command}`" not in guide] == []


@pytest.mark.parametrize(
    "arguments",
    [("search", "x"), ("answer", "x"), ("tree", "x"), ("status",), ("ingest", __file__)],
)
def test_the_error_for_an_unreachable_service_says_how_to_start_it(arguments, monkeypatch):
    indexer, retriever = free_addresses(2)
    monkeypatch.setenv("HRAG_INDEXER_ADDRESS", indexer)
    monkeypatch.setenv("HRAG_RETRIEVER_ADDRESS", retriever)
    result = _run(*arguments)
    assert result.exit_code == 4
    assert "hrag serve" in result.stderr
    assert (retriever if arguments[0] in ("search", "answer", "tree") else indexer) in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_unreachable_service_is_not_healthy():
    address = "no.such.host:1"
    result = _run("health", "retriever", "--retriever", address)
    assert result.exit_code == 1
    assert result.output.startswith(f"retriever does not serve at {address}: ")
    assert "no.such.host" in result.output.partition(": ")[2]
    assert "TLS" not in result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("command", [("health", "retriever"), ("search", "x")])
@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:99999", "nowhere", "host:http", "http://127.0.0.1:50052", ":50052:"]
)
def test_an_impossible_address_is_refused(command, address):
    result = _run(*command, "--retriever", address)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: the address is '{address}'; it must be host:port, with a port from 0 to 65535\n"
    )


def test_the_error_of_a_call_to_the_wrong_service_names_the_address():
    with serving(IndexerServiceServicer(), INDEXER) as address:
        result = _run("search", "x", "--retriever", address)
    assert result.exit_code == 1
    assert f"the retriever at {address} does not know this call" in result.stderr
    assert "--indexer and --retriever) may be mixed up" in result.stderr


def test_health_of_an_unknown_service_is_refused():
    result = _run("health", "searcher")
    assert result.exit_code == 2
    assert "indexer" in result.stderr


def test_folder_without_documents_is_an_error(tmp_path):
    result = _run("ingest", str(tmp_path))
    assert result.exit_code == 1
    assert str(tmp_path) in result.stderr
    assert ".md" in result.stderr


@pytest.mark.parametrize(
    "option", [("--summaries", "chunk"), ("--analyzer", "german"), ("--embedder", "none")]
)
def test_settings_of_a_new_collection_require_create(option):
    result = _run("ingest", __file__, *option)
    assert result.exit_code == 2
    assert option[0] in result.stderr
    assert "--create" in result.stderr


@pytest.mark.parametrize("name", ["none", "base64", "idna"])
def test_an_unknown_text_encoding_is_refused(name):
    result = _run("ingest", __file__, "--encoding", name)
    assert result.exit_code == 2
    assert "is not a text encoding" in result.stderr


def test_an_unreadable_file_does_not_end_the_command(tmp_path, monkeypatch):
    """Root may read any file, so `os.access` is replaced. It reports that no file may be read."""
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    result = _run("ingest", __file__, str(secret), "--dry-run")
    assert (result.exit_code, result.stdout.count("would store")) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("read", __file__), 1),
        (("count", "--help"), 1),
        (("--help",), 1),
        (("--version",), 1),
        (("check",), 2),
    ],
)
def test_a_full_output_device_is_an_error_of_one_line(tmp_path, arguments, code):
    engine = open_engine(EngineSettings().model_copy(update={"data_dir": tmp_path}))
    engine.writer()
    engine.close()
    with Path("/dev/full").open("wb") as full:
        completed = subprocess.run(
            [sys.executable, "-m", "hrag", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "HRAG_DATA_DIR": str(tmp_path)},
        )
    assert completed.stderr == "error: standard output: No space left on device\n"
    assert completed.returncode == code


def test_other_errors_of_the_system_keep_their_traceback(tmp_path, monkeypatch):
    def fails(_data_dir: Path) -> None:
        raise OSError("another file")

    monkeypatch.setattr(store, "open_store", fails)
    assert isinstance(_run("check", "--data-dir", str(tmp_path)).exception, OSError)


def test_characters_that_the_output_cannot_encode_are_escaped(tmp_path):
    (tmp_path / "文.md").write_text("x")
    completed = subprocess.run(
        [sys.executable, "-m", "hrag", "ingest", tmp_path, "--dry-run"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )
    assert completed.stdout == f"would store {tmp_path}/\\u6587.md\n"


class FakeStore:
    """A fake engine, which is its own administration."""

    location = "somewhere"

    def administration(self):
        return self


def test_check_without_a_store_exits_with_2(tmp_path):
    result = _run("check", "--data-dir", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_check_of_a_store_whose_engine_cannot_check_exits_with_2(tmp_path, monkeypatch):
    class Foreign(FakeStore):
        def check(self) -> CheckReport:
            raise NotSupported("use amcheck, which comes with PostgreSQL")

    monkeypatch.setattr(store, "open_store", lambda _: Foreign())
    result = _run("check", "--data-dir", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr == "error: use amcheck, which comes with PostgreSQL\n"


@pytest.mark.parametrize("command", ["check", "vacuum", "reindex", "backup"])
def test_the_error_names_an_invalid_setting_of_the_engine(tmp_path, monkeypatch, command):
    monkeypatch.setenv("HRAG_ENGINE", "sqlite")
    target = [str(tmp_path / "b")] if command == "backup" else []
    result = _run(command, *target, "--data-dir", str(tmp_path))
    assert result.exit_code == 2
    assert "HRAG_ENGINE is 'sqlite'" in result.stderr


def test_check_reports_that_a_store_is_sound(tmp_path):
    engine = open_engine(EngineSettings().model_copy(update={"data_dir": tmp_path}))
    engine.writer()
    engine.close()
    result = _run("check", "--data-dir", str(tmp_path))
    assert result.exit_code == 0
    assert "0 documents" in result.output
    assert "sound" in result.output


def test_check_reports_each_problem_and_exits_with_1(tmp_path, monkeypatch):
    class Damaged(FakeStore):
        def check(self) -> CheckReport:
            return CheckReport(1, 2, 3, 4, ("texts has slot 7, which no document has",))

    monkeypatch.setattr(store, "open_store", lambda _: Damaged())
    result = _run("check", "--data-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "texts has slot 7" in result.output
    assert "1 problem" in result.output


def test_the_command_line_is_loaded_without_grpc_and_storage():
    code = (
        "import sys, hrag.cli.app;"
        "print([m for m in ('grpc', 'lmdb', 'numpy', 'hnswlib', 'pydantic', 'mcp')"
        " if m in sys.modules])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "[]"
