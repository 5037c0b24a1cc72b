"""Tests of sealing: the whole tail becomes a segment, or nothing changes."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from hrag.engine.embedded.admin.check import check
from hrag.engine.embedded.maintenance import build_plan, segment_build
from hrag.engine.embedded.maintenance.orphan_gc import OrphanCollector
from hrag.engine.embedded.segments import manifest, segment_files, vector_part
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.errors import StorageFull
from tests.conftest import Engine
from tests.support.documents.fakes import (
    ModelCollection,
    prepared,
    query_vector,
    recall,
    search_leaves,
    sentences,
    unit_vectors,
)

WAIT_S = 30


@pytest.fixture
def model(engine: Engine) -> ModelCollection:
    """The model of a collection with four documents, all of them in the tail."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    for number in range(4):
        document = prepared(f"d{number}", sentences(30, number), seed=number)
        engine.put(model, document)
    return model


def folders(engine: Engine) -> list[Path]:
    return sorted(engine.store.segments.iterdir())


def assert_tail_only(engine: Engine, model: ModelCollection) -> None:
    status = engine.writer.status(engine.open())
    assert status.embedded.segments == ()
    assert status.embedded.tail_leaf_count == model.leaf_count
    assert folders(engine) == []
    with engine.reader.snapshot("t", "c") as snapshot:
        found = search_leaves(snapshot, query_vector(0), 10)
    assert recall(found, model, query_vector(0), 10) == 1.0


def test_sealing_makes_a_segment_of_the_whole_tail(engine, model):
    before = engine.reader.sequence("t")
    record = engine.seal()
    assert (record.rows, record.first_ordinal, record.last_ordinal) == (model.leaf_count, 1, 4)
    assert record.covered_sequence == before
    assert (record.space, record.embedder, record.dimension) == ("ip", "fake", 16)
    assert engine.reader.sequence("t") == before
    status = engine.writer.status(engine.open())
    assert (status.embedded.tail_leaf_count, status.embedded.sealed_sequence) == (0, before)
    assert status.embedded.segments == (record.info(),)
    assert segment_build.tail_leaves(engine.store, engine.open().collection_id) == 0


def test_a_second_segment_begins_where_the_first_ended(engine, model):
    first = engine.seal()
    engine.writer.put(engine.open(), prepared("new", sentences(30), seed=8))
    second = engine.seal()
    assert (second.first_ordinal, second.last_ordinal) == (first.last_ordinal + 1, 5)
    assert folders(engine) == [segment_files.path_of(engine.store.segments, n) for n in (1, 2)]


def test_sealing_an_empty_tail_writes_nothing(engine, model):
    engine.seal()
    transaction = engine.store.env.info()["last_txnid"]
    assert engine.seal() is None
    for document_id in model.documents:
        engine.writer.delete(engine.open(), document_id)
    assert engine.seal() is None
    assert engine.store.env.info()["last_txnid"] == transaction + len(model.documents)


def test_documents_deleted_during_the_build_are_deleted_in_the_segment(engine, model, monkeypatch):
    write = segment_files.write

    def delete_meanwhile(*args: object) -> object:
        engine.writer.delete(engine.open(), "d1")
        engine.writer.put(engine.open(), prepared("d2", sentences(20), seed=30))
        return write(*args)

    monkeypatch.setattr(segment_files, "write", delete_meanwhile)
    assert engine.seal().rows == model.leaf_count
    del model.documents["d1"]
    model.put(prepared("d2", sentences(20), seed=30))
    status = engine.writer.status(engine.open())
    assert status.leaf_count == model.leaf_count
    assert status.embedded.tail_leaf_count == len(model.documents["d2"].vectors)
    with engine.reader.snapshot("t", "c") as snapshot:
        for count in (3, 1000):
            found = search_leaves(snapshot, query_vector(1), count)
            assert recall(found, model, query_vector(1), count) == 1.0


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("owner", "name"), [(np, "savez"), (os, "fsync"), (Path, "rename")])
def test_a_full_disk_leaves_the_tail_as_it_was(engine, model, monkeypatch, owner, name):
    monkeypatch.setattr(owner, name, _no_space)
    with pytest.raises(OSError, match="No space left"):
        engine.seal()
    monkeypatch.undo()
    assert_tail_only(engine, model)
    assert engine.seal().rows == model.leaf_count


def test_a_manifest_that_cannot_be_committed_leaves_no_files(engine, model, monkeypatch):
    def full(*_: object) -> None:
        raise lmdb.DiskError("mdb_put: No space left on device")

    monkeypatch.setattr(manifest, "publish", full)
    with pytest.raises(StorageFull):
        engine.seal()
    monkeypatch.undo()
    assert_tail_only(engine, model)
    assert engine.seal().rows == model.leaf_count


