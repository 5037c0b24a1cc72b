"""The worker: what it does in the background, and what it goes on after."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.maintenance import worker as worker_module
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.maintenance.worker import MaintenanceWorker
from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.segments.vector_part import insert
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DeadlineExceeded, StorageFull, StoreUnavailable
from hrag.types import IngestOutcome
from hrag.values.deadline import NEVER, Deadline
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.until import until
from tests.unit.hrag.engine.embedded.maintenance.workers import THRESHOLD, running, segment_count

WAIT_S = 10.0
MOST_TAILS = 100
FAILURES = [OSError("no space"), StorageFull("no space"), RuntimeError("a fault")]


def test_a_tail_is_sealed_once_it_passes_the_threshold(store, writer):
    leaves = 0
    with running(store) as heard:
        while leaves < THRESHOLD:
            document = prepared(f"d{leaves}", sentences(12), seed=leaves)
            assert segment_count(writer) == 0
            heard.put(heard.open("t", "c"), document)
            leaves += len(document.vectors)
        until(lambda: segment_count(writer) == 1)
    status = writer.status(writer.open("t", "c"))
    assert (status.embedded.segments[0].leaf_count, status.embedded.tail_leaf_count) == (leaves, 0)


def test_a_collection_that_never_comes_to_rest_leaves_others_their_turn(store, writer, monkeypatch):
    reclaimed = threading.Event()
    monkeypatch.setattr(worker_module, "reclaim_some", lambda _: reclaimed.set())
    monkeypatch.setattr(MaintenanceWorker, "_build", lambda _, source: source is not None)
    writer.put(writer.open("t", "c"), prepared("d", sentences(20 * THRESHOLD)))
    with running(store):  # Whatever it builds, the tail stays full.
        for _ in range(3):
            reclaimed.clear()
            assert reclaimed.wait(WAIT_S)


def test_a_small_tail_stays_a_tail(store, writer):
    with running(store) as heard:
        heard.put(heard.open("t", "c"), prepared("d", sentences(12)))
    assert segment_count(writer) == 0


def test_a_start_seals_and_reclaims_what_an_earlier_process_left(store, writer):
    writer.create_collection("t", "gone", collection_settings())
    writer.put(writer.open("t", "gone"), prepared("d", sentences(12)))
    writer.delete_collection("t", "gone")
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    left = segment_files.path_of(store.segments, 7).with_suffix(".tmp")
    left.mkdir()
    (left / "index.hnsw").write_bytes(b"half")
    with running(store):
        assert not left.exists()
        until(lambda: segment_count(writer) == 1)
    with store.read() as txn:
        assert txn.deleted_collections.size == 0
        assert txn.documents.size == 1


def test_a_deleted_collection_is_reclaimed(store, writer):
    with running(store) as heard:
        heard.put(heard.open("t", "c"), prepared("d", sentences(200)))
        until(lambda: segment_count(writer) == 1)
        heard.delete_collection("t", "c")
        until(lambda: not list(store.segments.iterdir()))
    with store.read() as txn:
        assert not list(txn.contents.stored())


@pytest.mark.parametrize("failure", FAILURES)
def test_after_a_failure_it_tries_again(store, writer, monkeypatch, failure):
    monkeypatch.setattr(worker_module, "_RETRY_S", 0.01)
    build, failed = segment_build.build, threading.Event()

    def fail_once(*args: object) -> object:
        if not failed.is_set():
            failed.set()
            raise failure
        return build(*args)

    monkeypatch.setattr(segment_build, "build", fail_once)
    with capture_logs() as logs, running(store) as heard:
        heard.put(heard.open("t", "c"), prepared("d", sentences(200)))
        until(lambda: segment_count(writer) == 1)
    assert [log["log_level"] for log in logs if log["event"] == "maintenance_failed"] == ["error"]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("tail", [True, False])
def test_what_fails_in_one_collection_delays_no_other(store, writer, monkeypatch, failure, tail):
    """Neither the sealing of a tail nor a merge, however low the collection's number."""
    build, failed = segment_build.build, threading.Event()

    def fail_in_first(store: Store, plan: BuildPlan, *args: object) -> object:
        if plan.collection == 1 and plan.tail == tail:
            failed.set()
            raise failure
        return build(store, plan, *args)

    first = writer.open("t", "c")
    for number in range(5):
        writer.put(first, prepared(f"d{number}", sentences(40, number), seed=number))
    if not tail:
        seal(store, first.collection_id)
        for number in range(3):  # The segment is to be written again.
            writer.delete(first, f"d{number}")
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("d", sentences(200)))
    monkeypatch.setattr(segment_build, "build", fail_in_first)
    with running(store):
        assert failed.wait(WAIT_S)
        until(lambda: segment_count(writer, "c2") == 1)


