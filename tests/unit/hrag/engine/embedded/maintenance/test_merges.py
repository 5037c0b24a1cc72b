"""Tests of merging and rewriting segments: only deleted leaves are removed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hrag.engine.embedded.maintenance import build_plan, segment_build
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.segments import manifest, segment_files, vector_part
from hrag.engine.embedded.segments.manifest import ManifestEntry
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from tests.conftest import Engine
from tests.support.documents.fakes import (
    ANALYZER,
    ModelCollection,
    collection_settings,
    prepared,
    query_vector,
    recall,
    search_leaves,
    sentences,
)

# No tail reaches this threshold, so maintenance merges segments but does not seal the tail.
NO_SEALING = 10**9


@pytest.fixture
def model(engine: Engine) -> ModelCollection:
    """The model of a collection with three segments of four documents and 48 leaves each."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    for number in range(12):
        put(engine, model, f"d{number}", number)
        if number % 4 == 3:
            engine.seal()
    return model


def put(engine: Engine, model: ModelCollection, name: str, seed: int) -> None:
    document = prepared(name, sentences(30, seed), seed=seed)
    engine.put(model, document)


def put_tail(engine: Engine, model: ModelCollection) -> int:
    """Stores a tail that is large enough to be merged into a segment of twelve documents.

    Returns the count of its leaves.
    """
    put(engine, model, "more", 50)
    put(engine, model, "even-more", 51)
    return len(model.documents["more"].vectors) + len(model.documents["even-more"].vectors)


def delete(engine: Engine, model: ModelCollection, *names: str) -> None:
    for name in names:
        engine.writer.delete(engine.open(), name)
        del model.documents[name]


def listed(engine: Engine) -> list[ManifestEntry]:
    with engine.store.read() as txn:
        return manifest.read_manifest(txn, engine.open().collection_id)


def plan_of(engine: Engine, threshold: int = NO_SEALING) -> BuildPlan:
    number = engine.open().collection_id
    found = build_plan.seal_plan(engine.store, number, threshold) or build_plan.merge_plan(
        engine.store, number
    )
    assert found is not None
    return found


def assert_right(engine: Engine, model: ModelCollection) -> None:
    engine.restart_reader()
    shares = []
    with engine.reader.snapshot("t", "c") as snapshot:
        for seed in range(5):
            for count in (3, 1000):
                found = search_leaves(snapshot, query_vector(seed), count)
                shares.append(recall(found, model, query_vector(seed), count))
    assert np.mean(shares) == 1.0


def build_and_count(engine: Engine, plan: BuildPlan) -> tuple[SegmentRecord, int]:
    """Builds a segment. Returns its record, and the count of vectors inserted into the index."""
    counts: list[int] = []

    def count(index: object, vectors: np.ndarray, items: np.ndarray) -> None:
        counts.append(len(vectors))
        vector_part.insert(index, vectors, items)

    record = segment_build.build(engine.store, plan, insert=count)
    assert record is not None
    return record, sum(counts)


def test_segments_are_merged_into_one(engine, model):
    assert len(listed(engine)) == 3
    assert engine.run_maintenance(NO_SEALING) == 1
    (only,) = listed(engine)
    assert (only.record.rows, only.deleted_leaves) == (model.leaf_count, 0)
    assert (only.record.first_ordinal, only.record.last_ordinal) == (1, 12)
    assert_right(engine, model)


def test_a_merge_extends_the_largest_index(engine, model):
    put(engine, model, "more", 50)
    largest = max(each.record.rows for each in listed(engine))
    record, count = build_and_count(engine, plan_of(engine))
    assert record.rows == model.leaf_count - len(model.documents["more"].vectors)
    assert count == record.rows - largest
    assert_right(engine, model)


def test_a_tail_is_merged_into_the_newest_segment(engine, model):
    put(engine, model, "more", 50)
    leaves = len(model.documents["more"].vectors)
    newest = listed(engine)[-1].record
    record, count = build_and_count(engine, plan_of(engine, threshold=leaves))
    assert count == leaves
    assert record.rows == newest.rows + leaves
    assert (record.first_ordinal, record.last_ordinal) == (newest.first_ordinal, 13)
    assert_right(engine, model)


