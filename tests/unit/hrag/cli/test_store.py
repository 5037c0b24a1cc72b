"""`hrag check`, `hrag reindex` and `hrag postgres` report their results and are audited.

Their exit codes say whether they have succeeded.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner, Result

from hrag.cli import store
from hrag.cli.app import app
from hrag.config import EngineSettings
from hrag.engine import StoredDocument, open_engine
from hrag.engine.reports import MigrationReport
from hrag.errors import StorageFull
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import flip_first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a store with one document."""
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
    assert run(["check", "--data-dir", str(folder)]).exit_code == 1  # No repair was made.
    entries = [json.loads(line) for line in records.read_text().splitlines()]
    audited = [(entry["method"], entry["outcome"], entry.get("problems")) for entry in entries]
    assert audited == [("repair", "OK", 0), ("repair", "OK", 1), ("repair", "FAILED", None)]
    assert {entry["store"] for entry in entries} == {str(folder)}


def test_a_repair_on_a_full_disk_ends_with_an_error(folder, monkeypatch):
    def full(_: object) -> NoReturn:
        raise StorageFull("the disk is full")

    monkeypatch.setattr("hrag.engine.embedded.admin.administration.repair", full)
    stopped = run(["check", "--repair", "--data-dir", str(folder)])
    assert stopped.exit_code == 2
    assert stopped.stderr.endswith("error: the disk is full\n")


def run(command: list[str], **settings: str):
    return CliRunner().invoke(app, command, env={"NO_COLOR": "1", **settings})


@pytest.fixture
def damaged_folder(tmp_path: Path) -> Path:
    """The folder of a store of three collections. The first one has a damaged document."""
    folder = tmp_path / "store"
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as engine:
        writer = engine.writer()
        for name in ("first", "second", "third"):
            writer.create_collection("t", name, collection_settings())
            document = prepared("a", sentences(200))
            writer.put_stored(writer.open("t", name), StoredDocument(document))
    flip_first(folder, "texts")
    return folder


def test_collections_after_a_damaged_one_are_reindexed_and_the_damage_is_reported(damaged_folder):
    result = reindex("--data-dir", str(damaged_folder))
    assert result.exit_code == 1
    names = [line.split()[1] for line in result.stdout.splitlines() if "leaves indexed" in line]
    assert names == ["t/second:", "t/third:"]
    assert "reindexed 2 collections" in result.stdout
    assert (
        "error: 1 of 3 collections were not reindexed: document 'a' of collection 't/first' is "
        "damaged"
    ) in result.stderr


def test_a_collection_that_is_too_small_for_a_segment_is_named(folder):
    result = reindex("--data-dir", str(folder))
    assert "collection t/c: 0 leaves indexed; a small collection needs no index\n" in result.stdout


def test_json_lists_the_reindexed_collections_and_the_error(damaged_folder, tmp_path):
    records = tmp_path / "audit.log"
    result = reindex("--json", "--data-dir", str(damaged_folder), HRAG_AUDIT_FILE=str(records))
    assert result.exit_code == 1
    assert [collection["name"] for collection in json.loads(result.stdout)["collections"]] == [
        "second",
        "third",
    ]
    assert json.loads(result.stderr)["error"]["type"] == "DataLoss"
    (entry,) = map(json.loads, records.read_text().splitlines())
    assert (entry["outcome"], entry["collections"]) == ("FAILED", 2)


def reindex(*arguments: str, **settings: str):
    settings = {"NO_COLOR": "1", "HRAG_SEGMENT_MIN_LEAVES": "64", **settings}
    return CliRunner().invoke(app, ["reindex", *arguments], env=settings)


class MigratingEngine:
    """A fake engine, which is its own administration and migrates a schema to version 3."""

    location = "host=db"

    def __init__(
        self, before: int, distributed_tables: int = 0, *, lacks_nodes: bool = False
    ) -> None:
        self._report = MigrationReport(before, 3, distributed_tables, lacks_nodes)

    def administration(self) -> "MigratingEngine":
        return self

    def migrate(self) -> MigrationReport:
        return self._report


def migrate_schema(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["postgres", "migrate", *arguments], env={"NO_COLOR": "1"})


@pytest.mark.parametrize(
    ("before", "distributed", "lines"),
    [
        (0, 0, "migrated from schema version 0 to 3\n"),
        (3, 0, "the store has schema version 3 already\n"),
        (
            3,
            11,
            (
                "the store has schema version 3 already\n"
                "distributed 11 tables over the nodes of Citus\n"
            ),
        ),
    ],
)
def test_a_schema_migration_shows_what_it_has_done(
    monkeypatch: pytest.MonkeyPatch, before: int, distributed: int, lines: str
) -> None:
    monkeypatch.setattr(store, "open_store", lambda: MigratingEngine(before, distributed))
    assert migrate_schema().stdout == lines
    shown = {"before": before, "after": 3, "distributed_tables": distributed, "lacks_nodes": False}
    assert json.loads(migrate_schema("--json").stdout) == shown


def test_a_schema_migration_on_citus_without_nodes_says_that_nodes_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "open_store", lambda: MigratingEngine(0, lacks_nodes=True))
    words = " ".join(migrate_schema().stdout.split())
    assert "add nodes with citus_add_node, then run this command again" in words


def test_a_schema_migration_is_audited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "open_store", lambda: MigratingEngine(1))
    monkeypatch.setenv("HRAG_AUDIT_FILE", str(tmp_path / "audit"))
    assert migrate_schema().exit_code == 0
    (entry,) = map(json.loads, (tmp_path / "audit").read_text("utf-8").splitlines())
    shown = {name: entry[name] for name in ("method", "store", "before", "after")}
    assert shown == {"method": "postgres migrate", "store": "host=db", "before": 1, "after": 3}
    assert entry["outcome"] == "OK"


def test_an_embedded_store_needs_no_schema_migration() -> None:
    result = migrate_schema()
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "error: the embedded engine has no migrations: it opens only stores of its own schema "
        "version; for a store in PostgreSQL, set HRAG_ENGINE=postgres and HRAG_POSTGRES_DSN\n"
    )


def test_the_error_for_a_malformed_dsn_names_the_variable_and_hides_the_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HRAG_ENGINE", "postgres")
    monkeypatch.setenv("HRAG_POSTGRES_DSN", "host=db password=my secret")
    result = migrate_schema()
    assert result.exit_code == 2
    assert result.stderr.startswith("error: HRAG_POSTGRES_DSN: must be a URI")
    assert "secret" not in result.stderr
