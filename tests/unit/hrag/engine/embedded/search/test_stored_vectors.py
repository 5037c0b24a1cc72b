"""Files of segments that change while a reader uses them never change what a search finds.

The vectors of the segments stay in their files, which are damaged, truncated, replaced or removed
after the reader has loaded them.
"""

import errno
import gc
import os
import shutil
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.maintenance.scrubber import Scrubber
from hrag.engine.embedded.search import loaded_collection
from hrag.engine.embedded.search.loaded_collection import LoadedCollection
from hrag.engine.embedded.search.reader import EmbeddedReader, ReaderLimits
from hrag.engine.embedded.search.stored_vectors import StoredVectors
from hrag.engine.embedded.search.vector_memory import VectorMemory
from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store.queries import address_of
from hrag.errors import DataLoss
from tests.conftest import Engine
from tests.support.documents.fakes import (
    ModelCollection,
    prepared,
    query_vector,
    recall,
    search_leaves,
    sentences,
)
from tests.support.engines.damage import put_part


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


def replace_by_other_bytes(path: Path) -> None:
    """Replaces the file by another one of the same name, as a restored backup would."""
    other = path.with_suffix(".other")
    other.write_bytes(b"\xff" * path.stat().st_size)
    other.rename(path)


# What happens to the file of an index, and whether it is damage for a reader that has it open.
CHANGES: dict[str, tuple[Callable[[Path], None], bool]] = {
    "truncated": (lambda path: os.truncate(path, 0), True),
    "half": (lambda path: os.truncate(path, path.stat().st_size // 2), True),
    "overwritten": (overwrite, True),
    "replaced": (replace_by_other_bytes, False),
    "removed": (Path.unlink, False),
    "folder removed": (lambda path: shutil.rmtree(path.parent), False),
}


@pytest.fixture
def model(engine: Engine) -> ModelCollection:
    """The model of a collection with a segment of 72 leaves and a tail of 12."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    for number in range(7):
        document = prepared(f"d{number}", sentences(30, number), seed=number)
        engine.put(model, document)
        if number == 5:
            engine.seal()
    return model


def index_path(engine: Engine) -> Path:
    (segment,) = engine.writer.status(engine.open()).embedded.segments
    folder = segment_files.path_of(engine.store.segments, segment.segment_id)
    return folder / segment_files.INDEX


def found(engine: Engine, count: int = 20) -> list[dict[str, float]]:
    with engine.reader.snapshot("t", "c") as snapshot:
        return [search_leaves(snapshot, query_vector(seed), count) for seed in range(4)]


@pytest.fixture
def repaired(engine: Engine):
    """Puts the bytes of the index back when the test ends, because the store is checked then."""
    path = index_path(engine)
    content = path.read_bytes()
    others = {other: other.read_bytes() for other in path.parent.iterdir()}
    yield
    path.parent.mkdir(exist_ok=True)
    for other, other_content in others.items():
        other.write_bytes(other_content)
    path.write_bytes(content)


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_used_changes_no_result(engine, model, change, repaired):
    before = found(engine)
    function, is_damage = CHANGES[change]
    path = index_path(engine)
    function(path)
    with capture_logs() as logs:
        assert found(engine) == before
        assert found(engine) == before
    reports = [log for log in logs if log["event"] == "segment_damaged"]
    assert len(reports) == is_damage
    assert engine.reader.status().embedded.damaged_segments == is_damage
    segment_id = int(path.parent.name)
    assert damage.reported_damage(engine.store.segments) == ({segment_id} if is_damage else set())
    for query in (query_vector(seed) for seed in range(4)):
        with engine.reader.snapshot("t", "c") as snapshot:
            assert recall(search_leaves(snapshot, query, 5), model, query, 5) == 1.0


def test_deleted_documents_stay_deleted_if_the_file_cannot_be_read(engine, model, repaired):
    """Their vectors are in no other place any more, and they still are in the graph."""
    found(engine)
    engine.writer.delete(engine.open(), "d1")
    del model.documents["d1"]
    before = found(engine)
    os.truncate(index_path(engine), 0)
    assert found(engine) == before


def test_a_search_reads_the_vectors_of_its_snapshot(engine, model, repaired):
    """A later commit deletes a document that the snapshot still has."""
    found(engine)
    path = index_path(engine)
    with engine.reader.snapshot("t", "c") as snapshot:
        before = [search_leaves(snapshot, query_vector(seed), 84) for seed in range(4)]
        os.truncate(path, 0)
        engine.writer.delete(engine.open(), "d1")
        del model.documents["d1"]
        after = [search_leaves(snapshot, query_vector(seed), 84) for seed in range(4)]
    assert after == before
    assert any(document_id == "d1" for document_id, _ in after[0])


def test_the_scrubber_finds_a_file_that_a_search_could_not_read(engine, model, repaired):
    found(engine)
    overwrite(index_path(engine))
    scrubber = Scrubber(engine.store)
    assert scrubber.scrub() == set()
    found(engine)
    assert scrubber.scrub() == {engine.open().collection_id}


def test_a_transient_error_is_forgotten_when_the_file_is_found_intact(engine, model):
    found(engine)
    content = index_path(engine).read_bytes()
    os.truncate(index_path(engine), 0)
    found(engine)
    index_path(engine).write_bytes(content)
    assert engine.reader.status().embedded.damaged_segments == 1
    assert Scrubber(engine.store).scrub() == set()
    assert engine.reader.status().embedded.damaged_segments == 0
    found(engine)
    assert damage.reported_damage(engine.store.segments) == set()


def test_a_document_that_is_damaged_too_is_reported_as_lost(engine, model, monkeypatch, repaired):
    found(engine)
    os.truncate(index_path(engine), 0)

    def lost(*_: object) -> None:
        raise DataLoss("the vectors are damaged")

    monkeypatch.setattr("hrag.engine.embedded.segments.leaves.vectors_in_place", lost)
    with pytest.raises(DataLoss, match="the vectors are damaged"):
        found(engine)


@pytest.mark.parametrize("more", [-4, 4])
def test_vectors_of_another_size_are_reported_as_lost(engine, model, more, repaired):
    """The checksum of the stored vectors is right, but their number is not."""
    found(engine)
    collection_id = engine.open().collection_id
    os.truncate(index_path(engine), 0)
    with engine.store.write() as txn:
        address = address_of(txn, collection_id, 1)
        stored = bytes(txn.contents.vectors(address))
        put_part(txn, address, "vectors", (stored + bytes(4))[: len(stored) + more])
    with pytest.raises(DataLoss, match=f"has {len(stored) + more:,} bytes of vectors for 12 leav"):
        found(engine)
    with engine.store.write() as txn:
        put_part(txn, address, "vectors", stored)
    assert len(found(engine)) == 4


def test_a_segment_is_reported_once_in_ten_seconds(engine, model):
    found(engine)
    collection_id = engine.open().collection_id
    (segment,) = engine.reader.loaded[collection_id].view.segments
    now_s, reports = [100.0], []
    source = StoredVectors(
        engine.store, collection_id, lambda *report: reports.append(report), lambda: now_s[0]
    )
    items = np.array([0, 5, 71], np.uint32)
    for later_s in (0, 9, 1, 9.9, 0.2):
        now_s[0] += later_s
        vectors = source(segment.record, segment.rows, items, "gone")
    assert reports == 3 * [(segment.record.segment_id, "gone")]
    leaves = {
        vector.tobytes() for document in model.documents.values() for vector in document.vectors
    }
    assert {vector.tobytes() for vector in vectors} <= leaves


def test_vectors_are_in_memory_up_to_the_budget_and_results_do_not_depend_on_it(engine, model):
    expected = found(engine)
    collection_id = engine.open().collection_id
    sizes = {}
    for budget in (0, 72 * 16 * 4 - 1, 72 * 16 * 4):
        with closing(EmbeddedReader(engine.store, vector_budget_bytes=budget)) as engine.reader:
            for _ in range(2):
                assert found(engine) == expected
                sizes[budget] = engine.reader.status().embedded.loaded_bytes
                engine.reader.evict(collection_id)
    (none, too_few, enough) = sizes.values()
    assert none == too_few == enough - 72 * (64 - 8)
    engine.restart_reader()


def test_a_file_that_cannot_stay_open_is_damage_until_it_can(engine, model, monkeypatch):
    """The process has no free file descriptor for a moment."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = found(engine)
    engine.restart_reader()
    with monkeypatch.context() as patch:
        patch.setattr(segment_files, "Graph", fail)
        with capture_logs() as logs:
            assert found(engine) == before
    (report,) = [log for log in logs if log["event"] == "segment_damaged"]
    assert "Too many open files" in report["problem"]
    assert Scrubber(engine.store).scrub() == set()


def test_a_collection_that_cannot_be_loaded_uses_no_vector_memory(engine, model, monkeypatch):
    def fail(*_: object) -> None:
        raise DataLoss("damaged")

    memory = VectorMemory(100_000)
    monkeypatch.setattr("hrag.engine.embedded.search.loaded_collection.load_view", fail)
    with pytest.raises(DataLoss):
        LoadedCollection(engine.store, engine.open().collection_id, memory)
    assert memory.admit(1, 1, 100_000)


def test_an_evicted_collection_leaves_memory_without_the_garbage_collector(engine, model):
    """Collections that are loaded before the service begins are never collected as garbage."""
    engine.restart_reader(limits=ReaderLimits(poll_s=1000.0))
    gc.disable()
    try:
        found(engine)
        loaded = engine.reader.loaded[engine.open().collection_id]
        parts = [weakref.ref(loaded), weakref.ref(loaded.view)]
        del loaded
        engine.reader.evict(engine.open().collection_id)
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()


def test_a_segment_that_cannot_be_loaded_again_and_again_uses_no_vector_memory(
    engine, model, monkeypatch
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    (segment,) = engine.writer.status(engine.open()).embedded.segments
    memory = VectorMemory(72 * 16 * 4)
    with monkeypatch.context() as patch:
        patch.setattr(segment_files, "Graph", fail)
        collection = LoadedCollection(engine.store, engine.open().collection_id, memory)
        for _ in range(3):
            damage.forget_damage(engine.store.segments, segment.segment_id)
            collection.refresh(retry_damaged=True)
    damage.forget_damage(engine.store.segments, segment.segment_id)
    assert memory.admit(7, 7, 72 * 16 * 4)


def test_a_segment_that_replaces_others_gets_their_vector_memory(engine, model):
    """Otherwise the vectors of a merged segment would stay in its file although they fit."""
    collection_id = engine.open().collection_id
    memory = VectorMemory(84 * 16 * 4)
    collection = LoadedCollection(engine.store, collection_id, memory)
    assert not memory.admit("other", 1, 12 * 16 * 4 + 1)
    segment_build.reindex(engine.store, collection_id, 1)
    collection.refresh()
    (segment,) = collection.view.segments
    assert segment.record.items == 84
    assert not memory.admit("other", 1, 1)


def test_a_folder_that_cannot_be_read_is_no_error_of_the_status(engine, model, monkeypatch):
    def fail(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    found(engine)
    content = index_path(engine).read_bytes()
    os.truncate(index_path(engine), 0)
    found(engine)
    index_path(engine).write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr("hrag.engine.embedded.search.loaded_collection.is_reported", fail)
        assert engine.reader.status().embedded.damaged_segments == 1
    Scrubber(engine.store).scrub()


def test_a_collection_that_is_evicted_while_it_loads_a_segment_uses_no_vector_memory(
    engine, model, monkeypatch
):
    """The background thread loads a new segment when a search evicts the collection."""
    engine.reader.close()
    collection_id, budget_bytes = engine.open().collection_id, 100_000
    reader = EmbeddedReader(
        engine.store, limits=ReaderLimits(poll_s=1000.0), vector_budget_bytes=budget_bytes
    )
    memory = VectorMemory(budget_bytes)
    monkeypatch.setattr(reader, "_vector_memory", memory)
    with closing(reader):
        reader.load(collection_id)
        engine.seal()
        listed = loaded_collection.listed_segments

        def listed_while_evicted(*arguments: Any) -> Any:
            if collection_id in reader.loaded:
                reader.evict(collection_id)
            return listed(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(loaded_collection, "listed_segments", listed_while_evicted)
            reader.apply_changes()
        assert collection_id not in reader.loaded
        assert memory.admit("another collection", 1, budget_bytes)
    engine.restart_reader()
