"""Tests of loading a collection: commits during the load, and how long searches wait for it.

The background thread is stopped, and the tests apply the changes themselves.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from hrag.engine.embedded.search.loaded_collection import LoadedCollection
from hrag.engine.embedded.search.reader import EmbeddedReader
from hrag.engine.embedded.segments import segment_files
from hrag.errors import Cancelled, CollectionNotFound, DeadlineExceeded
from hrag.models.embedding.embedders import Embedders
from hrag.models.embedding.hashing import HashEmbedder
from hrag.values.current_call import CURRENT, DeadlineOnly
from hrag.values.deadline import Deadline
from retriever_svc.browse import Browse
from retriever_svc.known_collections import KnownCollections
from tests.conftest import Engine
from tests.support.documents.fakes import (
    ModelCollection,
    prepared,
    query_vector,
    recall,
    seal,
    search_leaves,
    sentences,
)
from tests.support.until import PATIENCE_S, until


@pytest.fixture
def model(engine: Engine) -> ModelCollection:
    """The model of a collection that has a tail and no segment, and that is not loaded yet."""
    model = ModelCollection()
    engine.writer.create_collection("t", "c", model.settings)
    put(engine, model, "d0")
    engine.reader.close()
    return model


def put(engine: Engine, model: ModelCollection, name: str) -> None:
    document = prepared(name, sentences(30), seed=len(name))
    engine.put(model, document)


def assert_right(engine: Engine, model: ModelCollection) -> None:
    query = query_vector(1)
    with engine.reader.snapshot("t", "c") as snapshot:
        found = search_leaves(snapshot, query, 5)
    assert recall(found, model, query, 5) == 1.0


# Tests of commits during a load.


def after_loading(monkeypatch: pytest.MonkeyPatch, commit: Callable[[], object]) -> None:
    """Calls `commit` after the next load, and before the reader gets the loaded collection."""
    load = LoadedCollection.__init__

    def load_and_commit(self: LoadedCollection, *arguments: Any) -> None:
        monkeypatch.setattr(LoadedCollection, "__init__", load)
        load(self, *arguments)
        commit()

    monkeypatch.setattr(LoadedCollection, "__init__", load_and_commit)


def test_a_segment_that_is_published_during_the_load_is_loaded_too(engine, model, monkeypatch):
    collection_id = engine.open().collection_id

    def publish() -> None:
        seal(engine.store, collection_id)
        engine.reader.apply_changes()

    after_loading(monkeypatch, publish)
    engine.reader.load(collection_id)
    assert len(engine.reader.loaded[collection_id].view.segments) == 1
    assert (
        engine.reader.status().embedded.loaded_bytes
        == engine.reader.loaded[collection_id].size_bytes
    )
    assert_right(engine, model)


def test_a_collection_that_is_deleted_during_the_load_is_not_kept_in_memory(
    engine, model, monkeypatch
):
    def delete() -> None:
        engine.writer.delete_collection("t", "c")
        engine.reader.apply_changes()

    after_loading(monkeypatch, delete)
    with pytest.raises(CollectionNotFound), engine.reader.snapshot("t", "c"):
        pass
    assert engine.reader.loaded == {}
    assert engine.reader.status().embedded.loaded_bytes == 0


def test_a_loaded_collection_whose_refresh_fails_is_searched_and_refreshed_later(
    engine, model, monkeypatch
):
    refresh, refreshes = LoadedCollection.refresh, list[LoadedCollection]()

    def fail_once(loaded: LoadedCollection, **options: Any) -> None:
        refreshes.append(loaded)
        if len(refreshes) == 1:
            raise OSError("once")
        refresh(loaded, **options)

    monkeypatch.setattr(LoadedCollection, "refresh", fail_once)
    assert_right(engine, model)
    assert len(refreshes) == 1
    assert engine.reader.status().embedded.loaded_bytes > 0
    until(lambda: engine.reader.apply_changes() or len(refreshes) >= 2)


# Tests of loads that take long.


class SlowFiles:
    """Delays each load of a segment until `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running = 0
        self.loads = 0
        self._load = segment_files.load

    def load(self, *arguments: Any, **options: Any) -> segment_files.LoadedSegment:
        """Stands in for `segment_files.load`."""
        self.loads += 1
        self.running += 1
        assert self.go_on.wait(PATIENCE_S)
        self.running -= 1
        return self._load(*arguments, **options)


@pytest.fixture
def slow_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowFiles]:
    slow = SlowFiles()
    monkeypatch.setattr(segment_files, "load", slow.load)
    yield slow
    slow.go_on.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_concurrent_refreshes_read_a_segment_once(engine, model, slow_files, pool):
    assert_right(engine, model)
    collection_id = engine.open().collection_id
    loaded = engine.reader.loaded[collection_id]
    seal(engine.store, collection_id)
    refreshes = [pool.submit(loaded.refresh) for _ in range(4)]
    until(lambda: slow_files.running)
    put(engine, model, "new")
    assert_right(engine, model)  # A search does not wait for the refreshes.
    slow_files.go_on.set()
    for refresh in refreshes:
        refresh.result(PATIENCE_S)
    assert slow_files.loads == 1
    assert len(loaded.view.segments) == 1
    assert_right(engine, model)


@pytest.fixture
def loading(engine, model, slow_files, pool) -> Iterator[Future[None]]:
    """A search that loads the collection; the load ends when `go_on` is set."""
    seal(engine.store, engine.open().collection_id)
    search = pool.submit(assert_right, engine, model)
    until(lambda: slow_files.running)
    yield search
    slow_files.go_on.set()
    search.result(PATIENCE_S)


def open_snapshot(reader: EmbeddedReader, deadline: Deadline) -> None:
    with reader.snapshot("t", "c", deadline=deadline):
        pass


def test_a_search_that_waits_for_a_load_ends_at_its_deadline(engine, loading):
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="waiting for the collection to be loaded"):
        open_snapshot(engine.reader, Deadline.after(0.1))
    assert time.monotonic() - began < PATIENCE_S / 2
    assert not loading.done()


def test_a_search_that_waits_for_a_load_ends_when_its_call_is_cancelled(engine, loading, pool):
    left, has_asked = threading.Event(), threading.Event()

    def is_waiting() -> bool:
        has_asked.set()
        return not left.is_set()

    search = pool.submit(open_snapshot, engine.reader, Deadline(is_waiting=is_waiting))
    assert has_asked.wait(PATIENCE_S)
    assert not search.done()
    left.set()
    with pytest.raises(Cancelled):
        search.result(PATIENCE_S / 2)


def test_a_search_that_waits_for_a_load_continues_after_it(engine, loading, slow_files, pool):
    search = pool.submit(open_snapshot, engine.reader, Deadline.after(2 * PATIENCE_S))
    slow_files.go_on.set()
    search.result(PATIENCE_S)
    assert slow_files.loads == 1


def test_a_search_whose_collection_is_never_loaded_ends_at_its_deadline(engine, model, monkeypatch):
    def load_nothing(*_: object, **__: object) -> None:
        if time.monotonic() - began > PATIENCE_S:
            raise AssertionError("the search goes on after its deadline")

    began = time.monotonic()
    monkeypatch.setattr(EmbeddedReader, "load", load_nothing)
    with pytest.raises(DeadlineExceeded, match="loading the collection"):
        open_snapshot(engine.reader, Deadline.after(0.05))


EMBEDDERS = Embedders(HashEmbedder(8))
CALLS = {
    "chunk": lambda reader: Browse(reader).chunk("t", "c", "d0#0.0"),
    "hierarchy": lambda reader: Browse(reader).hierarchy("t", "c", "d0#0.0", 1, content=False),
    "first query": lambda reader: KnownCollections(reader, EMBEDDERS).embedder_of("t", "c"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_that_do_not_search_end_at_their_deadline_too(engine, loading, pool, call):
    def in_call() -> object:
        CURRENT.set(DeadlineOnly(Deadline.after(0.1)))
        return call(engine.reader)

    with pytest.raises(DeadlineExceeded):
        pool.submit(copy_context().run, in_call).result(PATIENCE_S / 2)
    assert not loading.done()
