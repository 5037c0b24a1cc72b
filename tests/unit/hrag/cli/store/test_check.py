"""`hrag check`: exit codes, and the record of a repair."""

import json
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.config import EngineSettings
from hrag.engine import StoredDocument, open_engine
from hrag.errors import StorageFull
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import flip_first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as engine:
        writer = engine.writer()
        writer.create_collection("t", "c", collection_settings())
        writer.put_stored(writer.open("t", "c"), StoredDocument(prepared("a", sentences(30))))
    return folder


def test_a_repair_is_audited(folder, tmp_path):
    flip_first(folder, "counters")
    records = tmp_path / "audit.log"
    command = ["check", "--repair", "--data-dir", str(folder)]
    assert run(command, HRAG_AUDIT_FILE=str(records)).exit_code == 0
    flip_first(folder, "texts")
    assert run(command, HRAG_AUDIT_FILE=str(records)).exit_code == 1
    flip_first(folder, "meta")
    flip_first(folder, "tenants")
    stopped = run(command, HRAG_AUDIT_FILE=str(records))
    assert (stopped.exit_code, stopped.exception.__class__) == (1, SystemExit)
    assert "hrag restore" in stopped.stderr
    assert run(["check", "--data-dir", str(folder)]).exit_code == 1  # A check changes nothing.
    entries = [json.loads(line) for line in records.read_text().splitlines()]
    found = [(each["method"], each["outcome"], each.get("problems")) for each in entries]
    assert found == [("repair", "OK", 0), ("repair", "OK", 1), ("repair", "FAILED", None)]
    assert {each["store"] for each in entries} == {str(folder)}


def test_a_repair_without_disk_has_found_no_problems(folder, monkeypatch):
    def full(_: object) -> NoReturn:
        raise StorageFull("the disk is full")

    monkeypatch.setattr("hrag.engine.embedded.admin.administration.repair", full)
    stopped = run(["check", "--repair", "--data-dir", str(folder)])
    assert stopped.exit_code == 2
    assert stopped.stderr.endswith("error: the disk is full\n")


def run(command: list[str], **settings: str):
    return CliRunner().invoke(app, command, env={"NO_COLOR": "1", **settings})
