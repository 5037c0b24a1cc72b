"""The maintenance worker: what it does in the background, and how it continues after failures."""

import threading
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.maintenance.schedule import MaintenanceLimits
from hrag.engine.embedded.maintenance.worker import MaintenanceTasks, MaintenanceWorker
from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.segments.vector_part import insert
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DeadlineExceeded, StorageFull, StoreUnavailable
from hrag.types import IngestOutcome
from hrag.values.deadline import NEVER, Deadline
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.until import PATIENCE_S, until
from tests.unit.hrag.engine.embedded.maintenance.workers import THRESHOLD, running, segment_count

# A test that waits for a certain tail fails after this many tails.
MAX_TAILS = 100
FAILURES = [OSError("no space"), StorageFull("no space"), RuntimeError("a fault")]
# A build that inserts 20 leaves at a time.
SMALL_BLOCKS = partial(segment_build.build, block_leaves=20)
# With these limits, writers wait for any tail of twice the threshold, even if it has few bytes.
ANY_SIZE = MaintenanceLimits(max_tail_bytes=0)
# With these limits, writers wait for a tail only if it has the vectors of at least 50 leaves.
FIFTY_LEAVES = MaintenanceLimits(max_tail_bytes=50 * 16 * 4)


def test_a_tail_is_sealed_once_it_passes_the_threshold(store, writer):
    leaves = 0
    with running(store) as reporting:
        while leaves < THRESHOLD:
            document = prepared(f"d{leaves}", sentences(12), seed=leaves)
            assert segment_count(writer) == 0
            reporting.put(reporting.open("t", "c"), document)
            leaves += len(document.vectors)
        until(lambda: segment_count(writer) == 1)
    status = writer.status(writer.open("t", "c"))
    assert (status.embedded.segments[0].leaf_count, status.embedded.tail_leaf_count) == (leaves, 0)


def test_a_tail_that_is_always_full_does_not_delay_other_tasks(store, writer):
    reclaimed = threading.Event()
    # Nothing is built, so the tail stays full.
    tasks = MaintenanceTasks(build=lambda *_: None, reclaim=lambda _: bool(reclaimed.set()))
    writer.put(writer.open("t", "c"), prepared("d", sentences(20 * THRESHOLD)))
    with running(store, tasks=tasks):
        for _ in range(3):
            reclaimed.clear()
            assert reclaimed.wait(PATIENCE_S)


def test_a_tail_below_the_threshold_is_not_sealed(store, writer):
    with running(store) as reporting:
        reporting.put(reporting.open("t", "c"), prepared("d", sentences(12)))
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
    with running(store) as reporting:
        reporting.put(reporting.open("t", "c"), prepared("d", sentences(200)))
        until(lambda: segment_count(writer) == 1)
        reporting.delete_collection("t", "c")
        until(lambda: not list(store.segments.iterdir()))
    with store.read() as txn:
        assert not list(txn.contents.stored())


@pytest.mark.parametrize("failure", FAILURES)
def test_a_build_that_failed_is_tried_again(store, writer, failure):
    failed = threading.Event()

    def fail_once(*args: Any) -> object:
        if not failed.is_set():
            failed.set()
            raise failure
        return segment_build.build(*args)

    limits, tasks = MaintenanceLimits(retry_s=0.01), MaintenanceTasks(build=fail_once)
    with capture_logs() as logs, running(store, limits=limits, tasks=tasks) as reporting:
        reporting.put(reporting.open("t", "c"), prepared("d", sentences(200)))
        until(lambda: segment_count(writer) == 1)
    assert [log["log_level"] for log in logs if log["event"] == "maintenance_failed"] == ["error"]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("tail", [True, False])
