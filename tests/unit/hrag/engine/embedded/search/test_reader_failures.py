"""Tests of the reader after failures: a collection that fails does not delay the others.

Most tests stop the background thread and apply the changes themselves.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance.scrubber import Scrubber
from hrag.engine.embedded.search import loaded_collection
from hrag.engine.embedded.search.loaded_collection import LoadedCollection
from hrag.engine.embedded.search.reader import EmbeddedReader, ReaderLimits
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.segments.damage import forget_damage, reported_damage
from hrag.errors import DataLoss
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
from tests.support.engines.damage import entries_of, flip_part, overwrite
from tests.support.until import until
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock

NAMES = ("first", "second")
RETRY_S, RETRY_DAMAGED_S = ReaderLimits().retry_s, ReaderLimits().retry_damaged_s


@pytest.fixture
def clock() -> Clock:
    """The clock of the reader, which stands still until the test moves it."""
    return Clock()


@pytest.fixture
def models(engine: Engine, clock: Clock) -> dict[str, ModelCollection]:
    """The models of two collections, each with a segment and a tail.

    The reader's background thread is stopped, and the test itself applies the changes.
    """
    models = {}
    for name in NAMES:
        models[name] = ModelCollection()
        engine.writer.create_collection("t", name, models[name].settings)
        put(engine, models, name, "d0")
        engine.seal(name=name)
        # The new version of `d0` is in the tail, and is the first document in the store.
        put(engine, models, name, "d0", seed=1)
    engine.restart_reader(clock=clock)
    engine.reader.close()
    return models


def put(
    engine: Engine, models: dict[str, ModelCollection], name: str, document: str, seed: int = 0
) -> None:
    made = prepared(document, sentences(30, seed), seed=seed)
    engine.writer.put(engine.open(name=name), made)
    models[name].put(made)


def id_of(engine: Engine, name: str) -> int:
    return engine.open(name=name).collection_id


def assert_right(engine: Engine, models: dict[str, ModelCollection], name: str) -> None:
    query = query_vector(1)
    with engine.reader.snapshot("t", name) as snapshot:
        found = search_leaves(snapshot, query, 5)
    assert recall(found, models[name], query, 5) == 1.0


def failures(logs: list[Any]) -> list[Any]:
    return [log for log in logs if log["event"] == "reader_refresh_failed"]


@contextmanager
def damaged_document(engine: Engine) -> Iterator[None]:
    """Flips a bit in the vectors of the store's first document, and undoes that at the end.

    The document is in the tail of `first`.
    """
    with engine.store.write() as txn:
        flip_part(txn, "vectors", 3)
    yield
    with engine.store.write() as txn:
        flip_part(txn, "vectors", 3)


@contextmanager
def damaged_record(engine: Engine) -> Iterator[None]:
    """Flips a bit in the record of the store's first segment, and undoes that at the end."""
    with engine.store.write() as txn:
        key, value = entries_of(txn, "segments")[0]
        overwrite(txn, "segments", key, bytes([value[0] ^ 1, *value[1:]]))
    yield
    with engine.store.write() as txn:
        overwrite(txn, "segments", key, value)


# Tests of collections that cannot be loaded.


@pytest.mark.parametrize("damage", [damaged_document, damaged_record])
def test_a_collection_that_cannot_be_loaded_does_not_prevent_the_load_of_others(
    engine, models, damage
):
    broken = id_of(engine, "first")
    with damage(engine):
        with capture_logs() as logs:
            engine.reader.preload()
        (failure,) = failures(logs)
        assert (failure["log_level"], failure["collection"]) == ("error", broken)
        assert "exc_info" not in failure
        assert list(engine.reader.loaded) == [id_of(engine, "second")]
        with pytest.raises(DataLoss), engine.reader.snapshot("t", "first"):
            pass
        assert_right(engine, models, "second")
    assert_right(engine, models, "first")


# Tests of collections that cannot be refreshed.


@contextmanager
def damaged_changes(engine: Engine) -> Iterator[None]:
    """Flips a bit in every entry of the change logs, and undoes that at the end."""
    with engine.store.write() as txn:
        entries = entries_of(txn, "changes")
        for key, value in entries:
            overwrite(txn, "changes", key, bytes([value[0] ^ 1, *value[1:]]))
    yield
    with engine.store.write() as txn:
        for key, value in entries:
            overwrite(txn, "changes", key, value)


def test_a_collection_whose_log_is_damaged_is_loaded_again(engine, models):
    for name in NAMES:
        assert_right(engine, models, name)
    put(engine, models, "first", "d7", seed=7)
    with damaged_changes(engine):
        assert_right(engine, models, "first")


