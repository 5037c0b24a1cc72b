"""`hrag eval` writes reports and explains errors. The client and the chat model are fakes."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

import pytest
from typer.testing import CliRunner

from hrag.cli import evaluation, evaluation_run
from hrag.cli.app import app
from hrag.errors import ChatUnavailable, CollectionNotFound
from hrag.models.chat import chat_factory
from hrag.types import SearchResult
from tests.support.documents.evaluation_fakes import (
    ScriptedChat,
    ScriptedClient,
    nearly_full_disk,
    passage,
    result,
)

COLLECTIONS = ("tree", "flat")
COMPARE_BOTH = ("--compare", "standard:collection=tree,standard:collection=flat")
QUESTION = {"query": "one?", "gold": [{"doc_id": "a"}]}

Eval = Callable[..., Any]


class Services(ScriptedClient):
    """A client of the collections `tree` and `flat`. Searches of `flat` cannot use the embedder."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    def _answer(self, query: str, *, collection: str, **_: Any) -> SearchResult:
        self._check(collection)
        fallback = "the embedder is down" if collection == "flat" else ""
        return result(passage("a", 0, f"{query} in {collection}"), fallback=fallback)

    def get_chunk(self, tenant_id: str, chunk_id: str, *, collection: str) -> None:
        self._check(collection)
        super().get_chunk(tenant_id, chunk_id, collection=collection)

    def get_text(self, tenant_id: str, document_id: str, *, collection: str) -> str:
        self._check(collection)
        return "yes"

    def server_info(self) -> Any:
        return SimpleNamespace(embedder="hash", version="1")

    def _check(self, collection: str) -> None:
        if collection not in COLLECTIONS:
            raise CollectionNotFound(f"no collection {collection}")


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture
def run(services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Eval:
    """A function that runs the command with a file of questions."""

    @contextmanager
    def connect(*_: object) -> Iterator[Services]:
        yield services

    chat = ScriptedChat(lambda prompt: "yes" if "tree" in prompt else "no")
    monkeypatch.setattr(evaluation, "connect", connect)
    monkeypatch.setattr(chat_factory, "open_chat", lambda _: chat)

    def run(*options: object, questions: tuple[object, ...] = (QUESTION,)) -> Any:
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(json.dumps(question) + "\n" for question in questions))
        return CliRunner().invoke(app, ["eval", str(path), *map(str, options)])

    return run


def test_only_the_collections_that_are_compared_must_exist(run: Eval) -> None:
    nowhere = {"query": "two?", "gold": [{"doc_id": "nowhere"}]}
    completed = run(*COMPARE_BOTH, questions=(QUESTION, nowhere))
    assert completed.exit_code == 0, completed.output
    for name in COLLECTIONS:
        assert (
            f"1 expected document not found in the collection {name}, such as nowhere; their"
        ) in completed.stdout
    completed = run("--compare", "standard:collection=tree,standard")
    assert completed.stderr == "error: no collection default\n"


@pytest.mark.parametrize(
    ("tenant", "hint"), [("default", "; --tenant names another tenant"), ("acme", "")]
)
def test_without_a_collection_of_the_default_tenant_the_error_names_the_option(
    run: Eval, services: Services, monkeypatch: pytest.MonkeyPatch, tenant: str, hint: str
) -> None:
    message = f"tenant '{tenant}' has no collection 'tree'"

    def refuse(*_: object, **__: object) -> NoReturn:
        raise CollectionNotFound(message)

    monkeypatch.setattr(services, "search", refuse)
    monkeypatch.setattr(services, "get_document", refuse, raising=False)
    completed = run("--compare", "standard:collection=tree")
    assert completed.stderr == f"error: {message}{hint}\n"


def test_the_json_counts_fallbacks_by_their_reason(run: Eval, tmp_path: Path) -> None:
    completed = run(
        *COMPARE_BOTH, "--json", tmp_path / "r.json", questions=(QUESTION, {**QUESTION, "qid": "b"})
    )
    assert completed.exit_code == 0, completed.output
    systems = json.loads((tmp_path / "r.json").read_text())["retrieval"]["systems"]
    assert [system["fallbacks"] for system in systems] == [{}, {"the embedder is down": 2}]


@pytest.mark.parametrize("option", ["--json", "--html"])
@pytest.mark.parametrize(
    ("name", "says"), [("none/report", "there is no folder"), ("", "it is a folder")]
)
def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    run: Eval, services: Services, tmp_path: Path, option: str, name: str, says: str
) -> None:
    completed = run(*COMPARE_BOTH, option, tmp_path / name)
    assert (completed.exit_code, services.calls) == (2, [])
    assert says in completed.stderr
    assert str(tmp_path / name) in completed.stderr


def _closed_pipe() -> IO[str]:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def _full_disk() -> IO[str]:
    return Path("/dev/full").open("w")


@pytest.mark.parametrize(("output", "exit_code"), [(_closed_pipe, 0), (_full_disk, 1)])
@pytest.mark.usefixtures("run")
def test_reports_are_written_also_if_standard_output_cannot_be_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: Callable[[], IO[str]],
    exit_code: int,
) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps(QUESTION))
    files = {f"--{name}": tmp_path / f"report.{name}" for name in ("json", "html", "csv")}
    arguments = [str(word) for option in files.items() for word in option]
    monkeypatch.setattr(sys, "stdout", output())
    with pytest.raises(SystemExit) as ended:
        app(["eval", str(questions), *COMPARE_BOTH, *arguments])
    with suppress(OSError):
        sys.stdout.close()
    assert ended.value.code == exit_code
    assert all(file.stat().st_size for file in files.values())


