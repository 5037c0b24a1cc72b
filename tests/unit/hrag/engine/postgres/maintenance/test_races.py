"""What writers change while maintenance works on the same documents: nothing is lost or stays.

Each race is led: a hook runs in the midst of a step, or a transaction is left open until the
other side waits for it. Afterwards the tables agree, and searches find what they find in memory.
"""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from hrag.engine.postgres.indexes import homes, lexical_index
from hrag.engine.postgres.indexes.homes import drain_tail, drop_unused, move_collection
from hrag.engine.postgres.indexes.lexical_index import build_part, merge_parts
from hrag.engine.postgres.maintenance.advisory_locks import try_lock_maintenance
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.store.failures import Conflict
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_number
from hrag.engine.postgres.write.transaction import TenantTransaction
from hrag.errors import DocumentNotFound
from hrag.types import SummaryUnit
from hrag.values.quotas import unlimited
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
)
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_twins import Twins, twins_at
from tests.support.until import until

pytestmark = pytest.mark.postgres

_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


@pytest.fixture
def twins(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    monkeypatch.setattr(homes, "_LAST_USED_AFTER", timedelta(0))
    monkeypatch.setattr(lexical_index, "MIN_PART_LEAVES", 8)
    with twins_at(postgres_dsn) as twins:
        twins.create()
        yield twins
        twins.assert_same()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def document(name: str, seed: int = 0) -> Any:
    return wordy(name, seed, collection_settings(), 8, metadata={"n": seed % 3})


def fill(twins: Twins, count: int = 6, seed: int = 0) -> None:
    twins.put(*(document(f"d{n}", seed + n) for n in range(count)))


def change_some(twins: Twins) -> None:
    """Replaces, deletes and adds."""
    twins.put(document("d0", 50))
    twins.delete("d1")
    twins.delete("d5")
    twins.put(document("new", 51), document("d5", 52))
    twins.put(document("d3", 53))


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, hook: Callable[[], Any]) -> None:
    """Runs `hook` before the first call of a function."""
    own, hooks = getattr(owner, name), [hook]

    def hooked(*args: Any, **kwargs: Any) -> Any:
        if hooks:
            hooks.pop()()
        return own(*args, **kwargs)

    monkeypatch.setattr(owner, name, hooked)


def wait_until_one_waits(twins: Twins, done: Future[Any]) -> None:
    """Waits until a transaction waits for a lock, or is done without."""

    def waits() -> bool:
        with twins.database.read() as connection:
            return done.done() or connection.execute(_WAITING).fetchone() != (0,)

    until(waits)


def opened(twins: Twins, connection: Any) -> OpenedCollection:
    found = open_by_number(connection, "t", twins.number())
    assert found is not None
    return found


def test_documents_change_while_a_part_is_built_of_them(twins, monkeypatch):
    fill(twins)
    once(monkeypatch, lexical_index, "_write", lambda: change_some(twins))
    with twins.database.write() as connection:
        assert build_part(connection, twins.key(), 1) > 0
    assert twins.rows("hrag.tombstones") == 4
    twins.assert_same()


def test_writers_wait_for_a_part_that_is_about_to_be_committed(twins, threads):
    fill(twins)
    with twins.database.write() as connection:
        assert build_part(connection, twins.key(), 1) > 0
        changed = threads.submit(change_some, twins)
        wait_until_one_waits(twins, changed)
    changed.result()
    assert twins.rows("hrag.tombstones") == 4


def test_a_deletion_that_is_rolled_back_leaves_the_document_in_its_part(twins, threads):
    fill(twins)
    handle = twins.writer.open("t", "c")
    build: list[Future[Any]] = []

    def built() -> None:
        with twins.database.write() as connection:
            build_part(connection, twins.key(), 1)

    def delete_and_fail() -> None:
        with twins.database.write() as connection:
            changes = TenantTransaction(connection, "t", unlimited)
            changes.lock([(handle, "d2")])
            changes.delete(handle, "d2")
            connection.execute(
                "DELETE FROM hrag.term_vectors WHERE tenant_id = 't' AND ordinal = %s", (4,)
            )
            build.append(threads.submit(built))
            wait_until_one_waits(twins, build[0])
            raise DocumentNotFound("rolled back")

    with pytest.raises(DocumentNotFound):
        delete_and_fail()
    build[0].result()
    assert twins.rows("hrag.tombstones") == 0


def test_documents_change_while_parts_are_merged(twins, monkeypatch):
    for n in range(9):
        twins.put(document(f"d{n}", n))
        with twins.database.write() as connection:
            assert build_part(connection, twins.key(), 1) > 0
    twins.delete("d2")
    once(monkeypatch, lexical_index, "_write", lambda: change_some(twins))
    with twins.database.write() as connection:
        assert merge_parts(connection, twins.key()) > 0
    assert twins.rows("hrag.postings_parts") == 1


