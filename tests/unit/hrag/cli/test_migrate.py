"""`hrag migrate` copies and compares stores, audits its runs, and hides the connection string."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hrag.engine
from hrag.cli.app import app
from hrag.cli.migrate import progress_line
from hrag.config import EngineSettings
from hrag.engine import open_engine
from hrag.engine.transfer.transfer_report import TransferProgress
from tests.support.documents.random_stores import SETTINGS, contents, fill
from tests.support.engines.memory_engine import MemoryEngine

ENGINES = ("embedded", "postgres")
TO_POSTGRES, TO_EMBEDDED = (
    ("--from", "embedded", "--to", "postgres"),
    ("--from", "postgres", "--to", "embedded"),
)


@pytest.fixture
def postgres() -> MemoryEngine:
    """The store in memory that replaces PostgreSQL."""
    engine = MemoryEngine()
    engine.writer()
    return engine


@pytest.fixture(autouse=True)
def opened(monkeypatch, postgres) -> list[Any]:
    """Replaces PostgreSQL by a store in memory; returns the settings of each opening."""
    opened_with = []

    def open_or_replace(settings: EngineSettings) -> Any:
        if settings.engine == "embedded":
            return open_engine(settings)
        opened_with.append(settings)
        return postgres

    monkeypatch.setattr(hrag.engine, "open_engine", open_or_replace)
    return opened_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an embedded store with documents."""
    folder = tmp_path / "store"
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as engine:
        fill(engine.writer(), 4)
    return folder


def run(*words: str, folder: Path, **settings: str):
    command = ["migrate", *words, "--data-dir", str(folder)]
    environment = {"NO_COLOR": "1", "HRAG_POSTGRES_DSN": "postgresql://db/hrag", **settings}
    return CliRunner().invoke(app, command, env=environment)


def test_a_store_is_copied_to_postgres_and_back_and_a_second_copy_changes_nothing(
    folder, tmp_path, postgres
):
    assert run(*TO_POSTGRES, folder=folder).exit_code == 0
    back = run(*TO_EMBEDDED, folder=tmp_path / "back")
    assert back.exit_code == 0
    lines = back.stdout.splitlines()
    assert lines[0].startswith("copied ")
    assert lines[0].endswith(" documents, replaced 0, 0 existed already")
    assert lines[1].startswith("compared ")
    assert lines[1].endswith(
        " documents in 5 collections: embedded contains everything that postgres contains"
    )
    again = run(*TO_POSTGRES, "--json", folder=folder)
    report = json.loads(again.stdout)
    assert (
        again.exit_code == again.stderr.count("\n") - 1 == 0
    )  # The one line is about the audit log.
    assert (report["source"], report["target"]) == ENGINES
    assert report["copied"] == report["difference_count"] == 0
    assert report["present"] == report["documents"] > 4
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as embedded:
        assert contents(embedded.reader()) == contents(postgres.reader())


def test_differences_are_listed_and_the_exit_code_is_1(folder, postgres):
    run(*TO_POSTGRES, folder=folder)
    tenant, name = next(key for key in SETTINGS if postgres.collection(*key).document_count > 1)
    stored = list(postgres.reader().export(tenant, name))
    first, second = (document.document_id for document in stored[:2])
    collection = postgres.open(tenant, name)
    postgres.delete(collection, first)
    known = postgres.document(collection, second)
    postgres.put_metadata(collection, second, known.sequence, {"x": 1}, known.source)
    verified = run(*TO_POSTGRES, "--verify-only", folder=folder)
    assert verified.exit_code == 1
    assert verified.stdout.splitlines()[:2] == [
        f"{tenant}/{name} document {first}: is missing in the target",
        f"{tenant}/{name} document {second}: differs: content_hash, metadata",
    ]
    assert verified.stdout.endswith(": 2 differences\n")
    as_json = json.loads(run(*TO_POSTGRES, "--verify-only", "--json", folder=folder).stdout)
    assert as_json["differences"][0] == {
        "tenant_id": tenant,
        "collection": name,
        "document_id": first,
        "problem": "is missing in the target",
    }
    unchanged = run(*TO_POSTGRES, folder=folder)
    assert unchanged.exit_code == 1
    assert unchanged.stdout.startswith("copied 1 document, replaced 0, ")
    replaced = run(*TO_POSTGRES, "--replace", folder=folder)
    assert replaced.exit_code == 0
    assert replaced.stdout.startswith("copied 0 documents, replaced 1, ")


