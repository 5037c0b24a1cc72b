"""Collections share homes, but never a shard of a home.

The server of these tests has no Citus. Stand-ins for its functions divide the tenants into four
shards. The engine's question whether the tables are distributed is answered with yes.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest

from hrag.engine.postgres.admin import check as check_module
from hrag.engine.postgres.admin import check_store
from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.indexes import home_slots, homes
from hrag.engine.postgres.indexes.home_slots import (
    Slot,
    clear_unused_slot,
    create_home,
    expect_retirement,
    keep_used_slot,
    retire_slot,
    take_slot,
)
from hrag.engine.postgres.maintenance import worker as worker_module
from hrag.engine.postgres.store.advisory_locks import try_lock_maintenance
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.errors import StoreUnavailable
from tests.support.documents.fakes import collection_settings
from tests.support.documents.vocabulary import wordy
from tests.support.engines.postgres_twins import Twins, twins_at
from tests.support.manuals import ROOT, blocks

pytestmark = pytest.mark.postgres

SHARDS = 4
_STAND_INS = f"""
CREATE OR REPLACE FUNCTION get_shard_id_for_distribution_column(name regclass, value text)
RETURNS bigint LANGUAGE sql IMMUTABLE RETURN abs(hashtext(value)) % {SHARDS};
CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text)
RETURNS void LANGUAGE sql AS '';
"""
_REFUSE = """
DROP FUNCTION create_distributed_table;
CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text)
RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  RAISE 'could not acquire the lock required to colocate distributed table %', colocate_with
  USING ERRCODE = 'internal_error';