@pytest.mark.parametrize("step", ["_fill", "_build_index"])
def test_documents_change_while_their_collection_moves(twins, monkeypatch, step):
    fill(twins)
    once(monkeypatch, homes, step, lambda: change_some(twins))
    assert move_collection(twins.database, "t", twins.number()) > 0
    twins.assert_same()
    twins.maintain()
    twins.reclaim()
    assert twins.rows(f"hrag_homes.tail_{twins.home()}") == 0


def test_documents_change_while_a_home_is_made_of_a_home(twins, monkeypatch):
    """Half of the leaves are in the tail of the old one."""
    fill(twins)
    twins.maintain()
    fill(twins, 12, seed=20)
    once(monkeypatch, homes, "_build_index", lambda: change_some(twins))
    old = twins.home()
    assert move_collection(twins.database, "t", twins.number()) > 0
    assert twins.home() != old
    assert twins.rows(f"hrag_homes.tail_{twins.home()}") > 0


def test_leaves_are_drained_while_their_collection_moves(twins, monkeypatch):
    fill(twins)
    twins.maintain()
    fill(twins, 12, seed=20)

    def drain() -> None:
        with twins.database.write() as connection:
            assert drain_tail(connection, opened(twins, connection), 7) > 0

    once(monkeypatch, homes, "_fill", drain)
    once(monkeypatch, homes, "_build_index", drain)
    assert move_collection(twins.database, "t", twins.number()) > 0


def test_of_two_moves_at_once_one_is_given_up(twins, monkeypatch):
    fill(twins)
    moved = []

    def move() -> None:
        moved.append(move_collection(twins.database, "t", twins.number()))
        change_some(twins)

    once(monkeypatch, homes, "_build_index", move)
    assert move_collection(twins.database, "t", twins.number()) == 0
    assert moved[0] > 0


def test_a_tail_is_drained_beside_a_writer_that_replaces_its_documents(twins, threads):
    fill(twins)
    twins.maintain()
    fill(twins, 4, seed=20)
    handle = twins.writer.open("t", "c")
    with twins.database.write() as connection:
        changes = TenantTransaction(connection, "t", unlimited)
        changes.lock([(handle, "d0"), (handle, "d1")])
        with twins.database.write() as other:
            assert drain_tail(other, opened(twins, other), 1) == 0
        with twins.database.write() as other:
            assert drain_tail(other, opened(twins, other), 1000) > 0
        changes.delete(handle, "d0")
        changes.finish()
    twins.memory.delete(twins.memory.open("t", "c"), "d0")
    assert twins.rows(f"hrag_homes.tail_{twins.home()}") > 0
    twins.maintain()
    assert twins.rows(f"hrag_homes.tail_{twins.home()}") == 0


def test_writers_wait_for_leaves_that_are_being_drained(twins, threads):
    fill(twins)
    twins.maintain()
    fill(twins, 6, seed=20)
    with twins.database.write() as connection:
        assert drain_tail(connection, opened(twins, connection), 1000) > 0
        changed = threads.submit(change_some, twins)
        wait_until_one_waits(twins, changed)
    changed.result()


def test_workers_that_lost_their_lock_still_take_one_step_at_a_time(twins, threads, monkeypatch):
    """The transaction that has the lock may be ended: it idles while an index is built."""
    fill(twins)
    second: list[Future[Any]] = []

    def other_worker() -> None:
        twins.delete("d0")
        worker = MaintenanceWorker(twins.database, 50)
        second.append(threads.submit(worker._index_terms, "t", twins.number(), every_leaf=True))
        wait_until_one_waits(twins, second[0])

    once(monkeypatch, lexical_index, "_write", other_worker)
    twins.worker._index_terms("t", twins.number(), every_leaf=True)
    second[0].result()
    assert twins.rows("hrag.tombstones") == 1


def test_two_workers_maintain_a_collection_once(twins, threads):
    fill(twins, 12)
    both = [
        threads.submit(MaintenanceWorker(twins.database, 50).maintain, "t", twins.number())
        for _ in range(2)
    ]
    for each in both:
        each.result()
    twins.maintain()
    twins.reclaim()
    assert twins.rows("hrag.unused_homes") == 0


