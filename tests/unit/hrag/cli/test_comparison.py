"""`hrag compare` refuses mistakes before it starts services, and never searches its questions."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hrag.cli import comparison
from hrag.cli.app import app
from hrag.errors import InvalidArgument


class Started(Exception):
    """Raised instead of starting services."""


@pytest.fixture(autouse=True)
def _no_services(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def start(*_: object) -> Iterator[None]:
        raise Started
        yield

    monkeypatch.setattr(comparison, "temporary_services", start)
    monkeypatch.setattr(comparison, "interrupt_on_signals", lambda: None)
    monkeypatch.delenv("HRAG_CHAT_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("# A\n\nForty.")
    Path("bare.jsonl").write_text('{"query": "How many?"}\n')
    Path("bad.jsonl").write_text("no JSON\n")
    Path("empty.jsonl").touch()
    Path("q.jsonl").write_text(json.dumps({"query": "How many?", "gold": [{"quote": "Forty"}]}))


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.md", "--questions", "none.csv"), "none.csv: no such file or folder; questions are"),
        (("a.md", "--questions", "a.md"), "its name ends in '.md'; questions are read from"),
        (("a.md", "--questions", "q.jsonl", "--compare", "best"), "mode 'best'; it must be one"),
        (("a.md", "--questions", "q.jsonl", "--baseline", "x"), "baseline is 'x'; it must be one"),
        (("a.md", "--questions", "q.jsonl", "-o", "no/x"), "no/x.json: there is no folder no"),
        (("a.md", "--questions", "q.jsonl", "--judge"), "require a chat model: set HRAG_CHAT"),
        (("q.jsonl", "--questions", "q.jsonl"), "no files to search in q.jsonl; folders are"),
        (("a.md", "none.md", "--questions", "q.jsonl"), "none.md: No such file or directory"),
        (("a.md", "--questions", "bare.jsonl"), "no question in bare.jsonl says where its answer"),
        (("a.md", "--questions", "bad.jsonl"), "bad.jsonl, line 1"),
        (("a.md", "--questions", "empty.jsonl"), "empty.jsonl has no questions"),
        (("a.md", "--questions", "q.jsonl", "--resume", "a.md"), "a.md"),
        (
            ("a.md", "--questions", "q.jsonl", "--compare", "standard:collection=b"),
            "--compare has standard:collection=b; there is only",
        ),
    ],
)
def test_a_mistake_is_one_line_before_any_service_starts(
    arguments: tuple[str, ...], message: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_the_questions_are_not_documents(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("set")
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d:1", "text": "Forty."}\n')
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "How many?"}\n' * 2)
    (folder / "qrels" / "test.tsv").write_text("q\td:1\t1\n")
    labels = [one.label for one in comparison.collect_documents([folder], folder)]
    assert labels == ["set/corpus.jsonl:1"]
    assert "3 lines or files of the questions are left out" in capsys.readouterr().err
    both = comparison.collect_documents([Path("a.md"), Path("q.jsonl")], Path("./q.jsonl"))
    assert [one.label for one in both] == ["a.md"]


def test_without_a_mistake_the_services_start() -> None:
    done = run("a.md", "--questions", "q.jsonl")
    assert isinstance(done.exception, Started)


def test_an_option_that_searches_refuse_ends_the_command_before_it_stores_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        """A client of services with an empty collection. It can store nothing."""

        def create_collection(self, *_: str) -> None: ...

        def search(self, *_: str, **options: object) -> None:
            if options.get("merge_ratio"):
                raise InvalidArgument("merge_ratio is 0.5; only AUTO_MERGE uses it")

    @contextmanager
    def services(*_: object) -> Iterator[Refusing]:
        yield Refusing()

    monkeypatch.setattr(comparison, "temporary_services", services)
    done = run("a.md", "--questions", "q.jsonl", "--compare", "standard:merge_ratio=0.5")
    assert done.exit_code == 2
    assert done.stderr == "error: merge_ratio is 0.5; only AUTO_MERGE uses it\n"