class Refreshes:
    """Records which collections are refreshed. Those in `failing` raise `error` when refreshed."""

    def __init__(self, failing: int, error: Exception) -> None:
        self.failing = {failing}
        self.error = error
        self.collection_ids: list[int] = []
        self._refresh = LoadedCollection.refresh

    def __get__(self, loaded: LoadedCollection, _: type) -> Callable[..., None]:
        def refresh(**options: Any) -> None:
            self.collection_ids.append(loaded.number)
            if loaded.number in self.failing:
                raise self.error
            self._refresh(loaded, **options)

        return refresh

    def take(self) -> list[int]:
        """Returns the ids of the collections that were refreshed since the last call."""
        collection_ids, self.collection_ids = self.collection_ids, []
        return collection_ids


@pytest.fixture
def refreshes(engine, models, monkeypatch) -> Refreshes:
    """Loads both collections, and makes every refresh of `first` fail from now on."""
    for name in NAMES:
        assert_right(engine, models, name)
    engine.reader.apply_changes()
    refreshes = Refreshes(id_of(engine, "first"), DataLoss("damaged"))
    monkeypatch.setattr(LoadedCollection, "refresh", refreshes)
    return refreshes


def test_a_failing_collection_causes_no_refresh_of_others(engine, models, refreshes):
    first, second = (id_of(engine, name) for name in NAMES)
    put(engine, models, "first", "d1")
    put(engine, models, "second", "d1")
    engine.reader.apply_changes()
    assert sorted(refreshes.take()) == [first, second]
    put(engine, models, "first", "d2")  # A commit does not make a failed refresh due earlier.
    engine.reader.apply_changes()
    assert refreshes.take() == []
    put(engine, models, "second", "d2")
    engine.reader.apply_changes()
    assert refreshes.take() == [second]
    assert_right(engine, models, "first")


def test_the_lag_of_a_failing_collection_is_reported_until_it_is_refreshed(
    engine, models, refreshes, clock
):
    before = engine.reader.status().embedded
    assert before.applied_sequence == before.sequence
    put(engine, models, "first", "d1")
    put(engine, models, "second", "d1")
    for _ in range(3):
        engine.reader.apply_changes()
        clock.now_s += RETRY_S
    status = engine.reader.status()
    assert status.embedded.applied_sequence == before.sequence
    assert status.embedded.sequence == before.sequence + 2
    assert status.lag_s > 0
    refreshes.failing.clear()
    engine.reader.apply_changes()
    assert engine.reader.status().lag_s == 0
    assert engine.reader.status().embedded.applied_sequence == before.sequence + 2
    view = engine.reader.loaded[id_of(engine, "first")].view
    assert view.living == models["first"].leaf_count


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [(DataLoss("damaged"), False), (OSError("no file left"), False), (ValueError("bug"), True)],
)
def test_a_repeated_failure_is_logged_once_until_a_refresh_succeeds(
    engine, models, refreshes, clock, error, has_traceback
):
    refreshes.error = error
    first = id_of(engine, "first")
    put(engine, models, "first", "d1")
    with capture_logs() as logs:
        for _ in range(3):
            engine.reader.apply_changes()
            clock.now_s += RETRY_S
    assert refreshes.take() == [first] * 3
    (failure,) = failures(logs)
    assert failure["collection"] == first
    assert ("exc_info" in failure) is has_traceback
    assert has_traceback or failure["problem"] == str(error)

    refreshes.failing.clear()
    engine.reader.apply_changes()
    refreshes.failing.add(first)
    put(engine, models, "first", "d2")
    with capture_logs() as logs:
        engine.reader.apply_changes()
    assert len(failures(logs)) == 1


def test_an_evicted_collection_no_longer_fails(engine, models, refreshes):
    put(engine, models, "first", "d1")
    engine.reader.apply_changes()
    engine.reader.evict(id_of(engine, "first"))
    engine.reader.apply_changes()
    status = engine.reader.status()
    assert status.embedded.applied_sequence == status.embedded.sequence


def test_a_view_that_could_not_be_built_is_built_by_the_next_refresh(engine, models, monkeypatch):
    """The failing refresh reads the new segment's files, but the next one still builds the view."""
    assert_right(engine, models, "first")
    loaded = engine.reader.loaded[id_of(engine, "first")]
    load_view = loaded_collection.load_view

    def fail(*_: object) -> View:
        monkeypatch.setattr(loaded_collection, "load_view", load_view)
        raise OSError("once")

    seal(engine.store, id_of(engine, "first"))
    monkeypatch.setattr(loaded_collection, "load_view", fail)
    with pytest.raises(OSError, match="once"):
        loaded.refresh()
    loaded.refresh()
    assert len(loaded.view.segments) == 2
    assert_right(engine, models, "first")


def test_a_store_that_cannot_be_read_is_logged_once(engine, monkeypatch):
    engine.restart_reader(limits=ReaderLimits(poll_s=0.005, retry_s=0.005))
    tried = []

    def fail(self: EmbeddedReader) -> None:
        tried.append(self)
        raise OSError("unreadable")

    with capture_logs() as logs:
        monkeypatch.setattr(EmbeddedReader, "apply_changes", fail)
        until(lambda: len(tried) > 3)
        monkeypatch.undo()
    (failure,) = failures(logs)
    assert failure["problem"] == "unreadable"