def test_a_failure_in_one_collection_delays_no_other(store, writer, failure, tail):
    """This holds for sealing and merging, although the failing collection is tried first."""
    failed = threading.Event()

    def fail_in_first(store: Store, plan: BuildPlan, *args: Any) -> object:
        if plan.collection == 1 and plan.tail == tail:
            failed.set()
            raise failure
        return segment_build.build(store, plan, *args)

    first = writer.open("t", "c")
    for number in range(5):
        writer.put(first, prepared(f"d{number}", sentences(40, number), seed=number))
    if not tail:
        seal(store, first.collection_id)
        for number in range(3):  # After these deletions, the segment has to be rewritten.
            writer.delete(first, f"d{number}")
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("d", sentences(200)))
    with running(store, tasks=MaintenanceTasks(build=fail_in_first)):
        assert failed.wait(PATIENCE_S)
        until(lambda: segment_count(writer, "c2") == 1)


def test_a_round_ends_if_the_folder_of_the_store_was_moved(store, writer):
    """No further collection is tried in that round. All are tried after the folder is back."""
    tried: list[int] = []
    moved = threading.Event()

    def unavailable(store: Store, plan: BuildPlan, *args: Any) -> object:
        if moved.is_set():
            tried.append(plan.collection)
            raise StoreUnavailable("the folder was moved")
        return segment_build.build(store, plan, *args)

    limits, tasks = MaintenanceLimits(retry_s=0.2), MaintenanceTasks(build=unavailable)
    for name in ("c2", "c3"):
        writer.create_collection("t", name, collection_settings())
    for name in ("c", "c2", "c3"):
        writer.put(writer.open("t", name), prepared("d", sentences(200)))
    moved.set()
    with running(store, limits=limits, tasks=tasks):
        until(lambda: len(tried) >= 2)
        moved.clear()
        until(lambda: all(segment_count(writer, name) for name in ("c", "c2", "c3")))
    assert set(tried) == {1}


def test_closing_ends_the_build_that_is_running(store, writer):
    building, go_on = threading.Event(), threading.Event()

    def held(*args: Any, **options: Any) -> None:
        building.set()
        assert go_on.wait(PATIENCE_S)
        insert(*args, **options)

    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("d", sentences(200)))
    limits = MaintenanceLimits(close_s=0)
    worker = MaintenanceWorker(store, THRESHOLD, limits=limits, tasks=MaintenanceTasks(insert=held))
    worker.start()
    assert building.wait(PATIENCE_S)
    assert not worker.close()  # The block of leaves is still being inserted.
    go_on.set()
    until(worker.close)
    assert segment_count(writer) + segment_count(writer, "c2") <= 1
    assert "maintenance" not in {thread.name for thread in threading.enumerate()}


# Tests of backpressure.


class HeldBuilds:
    """Builds that begin only after `go_on` is set."""

    def __init__(self) -> None:
        self.building = threading.Event()
        self.go_on = threading.Event()

    def build(self, *args: Any) -> object:
        self.building.set()
        assert self.go_on.wait(PATIENCE_S)
        return segment_build.build(*args)


@pytest.fixture
def held() -> Iterator[HeldBuilds]:
    """Builds that wait until the test sets `go_on`, at the latest until the test ends."""
    held = HeldBuilds()
    yield held
    held.go_on.set()


def test_writers_wait_while_a_tail_is_too_long(store, writer, held):
    """The writers continue once the tail is sealed.

    If the deadline of a writer passes before, the error says what the writer waited for.
    """
    with running(store, limits=FIFTY_LEAVES, tasks=MaintenanceTasks(build=held.build)) as reporting:
        opened = reporting.open("t", "c")
        reporting.wait_for_capacity(opened, NEVER)
        reporting.put(opened, prepared("d", sentences(400)))
        assert held.building.wait(PATIENCE_S)
        with pytest.raises(DeadlineExceeded, match="waiting until the index has caught up"):
            reporting.wait_for_capacity(opened, Deadline.after(0.1))
        held.go_on.set()
        reporting.wait_for_capacity(opened, Deadline.after(PATIENCE_S))
        assert writer.status(opened).embedded.tail_leaf_count < 50