def test_a_merge_removes_deleted_leaves_and_their_tombstones(engine, model):
    delete(engine, model, "d0", "d5", "d10")
    assert [each.deleted_leaves > 0 for each in listed(engine)] == [True] * 3
    engine.run_maintenance(NO_SEALING)
    (only,) = listed(engine)
    assert (only.record.rows, only.deleted_leaves) == (model.leaf_count, 0)
    with engine.store.read() as txn:
        assert len(manifest.deleted_ordinals(txn, engine.open().collection_id)) == 0
    assert_right(engine, model)


def test_a_few_deleted_items_stay_in_an_index_that_is_extended(engine, model):
    """Graph searches still pass through the deleted items, but these no longer have a row."""
    engine.run_maintenance(NO_SEALING)
    delete(engine, model, "d3")
    leaves = put_tail(engine, model)
    record, count = build_and_count(engine, plan_of(engine, threshold=1))
    assert record.items == record.rows + len(prepared("d3", sentences(30, 3), seed=3).vectors)
    assert record.rows == model.leaf_count
    assert count == leaves
    assert_right(engine, model)


def test_an_index_with_many_deleted_items_is_built_from_nothing(engine, model):
    engine.run_maintenance(NO_SEALING)
    delete(engine, model, "d3", "d4")
    put_tail(engine, model)
    record, count = build_and_count(engine, plan_of(engine, threshold=1))
    assert record.items == record.rows == count == model.leaf_count
    assert_right(engine, model)


def test_a_segment_with_only_deleted_leaves_is_dropped(engine, model):
    delete(engine, model, *(f"d{number}" for number in range(4, 8)))
    engine.run_maintenance(NO_SEALING)
    assert [each.record.rows for each in listed(engine)] == [model.leaf_count]
    delete(engine, model, *list(model.documents))
    engine.run_maintenance(NO_SEALING)
    assert listed(engine) == []
    assert_right(engine, model)
    put(engine, model, "new", 60)
    engine.run_maintenance(1)
    assert len(listed(engine)) == 1
    assert_right(engine, model)


def test_documents_deleted_during_a_merge_are_deleted_in_the_new_segment(
    engine, model, monkeypatch
):
    write = segment_files.write
    delete(engine, model, "d1")

    def change_and_write(*args: object) -> object:
        delete(engine, model, "d2", "d9")
        put(engine, model, "d6", 70)
        return write(*args)

    monkeypatch.setattr(segment_files, "write", change_and_write)
    segment_build.build(engine.store, plan_of(engine))
    (only,) = listed(engine)
    deleted = [prepared(f"d{n}", sentences(30, n), seed=n) for n in (2, 9, 6)]
    assert only.deleted_leaves == sum(len(document.vectors) for document in deleted)
    assert_right(engine, model)


def test_a_vector_that_the_index_has_already_is_not_inserted_again(engine, model):
    engine.run_maintenance(NO_SEALING)
    same = prepared("same", sentences(60), seed=0)
    known = model.documents["d1"].vectors[:1]
    same = replace(same, vectors=np.repeat(known, len(same.vectors), axis=0))
    engine.writer.put(engine.open(), same)
    model.put(same)
    record, count = build_and_count(engine, plan_of(engine, threshold=1))
    assert count == 0
    assert record.items == record.rows - len(same.vectors)
    assert_right(engine, model)


@pytest.mark.parametrize("name", ["index.hnsw", "postings.bin", "rows.npz"])
def test_a_merge_does_not_extend_the_index_of_a_damaged_segment(engine, model, name):
    largest = max(listed(engine), key=lambda each: each.record.rows).record
    (segment_files.path_of(engine.store.segments, largest.segment_id) / name).write_bytes(b"x")
    engine.run_maintenance(NO_SEALING)
    assert [each.record.rows for each in listed(engine)] == [model.leaf_count]
    assert_right(engine, model)