END $$;
"""
_PLACES = """
SELECT home, get_shard_id_for_distribution_column('hrag.tenants', tenant_id) FROM hrag.home_slots
"""
_SHARD_OF = "SELECT get_shard_id_for_distribution_column('hrag.tenants', %s)"
_STATISTICS = """
SELECT most_common_vals::text::text[] FROM pg_stats
WHERE schemaname = 'hrag_homes' AND attname = 'tenant_id'
"""
TENANTS = [f"tenant {number}" for number in range(10)]


@pytest.fixture
def twins(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    """A store on a cluster, as far as homes are concerned; each tenant has a collection `c`."""
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(_STAND_INS)
    for module in (home_slots, check_store, worker_module):
        monkeypatch.setattr(module, "is_distributed", lambda _: True)
    with twins_at(postgres_dsn) as twins:
        for tenant_id in TENANTS:
            twins.create(tenant_id)
            documents = [wordy(f"d{n}", n, collection_settings(), 8) for n in range(3)]
            twins.put(*documents, tenant_id=tenant_id)
        yield twins
        twins.assert_same()


def places(twins: Twins) -> list[tuple[int, int]]:
    """Returns the home and the shard of each slot."""
    with twins.database.read() as connection:
        return connection.execute(_PLACES).fetchall()


def slot_of(twins: Twins, tenant_id: str) -> Slot:
    home = twins.home(tenant_id)
    assert home is not None
    return Slot(home, tenant_id, twins.collection_id(tenant_id))


def slots(twins: Twins) -> list[Slot]:
    with twins.database.read() as connection:
        rows = connection.execute("SELECT home, tenant_id, collection_id FROM hrag.home_slots")
        return [Slot(*row) for row in rows]


def shard_of(twins: Twins, tenant_id: str) -> int:
    with twins.database.read() as connection:
        return connection.execute(_SHARD_OF, (tenant_id,)).fetchone()[0]


def due(twins: Twins, slot: Slot) -> None:
    """Makes a slot due to be examined."""
    with twins.database.write() as connection:
        retire_slot(connection, slot, timedelta(0))


def test_collections_of_different_shards_share_a_home(twins):
    for tenant_id in TENANTS:
        twins.maintain(tenant_id)
    by_shard = Counter(shard for _, shard in places(twins))
    assert max(Counter(places(twins)).values()) == 1
    assert len({home for home, _ in places(twins)}) == max(by_shard.values())
    assert twins.rows("hrag.leaves") == 0
    assert check(twins.database).problems == ()


def test_workers_that_take_slots_at_once_never_put_two_collections_into_one_shard(twins):
    """Each of eight threads has a transaction open before the first one takes a slot."""
    first, *others = TENANTS[:8]
    twins.maintain(first)
    collections = {}
    with twins.database.read() as connection:
        for tenant_id in others:
            collections[tenant_id] = open_by_id(connection, tenant_id, _number(twins, tenant_id))
    barrier = Barrier(len(others))

    def take(tenant_id: str) -> int | None:
        with twins.database.write() as connection:
            connection.execute("SELECT pg_current_xact_id()")
            barrier.wait()
            return take_slot(connection, collections[tenant_id])

    with ThreadPoolExecutor(len(others)) as threads:
        taken = list(threads.map(take, others))
    shards = {shard for _, shard in places(twins)}
    assert max(Counter(places(twins)).values()) == 1
    assert taken.count(None) == 1 + len(others) - len(places(twins))
    assert len(shards) == len(places(twins))


def _number(twins: Twins, tenant_id: str) -> int:
    return twins.collection_id(tenant_id)


def test_the_statistics_of_a_home_have_each_collection_that_was_moved_to_it(twins):
    """PostgreSQL would otherwise expect one row of the collection, and not use the index."""
    first = TENANTS[0]
    second = next(tenant for tenant in TENANTS if shard_of(twins, tenant) != shard_of(twins, first))
    for tenant_id in (first, second):
        twins.maintain(tenant_id)
    assert twins.home(first) == twins.home(second)
    with twins.database.read() as connection:
        (values,) = connection.execute(_STATISTICS).fetchone()
    assert sorted(values) == sorted((first, second))


def test_a_slot_of_a_deleted_collection_is_cleared_and_can_be_taken_again(twins):
    for tenant_id in TENANTS:
        twins.maintain(tenant_id)
    homes = Counter(home for home, _ in places(twins))
    shared = homes.most_common(1)[0][0]
    tenant_id = next(tenant for tenant in TENANTS if twins.home(tenant) == shared)
    leaves = twins.rows(f"hrag_homes.leaves_{shared}")
    twins.drop(tenant_id)
    twins.reclaim()
    assert 0 < twins.rows(f"hrag_homes.leaves_{shared}") < leaves
    assert Counter(home for home, _ in places(twins))[shared] == homes[shared] - 1
    twins.create(tenant_id)
    twins.put(wordy("new", 7, collection_settings(), 8), tenant_id=tenant_id)
    twins.maintain(tenant_id)
    assert twins.home(tenant_id) == shared


def test_a_home_is_dropped_with_its_last_slot(twins):
    twins.maintain(TENANTS[0])
    home = twins.home(TENANTS[0])
    twins.drop(TENANTS[0])
    twins.reclaim()
    assert places(twins) == []
    with twins.database.read() as connection:
        statement = "SELECT to_regclass(%s)"
        assert connection.execute(statement, (f"hrag_homes.leaves_{home}",)).fetchone() == (None,)


def test_a_slot_that_its_collection_uses_is_kept_whenever_it_is_examined(twins):
    """A process may end between the change of the collection's row and that of the slot."""
    twins.maintain(TENANTS[0])
    slot = slot_of(twins, TENANTS[0])
    due(twins, slot)
    twins.clear_slot()
    assert twins.unused_slots() == 0
    assert twins.home(TENANTS[0]) == slot.home
    with twins.database.write() as connection:
        expect_retirement(connection, slot)
    assert not clear_unused_slot(twins.database)