def test_all_cores_are_used_to_index_a_tail_for_which_writers_have_waited(store, writer, held):
    """This holds even if the writers have stopped waiting.

    One core stays free while a tail is indexed for which no writer has waited.
    """
    free: list[int] = []

    def noted(*args: Any, free_cores: int) -> None:
        free.append(free_cores)
        insert(*args, free_cores=free_cores)

    tasks = MaintenanceTasks(build=held.build, insert=noted)
    with running(store, limits=ANY_SIZE, tasks=tasks) as reporting:
        opened = reporting.open("t", "c")
        reporting.put(opened, prepared("d", sentences(400)))
        with pytest.raises(DeadlineExceeded):
            reporting.wait_for_capacity(opened, Deadline.after(0.05))
        held.go_on.set()
        until(lambda: writer.status(opened).embedded.tail_leaf_count == 0)
        assert set(free) == {0}
        for seed in count(1):
            reporting.put(opened, prepared(f"d{seed}", sentences(100, seed), seed=seed))
            until(lambda: writer.status(opened).embedded.tail_leaf_count == 0)
            if free[-1] == 1:  # The worker found no full tail, so it forgot the writers.
                break
            assert seed < MAX_TAILS


def test_a_second_full_tail_may_grow_while_the_first_is_sealed(store, writer, held):
    first, second = (prepared(f"d{seed}", sentences(80, seed), seed=seed) for seed in range(2))
    threshold = len(first.vectors)
    assert len(second.vectors) == threshold
    tasks = MaintenanceTasks(build=held.build)
    with running(store, threshold, limits=ANY_SIZE, tasks=tasks) as reporting:
        opened = reporting.open("t", "c")
        reporting.put(opened, first)
        reporting.wait_for_capacity(opened, Deadline.after(0))
        reporting.put(opened, second)
        with pytest.raises(DeadlineExceeded):
            reporting.wait_for_capacity(opened, Deadline.after(0.05))
        held.go_on.set()
        reporting.wait_for_capacity(opened, Deadline.after(PATIENCE_S))


def test_no_writer_waits_for_a_worker_that_fails(store, writer):
    failed = threading.Event()

    def fail(*_: object) -> None:
        failed.set()
        raise StorageFull("no space")

    with running(store, limits=FIFTY_LEAVES, tasks=MaintenanceTasks(build=fail)) as reporting:
        opened = reporting.open("t", "c")
        reporting.put(opened, prepared("d", sentences(400)))
        assert failed.wait(PATIENCE_S)
        reporting.wait_for_capacity(opened, Deadline.after(PATIENCE_S))
        assert writer.status(opened).embedded.tail_leaf_count >= 50


def test_writers_wait_although_another_collection_cannot_be_sealed(store, writer):
    writer.create_collection("t", "c2", collection_settings())
    failed, go_on = threading.Event(), threading.Event()

    def fail_in_first(store: Store, plan: BuildPlan, *args: Any) -> object:
        if plan.collection == 1:
            failed.set()
            raise StorageFull("no space")
        assert go_on.wait(PATIENCE_S)
        return segment_build.build(store, plan, *args)

    tasks = MaintenanceTasks(build=fail_in_first)
    with running(store, limits=FIFTY_LEAVES, tasks=tasks) as reporting:
        full, other = reporting.open("t", "c"), reporting.open("t", "c2")
        reporting.put(full, prepared("d", sentences(400)))
        assert failed.wait(PATIENCE_S)
        reporting.put(other, prepared("d", sentences(400)))
        reporting.wait_for_capacity(full, Deadline.after(PATIENCE_S))
        with pytest.raises(DeadlineExceeded):
            reporting.wait_for_capacity(other, Deadline.after(0.1))
        go_on.set()
        reporting.wait_for_capacity(other, Deadline.after(PATIENCE_S))
        assert segment_count(writer, "c2") == 1


