"""Tests of the reader: its views follow the store, whatever happens between and during calls."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.search.loaded_collection import LoadedCollection
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.search.vector_memory import VectorMemory
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import change_log
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionNotFound
from hrag.types import Retrieval, SearchQuery, SummaryUnit
from hrag.values.deadline import NEVER, Deadline
from retriever_svc.search_run import SearchRun
from tests.conftest import Engine
from tests.support.documents.fakes import (
    ModelCollection,
    collection_settings,
    prepared,
    query_vector,
    recall,
    seal,
    search_leaves,
    sentences,
)
from tests.support.until import PATIENCE_S, until

NOTHING: Any = None
RUN = SearchRun(NOTHING, SearchQuery("t", "a title"), NEVER)
RUN.vector = query_vector(1)


def view_of(reader: EmbeddedReader, collection_id: int) -> View:
    return reader.loaded[collection_id].view


@pytest.fixture
def model(engine: Engine) -> ModelCollection:
    """The model of a collection with 72 leaves."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    put(engine, model, *(f"d{number}" for number in range(6)))
    return model


def put(engine: Engine, model: ModelCollection, *names: str, seed: int = 0) -> None:
    for number, name in enumerate(names):
        document = prepared(name, sentences(30, number), seed=seed + number)
        engine.put(model, document)


def assert_right(engine: Engine, model: ModelCollection, count: int = 5) -> None:
    """Asserts that searches find the same `count` leaves as exact searches of the model."""
    for seed in range(3):
        query = query_vector(seed)
        with engine.reader.snapshot("t", "c") as snapshot:
            found = search_leaves(snapshot, query, count)
        assert recall(found, model, query, count) == 1.0


# Tests of segments.


def test_a_new_segment_is_loaded_in_the_background(engine, model):
    assert_right(engine, model)
    collection_id = engine.open().collection_id
    assert view_of(engine.reader, collection_id).segments == ()
    record = seal(engine.store, collection_id)
    until(lambda: len(view_of(engine.reader, collection_id).segments) == 1)
    view = view_of(engine.reader, collection_id)
    assert view.segments[0].record == record
    assert view.count == view.tail_base == record.rows
    assert_right(engine, model)

    put(engine, model, "new", "d2", seed=50)
    assert_right(engine, model)
    seal(engine.store, collection_id)
    until(lambda: len(view_of(engine.reader, collection_id).segments) == 2)
    # The first segment was not read again.
    assert view_of(engine.reader, collection_id).segments[0] is view.segments[0]
    assert_right(engine, model)


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": lambda path: path.write_bytes(
        bytes([path.read_bytes()[0] ^ 1, *path.read_bytes()[1:]])
    ),
}