def test_a_slot_whose_node_does_not_answer_is_examined_later(twins, monkeypatch):
    twins.maintain(TENANTS[0])
    slot = slot_of(twins, TENANTS[0])
    due(twins, slot)

    def fail(*_: object) -> OpenedCollection:
        raise StoreUnavailable("a node is down")

    with monkeypatch.context() as patch:
        patch.setattr(home_slots, "open_by_id", fail)
        twins.clear_slot()
        assert not clear_unused_slot(twins.database)
    assert twins.unused_slots() == 1
    due(twins, slot)
    twins.clear_slot()
    assert twins.unused_slots() == 0


def test_a_slot_that_was_cleared_and_taken_again_is_not_cleared_by_another_process(twins):
    """The other process has chosen the slot before."""
    for tenant_id in TENANTS:
        twins.maintain(tenant_id)
    shared = Counter(home for home, _ in places(twins)).most_common(1)[0][0]
    tenant_id = next(tenant for tenant in TENANTS if twins.home(tenant) == shared)
    home_slots._clear(twins.database, slot_of(twins, tenant_id))
    assert twins.home(tenant_id) == shared


def test_a_slot_whose_collection_is_deleted_before_it_is_kept_is_cleared(twins, monkeypatch):
    """The other process has deleted all rows of the collection before this one continues."""

    def delete_and_keep(connection: Connection, slot: Slot) -> bool:
        twins.drop(TENANTS[0])
        twins.reclaim_rows()
        return keep_used_slot(connection, slot)

    monkeypatch.setattr(homes, "keep_used_slot", delete_and_keep)
    twins.maintain(TENANTS[0])
    twins.reclaim()
    assert places(twins) == []


@pytest.mark.parametrize("other", [False, True])
def test_a_home_whose_slot_was_cleared_meanwhile_is_not_used(twins, monkeypatch, other):
    """A process was stopped for a day before it could use its new home."""
    if other:
        twins.maintain(TENANTS[0])
    tenant_id = next(
        tenant for tenant in TENANTS[1:] if shard_of(twins, tenant) != shard_of(twins, TENANTS[0])
    )

    use = homes._use

    def use_late(*arguments: Any) -> int:
        monkeypatch.undo()
        (slot,) = [slot for slot in slots(twins) if slot.tenant_id == tenant_id]
        due(twins, slot)
        twins.clear_slot()
        assert slot not in slots(twins)
        return use(*arguments)

    monkeypatch.setattr(homes, "_use", use_late)
    assert twins.move(tenant_id) == 0
    assert twins.home(tenant_id) is None
    twins.maintain(tenant_id)
    assert twins.home(tenant_id) is not None


def test_a_home_that_is_being_built_is_not_dropped(twins):
    """Its slot is examined a day after the build began, and again until the build has ended."""
    collection_id = twins.collection_id(TENANTS[0])
    with twins.database.write() as connection:
        collection = open_by_id(connection, TENANTS[0], collection_id)
        assert collection is not None
        slot = Slot(create_home(connection, collection), TENANTS[0], collection_id)
    due(twins, slot)
    with twins.database.write() as guard:
        assert try_lock_maintenance(guard, collection_id)
        twins.clear_slot()
        assert not clear_unused_slot(twins.database)
    assert slots(twins) == [slot]
    due(twins, slot)
    twins.clear_slot()
    assert slots(twins) == []


def test_a_home_that_is_read_for_long_keeps_no_worker_waiting(twins):
    """Such a reader is pg_dump, which may begin after the home was retired."""
    twins.maintain(TENANTS[0])
    slot = slot_of(twins, TENANTS[0])
    twins.drop(TENANTS[0])
    with twins.database.write() as connection:
        connection.execute(f"LOCK TABLE hrag_homes.leaves_{slot.home} IN ACCESS SHARE MODE")
        due(twins, slot)
        twins.clear_slot()
        assert slots(twins) == [slot]
    due(twins, slot)
    twins.clear_slot()
    assert slots(twins) == []
    twins.reclaim()