def test_a_migration_is_audited_and_a_verification_is_not(folder, tmp_path):
    records = tmp_path / "audit.log"
    audited = {"HRAG_AUDIT_FILE": str(records)}
    assert run(*TO_POSTGRES, folder=folder, **audited).exit_code == 0
    assert run(*TO_POSTGRES, "--verify-only", folder=folder, **audited).exit_code == 0
    missing = run(*TO_POSTGRES, folder=tmp_path / "nowhere", **audited)
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
    refused = run(*TO_POSTGRES, "--dsn-file", str(secret), folder=folder)
    assert refused.exit_code == 2
    assert "its mode is 0640; a secret needs 0600" in refused.stderr
    assert "word" not in refused.stderr
    secret.chmod(0o600)
    done = run(*TO_POSTGRES, "--dsn-file", str(secret), folder=folder)
    assert done.exit_code == 0
    (settings,) = opened
    assert settings.postgres_dsn == "postgresql://hrag:word@db/hrag"
    assert "word" not in done.output
    for path, problem in ((tmp_path / "no", "No such file"), (secret, "it is empty")):
        secret.write_text(" \n")
        failed = run(*TO_POSTGRES, "--dsn-file", str(path), folder=folder)
        assert failed.exit_code == 2
        assert problem in failed.stderr


def test_the_target_is_read_from_the_primary_and_not_from_a_replica(folder, opened):
    """A replica may not have the newest commits yet."""
    dsns = {"HRAG_POSTGRES_DSN": "host=one", "HRAG_POSTGRES_READ_DSN": "host=replica"}
    assert run(*TO_POSTGRES, folder=folder, **dsns).exit_code == 0
    (settings,) = opened
    assert (settings.postgres_dsn, settings.postgres_read_dsn) == ("host=one", "")


def test_the_engine_in_the_settings_of_the_services_does_not_affect_a_migration(
    folder, opened, tmp_path
):
    secret = tmp_path / "dsn"
    secret.touch(0o600)
    secret.write_text("host=one")
    settings = {"HRAG_ENGINE": "postgres", "HRAG_POSTGRES_DSN": ""}
    assert run(*TO_POSTGRES, "--dsn-file", str(secret), folder=folder, **settings).exit_code == 0
    assert [settings.engine for settings in opened] == ["postgres"]


def test_without_a_connection_string_the_error_names_the_variable(folder):
    failed = run(*TO_POSTGRES, folder=folder, HRAG_POSTGRES_DSN="")
    assert failed.exit_code == 2
    assert "HRAG_POSTGRES_DSN must be set" in failed.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "embedded", "--to", "embedded"), "--from and --to are both embedded"),
        (("--from", "embedded", "--to", "x"), "'x' is unknown; it must be one of embedded, post"),
        ((*TO_POSTGRES, "--verify-only", "--replace"), "--verify-only writes nothing"),
    ],
)
def test_after_wrong_usage_the_exit_code_is_2(words, problem, folder, opened):
    refused = run(*words, folder=folder)
    assert refused.exit_code == 2
    assert problem in refused.stderr
    assert opened == []


def test_the_error_for_a_conflict_is_one_line(folder, postgres):
    postgres.create_collection("acme", "plain", SETTINGS["acme", "Handbook"])
    refused = run(*TO_POSTGRES, folder=folder)
    assert refused.exit_code == 1
    message = "nothing was written, because the target uses the same names in another way"
    assert f"error: {message}: acme/plain" in refused.stderr
    assert refused.stdout == ""
    assert [collection.name for collection in postgres.reader().collections()] == ["plain"]


def test_a_progress_line_names_the_step_and_counts_documents():
    progress = TransferProgress()
    assert progress_line(progress) == "opening: 0 of 0 documents"
    progress.begin("copying", 9000)
    progress.collection, progress.done = "acme/handbook", 1200
    assert progress_line(progress) == "copying acme/handbook: 1,200 of 9,000 documents"
