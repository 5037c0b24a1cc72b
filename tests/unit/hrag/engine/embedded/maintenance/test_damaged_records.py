"""Tests of maintenance with damaged records: damage affects only the collection of the record.

Each test undoes the damage at its end, because the store is checked then.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.maintenance.orphan_gc import OrphanCollector
from hrag.engine.embedded.maintenance.reclaim import reclaim_part, reclaim_some
from hrag.engine.embedded.maintenance.schedule import MaintenanceLimits
from hrag.engine.embedded.maintenance.scrubber import Scrubber
from hrag.engine.embedded.maintenance.worker import MaintenanceTasks
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss, DeadlineExceeded
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import (
    collection_settings,
    prepared,
    run_maintenance,
    seal,
    sentences,
)
from tests.support.until import PATIENCE_S, until
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock, running, segment_count
from tests.unit.hrag.engine.embedded.store.bits import flip

TEXT = sentences(200)


@pytest.fixture
def record(store: Store, writer: EmbeddedWriter) -> SegmentRecord:
    """The segment of the collection `c`, which has the id 1. The collection `other` is empty."""
    writer.create_collection("t", "other", collection_settings())
    return put_and_seal(store, writer, "c", "d")


def put_and_seal(
    store: Store, writer: EmbeddedWriter, name: str, document_id: str, seed: int = 0
) -> SegmentRecord:
    opened = writer.open("t", name)
    writer.put(opened, prepared(document_id, sentences(60, seed), seed=seed))
    record = seal(store, opened.collection_id)
    assert record is not None
    return record


def path_of(store: Store, record: SegmentRecord) -> Path:
    return segment_files.path_of(store.segments, record.segment_id)


def deleted_collections(store: Store) -> int:
    with store.read() as txn:
        return txn.deleted_collections.size


def reclaim_all(store: Store, reclaim: Callable[[Store], bool] = reclaim_some) -> None:
    while reclaim(store):
        pass


@pytest.mark.parametrize("database", ["segments", "counters", "deleted_leaves", "collections"])
def test_other_collections_are_sealed_and_reclaimed(store, writer, record, database):
    """This holds when the worker starts, and after commits to other collections."""
    writer.create_collection("t", "gone", collection_settings())
    put_and_seal(store, writer, "gone", "d")
    writer.delete_collection("t", "gone")
    writer.put(writer.open("t", "other"), prepared("d", TEXT))
    flip(store, database, schema.u32(1))
    with running(store) as reporting:
        until(lambda: segment_count(writer, "other") == 1)
        until(lambda: deleted_collections(store) == 0)
        reporting.create_collection("t", "new", collection_settings())
        reporting.put(reporting.open("t", "new"), prepared("d", TEXT))
        until(lambda: segment_count(writer, "new") == 1)
    flip(store, database, schema.u32(1))
    assert path_of(store, record).exists()


def test_no_writer_waits_for_a_tail_whose_counters_are_damaged(store, writer):
    building, go_on = threading.Event(), threading.Event()

    def held(*args: Any) -> object:
        building.set()
        assert go_on.wait(PATIENCE_S)
        return segment_build.build(*args)

    limits, tasks = MaintenanceLimits(max_tail_bytes=0), MaintenanceTasks(build=held)
    opened = writer.open("t", "c")
    writer.put(opened, prepared("d", TEXT))
    with running(store, limits=limits, tasks=tasks) as reporting:
        assert building.wait(PATIENCE_S)
        with pytest.raises(DeadlineExceeded):
            reporting.wait_for_capacity(opened, Deadline.after(0))
        flip(store, "counters")
        reporting.wait_for_capacity(opened, Deadline.after(0))
        flip(store, "counters")
        go_on.set()


def test_no_file_is_removed_while_a_segment_record_is_damaged(store, writer, record):
    left, clock = store.segments / "000000000009", Clock()
    left.mkdir()
    orphans = OrphanCollector(store, grace_s=60, clock=clock)
    orphans.collect()
    flip(store, "segments")
    for clock.now_s in (60, 120):
        orphans.collect()
        assert left.exists()
        assert path_of(store, record).exists()
    flip(store, "segments")
    orphans.collect()
    assert left.exists()
    clock.now_s = 180
    orphans.collect()
    assert not left.exists()
    assert path_of(store, record).exists()


def test_the_scrubber_still_finds_damaged_files(store, writer, record):
    """It finds them in other collections, and in other segments of the damaged collection."""
    second = put_and_seal(store, writer, "c", "e", seed=1)
    third = put_and_seal(store, writer, "other", "d")
    for each in (second, third):
        path = path_of(store, each) / "rows.npz"
        path.write_bytes(bytes(path.stat().st_size))
    flip(store, "segments")
    scrubber = Scrubber(store)
    scrubber.begin()
    assert scrubber.scrub() | scrubber.scrub() == {1, writer.open("t", "other").collection_id}
    assert scrubber.damaged == {second.segment_id, third.segment_id}
    flip(store, "segments")
    for name in ("c", "other"):
        run_maintenance(store, writer.open("t", name).collection_id, 10**9, scrubber.damaged)


def test_a_failing_orphan_gc_delays_no_sealing_and_no_writer(store, writer, monkeypatch):
    def fail(_: OrphanCollector) -> None:
        raise OSError("the folder cannot be read")

    monkeypatch.setattr(OrphanCollector, "collect", fail)
    with capture_logs() as logs, running(store) as reporting:
        until(lambda: any(log["event"] == "maintenance_failed" for log in logs))
        for number in range(2):
            reporting.put(reporting.open("t", "c"), prepared(f"d{number}", TEXT, seed=number))
            until(lambda: segment_build.tail_leaves(store, 1) == 0)
    failures = [log["problem"] for log in logs if log["event"] == "maintenance_failed"]
    assert failures == ["the folder cannot be read"]


# Tests of deleted collections.


def test_a_damaged_record_is_reclaimed_with_its_collection_and_its_files_later(
    store, writer, record
):
    writer.delete_collection("t", "c")
    flip(store, "segments")
    reclaim_all(store)
    with store.read() as txn:
        assert txn.segments.size == 0
    assert deleted_collections(store) == 0
    assert path_of(store, record).exists()
    OrphanCollector(store, grace_s=0).collect()
    assert not path_of(store, record).exists()


class BlockedReclaim:
    """Reclaims collections. The first one cannot be reclaimed until `mended` is set."""

    def __init__(self) -> None:
        self.mended = threading.Event()

    def reclaim_part(self, store: Store, number: int) -> None:
        if number == 1 and not self.mended.is_set():
            raise DataLoss("no part of it can be erased")
        reclaim_part(store, number)

    def reclaim_some(self, store: Store) -> bool:
        return reclaim_some(store, self.reclaim_part)


def test_a_collection_that_cannot_be_reclaimed_does_not_delay_others(store, writer, record):
    blocked = BlockedReclaim()
    put_and_seal(store, writer, "other", "d")
    for name in ("c", "other"):
        writer.delete_collection("t", name)
    with pytest.raises(DataLoss, match="no part of it"):
        reclaim_all(store, blocked.reclaim_some)
    assert deleted_collections(store) == 1
    blocked.mended.set()
    assert blocked.reclaim_some(store)


def test_a_collection_that_cannot_be_reclaimed_does_not_delay_sealing(store, writer, record):
    blocked = BlockedReclaim()
    limits, tasks = MaintenanceLimits(retry_s=0.01), MaintenanceTasks(reclaim=blocked.reclaim_some)
    writer.delete_collection("t", "c")
    with running(store, limits=limits, tasks=tasks) as reporting:
        reporting.put(reporting.open("t", "other"), prepared("d", TEXT))
        until(lambda: segment_count(writer, "other") == 1)
        assert deleted_collections(store) == 1
        blocked.mended.set()
        until(lambda: deleted_collections(store) == 0)