def test_another_tool_is_compared_and_shown_without_a_latency(run: Eval, tmp_path: Path) -> None:
    file, reports = tmp_path / "tool.jsonl", tmp_path / "r"
    passages = [{"doc_id": "a", "start": 0, "end": 3}]
    file.write_text(json.dumps({"qid": "line-1", "passages": passages}))
    compare = ("--compare", "standard:collection=tree", "--collection", "tree")
    written = ("--json", f"{reports}.json", "--html", f"{reports}.html")
    links = ("--explorer", "http://h")
    completed = run(*compare, "--retrieved", f"tool={file}", *written, *links)
    assert completed.exit_code == 0, completed.output
    assert "standard:collection=tree and tool find equally much" in completed.stdout
    assert re.search(r"tool +100\.0 +100\.0 +not measured +not measured", completed.stdout)
    system = json.loads(Path(f"{reports}.json").read_text())["retrieval"]["systems"][1]
    assert (system["name"], system["mode"], system["options"]) == (
        "tool",
        None,
        {"file": str(file)},
    )
    page = Path(f"{reports}.html").read_text()
    assert f"another tool, whose passages are in the file {file}" in page
    assert '"searches":{"standard:collection=tree":{"mode":"STANDARD"}}' in page


def test_a_file_of_another_tool_is_checked_before_the_first_search(
    run: Eval, services: Services, tmp_path: Path
) -> None:
    file = tmp_path / "tool.jsonl"
    file.write_text(json.dumps({"qid": "other", "passages": []}))
    completed = run(*COMPARE_BOTH, "--retrieved", f"tool={file}")
    assert (completed.exit_code, services.calls) == (2, [])
    assert f"{file} lacks 1 question, such as line-1" in completed.stderr
    completed = run(*COMPARE_BOTH, "--retrieved", f"tool={tmp_path / 'missing'}")
    assert (completed.exit_code, services.calls) == (2, [])
    assert "missing: No such file" in completed.stderr


@pytest.mark.parametrize("options", [(), ("--judge",)])
def test_the_error_on_a_full_disk_is_one_line_that_names_the_file(
    run: Eval, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A failed call of the judge does not end a run. A result that cannot be stored ends it."""
    journal = tmp_path / "run.jsonl"
    questions = ({"query": "one?"},) if options else (QUESTION,)
    with nearly_full_disk(9):
        completed = run(*COMPARE_BOTH, *options, "--resume", journal, questions=questions)
    assert (completed.exit_code, completed.stderr) == (
        1,
        f"error: {journal}: No space left on device\n",
    )
    completed = run(*COMPARE_BOTH, "--resume", journal)
    assert completed.exit_code == 0, completed.output


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "localhost:8080", "http://", "http://h/#x", "http://h/?a=b", "//h"],
)
def test_only_a_web_address_can_be_the_explorer(run: Eval, services: Services, url: str) -> None:
    completed = run(*COMPARE_BOTH, "--explorer", url)
    assert completed.exit_code == 2
    assert "--explorer" in completed.stderr
    assert services.calls == []


def test_the_report_links_to_the_explorer(run: Eval, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    completed = run(*COMPARE_BOTH, "--html", page, "--explorer", "https://example.com/hrag/")
    assert completed.exit_code == 0, completed.output
    assert '"address":"https://example.com/hrag","tenant":"default"' in page.read_text()


def test_progress_is_lines_where_output_is_a_file(
    run: Eval, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines go to standard error. Here each line is written as soon as it is described."""
    described: list[Callable[[], str]] = []

    @contextmanager
    def progress_lines(describe: Callable[[], str]) -> Iterator[None]:
        described.append(describe)
        yield

    monkeypatch.setattr(evaluation_run, "progress_lines", progress_lines)
    run(*COMPARE_BOTH, "--judge", questions=(QUESTION, {"query": "two?"}))
    searches, calls = (describe() for describe in described)
    assert re.fullmatch(r"2 of 2 searches, [\d,]+ s", searches)
    assert re.fullmatch(r"8 of 8 chat calls, [\d,]+ s", calls)


def test_figures_of_searches_survive_a_judge_that_is_down(
    run: Eval, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(prompt: str) -> str:
        raise ChatUnavailable("no route")

    monkeypatch.setattr(chat_factory, "open_chat", lambda _: ScriptedChat(fail))
    report = tmp_path / "r.json"
    questions = tuple({**QUESTION, "qid": str(n)} for n in range(4))
    completed = run(*COMPARE_BOTH, "--judge", "--json", report, questions=questions)
    assert completed.exit_code == 1
    assert "warning: no answers were compared, because the judge failed: no route" in (
        completed.stdout
    )
    assert json.loads(report.read_text())["retrieval"]["systems"][0]["searches"] == 4
    alone = run(*COMPARE_BOTH, "--judge", questions=tuple({"query": f"{n}?"} for n in range(4)))
    assert (alone.exit_code, alone.stderr) == (4, "error: no route\n")
