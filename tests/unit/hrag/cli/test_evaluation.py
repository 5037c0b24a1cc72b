"""`hrag eval` with a client and a chat model that do as they are told: reports and errors."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli import evaluation
from hrag.cli.app import app
from hrag.errors import CollectionNotFound
from hrag.models.chat import chat_factory
from hrag.types import SearchResult
from tests.support.documents.evaluation_fakes import (
    ToldChat,
    ToldClient,
    nearly_full_disk,
    passage,
    result,
)

COLLECTIONS = ("tree", "flat")
BOTH = ("--compare", "standard:collection=tree,standard:collection=flat")
QUESTION = {"query": "one?", "gold": [{"doc_id": "a"}]}

Eval = Callable[..., Any]


class Services(ToldClient):
    """The collections `tree` and `flat`; each search of `flat` is without the embedder."""

    def __init__(self) -> None:
        super().__init__(self._found)

    def _found(self, query: str, *, collection: str, **_: Any) -> SearchResult:
        self._check(collection)
        fallback = "the embedder is down" if collection == "flat" else ""
        return result(passage("a", 0, f"{query} in {collection}"), fallback=fallback)

    def get_chunk(self, tenant_id: str, chunk_id: str, *, collection: str) -> None:
        self._check(collection)
        super().get_chunk(tenant_id, chunk_id, collection=collection)

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
    """Runs the command with a file of these questions."""

    @contextmanager
    def connect(*_: object) -> Iterator[Services]:
        yield services

    chat = ToldChat(lambda prompt: "yes" if "tree" in prompt else "no")
    monkeypatch.setattr(evaluation, "connect", connect)
    monkeypatch.setattr(chat_factory, "open_chat", lambda _: chat)

    def run(*options: object, questions: tuple[object, ...] = (QUESTION,)) -> Any:
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in questions))
        return CliRunner().invoke(app, ["eval", str(path), *map(str, options)])

    return run


def test_only_the_collections_that_are_compared_must_exist(run: Eval) -> None:
    nowhere = {"query": "two?", "gold": [{"doc_id": "nowhere"}]}
    done = run(*BOTH, questions=(QUESTION, nowhere))
    assert done.exit_code == 0, done.output
    for name in COLLECTIONS:
        assert (
            f"1 documents that contain expected answers are not in the collection {name}, "
            "such as nowhere"
        ) in done.stdout
    done = run("--compare", "standard:collection=tree,standard")
    assert done.stderr == "error: no collection default\n"


def test_the_json_counts_fallbacks_by_their_reason(run: Eval, tmp_path: Path) -> None:
    done = run(*BOTH, "--json", tmp_path / "r.json", questions=(QUESTION, {**QUESTION, "qid": "b"}))
    assert done.exit_code == 0, done.output
    systems = json.loads((tmp_path / "r.json").read_text())["retrieval"]["systems"]
    assert [each["fallbacks"] for each in systems] == [{}, {"the embedder is down": 2}]


@pytest.mark.parametrize("option", ["--json", "--html"])
@pytest.mark.parametrize(
    ("name", "says"), [("none/report", "there is no folder"), ("", "it is a folder")]
)
def test_a_report_that_cannot_be_written_is_refused_before_the_run(
    run: Eval, services: Services, tmp_path: Path, option: str, name: str, says: str
) -> None:
    done = run(*BOTH, option, tmp_path / name)
    assert (done.exit_code, services.calls) == (1, [])
    assert says in done.stderr
    assert str(tmp_path / name) in done.stderr


@pytest.mark.parametrize("options", [(), ("--judge",)])
def test_a_full_disk_is_one_line_that_names_the_file(
    run: Eval, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Failed calls of a judge do not end a run, but a result that is lost does."""
    journal = tmp_path / "run.jsonl"
    questions = ({"query": "one?"},) if options else (QUESTION,)
    with nearly_full_disk(9):
        done = run(*BOTH, *options, "--resume", journal, questions=questions)
    assert (done.exit_code, done.stderr) == (1, f"error: {journal}: No space left on device\n")
    done = run(*BOTH, "--resume", journal)
    assert done.exit_code == 0, done.output
