"""`hrag reindex` beside a damaged document: every other collection gets its new index."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hrag.cli.app import app
from hrag.config import EngineSettings
from hrag.engine import StoredDocument, open_engine
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.damage import flip_first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of three collections, the first with a damaged document."""
    folder = tmp_path / "store"
    with closing(open_engine(EngineSettings().model_copy(update={"data_dir": folder}))) as engine:
        writer = engine.writer()
        for name in ("first", "second", "third"):
            writer.create_collection("t", name, collection_settings())
            document = prepared("a", sentences(200))
            writer.put_stored(writer.open("t", name), StoredDocument(document))
    flip_first(folder, "texts")
    return folder


def test_collections_after_a_damaged_one_are_reindexed_and_the_damage_is_named(folder):
    done = run("--data-dir", str(folder))
    assert done.exit_code == 1
    names = [line.split()[1] for line in done.stdout.splitlines() if "leaves indexed" in line]
    assert names == ["t/second:", "t/third:"]
    assert "reindexed 2 collections" in done.stdout
    assert (
        "error: 1 of 3 collections were not reindexed: document 'a' of collection 't/first' is "
        "damaged"
    ) in done.stderr


def test_a_program_learns_which_were_reindexed_too(folder, tmp_path):
    records = tmp_path / "audit.log"
    done = run("--json", "--data-dir", str(folder), HRAG_AUDIT_FILE=str(records))
    assert done.exit_code == 1
    assert [each["name"] for each in json.loads(done.stdout)["collections"]] == ["second", "third"]
    assert json.loads(done.stderr)["error"]["type"] == "DataLoss"
    (entry,) = map(json.loads, records.read_text().splitlines())
    assert (entry["outcome"], entry["collections"]) == ("FAILED", 2)


def run(*arguments: str, **settings: str):
    settings = {"NO_COLOR": "1", "HRAG_SEGMENT_MIN_LEAVES": "64", **settings}
    return CliRunner().invoke(app, ["reindex", *arguments], env=settings)
