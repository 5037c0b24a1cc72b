"""Commands refuse mistakes before they wait for a service, start one or store anything."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli import startup, temporary_services
from hrag.cli.app import app
from hrag.cli.processes import free_addresses
from hrag.cli.terminal import Failure

_QUESTION = {"query": "How many?", "gold": [{"quote": "Forty"}]}


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No service runs, and a command that waits for one or starts one fails the test."""
    monkeypatch.setattr(startup, "WAIT_S", 30.0)
    monkeypatch.setattr(startup.time, "sleep", lambda _: pytest.fail("it waits"))
    monkeypatch.setattr(
        temporary_services.ServiceProcesses, "__enter__", lambda _: pytest.fail("it starts")
    )
    for module in ("comparison", "demo"):
        monkeypatch.setattr(f"hrag.cli.{module}.interrupt_on_signals", lambda: None)
    monkeypatch.delenv("HRAG_CHAT_MODEL", raising=False)
    indexer, retriever = free_addresses(2)
    monkeypatch.setenv("HRAG_INDEXER_ADDRESS", indexer)
    monkeypatch.setenv("HRAG_RETRIEVER_ADDRESS", retriever)
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("# A\n\nForty.")
    Path("q.jsonl").write_text(json.dumps(_QUESTION))
    Path("bare.jsonl").write_text('{"query": "How many?"}\n')
    Path("bad.jsonl").write_text("no JSON\n")


def _refuse(*_: str) -> None:
    raise Failure("the extra is not installed")


def run(*arguments: str, **variables: str) -> Any:
    return CliRunner().invoke(app, arguments, env=variables)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("demo none.md", "none.md: No such file or directory"),
        ("demo a.md none/", "none: No such file or directory"),
        ("eval none.csv", "none.csv: no such file or folder; questions are"),
        ("eval bad.jsonl", "bad.jsonl, line 1"),
        ("eval bare.jsonl", "no question in bare.jsonl says where its answer is"),
        ("eval q.jsonl --ingest none", "no such file; a corpus is a .jsonl file"),
        ("eval q.jsonl --ingest a.md", "a.md, line 1"),
        ("eval q.jsonl --judge", "require a chat model: set HRAG_CHAT_MODEL"),
        ("eval q.jsonl --resume a.md", "a.md"),
        ("eval q.jsonl --html none/r.html", "none/r.html: there is no folder none"),
        ("page d -o none/p.png", "none/p.png: there is no folder none"),
        (f"original d -o {'a' * 300}", "File name too long"),
        ("ingest none.md", "none.md: No such file or directory"),
        ("ingest none.md also/none", "none.md: No such file or directory"),
        ("ingest a.md --id a/../b --create", "document_id is 'a/../b'"),
        ("export -o none/x.jsonl", "none/x.jsonl: there is no folder none"),
        ("original a.md -o none/a.md", "none/a.md: there is no folder none"),
        ("import none.jsonl", "none.jsonl: No such file or directory"),
        ("import a.md", "a.md: "),
        ("migrate --from embedded --to postgres --dsn-file none", "--dsn-file none: No such file"),
        ("migrate --from embedded --to sqlite", "engine 'sqlite' is unknown"),
    ],
)
def test_a_mistake_is_one_line_before_a_service_is_called(command: str, message: str) -> None:
    done = run(*command.split())
    assert done.exit_code == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_empty_question_of_the_demo_is_refused() -> None:
    done = run("demo", "a.md", "--ask", " ")
    assert done.exit_code == 2
    assert "the question is empty" in done.stderr


@pytest.mark.parametrize(
    "command", [("demo", "a.md"), ("compare", "a.md", "--questions", "q.jsonl")]
)
def test_a_wrong_setting_is_refused_before_services_start(command: tuple[str, ...]) -> None:
    done = run(*command, HRAG_THREADS="0", HRAG_TLS_CERT_FILE="half.pem")
    assert done.exit_code == 2
    # The services of these commands never use TLS.
    warning, error = done.stderr.splitlines()
    assert warning == (
        f"warning: HRAG_TLS_CERT_FILE has no effect on hrag {command[0]}, which starts services "
        "with fixed settings on an empty store"
    )
    assert error.startswith("error: HRAG_THREADS is '0': ")


@pytest.mark.parametrize(
    ("command", "ignored"),
    [
        (("demo", "a.md"), "HRAG_DATA_DIR, HRAG_ENGINE, HRAG_CHAT_MODEL, HRAG_EMBEDDER have"),
        (
            ("compare", "a.md", "--no-judge", "--questions", "q.jsonl"),
            "HRAG_DATA_DIR, HRAG_ENGINE have",
        ),
    ],
)
def test_settings_that_the_services_of_a_command_do_not_get_are_shown(
    command: tuple[str, ...], ignored: str
) -> None:
    done = run(
        *command,
        HRAG_ENGINE="postgres",
        HRAG_DATA_DIR="/var/lib/hrag",
        HRAG_EMBEDDER="e5-small",
        HRAG_CHAT_MODEL="m",
        HRAG_THREADS="0",
    )
    assert done.stderr.startswith(f"warning: {ignored} no effect on hrag {command[0]}")


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        ("eval q.jsonl --judge-sample 9", "--judge-sample has no effect without --judge"),
        (
            "eval q.jsonl --judge-sample 9 --answer-tokens 99",
            "--judge-sample, --answer-tokens have no effect without --judge",
        ),
        (
            "eval q.jsonl --concurrency 9",
            "--concurrency has no effect without --judge or --generate",
        ),
        ("eval q.jsonl --explorer http://h", "--explorer has no effect without --html"),
        ("eval q.jsonl --split dev", "--split has no effect without a BEIR folder"),
        ("documents --all --limit 9", "--limit has no effect with --all"),
        ("ingest a.md --glob *.md", "--glob has no effect without a folder or an archive"),
        ("mcp --expose", "--expose has no effect without --http"),
    ],
)
def test_options_that_have_no_effect_are_shown(
    command: str, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "WAIT_S", 0.0)
    # The command ends because no service answers.
    monkeypatch.setattr("hrag.cli.mcp.module_of_extra", _refuse)
    done = run(*command.split())
    assert done.stderr.startswith(f"warning: {warning}\n")


@pytest.mark.parametrize("command", ["eval q.jsonl", "documents --all", "ingest a.md"])
def test_a_command_without_such_options_shows_no_warning(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "WAIT_S", 0.0)
    assert "warning" not in run(*command.split()).stderr