def test_a_collection_that_is_deleted_during_the_build_gets_no_segment(engine, model, monkeypatch):
    collection_id = engine.open().collection_id
    write = segment_files.write

    def delete_meanwhile(*args: object) -> object:
        engine.writer.delete_collection("t", "c")
        return write(*args)

    monkeypatch.setattr(segment_files, "write", delete_meanwhile)
    assert engine.seal() is None
    assert folders(engine) == []
    assert segment_build.tail_leaves(engine.store, collection_id) == 0
    assert build_plan.seal_plan(engine.store, collection_id, 1) is None
    assert build_plan.merge_plan(engine.store, collection_id) is None


def test_files_that_no_manifest_lists_are_removed(engine, model):
    record = engine.seal()
    listed = segment_files.path_of(engine.store.segments, record.segment_id)
    for name in ("000000000009.tmp", "000000000010"):
        (engine.store.segments / name).mkdir()
        (engine.store.segments / name / "index.hnsw").write_bytes(b"half")
    (engine.store.segments / "000000000010.damaged").touch()
    orphans = OrphanCollector(engine.store, grace_s=60, clock=lambda: now)
    now = 0.0
    orphans.collect()
    now = 59.0
    orphans.collect()
    assert len(folders(engine)) == 4
    orphans.remove_unfinished()
    now = 60.0
    orphans.collect()
    assert folders(engine) == [listed]
    assert segment_files.load(engine.store.segments, record).record == record


def test_every_collection_is_listed_until_it_is_deleted(engine, model):
    other, _ = engine.writer.create_collection("t2", "c", model.settings)
    collection_ids = {
        engine.open().collection_id,
        engine.writer.open("t2", other.name).collection_id,
    }
    assert segment_build.all_collections(engine.store) == collection_ids
    deleted = engine.open().collection_id
    engine.writer.delete_collection("t", "c")
    assert segment_build.all_collections(engine.store) == collection_ids - {deleted}


def test_copies_of_one_leaf_are_all_found_and_hide_no_other(engine: Engine):
    """The sealed collection has 2,000 copies of a leaf among 4,000 other leaves."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    others = prepared("others", sentences(13_500), seed=1)
    same = prepared("same", sentences(6_800), seed=2)
    copy = unit_vectors(1, seed=77)
    copies = replace(same, vectors=np.repeat(copy, len(same.vectors), axis=0))
    assert len(others.vectors) >= 4000
    assert len(copies.vectors) >= 2000
    for document in (others, copies):
        engine.put(model, document)
    assert engine.seal().items == len(others.vectors) + 1

    with engine.reader.snapshot("t", "c") as snapshot:
        found = search_leaves(snapshot, copy[0], len(copies.vectors))
        assert set(found) == {("same", leaf) for leaf in range(len(copies.vectors))}
        shares = []
        for leaf in range(0, 4000, 100):
            query = others.vectors[leaf]
            found = search_leaves(snapshot, query, 10)
            assert ("others", leaf) in found
            shares.append(recall(found, model, query, 10))
    assert np.mean(shares) >= 0.99


def test_a_sealed_store_is_sound(engine, model):
    engine.seal()
    report = check(engine.store)
    assert (report.collections, report.documents, report.segments) == (1, 4, 1)
    assert (report.leaves, report.problems) == (model.leaf_count, ())


# Tests of inserting in a second thread.


def build_of_tail(engine: Engine, **options: Any) -> SegmentRecord | None:
    """Builds a segment of the tail in blocks of one document."""
    plan = build_plan.seal_plan(engine.store, engine.open().collection_id, 1)
    assert plan is not None
    return segment_build.build(engine.store, plan, block_leaves=1, **options)


def test_the_next_block_is_read_while_vectors_are_inserted(engine, model):
    blocks = 0
    is_second_begun = threading.Event()

    def count_blocks() -> None:
        nonlocal blocks
        blocks += 1
        if blocks == 2:
            is_second_begun.set()

    def insert(*args: Any) -> None:
        assert is_second_begun.wait(WAIT_S)
        vector_part.insert(*args)

    record = build_of_tail(engine, before_block=count_blocks, insert=insert)
    assert record is not None
    assert (blocks, record.rows) == (4, model.leaf_count)


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_a_block_that_cannot_be_inserted_ends_the_build(engine, model, failing):
    calls: list[int] = []

    def insert(*args: Any) -> None:
        calls.append(1)
        if len(calls) == failing:
            raise RuntimeError("no memory")
        vector_part.insert(*args)

    with pytest.raises(RuntimeError, match="no memory"):
        build_of_tail(engine, insert=insert)
    assert len(calls) == failing
    assert_tail_only(engine, model)


def test_a_build_that_is_ended_waits_for_the_block_that_is_being_inserted(engine, model):
    running = threading.Event()
    inserted: list[int] = []

    def insert(index: Any, vectors: Any, items: Any) -> None:
        running.set()
        time.sleep(0.02)
        inserted.append(len(items))

    def end() -> None:
        if running.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_of_tail(engine, before_block=end, insert=insert)
    assert inserted
    assert "insert" not in {thread.name.partition("_")[0] for thread in threading.enumerate()}
    assert_tail_only(engine, model)