def test_writers_wait_for_no_backlog_that_nobody_here_looks_after(twins):
    """It is another process's matter, or its collection is deleted."""
    fill(twins)
    number, backlogs = twins.number(), twins.worker._backlogs
    backlogs[number] = 1_000_000
    with twins.database.write() as guard:
        assert try_lock_maintenance(guard, number)
        twins.worker.maintain("t", number)
    assert number not in backlogs
    backlogs[number] = 1_000_000
    twins.drop()
    twins.worker.maintain("t", number)
    assert number not in backlogs


@pytest.mark.parametrize("step", ["_fill", "_build_index"])
def test_a_collection_is_deleted_while_it_moves(twins, monkeypatch, step):
    fill(twins)
    once(monkeypatch, homes, step, twins.drop)
    assert move_collection(twins.database, "t", twins.number()) == 0
    twins.reclaim()
    assert twins.rows("hrag.unused_homes") == 0
    assert twins.rows("hrag.leaves") == 0


def test_a_collection_is_deleted_and_removed_while_a_part_of_it_is_built(
    twins, threads, monkeypatch
):
    fill(twins)
    removed: list[Future[Any]] = []

    def drop() -> None:
        twins.drop()
        removed.append(threads.submit(twins.reclaim))
        wait_until_one_waits(twins, removed[0])

    once(monkeypatch, lexical_index, "_write", drop)
    twins.worker._index_terms("t", twins.number(), every_leaf=True)
    removed[0].result()
    twins.reclaim()
    for table in ("term_vectors", "postings", "postings_parts", "tombstones"):
        assert twins.rows(f"hrag.{table}") == 0, table


def test_a_collection_is_deleted_while_its_tail_is_drained(twins, threads):
    fill(twins)
    twins.maintain()
    fill(twins, 6, seed=20)
    with twins.database.write() as connection:
        collection = opened(twins, connection)
        twins.drop()
        assert drain_tail(connection, collection, 1000) > 0
    twins.reclaim()
    assert twins.rows("hrag.documents") == 0


def test_a_snapshot_reads_the_home_it_was_opened_on(twins):
    fill(twins)
    twins.maintain()
    old, query = twins.home(), query_vector(3)
    with twins.reader.snapshot("t", "c") as snapshot:
        fill(twins, 12, seed=20)
        assert move_collection(twins.database, "t", twins.number()) > 0
        assert twins.home() != old
        assert not drop_unused(twins.database)
        before = find(snapshot, query, 1000).passages
    assert {each.chunk.document_id for each in before} == {f"d{n}" for n in range(6)}
    assert drop_unused(twins.database)
    assert not drop_unused(twins.database)


def test_a_home_that_a_writer_may_use_is_not_dropped(twins):
    fill(twins)
    twins.maintain()
    with twins.database.write() as connection:
        connection.execute("SELECT pg_current_xact_id()")
        assert move_collection(twins.database, "t", twins.number()) > 0
        assert not drop_unused(twins.database)
    assert drop_unused(twins.database)


@pytest.mark.parametrize("error", [ValueError("a bug"), Conflict("deadlock detected")])
def test_what_fails_for_one_collection_is_done_for_the_others(twins, monkeypatch, error):
    maintained: list[int] = []

    def fail_once(tenant_id: str, number: int) -> None:
        maintained.append(number)
        if number == 1:
            raise error

    worker = MaintenanceWorker(twins.database, 50)
    monkeypatch.setattr(worker, "maintain", fail_once)
    worker.changed("t", 1)
    worker.changed("t", 3)
    worker._maintain_changed()
    assert maintained == [1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_writers_and_workers_at_once_lose_nothing(twins, threads, monkeypatch, seed):
    """Not led: four threads, as it comes."""
    monkeypatch.setattr(twins.worker, "_home_leaves", 20)
    twins.create("t", "s", collection_settings(summaries=SummaryUnit.NONE))
    stop = threading.Event()

    def maintain() -> None:
        worker = MaintenanceWorker(twins.database, 20)
        while not stop.is_set():
            for name in "cs":
                worker.maintain("t", twins.number("t", name), every_leaf=True)
            twins.reclaim()

    def write(name: str) -> None:
        draw = random.Random(f"{seed} {name}")
        living: set[str] = set()
        for step in range(40):
            chosen = f"{name}{draw.randrange(9)}"
            if chosen in living and draw.random() < 0.4:
                twins.delete(chosen, "t", name)
                living.discard(chosen)
            else:
                text = sentences(draw.randint(1, 30), step)
                some = prepared(chosen, text, seed=step, metadata={"n": step % 3})
                twins.put(some, tenant_id="t", name=name)
                living.add(chosen)

    working = [threads.submit(maintain) for _ in range(2)]
    writing = [threads.submit(write, name) for name in "cs"]
    try:
        for each in writing:
            each.result()
    finally:
        stop.set()
    for each in working:
        each.result()
