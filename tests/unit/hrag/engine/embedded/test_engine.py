"""Tests of the embedded engine: its writer, reader and maintenance share one open store."""

import threading
from pathlib import Path

import pytest

from hrag.config import EngineSettings
from hrag.engine import Engine, open_engine
from hrag.errors import StoreMissing, StoreUnavailable
from tests.support.documents.fakes import collection_settings, prepared, sentences


def engine_in(folder: Path) -> Engine:
    """Returns an engine that seals tails of at least 64 leaves.

    The settings are copied, because pydantic sets these fields only from environment variables.
    """
    settings = EngineSettings().model_copy(update={"data_dir": folder, "segment_min_leaves": 64})
    return open_engine(settings)


@pytest.fixture
def engine(tmp_path):
    engine = engine_in(tmp_path / "store")
    yield engine
    engine.close()


def fill(engine: Engine, documents: int = 4) -> int:
    """Stores documents in a new collection. Returns the count of their leaves."""
    writer = engine.writer()
    writer.create_collection("t", "c", collection_settings())
    leaves = 0
    for number in range(documents):
        document = prepared(f"d{number}", sentences(80, number), seed=number)
        writer.put(writer.open("t", "c"), document)
        leaves += len(document.vectors)
    return leaves


def test_an_engine_opens_no_store_before_it_has_to(tmp_path):
    engine = engine_in(tmp_path / "store")
    engine.administration()
    engine.close()
    assert engine.name == "embedded"
    assert list(tmp_path.iterdir()) == []


def test_a_reader_in_the_writers_process_sees_its_changes_at_once(engine):
    fill(engine)
    reader = engine.reader()
    assert reader.sequence("t") == 5
    with reader.snapshot("t", "c") as snapshot:
        assert snapshot.sequence == 5


def test_a_reader_needs_a_store_and_no_writer_can_be_opened_after_it(tmp_path):
    engine = engine_in(tmp_path)
    with pytest.raises(StoreMissing):
        engine.reader()
    fill(engine)
    engine.close()
    assert engine.reader().sequence("t") == 5
    with pytest.raises(RuntimeError, match="before any reader"):
        engine.writer()
    engine.close()


def test_an_engine_has_one_writer(engine):
    engine.writer()
    with pytest.raises(RuntimeError, match="once"):
        engine.writer()
    with pytest.raises(StoreUnavailable, match="another indexer"):
        engine_in(Path(engine._settings.data_dir)).writer()


def test_maintenance_needs_a_writer_and_runs_only_after_its_start(engine):
    with pytest.raises(RuntimeError, match="open the writer first"):
        engine.maintenance()
    engine.writer()
    assert "maintenance" not in {thread.name for thread in threading.enumerate()}
    engine.maintenance().start()
    assert "maintenance" in {thread.name for thread in threading.enumerate()}
    engine.close()
    assert "maintenance" not in {thread.name for thread in threading.enumerate()}


def test_an_open_store_can_be_checked_and_backed_up(engine, tmp_path):
    leaves = fill(engine)
    report = engine.administration().check()
    assert (report.documents, report.leaves, report.problems) == (4, leaves, ())
    lines: list[str] = []
    made = engine.administration().backup(tmp_path / "backup", lines.append)
    assert (made.documents, lines[-1]) == (4, "checking the copy")


def test_a_backup_is_restored_into_a_new_folder(engine, tmp_path):
    fill(engine)
    made = engine.administration().backup(tmp_path / "backup", lambda line: None)
    other = engine_in(tmp_path / "other")
    assert other.administration().restore(tmp_path / "backup", lambda line: None) == made
    assert other.administration().check().problems == ()


def test_reindexing_reports_each_collection_and_leaves_a_sound_store(tmp_path):
    engine = engine_in(tmp_path)
    leaves = fill(engine)
    engine.close()
    for _ in range(2):  # In the second round there is no tail.
        (done,) = engine.administration().reindex()
        assert (done.tenant_id, done.name, done.leaves) == ("t", "c", leaves)
        report = engine.administration().check()
        assert (report.segments, report.problems) == (1, ())


def test_reindexing_after_deletions_covers_their_sequences(tmp_path):
    engine = engine_in(tmp_path)
    fill(engine)
    engine.close()
    list(engine.administration().reindex())
    writer = engine.writer()
    writer.delete(writer.open("t", "c"), "d0")
    engine.close()
    list(engine.administration().reindex())
    assert engine.administration().check().problems == ()
    status = (writer := engine.writer()).status(writer.open("t", "c"))
    assert status.embedded is not None
    assert status.embedded.sealed_sequence == status.committed_sequence == 6
    engine.close()


def test_a_vacuum_is_refused_while_the_store_is_open(tmp_path):
    engine = engine_in(tmp_path)
    fill(engine)
    with pytest.raises(StoreUnavailable, match="stop the indexer and the retriever"):
        engine.administration().vacuum()
    engine.close()
    report = engine.administration().vacuum()
    assert report.before_bytes >= report.after_bytes > 0


@pytest.mark.parametrize("work", ["check", "vacuum", "reindex"])
def test_administration_without_a_store_creates_nothing(tmp_path, work):
    done = getattr(engine_in(tmp_path / "none").administration(), work)
    with pytest.raises(StoreMissing, match="holds no store"):
        list(done())
    assert list(tmp_path.iterdir()) == []