def test_a_store_that_is_out_of_its_place_ends_the_round(store, writer, monkeypatch):
    """No collection is tried then, and everything is tried again once it is back."""
    tried: list[int] = []
    build, moved = segment_build.build, threading.Event()

    def unavailable(store: Store, plan: BuildPlan, *args: object) -> object:
        if moved.is_set():
            tried.append(plan.collection)
            raise StoreUnavailable("the folder was moved")
        return build(store, plan, *args)

    monkeypatch.setattr(worker_module, "_RETRY_S", 0.2)
    monkeypatch.setattr(segment_build, "build", unavailable)
    for name in ("c2", "c3"):
        writer.create_collection("t", name, collection_settings())
    for name in ("c", "c2", "c3"):
        writer.put(writer.open("t", name), prepared("d", sentences(200)))
    moved.set()
    with running(store):
        until(lambda: len(tried) >= 2)
        moved.clear()
        until(lambda: all(segment_count(writer, name) for name in ("c", "c2", "c3")))
    assert set(tried) == {1}


def test_closing_ends_what_is_being_built(store, writer, monkeypatch):
    building = threading.Event()

    def slow(*args: object, **options: object) -> None:
        building.set()
        time.sleep(0.1)
        insert(*args, **options)

    monkeypatch.setattr(worker_module, "insert", slow)
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("d", sentences(200)))
    with running(store):
        assert building.wait(WAIT_S)
    assert segment_count(writer) + segment_count(writer, "c2") <= 1
    assert "maintenance" not in {thread.name for thread in threading.enumerate()}


# Back-pressure


def test_writers_wait_while_a_tail_is_too_long(store, writer, monkeypatch):
    """They go on once it is sealed; those with less patience are told what they wait for."""
    go_on, building = threading.Event(), threading.Event()
    build = segment_build.build

    def held(*args: object) -> object:
        building.set()
        assert go_on.wait(WAIT_S)
        return build(*args)

    monkeypatch.setattr(segment_build, "build", held)
    monkeypatch.setattr(worker_module, "_MAX_TAIL_BYTES", 50 * 16 * 4)
    with running(store) as heard:
        opened = heard.open("t", "c")
        heard.wait_for_capacity(opened, NEVER)
        heard.put(opened, prepared("d", sentences(400)))
        assert building.wait(WAIT_S)
        with pytest.raises(DeadlineExceeded, match="waiting until the index has caught up"):
            heard.wait_for_capacity(opened, Deadline.after(0.1))
        threading.Timer(0.1, go_on.set).start()
        heard.wait_for_capacity(opened, Deadline.after(WAIT_S))
        assert writer.status(opened).embedded.tail_leaf_count < 50


