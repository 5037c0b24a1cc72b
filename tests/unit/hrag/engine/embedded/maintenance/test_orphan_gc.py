"""Tests of orphan garbage collection, and of the scrubber, which finds damaged segments."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hrag.engine.embedded.maintenance.orphan_gc import OrphanCollector
from hrag.engine.embedded.maintenance.reclaim import reclaim_some
from hrag.engine.embedded.maintenance.scrubber import Scrubber
from hrag.engine.embedded.segments import damage, segment_files
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from tests.conftest import Engine
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock


@pytest.fixture
def record(engine: Engine) -> SegmentRecord:
    engine.writer.create_collection("t", "c", collection_settings())
    engine.writer.put(engine.open(), prepared("d", sentences(60)))
    record = engine.seal()
    assert record is not None
    return record


def path_of(engine: Engine, record: SegmentRecord) -> Path:
    return segment_files.path_of(engine.store.segments, record.segment_id)


def test_an_orphan_is_removed_after_the_grace_period(engine, record):
    """A reader that has just read the old manifest can still open the files during that time."""
    left = engine.store.segments / "000000000009"
    left.mkdir()
    (left / "index.hnsw").write_bytes(b"of a segment that was replaced")
    clock = Clock()
    orphans = OrphanCollector(engine.store, grace_s=60, clock=clock)
    orphans.collect()
    clock.now_s = 59.9
    orphans.collect()
    assert left.exists()
    clock.now_s = 60
    orphans.collect()
    assert not left.exists()
    assert path_of(engine, record).exists()


def test_the_grace_period_begins_when_the_collector_first_sees_the_orphan(engine, record):
    clock = Clock()
    orphans = OrphanCollector(engine.store, grace_s=60, clock=clock)
    orphans.collect()
    clock.now_s = 100
    engine.writer.put(engine.open(), prepared("e", sentences(60, 1), seed=1))
    engine.run_maintenance(1)
    orphans.collect()
    assert path_of(engine, record).exists()
    clock.now_s = 160
    orphans.collect()
    assert not path_of(engine, record).exists()


def test_unfinished_files_are_removed_only_at_a_start(engine, record):
    unfinished = engine.store.segments / "000000000009.tmp"
    unfinished.mkdir()
    clock = Clock()
    orphans = OrphanCollector(engine.store, grace_s=0, clock=clock)
    orphans.collect()
    orphans.collect()
    assert unfinished.exists()
    orphans.remove_unfinished()
    assert not unfinished.exists()


def test_a_report_of_damage_is_removed_if_its_segment_is_not_listed(engine, record):
    damage.report_damage(engine.store.segments, record.segment_id)
    damage.report_damage(engine.store.segments, 77)
    OrphanCollector(engine.store, grace_s=0).collect()
    assert damage.reported_damage(engine.store.segments) == {record.segment_id}


# Tests of the scrubber.


def test_after_a_start_the_scrubber_verifies_one_segment_in_each_call(engine, record):
    engine.writer.create_collection("t", "other", collection_settings())
    engine.writer.put(engine.open(name="other"), prepared("d", sentences(60)))
    other = engine.seal(name="other")
    for each in (record, other):
        path = path_of(engine, each) / "rows.npz"
        path.write_bytes(bytes(path.stat().st_size))
    scrubber = Scrubber(engine.store)
    assert scrubber.scrub() == set()
    scrubber.begin()
    assert scrubber.scrub() == {engine.open().collection_id}
    assert scrubber.scrub() == {engine.open(name="other").collection_id}
    assert scrubber.scrub() == set()
    assert scrubber.damaged == {record.segment_id, other.segment_id}
    repair(engine, scrubber)


def test_a_file_that_becomes_shorter_later_is_noticed(engine, record):
    scrubber = Scrubber(engine.store)
    scrubber.begin()
    assert scrubber.scrub() == scrubber.scrub() == set()
    os.truncate(path_of(engine, record) / "index.hnsw", 1)
    assert scrubber.scrub() == {engine.open().collection_id}
    assert scrubber.scrub() == set()
    assert scrubber.damaged == {record.segment_id}
    engine.run_maintenance(10**9, damaged=scrubber.damaged)
    assert engine.writer.status(engine.open()).embedded.segments[0].segment_id != record.segment_id


def test_a_segment_that_was_removed_meanwhile_is_not_considered_damaged(engine, record):
    """The scrubber still lists the segment when the files of the segment are removed."""
    engine.writer.create_collection("t", "other", collection_settings())
    engine.writer.put(engine.open(name="other"), prepared("d", sentences(60)))
    other = engine.seal(name="other")
    scrubber = Scrubber(engine.store, sizes_per_call=1)
    assert scrubber.scrub() == set()
    engine.writer.delete_collection("t", "other")
    while reclaim_some(engine.store):
        pass
    assert not path_of(engine, other).exists()
    assert scrubber.scrub() == set()
    assert scrubber.damaged == frozenset()


def replace(engine: Engine, record: SegmentRecord) -> None:
    """Merges a segment with a new document, and removes the files of the old segment."""
    engine.writer.put(engine.open(), prepared("e", sentences(60, 1), seed=1))
    engine.run_maintenance(1)
    segment_files.remove(engine.store.segments, record.segment_id)


def test_a_queued_segment_that_was_replaced_meanwhile_is_not_considered_damaged(engine, record):
    scrubber = Scrubber(engine.store)
    scrubber.begin()
    replace(engine, record)
    with capture_logs() as logs:
        assert scrubber.scrub() == set()
    assert (scrubber.damaged, logs) == (frozenset(), [])


def test_a_segment_that_is_replaced_while_it_is_read_is_not_considered_damaged(
    engine, record, monkeypatch
):
    verify = segment_files.verify

    def replace_first(folder: Path, verified: SegmentRecord) -> None:
        replace(engine, verified)
        verify(folder, verified)

    monkeypatch.setattr(segment_files, "verify", replace_first)
    scrubber = Scrubber(engine.store)
    scrubber.begin()
    assert scrubber.scrub() == set()
    assert scrubber.damaged == frozenset()


def repair(engine: Engine, scrubber: Scrubber) -> None:
    for name in ("c", "other"):
        engine.run_maintenance(10**9, name=name, damaged=scrubber.damaged)
    assert all(
        each.segment_id not in scrubber.damaged
        for name in ("c", "other")
        for each in engine.writer.status(engine.open(name=name)).embedded.segments
    )


@pytest.mark.parametrize("name", ["index.hnsw", "postings.bin", "rows.npz"])
def test_a_segment_that_a_reader_reports_is_verified_and_rebuilt(engine, record, name):
    path = path_of(engine, record) / name
    path.write_bytes(path.read_bytes()[:-1])
    with engine.reader.snapshot("t", "c"):
        pass
    assert damage.reported_damage(engine.store.segments) == {record.segment_id}
    scrubber = Scrubber(engine.store)
    assert scrubber.scrub() == {engine.open().collection_id}
    assert engine.run_maintenance(10**9, damaged=scrubber.damaged) == 1
    engine.restart_reader()
    with engine.reader.snapshot("t", "c"):
        assert engine.reader.status().embedded.damaged_segments == 0


def test_a_sound_segment_is_not_rebuilt_although_it_was_reported(engine, record):
    damage.report_damage(engine.store.segments, record.segment_id)
    scrubber = Scrubber(engine.store)
    assert scrubber.scrub() == set()
    assert scrubber.damaged == frozenset()
    assert damage.reported_damage(engine.store.segments) == set()