def test_no_writer_waits_for_a_tail_that_is_fast_to_scan(store, writer):
    """A tail with many leaves is not too long if a search has to read only a few bytes of it."""
    with running(store) as reporting:
        opened = reporting.open("t", "c")
        assert writer.put(opened, prepared("d", sentences(400))).outcome is IngestOutcome.CREATED
        reporting.wait_for_capacity(opened, Deadline.after(0))
        assert (
            segment_build.tail_bytes(store, opened.collection_id)
            == writer.status(opened).vector_bytes
        )


def test_no_writer_waits_for_a_worker_that_does_not_run(store, writer):
    writer.put(writer.open("t", "c"), prepared("d", sentences(400)))
    worker = MaintenanceWorker(store, THRESHOLD, limits=ANY_SIZE)
    worker.wait_for_capacity(writer.open("t", "c").collection_id, NEVER)


# Tests of several builds at the same time.


def test_tails_are_sealed_while_a_large_segment_is_built(store, writer):
    """Otherwise the writers of other collections would wait for the large build."""
    writer.create_collection("t", "c2", collection_settings())
    large = writer.open("t", "c")
    for number in range(40):
        writer.put(large, prepared(f"d{number}", sentences(100, number), seed=number))
    sealed_meanwhile: list[int] = []
    writers: list[EmbeddedWriter] = []

    def slow(*args: Any, **options: Any) -> None:
        insert(*args, **options)
        if writers and not sealed_meanwhile:
            sealed_meanwhile.append(segment_count(writer, "c"))
            other = writers[0].open("t", "c2")
            writers[0].put(other, prepared("other", sentences(100)))
        if segment_count(writer, "c2") and not segment_count(writer, "c"):
            sealed_meanwhile.append(1)

    with running(store, tasks=MaintenanceTasks(SMALL_BLOCKS, slow)) as reporting:
        writers.append(reporting)
        until(lambda: segment_count(writer, "c") == 1 == segment_count(writer, "c2"))
    assert sealed_meanwhile[0] == 0
    assert 1 in sealed_meanwhile


@pytest.mark.parametrize("name", ["index.hnsw", "postings.bin", "rows.npz"])
def test_a_damaged_segment_is_rebuilt(store, writer, name):
    """One changed byte in a file is enough."""
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


def test_a_start_finds_segments_that_were_damaged_while_no_worker_ran(store, writer):
    writer.put(writer.open("t", "c"), prepared("d", sentences(200)))
    with running(store):
        until(lambda: segment_count(writer) == 1)
    (first,) = writer.status(writer.open("t", "c")).embedded.segments
    segment_files.remove(store.segments, first.segment_id)
    with running(store):
        until(lambda: writer.status(writer.open("t", "c")).embedded.segments[0] != first)


def test_a_tail_that_cannot_be_sealed_during_a_build_is_tried_again(store, writer):
    """The build of the other collection continues to its end."""
    large, numbers = writer.open("t", "c"), count()
    for number in range(10):
        writer.put(large, prepared(f"d{number}", sentences(100, number), seed=number))
    writers: list[EmbeddedWriter] = []
    failed, large_builds = threading.Event(), list[BuildPlan]()

    def slow(*args: Any, **options: Any) -> None:
        insert(*args, **options)
        until(lambda: bool(writers))
        if next(numbers) == 0:
            writers[0].create_collection("t", "c2", collection_settings())
            writers[0].put(writers[0].open("t", "c2"), prepared("other", sentences(100)))

    def fail_once(store: Store, plan: BuildPlan, *args: Any) -> object:
        if plan.collection != large.collection_id and not failed.is_set():
            failed.set()
            raise StorageFull("no space")
        if plan.collection == large.collection_id:
            large_builds.append(plan)
        return SMALL_BLOCKS(store, plan, *args)

    limits, tasks = MaintenanceLimits(retry_s=0.01), MaintenanceTasks(fail_once, slow)
    with running(store, limits=limits, tasks=tasks) as reporting:
        writers.append(reporting)
        assert failed.wait(PATIENCE_S)
        until(lambda: segment_count(writer, "c") == 1 == segment_count(writer, "c2"))
    assert len(large_builds) == 1
