"""`hrag migrate`: what it prints, exit codes, the audit log, and where the secret comes from."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hrag.engine
from hrag.cli import migrate
from hrag.cli.app import app
from hrag.config import EngineSettings
from hrag.engine import open_engine
from tests.support.documents.random_stores import SETTINGS, contents, fill
from tests.support.engines.memory_engine import MemoryEngine

ENGINES = ("embedded", "postgres")
THERE, BACK = ("--from", "embedded", "--to", "postgres"), ("--from", "postgres", "--to", "embedded")


@pytest.fixture(autouse=True)
def opened(monkeypatch) -> list[Any]:
    """The settings that PostgreSQL was opened with; a store in memory stands for it."""
    there, found = MemoryEngine(), []

    def door(settings: EngineSettings) -> Any:
        if settings.engine == "embedded":
            return open_engine(settings)
        found.append(settings)
        return there

    there.writer()
    monkeypatch.setattr(hrag.engine, "open_engine", door)
    monkeypatch.setattr(MemoryEngine, "there", there, raising=False)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as engine:
        fill(engine.writer(), 4)
    return folder


def run(*words: str, folder: Path, **settings: str):
    command = ["migrate", *words, "--data-dir", str(folder)]
    environment = {"NO_COLOR": "1", "HRAG_POSTGRES_DSN": "postgresql://db/hrag", **settings}
    return CliRunner().invoke(app, command, env=environment)


def test_there_and_back_and_once_more(folder, tmp_path):
    assert run(*THERE, folder=folder).exit_code == 0
    back = run(*BACK, folder=tmp_path / "back")
    assert back.exit_code == 0
    lines = back.stdout.splitlines()
    assert lines[0].startswith("copied ")
    assert lines[0].endswith(" documents, replaced 0, 0 existed already")
    assert lines[1].startswith("compared ")
    assert lines[1].endswith(
        " documents in 5 collections: embedded contains everything that postgres contains"
    )
    again = run(*THERE, "--json", folder=folder)
    report = json.loads(again.stdout)
    assert again.exit_code == again.stderr.count("\n") - 1 == 0  # The audit line.
    assert (report["source"], report["target"]) == ENGINES
    assert report["copied"] == report["difference_count"] == 0
    assert report["present"] == report["documents"] > 4
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as one:
        assert contents(one.reader()) == contents(MemoryEngine.there.reader())


def test_differences_are_named_and_end_it_with_1(folder):
    run(*THERE, folder=folder)
    there = MemoryEngine.there
    tenant, name = next(place for place in SETTINGS if there.collection(*place).document_count > 1)
    first, second = (each.document_id for each in list(there.reader().export(tenant, name))[:2])
    there.delete(there.open(tenant, name), first)
    known = there.document(there.open(tenant, name), second)
    there.put_metadata(there.open(tenant, name), second, known.sequence, {"x": 1}, known.source)
    only = run(*THERE, "--verify-only", folder=folder)
    assert only.exit_code == 1
    assert only.stdout.splitlines()[:2] == [
        f"{tenant}/{name} document {first}: is missing in the target",
        f"{tenant}/{name} document {second}: differs: content_hash, metadata",
    ]
    assert only.stdout.endswith(": 2 differences\n")
    as_json = json.loads(run(*THERE, "--verify-only", "--json", folder=folder).stdout)
    assert as_json["differences"][0] == {
        "tenant_id": tenant,
        "collection": name,
        "document_id": first,
        "problem": "is missing in the target",
    }
    kept = run(*THERE, folder=folder)
    assert kept.exit_code == 1
    assert kept.stdout.startswith("copied 1 document, replaced 0, ")
    replaced = run(*THERE, "--replace", folder=folder)
    assert replaced.exit_code == 0
    assert replaced.stdout.startswith("copied 0 documents, replaced 1, ")


def test_it_is_audited_and_a_verification_is_not(folder, tmp_path):
    records = tmp_path / "audit.log"
    audited = {"HRAG_AUDIT_FILE": str(records)}
    assert run(*THERE, folder=folder, **audited).exit_code == 0
    assert run(*THERE, "--verify-only", folder=folder, **audited).exit_code == 0
    missing = run(*THERE, folder=tmp_path / "nowhere", **audited)
    assert missing.exit_code == 3
    done, failed = (json.loads(line) for line in records.read_text().splitlines())
    assert (done["method"], done["outcome"], done["differences"]) == ("migrate", "OK", 0)
    assert (done["source"], done["target"], done["store"]) == (*ENGINES, str(folder))
    assert done["documents"] == done["copied"] > 4
    assert (failed["method"], failed["outcome"]) == ("migrate", "FAILED")
    assert not (tmp_path / "nowhere").exists()


def test_the_connection_string_comes_from_a_private_file(folder, tmp_path, opened):
    secret = tmp_path / "dsn"
    secret.write_text("postgresql://hrag:word@db/hrag\n")
    secret.chmod(0o640)
    refused = run(*THERE, "--dsn-file", str(secret), folder=folder)
    assert refused.exit_code == 2
    assert "its mode is 0640; a secret needs 0600" in refused.stderr
    assert "word" not in refused.stderr
    secret.chmod(0o600)
    done = run(*THERE, "--dsn-file", str(secret), folder=folder)
    assert done.exit_code == 0
    (settings,) = opened
    assert settings.postgres_dsn == "postgresql://hrag:word@db/hrag"
    assert "word" not in done.output
    for path, problem in ((tmp_path / "no", "No such file"), (secret, "it is empty")):
        secret.write_text(" \n")
        failed = run(*THERE, "--dsn-file", str(path), folder=folder)
        assert failed.exit_code == 2
        assert problem in failed.stderr


def test_the_target_is_read_where_it_is_written(folder, opened):
    """A replica may lag behind."""
    dsns = {"HRAG_POSTGRES_DSN": "host=one", "HRAG_POSTGRES_READ_DSN": "host=replica"}
    assert run(*THERE, folder=folder, **dsns).exit_code == 0
    (settings,) = opened
    assert (settings.postgres_dsn, settings.postgres_read_dsn) == ("host=one", "")


def test_which_engine_the_services_have_does_not_matter(folder, opened, tmp_path):
    secret = tmp_path / "dsn"
    secret.touch(0o600)
    secret.write_text("host=one")
    own = {"HRAG_ENGINE": "postgres", "HRAG_POSTGRES_DSN": ""}
    assert run(*THERE, "--dsn-file", str(secret), folder=folder, **own).exit_code == 0
    assert [each.engine for each in opened] == ["postgres"]


def test_without_a_connection_string_the_variable_is_named(folder):
    failed = run(*THERE, folder=folder, HRAG_POSTGRES_DSN="")
    assert failed.exit_code == 1
    assert "HRAG_POSTGRES_DSN must be set" in failed.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "embedded", "--to", "embedded"), "--from and --to are both embedded"),
        (("--from", "embedded", "--to", "x"), "'x' is unknown; it must be one of embedded, post"),
        ((*THERE, "--verify-only", "--replace"), "--verify-only writes nothing"),
    ],
)
def test_wrong_usage_ends_with_2(words, problem, folder, opened):
    refused = run(*words, folder=folder)
    assert refused.exit_code == 2
    assert problem in refused.stderr
    assert opened == []


def test_a_conflict_is_one_line(folder):
    there = MemoryEngine.there
    there.create_collection("acme", "plain", SETTINGS["acme", "Handbook"])
    refused = run(*THERE, folder=folder)
    assert refused.exit_code == 1
    assert "error: nothing was written, the target has the same names: acme/plain" in refused.stderr
    assert refused.stdout == ""
    assert [each.name for each in there.reader().collections()] == ["plain"]


def test_progress_says_what_it_does():
    from hrag.engine.transfer.transfer_report import TransferProgress

    progress = TransferProgress()
    assert migrate._describe(progress) == "opening: 0 of 0 documents"
    progress.begin("copying", 9000)
    progress.collection, progress.done = "acme/handbook", 1200
    assert migrate._describe(progress) == "copying acme/handbook: 1,200 of 9,000 documents"