def test_the_manual_repairs_a_list_of_places_that_is_older_than_the_collections(twins):
    """A standby of the coordinator or of a node was promoted that had not received all changes."""
    for tenant_id in TENANTS[:3]:
        twins.maintain(tenant_id)
    lost, leaked, unchanged = (slot_of(twins, tenant_id) for tenant_id in TENANTS[:3])
    twins.drop(leaked.tenant_id)
    twins.reclaim()
    with twins.database.write() as connection:
        connection.execute("DELETE FROM hrag.home_slots WHERE tenant_id = %s", (lost.tenant_id,))
        connection.execute("INSERT INTO hrag.home_slots VALUES (%s, %s, %s, 16)", leaked)
    assert len(check(twins.database).problems) > 1
    (repair,) = (
        block.text
        for block in blocks(ROOT / "docs" / "operations" / "postgres.md", "sql")
        if "INSERT INTO hrag.home_slots" in block.text
    )
    with twins.database.write() as connection:
        connection.run_script(repair.encode())
    twins.reclaim()
    assert set(slots(twins)) == {lost, unchanged}
    assert twins.unused_slots() == 0


def test_a_home_that_citus_refuses_is_created_later(twins):
    """Citus refuses new tables while it moves a shard, with an internal error."""
    with twins.database.write() as connection:
        connection.run_script(_REFUSE.encode())
    with pytest.raises(StoreUnavailable, match="while Citus moves a shard"):
        twins.maintain(TENANTS[0])
    assert twins.home(TENANTS[0]) is None
    assert places(twins) == []
    with twins.database.write() as connection:
        connection.run_script(b"DROP FUNCTION create_distributed_table")
        connection.run_script(_STAND_INS.encode())
    twins.maintain(TENANTS[0])
    assert twins.home(TENANTS[0]) is not None


def test_a_home_that_is_dropped_during_the_check_is_no_problem(twins):
    """No collection used it when the check began."""
    twins.maintain(TENANTS[0])
    slot = slot_of(twins, TENANTS[0])
    twins.drop(TENANTS[0])
    due(twins, slot)
    with twins.database.read() as connection:
        connection.execute("SELECT FROM hrag.tenants")
        twins.clear_slot()
        assert slots(twins) == []
        assert [*check_store.problems_of_store(connection)] == []
    twins.reclaim()


def test_the_check_reports_what_two_snapshots_have(twins, monkeypatch):
    """On a cluster, each node has a snapshot of its own, taken at another moment."""
    snapshots = iter([["moved", "damaged"], ["damaged", "also moved"], ["moved"], []])
    monkeypatch.setattr(check_module, "problems_of_store", lambda _: next(snapshots))
    assert check(twins.database).problems == ("damaged",)
    assert check(twins.database).problems == ()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE hrag.home_slots SET collection_id = 99", "but no place in it"),
        ("UPDATE hrag.collections SET home = NULL WHERE home IS NOT NULL", "does not use it"),
        (
            "INSERT INTO hrag.home_slots SELECT home, tenant_id, 99, 1 FROM hrag.home_slots",
            "has 2 collections in one shard",
        ),
        ("DROP TABLE hrag_homes.leaves_1", "leaves_1 is missing"),
        ("CREATE TABLE hrag_homes.leaves_99 ()", "leaves_99 belongs to no collection"),
        ("UPDATE hrag_homes.leaves_1 SET collection_id = 99", "which has no place in it"),
    ],
)
def test_the_check_reports_a_damaged_list_of_homes(twins, damage, problem):
    twins.maintain(TENANTS[0])
    with twins.database.read() as connection:
        assert [*check_store.problems_of_store(connection)] == []

    problems: list[str] = []

    def damage_for_a_moment() -> None:
        with twins.database.write() as connection:
            connection.execute(damage)
            problems.extend(check_store.problems_of_store(connection))
            raise StoreUnavailable("the damage is rolled back")

    with pytest.raises(StoreUnavailable):
        damage_for_a_moment()
    assert any(problem in found for found in problems), problems