def test_an_interrupted_build_changes_nothing(engine, model):
    def end() -> None:
        raise KeyboardInterrupt

    before = [each.record for each in listed(engine)]
    with pytest.raises(KeyboardInterrupt):
        segment_build.build(engine.store, plan_of(engine), end)
    assert [each.record for each in listed(engine)] == before
    assert len(list(engine.store.segments.iterdir())) == 3
    assert_right(engine, model)


def test_a_tail_can_be_sealed_during_a_merge(engine, model):
    """The segments that are being merged stay listed, and the new segment comes after them."""
    merge = plan_of(engine)

    def seal_meanwhile() -> None:
        put(engine, model, f"meanwhile{len(model.documents)}", len(model.documents))
        tail = build_plan.seal_plan(
            engine.store, engine.open().collection_id, 1, busy_ordinal=merge.last_ordinal
        )
        segment_build.build(engine.store, tail)

    segment_build.build(engine.store, merge, seal_meanwhile)
    first, *later = [each.record for each in listed(engine)]
    assert (first.first_ordinal, first.last_ordinal) == (1, 12)
    assert later[0].first_ordinal == 13
    assert_right(engine, model)


def test_reindexing_builds_one_segment_of_all_leaves(engine, model):
    put(engine, model, "more", 50)
    delete(engine, model, "d3")
    reindex = partial(segment_build.reindex, engine.store, engine.open().collection_id, 1)
    assert reindex(lambda: None) == model.leaf_count
    (only,) = listed(engine)
    assert only.record.items == only.record.rows == model.leaf_count
    assert_right(engine, model)


def test_reindexing_a_small_collection_builds_no_segment(engine):
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    collection_id = engine.open().collection_id
    assert segment_build.reindex(engine.store, collection_id, 100, lambda: None) == 0
    put(engine, model, "d", 0)
    assert segment_build.reindex(engine.store, collection_id, 100, lambda: None) == 0
    assert listed(engine) == []
    assert segment_build.reindex(engine.store, collection_id + 1, 1, lambda: None) == 0


@pytest.mark.parametrize("has_living_leaves", [True, False])
def test_reindexing_adds_postings_to_a_collection_of_an_earlier_version(engine, has_living_leaves):
    """This holds even if all leaves of the segments are deleted.

    Otherwise the collection would stay without postings.
    """
    model = ModelCollection(collection_settings(analyzer=""))
    engine.writer.create_collection("t", "c", model.settings)
    put(engine, model, "d0", 0)
    put(engine, model, "d1", 1)
    engine.seal()
    delete(engine, model, *list(model.documents)[has_living_leaves:])
    rebuilt = segment_build.reindex(engine.store, engine.open().collection_id, 1)
    assert rebuilt == model.leaf_count
    assert [each.record.analyzer for each in listed(engine)] == [ANALYZER] * has_living_leaves
    assert engine.open().settings.analyzer == ANALYZER
    put(engine, model, "d2", 2)
    engine.run_maintenance(1)
    assert_right(engine, model)


def test_a_build_first_requires_enough_free_space_on_the_disk(engine, model, monkeypatch):
    required_bytes: list[int] = []
    monkeypatch.setattr(Store, "require_space", lambda self, extra=0: required_bytes.append(extra))
    segment_build.build(engine.store, plan_of(engine))
    assert required_bytes[0] > model.leaf_count * model.settings.dimension * 4


def test_vectors_that_differ_only_in_the_sign_of_zero_are_all_found(engine):
    """0 and -0 are equal but have different bits. Nevertheless, each leaf is found."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    document = prepared("d", sentences(8))
    vectors = np.zeros_like(document.vectors)
    vectors[:, 0] = 1
    vectors[1::2, 1] = -0.0
    document = replace(document, vectors=vectors)
    engine.put(model, document)
    assert engine.run_maintenance(1) == 1
    assert_right(engine, model)
