"""Tests of maintenance with a damaged document: a build that fails is retried after a pause."""

import threading
from itertools import count
from typing import Any

import pytest

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.maintenance.schedule import MaintenanceLimits
from hrag.engine.embedded.maintenance.worker import MaintenanceTasks
from hrag.engine.embedded.segments.vector_part import insert
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.until import until
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock, running, segment_count

LIMITS = MaintenanceLimits(files_s=0.01, max_tail_bytes=0)


class Rounds:
    """Counts the rounds of a maintenance worker, which calls `reclaim` once in each round."""

    def __init__(self) -> None:
        self._begun: list[Store] = []

    def reclaim(self, store: Store) -> bool:
        self._begun.append(store)
        return False

    def wait_for_next(self) -> None:
        """Waits until the worker has handled everything that was committed or due before.

        A round that is running may be too early to handle it, and may not have been counted yet.
        The round after that one handles it, and has ended when a third round begins.
        """
        begun = len(self._begun)
        until(lambda: len(self._begun) >= begun + 3)


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.5, 10.0), (7.0, 70.0)])
def test_a_tail_with_a_damaged_document_is_sealed_again_only_after_a_pause(
    store, writer, rounds, took_s, pause_s
):
    """Changes of the collection do not shorten the pause, and no writer waits during it."""
    clock, attempts_s = Clock(), list[float]()
    mended = threading.Event()

    def fail_until_mended(*args: Any) -> object:
        if mended.is_set():
            return segment_build.build(*args)
        attempts_s.append(clock.now_s)
        clock.now_s += took_s
        raise DataLoss("document 'd' is damaged")

    tasks = MaintenanceTasks(build=fail_until_mended, reclaim=rounds.reclaim)
    with running(store, clock=clock, limits=LIMITS, tasks=tasks) as reporting:
        opened = reporting.open("t", "c")
        reporting.put(opened, prepared("d", sentences(400)))
        until(lambda: attempts_s == [0])
        for number in range(3):
            reporting.put(opened, prepared(f"d{number}", sentences(12)))
            rounds.wait_for_next()
        due_s = took_s + pause_s
        clock.now_s = due_s - 0.1
        reporting.put(opened, prepared("d3", sentences(12)))
        rounds.wait_for_next()
        reporting.wait_for_capacity(opened, Deadline.after(0))
        assert attempts_s == [0]
        clock.now_s = due_s
        until(lambda: attempts_s == [0, due_s])
        rounds.wait_for_next()
        reporting.wait_for_capacity(opened, Deadline.after(0))
        mended.set()
        clock.now_s += pause_s
        until(lambda: segment_count(writer) == 1)
    assert attempts_s == [0, due_s]


def test_a_merge_that_fails_at_a_damaged_document_does_not_delay_sealing(store, writer, rounds):
    opened, clock = writer.open("t", "c"), Clock()
    merges: list[BuildPlan] = []

    def fail_to_merge(store: Store, plan: BuildPlan, *args: Any) -> object:
        if not plan.tail:
            merges.append(plan)
            raise DataLoss("document 'a' is damaged")
        return segment_build.build(store, plan, *args)

    tasks = MaintenanceTasks(build=fail_to_merge, reclaim=rounds.reclaim)
    with running(store, clock=clock, limits=LIMITS, tasks=tasks) as reporting:
        for document_id, seed in (("a", 1), ("b", 2)):
            reporting.put(opened, prepared(document_id, sentences(500, seed), seed=seed))
        until(lambda: writer.status(opened).embedded.tail_leaf_count == 0)
        reporting.delete(opened, "b")  # After this deletion, the segment has to be rewritten.
        rounds.wait_for_next()
        reporting.put(opened, prepared("c", sentences(50, 3), seed=3))
        until(lambda: segment_count(writer) == 2)
        rounds.wait_for_next()
        assert len(merges) == 1
        clock.now_s = 10
        rounds.wait_for_next()
        assert len(merges) == 2


def test_a_tail_with_a_damaged_document_is_tried_once_during_a_build(store, writer, rounds):
    """The build of another collection ends, although the damaged one changes after each block."""
    writer.create_collection("t", "c2", collection_settings())
    large, other = writer.open("t", "c"), writer.open("t", "c2")
    for number in range(10):
        writer.put(large, prepared(f"d{number}", sentences(100, number), seed=number))
    writers: list[EmbeddedWriter] = []
    attempts: list[BuildPlan] = []
    clock, blocks = Clock(), count()

    def slow(*args: Any, **options: Any) -> None:
        insert(*args, **options)
        until(lambda: bool(writers))
        number = next(blocks)
        writers[0].put(other, prepared(f"d{number}", sentences(100, number), seed=number))

    def fail_for_other(store: Store, plan: BuildPlan, *args: Any) -> object:
        if plan.collection == other.collection_id:
            attempts.append(plan)
            raise DataLoss("document 'd0' is damaged")
        return segment_build.build(store, plan, *args, block_leaves=20)

    tasks = MaintenanceTasks(fail_for_other, slow, rounds.reclaim)
    with running(store, clock=clock, limits=LIMITS, tasks=tasks) as reporting:
        writers.append(reporting)
        until(lambda: segment_count(writer, "c") == 1)
        rounds.wait_for_next()
        assert next(blocks) > 5
        assert len(attempts) == 1
        clock.now_s = 10
        rounds.wait_for_next()
        assert len(attempts) == 2
