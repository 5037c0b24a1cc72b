"""The worker beside a damaged document: what cannot be built is tried now and then."""

import threading
from collections.abc import Callable
from itertools import count

import pytest

from hrag.engine.embedded.maintenance import segment_build
from hrag.engine.embedded.maintenance import worker as worker_module
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.segments.vector_part import insert
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import DataLoss
from hrag.values.deadline import Deadline
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.until import until
from tests.unit.hrag.engine.embedded.maintenance.workers import Clock, running, segment_count


@pytest.fixture
def next_rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns once the worker has looked at whatever was committed or due before."""
    rounds: list[Store] = []
    monkeypatch.setattr(worker_module, "reclaim_some", rounds.append)
    monkeypatch.setattr(worker_module, "_FILES_S", 0.01)

    def wait() -> None:
        before = len(rounds)
        # One may have begun before, the next begins afterwards and has ended when a third begins.
        until(lambda: len(rounds) >= before + 3)

    return wait


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.5, 10.0), (7.0, 70.0)])
def test_a_tail_with_a_damaged_document_is_tried_again_after_a_while(
    store, writer, monkeypatch, next_rounds, took_s, pause_s
):
    """However often its collection changes, and if it does not; no writer waits meanwhile."""
    clock, attempts_s = Clock(), list[float]()
    build, mended = segment_build.build, threading.Event()

    def fail_until_mended(*args: object) -> object:
        if mended.is_set():
            return build(*args)
        attempts_s.append(clock.now_s)
        clock.now_s += took_s
        raise DataLoss("document 'd' is damaged")

    monkeypatch.setattr(segment_build, "build", fail_until_mended)
    monkeypatch.setattr(worker_module, "_MAX_TAIL_BYTES", 0)
    with running(store, clock=clock) as heard:
        opened = heard.open("t", "c")
        heard.put(opened, prepared("d", sentences(400)))
        until(lambda: attempts_s == [0])
        for number in range(3):
            heard.put(opened, prepared(f"d{number}", sentences(12)))
            next_rounds()
        due_s = took_s + pause_s
        clock.now_s = due_s - 0.1
        heard.put(opened, prepared("d3", sentences(12)))
        next_rounds()
        heard.wait_for_capacity(opened, Deadline.after(0))
        assert attempts_s == [0]
        clock.now_s = due_s
        until(lambda: attempts_s == [0, due_s])
        next_rounds()
        heard.wait_for_capacity(opened, Deadline.after(0))
        mended.set()
        clock.now_s += pause_s
        until(lambda: segment_count(writer) == 1)
    assert attempts_s == [0, due_s]


def test_a_merge_that_meets_a_damaged_document_delays_no_sealing(
    store, writer, monkeypatch, next_rounds
):
    opened, build, clock = writer.open("t", "c"), segment_build.build, Clock()
    merges: list[BuildPlan] = []

    def fail_to_merge(store: Store, plan: BuildPlan, *args: object) -> object:
        if not plan.tail:
            merges.append(plan)
            raise DataLoss("document 'a' is damaged")
        return build(store, plan, *args)

    monkeypatch.setattr(segment_build, "build", fail_to_merge)
    with running(store, clock=clock) as heard:
        for document_id, seed in (("a", 1), ("b", 2)):
            heard.put(opened, prepared(document_id, sentences(500, seed), seed=seed))
        until(lambda: writer.status(opened).embedded.tail_leaf_count == 0)
        heard.delete(opened, "b")  # The segment is to be written again.
        next_rounds()
        heard.put(opened, prepared("c", sentences(50, 3), seed=3))
        until(lambda: segment_count(writer) == 2)
        next_rounds()
        assert len(merges) == 1
        clock.now_s = 10
        next_rounds()
        assert len(merges) == 2


def test_a_tail_with_a_damaged_document_is_tried_once_beside_a_build(
    store, writer, monkeypatch, next_rounds
):
    """The build ends, though that collection changes between any two of its blocks."""
    monkeypatch.setattr(segment_build, "_BLOCK_LEAVES", 20)
    writer.create_collection("t", "c2", collection_settings())
    large, other = writer.open("t", "c"), writer.open("t", "c2")
    for number in range(10):
        writer.put(large, prepared(f"d{number}", sentences(100, number), seed=number))
    heard: list[EmbeddedWriter] = []
    attempts: list[BuildPlan] = []
    build, clock, blocks = segment_build.build, Clock(), count()

    def slow(*args: object, **options: object) -> None:
        insert(*args, **options)
        until(lambda: bool(heard))
        number = next(blocks)
        heard[0].put(other, prepared(f"d{number}", sentences(100, number), seed=number))

    def fail_for_other(store: Store, plan: BuildPlan, *args: object) -> object:
        if plan.collection == other.collection_id:
            attempts.append(plan)
            raise DataLoss("document 'd0' is damaged")
        return build(store, plan, *args)

    monkeypatch.setattr(worker_module, "insert", slow)
    monkeypatch.setattr(segment_build, "build", fail_for_other)
    with running(store, clock=clock) as one:
        heard.append(one)
        until(lambda: segment_count(writer, "c") == 1)
        next_rounds()
        assert next(blocks) > 5
        assert len(attempts) == 1
        clock.now_s = 10
        next_rounds()
        assert len(attempts) == 2