# Tests of damaged segments.


class Disk:
    """Loads segments. `failing` maps a segment's id to the error code of its next load."""

    def __init__(self, segments: Path) -> None:
        self.failing: dict[int, int] = {}
        self.loads: list[int] = []
        self._segments = segments
        self._load = segment_files.load

    def load(self, folder: Path, record: Any, **options: Any) -> segment_files.LoadedSegment:
        """Stands in for `segment_files.load`."""
        self.loads.append(record.segment_id)
        open_file = Path.open
        code = self.failing.pop(record.segment_id, 0)

        def fail(path: Path, *options: Any, **named: Any) -> Any:
            if code:
                raise OSError(code, "failed")
            return open_file(path, *options, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "open", fail)
            return self._load(folder, record, **options)


@pytest.fixture
def disk(engine, models, monkeypatch) -> Disk:
    disk = Disk(engine.store.segments)
    monkeypatch.setattr(segment_files, "load", disk.load)
    return disk


def segment_of(engine: Engine, name: str) -> int:
    (segment,) = engine.writer.status(engine.open(name=name)).embedded.segments
    return segment.segment_id


def damaged_count(engine: Engine) -> int:
    return engine.reader.status().embedded.damaged_segments


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EIO])
def test_a_segment_that_the_scrubber_finds_sound_is_read_again(engine, models, disk, code):
    """The background thread reads the segment again, without a commit."""
    engine.restart_reader(limits=ReaderLimits(retry_damaged_s=0.1))
    collection_id, segment_id = id_of(engine, "first"), segment_of(engine, "first")
    disk.failing[segment_id] = code
    assert_right(engine, models, "first")
    assert damaged_count(engine) == 1
    assert reported_damage(engine.store.segments) == {segment_id}
    assert Scrubber(engine.store).scrub() == set()
    until(lambda: damaged_count(engine) == 0)
    (loaded,) = engine.reader.loaded[collection_id].view.segments
    assert loaded.record.segment_id == segment_id
    assert_right(engine, models, "first")
    assert disk.loads == [segment_id] * 2


def test_a_reported_segment_is_not_read_again_until_the_report_is_deleted(
    engine, models, disk, clock
):
    segment_id = segment_of(engine, "first")
    disk.failing[segment_id] = errno.EIO
    assert_right(engine, models, "first")
    for _ in range(3):
        clock.now_s += RETRY_DAMAGED_S
        engine.reader.apply_changes()
    assert disk.loads == [segment_id]
    forget_damage(engine.store.segments, segment_id)
    clock.now_s += RETRY_DAMAGED_S
    engine.reader.apply_changes()
    assert disk.loads == [segment_id] * 2
    assert damaged_count(engine) == 0
    clock.now_s += RETRY_DAMAGED_S
    engine.reader.apply_changes()
    assert disk.loads == [segment_id] * 2


def test_a_segment_that_is_still_damaged_is_reported_again(engine, models, disk, clock):
    collection_id, segment_id = id_of(engine, "first"), segment_of(engine, "first")
    disk.failing[segment_id] = errno.EIO
    assert_right(engine, models, "first")
    view = engine.reader.loaded[collection_id].view
    forget_damage(engine.store.segments, segment_id)
    disk.failing[segment_id] = errno.EIO
    clock.now_s += RETRY_DAMAGED_S
    engine.reader.apply_changes()
    assert disk.loads == [segment_id] * 2
    assert damaged_count(engine) == 1
    assert reported_damage(engine.store.segments) == {segment_id}
    assert engine.reader.loaded[collection_id].view is view  # The view was not built again.
    assert_right(engine, models, "first")
    forget_damage(engine.store.segments, segment_id)


def test_a_segment_whose_damage_cannot_be_reported_is_read_again_after_a_pause(
    engine, models, disk, clock, monkeypatch
):
    """Reading the segment at every commit would take long, because its files may be large.

    The report can fail, for example, if the disk is full.
    """

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(loaded_collection, "report_damage", full)
    segment_id = segment_of(engine, "first")
    disk.failing[segment_id] = errno.EMFILE
    assert_right(engine, models, "first")
    for document_id in ("d1", "d2"):
        put(engine, models, "first", document_id)
        engine.reader.apply_changes()
    assert disk.loads == [segment_id]
    clock.now_s += RETRY_DAMAGED_S
    engine.reader.apply_changes()
    assert disk.loads == [segment_id] * 2
    assert damaged_count(engine) == 0
    assert_right(engine, models, "first")


def test_a_damaged_segment_that_was_replaced_is_no_longer_counted(engine, models, disk):
    segment_id = segment_of(engine, "first")
    disk.failing[segment_id] = errno.EIO
    assert_right(engine, models, "first")
    engine.run_maintenance(1, name="first", damaged=frozenset({segment_id}))
    engine.reader.apply_changes()
    assert damaged_count(engine) == 0
    forget_damage(engine.store.segments, segment_id)
    assert_right(engine, models, "first")