@contextmanager
def held_builds(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is built until the event is set."""
    go_on = threading.Event()
    build = segment_build.build

    def held(*args: object) -> object:
        assert go_on.wait(WAIT_S)
        return build(*args)

    monkeypatch.setattr(segment_build, "build", held)
    monkeypatch.setattr(worker_module, "_MAX_TAIL_BYTES", 0)
    yield go_on
    go_on.set()


def test_all_cores_index_what_writers_have_waited_for(store, writer, monkeypatch):
    """Also when they have all gone again; a tail that held up nobody leaves a core."""
    free: list[int] = []

    def noted(*args: object, free_cores: int) -> None:
        free.append(free_cores)
        insert(*args, free_cores=free_cores)

    monkeypatch.setattr(worker_module, "insert", noted)
    with held_builds(monkeypatch) as go_on, running(store) as heard:
        opened = heard.open("t", "c")
        heard.put(opened, prepared("d", sentences(400)))
        with pytest.raises(DeadlineExceeded):
            heard.wait_for_capacity(opened, Deadline.after(0.05))
        go_on.set()
        until(lambda: writer.status(opened).embedded.tail_leaf_count == 0)
        assert set(free) == {0}
        for seed in count(1):
            heard.put(opened, prepared(f"d{seed}", sentences(100, seed), seed=seed))
            until(lambda: writer.status(opened).embedded.tail_leaf_count == 0)
            if free[-1] == 1:  # It has come to rest in between.
                break
            assert seed < MOST_TAILS


def test_a_full_tail_may_gather_behind_one_that_is_being_sealed(store, writer, monkeypatch):
    first, second = (prepared(f"d{seed}", sentences(80, seed), seed=seed) for seed in range(2))
    threshold = len(first.vectors)
    assert len(second.vectors) == threshold
    with held_builds(monkeypatch) as go_on, running(store, threshold) as heard:
        opened = heard.open("t", "c")
        heard.put(opened, first)
        heard.wait_for_capacity(opened, Deadline.after(0))
        heard.put(opened, second)
        with pytest.raises(DeadlineExceeded):
            heard.wait_for_capacity(opened, Deadline.after(0.05))
        go_on.set()
        heard.wait_for_capacity(opened, Deadline.after(WAIT_S))


def test_nobody_waits_for_a_worker_that_fails(store, writer, monkeypatch):
    failed = threading.Event()

    def fail(*_: object) -> None:
        failed.set()
        raise StorageFull("no space")

    monkeypatch.setattr(segment_build, "build", fail)
    monkeypatch.setattr(worker_module, "_MAX_TAIL_BYTES", 50 * 16 * 4)
    with running(store) as heard:
        opened = heard.open("t", "c")
        heard.put(opened, prepared("d", sentences(400)))
        assert failed.wait(WAIT_S)
        heard.wait_for_capacity(opened, Deadline.after(WAIT_S))
        assert writer.status(opened).embedded.tail_leaf_count >= 50


def test_writers_wait_though_another_collection_cannot_be_sealed(store, writer, monkeypatch):
    writer.create_collection("t", "c2", collection_settings())
    failed, go_on = threading.Event(), threading.Event()
    build = segment_build.build

    def fail_in_first(store: Store, plan: BuildPlan, *args: object) -> object:
        if plan.collection == 1:
            failed.set()
            raise StorageFull("no space")
        assert go_on.wait(WAIT_S)
        return build(store, plan, *args)

    monkeypatch.setattr(segment_build, "build", fail_in_first)
    monkeypatch.setattr(worker_module, "_MAX_TAIL_BYTES", 50 * 16 * 4)
    with running(store) as heard:
        full, other = heard.open("t", "c"), heard.open("t", "c2")
        heard.put(full, prepared("d", sentences(400)))
        assert failed.wait(WAIT_S)
        heard.put(other, prepared("d", sentences(400)))
        heard.wait_for_capacity(full, Deadline.after(WAIT_S))
        with pytest.raises(DeadlineExceeded):
            heard.wait_for_capacity(other, Deadline.after(0.1))
        go_on.set()
        heard.wait_for_capacity(other, Deadline.after(WAIT_S))
        assert segment_count(writer, "c2") == 1


def test_nobody_waits_for_a_tail_that_is_scanned_in_a_moment(store, writer):
    """However many leaves it has: what counts is what a search has to read."""
    with running(store) as heard:
        opened = heard.open("t", "c")
        assert writer.put(opened, prepared("d", sentences(400))).outcome is IngestOutcome.CREATED
        heard.wait_for_capacity(opened, Deadline.after(0))
        assert (
            segment_build.tail_bytes(store, opened.collection_id)
            == writer.status(opened).vector_bytes
        )


def test_nobody_waits_for_a_worker_that_does_not_run(store, writer, monkeypatch):
    monkeypatch.setattr(worker_module, "_MAX_TAIL_BYTES", 0)
    writer.put(writer.open("t", "c"), prepared("d", sentences(400)))
    worker = MaintenanceWorker(store, THRESHOLD)
    worker.wait_for_capacity(writer.open("t", "c").collection_id, NEVER)


# Several things at once


def test_tails_are_sealed_while_something_large_is_built(store, writer, monkeypatch):
    """Else those who write elsewhere would wait for it."""
    writer.create_collection("t", "c2", collection_settings())
    large = writer.open("t", "c")
    for number in range(40):
        writer.put(large, prepared(f"d{number}", sentences(100, number), seed=number))
    monkeypatch.setattr(segment_build, "_BLOCK_LEAVES", 20)
    sealed_meanwhile: list[int] = []
    heard: list[EmbeddedWriter] = []

    def slow(*args: object, **options: object) -> None:
        insert(*args, **options)
        if heard and not sealed_meanwhile:
            sealed_meanwhile.append(segment_count(writer, "c"))
            other = heard[0].open("t", "c2")
            heard[0].put(other, prepared("other", sentences(100)))
        if segment_count(writer, "c2") and not segment_count(writer, "c"):
            sealed_meanwhile.append(1)

    monkeypatch.setattr(worker_module, "insert", slow)
    with running(store) as one:
        heard.append(one)
        until(lambda: segment_count(writer, "c") == 1 == segment_count(writer, "c2"))
    assert sealed_meanwhile[0] == 0
    assert 1 in sealed_meanwhile


@pytest.mark.parametrize("name", ["index.hnsw", "postings.bin", "rows.npz"])
def test_a_segment_that_is_damaged_is_made_anew_by_itself(store, writer, name):
    """One byte is enough."""
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    with running(store):
        until(lambda: segment_count(writer) == 1)
        (first,) = writer.status(writer.open("t", "c")).embedded.segments
        path = segment_files.path_of(store.segments, first.segment_id) / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        damage.report_damage(store.segments, first.segment_id)
        until(lambda: writer.status(writer.open("t", "c")).embedded.segments[0] != first)
        until(lambda: not path.exists())
    (second,) = writer.status(writer.open("t", "c")).embedded.segments
    assert second.leaf_count == first.leaf_count


def test_a_start_finds_what_was_damaged_while_nobody_ran(store, writer):
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    with running(store):
        until(lambda: segment_count(writer) == 1)
    (first,) = writer.status(writer.open("t", "c")).embedded.segments
    segment_files.remove(store.segments, first.segment_id)
    with running(store):
        until(lambda: writer.status(writer.open("t", "c")).embedded.segments[0] != first)


def test_a_tail_that_cannot_be_sealed_beside_a_build_is_tried_again(store, writer, monkeypatch):
    """The build of the other collection goes on to its end."""
    monkeypatch.setattr(worker_module, "_RETRY_S", 0.01)
    monkeypatch.setattr(segment_build, "_BLOCK_LEAVES", 20)
    large, numbers = writer.open("t", "c"), count()
    for number in range(10):
        writer.put(large, prepared(f"d{number}", sentences(100, number), seed=number))
    heard: list[EmbeddedWriter] = []
    build, failed, large_builds = segment_build.build, threading.Event(), list[BuildPlan]()

    def slow(*args: object, **options: object) -> None:
        insert(*args, **options)
        until(lambda: bool(heard))
        if next(numbers) == 0:
            heard[0].create_collection("t", "c2", collection_settings())
            heard[0].put(heard[0].open("t", "c2"), prepared("other", sentences(100)))

    def fail_once(store: Store, plan: BuildPlan, *args: object) -> object:
        if plan.collection != large.collection_id and not failed.is_set():
            failed.set()
            raise StorageFull("no space")
        if plan.collection == large.collection_id:
            large_builds.append(plan)
        return build(store, plan, *args)

    monkeypatch.setattr(worker_module, "insert", slow)
    monkeypatch.setattr(segment_build, "build", fail_once)
    with running(store) as one:
        heard.append(one)
        assert failed.wait(WAIT_S)
        until(lambda: segment_count(writer, "c") == 1 == segment_count(writer, "c2"))
    assert len(large_builds) == 1
