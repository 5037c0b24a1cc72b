"""Writers and maintenance work on the same documents: no change is lost, no row is left over.

Most of these races have a fixed order. Either a test makes a change just before a certain statement
of a maintenance step, or it keeps a transaction open until another transaction waits for a lock.
Afterwards the tables agree, and searches find the same as in the memory engine.
"""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hrag.engine.postgres.indexes.home_slots import clear_unused_slot
from hrag.engine.postgres.indexes.homes import drain_tail
from hrag.engine.postgres.indexes.lexical_index import build_part, merge_parts
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.store.advisory_locks import try_lock_maintenance
from hrag.engine.postgres.store.failures import Conflict
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.engine.postgres.write.transaction import TenantTransaction
from hrag.errors import DocumentNotFound, StoreUnavailable
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
from tests.support.engines.postgres_statements import before_statement
from tests.support.engines.postgres_twins import LIMITS, Twins, twins_at
from tests.support.until import until

pytestmark = pytest.mark.postgres

_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
_END_MAINTENANCE_LOCK = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE query LIKE '%pg_try_advisory_xact_lock%' AND state = 'idle in transaction'
AND datname = current_database()
"""
# The build or merge of a part has read all its postings or term vectors before this statement.
WRITES_A_PART = "INSERT INTO hrag.postings_parts"
# A collection moves to a new home in two steps: filling the table, then building its index.
FILLS_A_HOME = 'INSERT INTO "hrag_homes"'
INDEXES_A_HOME = "CREATE INDEX"


@pytest.fixture
def twins(postgres_dsn: str) -> Iterator[Twins]:
    """The collection `c` of tenant `t` in PostgreSQL and in the memory engine.

    The two are compared after the test.
    """
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
    """Replaces, deletes and adds documents."""
    twins.put(document("d0", 50))
    twins.delete("d1")
    twins.delete("d5")
    twins.put(document("new", 51), document("d5", 52))
    twins.put(document("d3", 53))


def maintenance_worker(twins: Twins, home_leaves: int = 50) -> MaintenanceWorker:
    """Returns a second worker beside `twins.worker`, as another process would have it."""
    return MaintenanceWorker(twins.database, home_leaves, LIMITS)


def wait_until_blocked(twins: Twins, task: Future[Any]) -> None:
    """Waits until a transaction waits for a lock, or until the task has ended."""

    def waits() -> bool:
        with twins.database.read() as connection:
            return task.done() or connection.execute(_WAITING).fetchone() != (0,)

    until(waits)


def opened(twins: Twins, connection: Any) -> OpenedCollection:
    """Returns the collection as a transaction of the connection sees it."""
    collection = open_by_id(connection, "t", twins.collection_id())
    assert collection is not None
    return collection


def test_no_change_is_lost_while_a_part_is_built_from_the_changed_documents(twins, monkeypatch):
    fill(twins)
    before_statement(monkeypatch, WRITES_A_PART, lambda: change_some(twins))
    with twins.database.write() as connection:
        assert build_part(connection, twins.key(), 1) > 0
    assert twins.rows("hrag.tombstones") == 4
    twins.assert_same()


def test_writers_wait_for_a_part_that_is_about_to_be_committed(twins, threads):
    fill(twins)
    with twins.database.write() as connection:
        assert build_part(connection, twins.key(), 1) > 0
        change = threads.submit(change_some, twins)
        wait_until_blocked(twins, change)
    change.result()
    assert twins.rows("hrag.tombstones") == 4


def test_a_deletion_that_is_rolled_back_leaves_the_document_in_its_part(twins, threads):
    fill(twins)
    handle = twins.writer.open("t", "c")
    builds: list[Future[Any]] = []

    def build() -> None:
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
            builds.append(threads.submit(build))
            wait_until_blocked(twins, builds[0])
            raise DocumentNotFound("rolled back")

    with pytest.raises(DocumentNotFound):
        delete_and_fail()
    builds[0].result()
    assert twins.rows("hrag.tombstones") == 0


def test_no_change_is_lost_while_parts_are_merged(twins, monkeypatch):
    for n in range(9):
        twins.put(document(f"d{n}", n))
        with twins.database.write() as connection:
            assert build_part(connection, twins.key(), 1) > 0
    twins.delete("d2")
    before_statement(monkeypatch, WRITES_A_PART, lambda: change_some(twins))
    with twins.database.write() as connection:
        assert merge_parts(connection, twins.key()) > 0
    assert twins.rows("hrag.postings_parts") == 1


@pytest.mark.parametrize("statement", [FILLS_A_HOME, INDEXES_A_HOME])
def test_no_change_is_lost_while_a_collection_moves_to_a_home(twins, monkeypatch, statement):
    fill(twins)
    before_statement(monkeypatch, statement, lambda: change_some(twins))
    assert twins.move() > 0
    twins.assert_same()
    twins.maintain()
    twins.reclaim()
    assert twins.rows("hrag.leaves") == 0


def test_no_change_is_lost_while_a_home_is_replaced(twins, monkeypatch):
    """Half of the leaves are in the tail of the old home."""
    fill(twins)
    twins.maintain()
    fill(twins, 12, seed=20)
    before_statement(monkeypatch, INDEXES_A_HOME, lambda: change_some(twins))
    old = twins.home()
    assert twins.move() > 0
    assert twins.home() != old
    assert twins.rows("hrag.leaves") > 0


def test_no_leaf_is_lost_if_a_tail_is_drained_while_its_collection_moves(twins, monkeypatch):
    fill(twins)
    twins.maintain()
    fill(twins, 12, seed=20)

    def drain() -> None:
        with twins.database.write() as connection:
            assert drain_tail(connection, opened(twins, connection), 7) > 0

    before_statement(monkeypatch, FILLS_A_HOME, drain)
    before_statement(monkeypatch, INDEXES_A_HOME, drain)
    assert twins.move() > 0


def test_one_of_two_simultaneous_moves_is_abandoned(twins, monkeypatch):
    fill(twins)
    moved_leaves = []

    def move() -> None:
        moved_leaves.append(twins.move())
        change_some(twins)

    before_statement(monkeypatch, INDEXES_A_HOME, move)
    assert twins.move() == 0
    assert moved_leaves[0] > 0


def test_a_drain_of_the_tail_skips_documents_that_a_writer_is_replacing(twins):
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
    assert twins.rows("hrag.leaves") > 0
    twins.maintain()
    assert twins.rows("hrag.leaves") == 0


def test_writers_wait_for_leaves_that_are_being_drained(twins, threads):
    fill(twins)
    twins.maintain()
    fill(twins, 6, seed=20)
    with twins.database.write() as connection:
        assert drain_tail(connection, opened(twins, connection), 1000) > 0
        change = threads.submit(change_some, twins)
        wait_until_blocked(twins, change)
    change.result()


def test_workers_that_lost_their_lock_still_take_one_step_at_a_time(twins, threads, monkeypatch):
    """The transaction that holds the lock idles during the work, so the server may end it."""
    fill(twins)
    number = twins.collection_id()
    second_runs: list[Future[Any]] = []

    def end_the_lock_and_start_another_worker() -> None:
        twins.delete("d0")
        with twins.database.read() as connection:
            assert connection.execute(_END_MAINTENANCE_LOCK).fetchall() == [(True,)]
        worker = maintenance_worker(twins)
        second_runs.append(threads.submit(worker.maintain, "t", number, every_leaf=True))
        wait_until_blocked(twins, second_runs[0])
        assert not second_runs[0].done()

    before_statement(monkeypatch, WRITES_A_PART, end_the_lock_and_start_another_worker)
    with pytest.raises(StoreUnavailable):
        twins.worker.maintain("t", number, every_leaf=True)
    second_runs[0].result()
    assert twins.rows("hrag.tombstones") == 1


def test_two_workers_maintain_a_collection_once(twins, threads):
    fill(twins, 12)
    runs = [
        threads.submit(maintenance_worker(twins).maintain, "t", twins.collection_id())
        for _ in range(2)
    ]
    for run in runs:
        run.result()
    twins.maintain()
    twins.reclaim()
    assert twins.unused_slots() == 0


def test_a_worker_forgets_the_backlog_of_a_collection_that_it_no_longer_maintains(twins):
    """Another process maintains the collection, or the collection is deleted."""
    fill(twins)
    number, worker = twins.collection_id(), maintenance_worker(twins, home_leaves=1000)
    worker.maintain("t", number)
    assert worker.backlog(number) > 0
    with twins.database.write() as guard:
        assert try_lock_maintenance(guard, number)
        worker.maintain("t", number)
    assert worker.backlog(number) == 0
    worker.maintain("t", number)
    assert worker.backlog(number) > 0
    twins.drop()
    worker.maintain("t", number)
    assert worker.backlog(number) == 0


@pytest.mark.parametrize("statement", [FILLS_A_HOME, INDEXES_A_HOME])
def test_a_collection_that_is_deleted_while_it_moves_leaves_no_rows(twins, monkeypatch, statement):
    fill(twins)
    before_statement(monkeypatch, statement, twins.drop)
    assert twins.move() == 0
    twins.reclaim()
    assert twins.unused_slots() == 0
    assert twins.rows("hrag.leaves") == 0


def test_a_collection_that_is_deleted_while_a_part_of_it_is_built_leaves_no_rows(
    twins, threads, monkeypatch
):
    fill(twins)
    number = twins.collection_id()
    reclaims: list[Future[Any]] = []

    def drop_and_reclaim() -> None:
        twins.drop()
        reclaims.append(threads.submit(twins.reclaim))
        wait_until_blocked(twins, reclaims[0])

    before_statement(monkeypatch, WRITES_A_PART, drop_and_reclaim)
    twins.worker.maintain("t", number, every_leaf=True)
    reclaims[0].result()
    twins.reclaim()
    for table in ("term_vectors", "postings", "postings_parts", "tombstones"):
        assert twins.rows(f"hrag.{table}") == 0, table


def test_a_collection_that_is_deleted_while_its_tail_is_drained_leaves_no_rows(
    twins, threads, monkeypatch
):
    fill(twins)
    twins.maintain()
    fill(twins, 6, seed=20)
    reclaims: list[Future[Any]] = []

    def drop_and_reclaim() -> None:
        twins.drop()
        reclaims.append(threads.submit(twins.reclaim))
        wait_until_blocked(twins, reclaims[0])

    before_statement(monkeypatch, FILLS_A_HOME, drop_and_reclaim)
    with twins.database.write() as connection:
        assert drain_tail(connection, opened(twins, connection), 1000) > 0
    reclaims[0].result()
    twins.reclaim()
    for table in ("documents", "leaves", "home_slots", "deleted_collections"):
        assert twins.rows(f"hrag.{table}") == 0, table


def test_nothing_is_drained_into_a_home_that_the_collection_has_left(twins):
    fill(twins)
    twins.maintain()
    fill(twins, 6, seed=20)
    with twins.database.write() as connection:
        collection = opened(twins, connection)
        assert twins.move() > 0
        assert drain_tail(connection, collection, 1000) == 0


def test_a_snapshot_reads_its_home_until_it_ends_although_the_collection_moves(twins):
    fill(twins)
    twins.maintain()
    old, query = twins.home(), query_vector(3)
    with twins.reader.snapshot("t", "c") as snapshot:
        fill(twins, 12, seed=20)
        assert twins.move() > 0
        assert twins.home() != old
        assert not clear_unused_slot(twins.database)
        passages = find(snapshot, query, 1000).passages
    assert {passage.chunk.document_id for passage in passages} == {f"d{n}" for n in range(6)}
    twins.clear_slot()
    assert twins.unused_slots() == 0


def test_a_home_that_a_writer_may_use_is_not_dropped(twins):
    fill(twins)
    twins.maintain()
    with twins.database.write() as connection:
        connection.execute("SELECT pg_current_xact_id()")
        assert twins.move() > 0
        assert not clear_unused_slot(twins.database)
    twins.clear_slot()
    assert twins.unused_slots() == 0


@pytest.mark.parametrize("error", [ValueError("a bug"), Conflict("deadlock detected")])
def test_a_failure_for_one_collection_does_not_stop_maintenance_of_the_others(twins, error):
    maintained: list[int] = []

    class FailingWorker(MaintenanceWorker):
        """A worker that fails to maintain the collection with the id 1."""

        def maintain(self, tenant_id: str, collection_id: int, *, every_leaf: bool = False) -> None:
            maintained.append(collection_id)
            if collection_id == 1:
                raise error

    worker = FailingWorker(twins.database, 50)
    worker.changed("t", 1)
    worker.changed("t", 3)
    worker.start()
    until(lambda: len(maintained) == 2)
    until(worker.close)
    assert maintained == [1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_simultaneous_writers_and_workers_lose_nothing(twins, threads, seed):
    """Two threads write while two threads do maintenance, in no fixed order."""
    twins.worker = maintenance_worker(twins, home_leaves=20)
    twins.create("t", "s", collection_settings(summaries=SummaryUnit.NONE))
    stop = threading.Event()

    def maintain() -> None:
        worker = maintenance_worker(twins, home_leaves=20)
        while not stop.is_set():
            for name in "cs":
                worker.maintain("t", twins.collection_id("t", name), every_leaf=True)
            twins.reclaim()

    def write(name: str) -> None:
        draw = random.Random(f"{seed} {name}")
        stored: set[str] = set()
        for step in range(40):
            document_id = f"{name}{draw.randrange(9)}"
            if document_id in stored and draw.random() < 0.4:
                twins.delete(document_id, "t", name)
                stored.discard(document_id)
            else:
                text = sentences(draw.randint(1, 30), step)
                version = prepared(document_id, text, seed=step, metadata={"n": step % 3})
                twins.put(version, tenant_id="t", name=name)
                stored.add(document_id)

    workers = [threads.submit(maintain) for _ in range(2)]
    writers = [threads.submit(write, name) for name in "cs"]
    try:
        for writer in writers:
            writer.result()
    finally:
        stop.set()
    for worker in workers:
        worker.result()