@pytest.mark.parametrize("name", ["index.hnsw", "postings.bin", "rows.npz"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_leaves_of_a_damaged_segment_are_found_by_an_exact_scan(engine, model, damage, name):
    record = engine.seal()
    path = segment_files.path_of(engine.store.segments, record.segment_id) / name
    whole = path.read_bytes()
    DAMAGES[damage](path)
    with capture_logs() as logs:
        assert_right(engine, model)
        put(engine, model, "new")
        assert_right(engine, model)
    damaged = [log for log in logs if log["event"] == "segment_damaged"]
    assert [log["segment"] for log in damaged] == [record.segment_id]
    assert name in damaged[0]["problem"]
    assert view_of(engine.reader, engine.open().collection_id).segments == ()
    path.write_bytes(whole)


def test_preload_loads_the_collections_that_have_segments(engine, model):
    engine.writer.create_collection("t", "small", collection_settings())
    engine.seal()
    engine.reader.preload()
    assert list(engine.reader.loaded) == [engine.open().collection_id]
    assert_right(engine, model)


# Tests of views that follow changes.


def test_a_collection_is_loaded_again_if_the_changes_it_needs_were_trimmed(engine, model):
    engine.writer = EmbeddedWriter(engine.store, max_log_entries=4)
    engine.seal()
    assert_right(engine, model)
    for round_ in range(8):
        put(engine, model, "d0", "d1", seed=60 + 2 * round_)
    engine.writer.delete(engine.open(), "d5")
    del model.documents["d5"]
    assert_right(engine, model)
    assert len(view_of(engine.reader, engine.open().collection_id).segments) == 1


def test_a_view_misses_no_change_however_many_changes_it_is_behind(engine, model):
    engine.writer = EmbeddedWriter(engine.store, max_log_entries=4)
    for behind in range(1, 8):
        loaded = LoadedCollection(engine.store, engine.open().collection_id, VectorMemory(0))
        put(engine, model, *(f"of-{behind}-{number}" for number in range(behind)))
        with engine.store.read() as txn:
            assert len(loaded.view_at(txn).ordinals()) == len(model.documents)


def test_the_background_thread_applies_changes_without_any_search(engine, model):
    assert_right(engine, model)
    put(engine, model, "new")
    collection_id, committed = engine.open().collection_id, engine.reader.sequence("t")
    until(lambda: view_of(engine.reader, collection_id).sequence == committed)


def test_an_old_view_is_served_while_its_collection_gets_a_lexical_index(engine):
    """A search of the old view uses only vectors and says so. A search of a new view uses words."""
    model = ModelCollection(collection_settings(analyzer=""))
    engine.writer.create_collection("t", "c", model.settings)
    put(engine, model, "d0", "d1")
    engine.seal()
    put(engine, model, "d2")
    with engine.reader.snapshot("t", "c") as old:
        assert segment_build.reindex(engine.store, engine.open().collection_id, 1) > 0
        until(lambda: retrieval_in(engine.reader) == (Retrieval.HYBRID, ""))
        retrieval, fallback = RUN.sources(old.settings)
        assert (retrieval, "`hrag reindex` adds it" in fallback) == (Retrieval.DENSE, True)
        found = search_leaves(old, query_vector(1), 1000)
        assert recall(found, model, query_vector(1), 1000) == 1.0
    with engine.reader.snapshot("t", "c") as new:
        found = search_leaves(new, None, 1000, text="title", retrieval=Retrieval.LEXICAL)
        assert len(found) == model.leaf_count
    assert_right(engine, model)


def retrieval_in(reader: EmbeddedReader) -> tuple[Retrieval, str]:
    with reader.snapshot("t", "c") as snapshot:
        return RUN.sources(snapshot.settings)


def test_a_deleted_collection_is_evicted(engine, model):
    assert_right(engine, model)
    collection_id = engine.open().collection_id
    engine.writer.delete_collection("t", "c")
    with pytest.raises(CollectionNotFound), engine.reader.snapshot("t", "c"):
        pass
    until(lambda: collection_id not in engine.reader.loaded)


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_collection_deleted_while_it_is_loaded_is_not_found(
    engine, model, monkeypatch, is_created_again
):
    """The collection is deleted after its name was looked up, and before it is loaded.

    If a new collection has got the same name, the search uses the new collection.
    """
    load = EmbeddedReader.load
    new = ModelCollection()

    def delete_and_load(self: EmbeddedReader, collection_id: int, **_: object) -> None:
        monkeypatch.undo()
        engine.writer.delete_collection("t", "c")
        if is_created_again:
            engine.writer.create_collection("t", "c", new.settings)
            put(engine, new, "d7", seed=70)
        load(self, collection_id)

    monkeypatch.setattr(EmbeddedReader, "load", delete_and_load)
    if is_created_again:
        assert_right(engine, new)
        return
    with pytest.raises(CollectionNotFound), engine.reader.snapshot("t", "c"):
        pass


def test_an_error_in_the_background_thread_is_logged_and_does_not_stop_it(
    engine, model, monkeypatch
):
    assert_right(engine, model)

    def broken(self: object, **_: object) -> None:
        raise ValueError("broken")

    with capture_logs() as logs:
        monkeypatch.setattr(LoadedCollection, "refresh", broken)
        put(engine, model, "new")
        until(lambda: any(log["event"] == "reader_refresh_failed" for log in logs))
        monkeypatch.undo()
    put(engine, model, "newer", seed=9)
    assert_right(engine, model)
    collection_id, committed = engine.open().collection_id, engine.reader.sequence("t")
    until(lambda: view_of(engine.reader, collection_id).sequence == committed)


def test_a_snapshot_older_than_the_view_is_opened_again(engine, model, monkeypatch):
    """Another call advances the view after this call has begun its transaction."""
    assert_right(engine, model)
    view_at = LoadedCollection.view_at
    has_advanced = threading.Event()

    def view_at_after_another_call(self: LoadedCollection, txn: object) -> View | None:
        if threading.current_thread() is caller and not has_advanced.is_set():
            has_advanced.set()
            put(engine, model, "new", seed=44)
            with engine.store.read() as later:
                assert view_at(self, later) is not None
            assert view_at(self, txn) is None
            return None
        return view_at(self, txn)

    caller = threading.current_thread()
    monkeypatch.setattr(LoadedCollection, "view_at", view_at_after_another_call)
    assert_right(engine, model)
    assert has_advanced.is_set()


def test_an_exception_inside_a_snapshot_passes_through(engine, model):
    with pytest.raises(KeyError), engine.reader.snapshot("t", "c"):
        raise KeyError("of the caller")
    assert_right(engine, model)


# Tests of the memory budget.


def fill(engine: Engine, names: list[str]) -> ModelCollection:
    """Creates collections with the same documents; returns the model of each of them."""
    model = ModelCollection()
    for name in names:
        engine.writer.create_collection("t", name, model.settings)
        for number in range(3):
            document = prepared(f"d{number}", sentences(60, number), seed=number)
            engine.put(model, document, name=name)
    return model


def search(reader: EmbeddedReader, name: str, model: ModelCollection) -> None:
    with reader.snapshot("t", name) as snapshot:
        found = search_leaves(snapshot, query_vector(0), 10)
    assert recall(found, model, query_vector(0), 10) == 1.0


@pytest.fixture
def limited(engine: Engine) -> Iterator[tuple[EmbeddedReader, ModelCollection, list[str]]]:
    """A reader, the model of ten equal collections, and their names.

    The reader's memory budget allows five loaded collections.
    """
    names = [f"c{number}" for number in range(10)]
    model = fill(engine, names)
    search(engine.reader, names[0], model)
    collection_bytes = engine.reader.status().embedded.loaded_bytes
    assert collection_bytes > model.leaf_count * model.settings.dimension * 4
    reader = EmbeddedReader(engine.store, budget_bytes=5 * collection_bytes)
    yield reader, model, names
    reader.close()


def test_the_least_recently_used_collections_are_evicted_and_loaded_again(engine, limited):
    reader, model, names = limited
    for name in names:
        search(reader, names[0], model)
        search(reader, name, model)
        status = reader.status()
        assert 0 < status.embedded.loaded_bytes <= status.embedded.budget_bytes
        assert status.embedded.collections_loaded <= 5
    first = engine.open(name=names[0]).collection_id
    assert first in reader.loaded
    assert engine.open(name=names[1]).collection_id not in reader.loaded
    search(reader, names[1], model)


def test_a_running_search_can_still_use_a_collection_that_is_evicted(limited):
    reader, model, names = limited
    with reader.snapshot("t", names[0]) as snapshot:
        for name in names[1:]:
            search(reader, name, model)
        found = search_leaves(snapshot, query_vector(0), 10)
    assert recall(found, model, query_vector(0), 10) == 1.0


def test_a_collection_larger_than_the_budget_can_be_searched(engine):
    model = fill(engine, ["c"])
    reader = EmbeddedReader(engine.store, budget_bytes=1)
    for _ in range(2):
        search(reader, "c", model)
    status = reader.status()
    assert (status.embedded.collections_loaded, status.embedded.budget_bytes) == (1, 1)
    assert status.embedded.loaded_bytes > 1
    reader.close()


def test_a_collection_and_its_summaries_may_take_more_than_the_budget(engine):
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    engine.writer.create_collection("t", "c", settings)
    engine.writer.put(engine.open(), prepared("d", sentences(9), settings))
    with closing(EmbeddedReader(engine.store, budget_bytes=1)) as reader:
        deadline = Deadline.after(PATIENCE_S)
        with reader.snapshot("t", "c", summaries=True, deadline=deadline) as snapshot:
            assert search_leaves(snapshot, query_vector(0), 10)
        assert reader.status().embedded.collections_loaded == 2


def test_a_collection_that_grows_past_the_budget_evicts_others(engine, limited):
    reader, model, names = limited
    for name in names[:5]:
        search(reader, name, model)
    for number in range(20):
        document = prepared(f"more{number}", sentences(60), seed=number)
        engine.writer.put(engine.open(name=names[4]), document)
    until(lambda: reader.status().embedded.collections_loaded < 5)
    assert engine.open(name=names[4]).collection_id in reader.loaded


def test_preload_loads_no_more_collections_than_the_budget_allows(engine):
    names = [f"c{number}" for number in range(4)]
    model = fill(engine, names)
    for name in names:
        engine.seal(name=name)
    search(engine.reader, names[0], model)
    collection_bytes = engine.reader.status().embedded.loaded_bytes
    reader = EmbeddedReader(engine.store, budget_bytes=2 * collection_bytes, vector_budget_bytes=0)
    reader.preload()
    assert reader.status().embedded.collections_loaded == 2
    search(reader, names[3], model)
    reader.close()


def test_a_tail_whose_documents_are_replaced_often_does_not_grow_without_bound(engine, model):
    assert_right(engine, model)
    collection_id = engine.open().collection_id
    for round_ in range(300):
        put(engine, model, "d0", "d1", seed=100 + 2 * round_)
        if round_ % 7 == 0:
            assert_right(engine, model)
    view = view_of(engine.reader, collection_id)
    assert view.count - view.tail_base <= 2 * model.leaf_count + 1024 + 200


# Tests of the lag behind the last commit.


def test_the_lag_shows_changes_that_the_background_thread_has_not_applied(
    engine, model, monkeypatch
):
    assert_right(engine, model)
    until(lambda: engine.reader.status().lag_s == 0)
    status = engine.reader.status().embedded
    assert status.sequence == status.applied_sequence

    def stuck(self: object, **_: object) -> None:
        raise ValueError("stuck")

    monkeypatch.setattr(LoadedCollection, "refresh", stuck)
    before = status.sequence
    put(engine, model, "new")
    until(lambda: engine.reader.status().lag_s > 0.2)
    status = engine.reader.status().embedded
    assert (status.sequence, status.applied_sequence) == (before + 1, before)
    assert_right(engine, model)  # A search applies the changes.
    monkeypatch.undo()
    until(lambda: engine.reader.status().embedded.applied_sequence == before + 1)
    assert engine.reader.status().lag_s == 0


def test_a_reader_refreshes_every_collection_if_the_commits_it_missed_were_trimmed(
    engine, model, monkeypatch
):
    assert_right(engine, model)
    monkeypatch.setattr(change_log, "MAX_LOG_ENTRIES", 3)
    put(engine, model, *(f"new{number}" for number in range(6)))
    collection_id, committed = engine.open().collection_id, engine.reader.sequence("t")
    until(lambda: view_of(engine.reader, collection_id).sequence == committed)
    with engine.store.read() as txn:
        cursor = change_log.commit_cursor(txn)
        assert change_log.changed_after(txn, cursor - 3) == {collection_id}
        assert change_log.changed_after(txn, cursor - 4) is None
