"""Which collection has which home: the table `hrag.home_slots` has a row for each of these places.

A home is the table `hrag_homes.leaves_<n>`, which has an HNSW index. On one server, a home has the
leaves of one collection. On a Citus cluster, a table is divided into shards by tenant, each with
its own HNSW index. There, collections of tenants in different shards share a home, because a
table for each of them would fill the system catalog with empty shards. In every shard, a home has
the leaves of at most one collection: an index over several collections would return too few leaves
of each. A shard is only ever divided, which separates tenants, so this remains true.

The collection's own row in `hrag.collections` decides which home it uses. That row is on the node
of the tenant, and `hrag.home_slots` is on the coordinator; no transaction changes both. So a slot
has a time, `drop_after`, unless its collection is known to use it. At this time, maintenance reads
the collection's row. If the collection uses the home after all, the time is removed. Otherwise the
slot's leaves are deleted, and then the slot; the last slot of a home is dropped with the table.

Whoever reads the collection's row to change its slot, or reads the slot to change the collection's
home, holds the lock of the collection's steps (`lock_step`) until the change is committed.
"""

from datetime import timedelta
from typing import NamedTuple

from psycopg import sql
from psycopg.errors import InternalError

from hrag.engine.postgres.store.advisory_locks import (
    lock_homes,
    lock_step,
    try_lock_maintenance,
)
from hrag.engine.postgres.store.cluster import is_distributed, vacuum_shard
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.leaf_tables import home_table
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id
from hrag.engine.postgres.store.queries import REMOVE_ROWS, REMOVED_ROWS
from hrag.values.errors import StoreUnavailable

HOME_RETENTION = timedelta(minutes=1)
"""A replaced home is dropped after this time, because snapshots on replicas may still read it."""

# A new home that no collection uses after this time is dropped: its build must have been
# interrupted.
_ABANDONED_AFTER = timedelta(days=1)
# If a slot cannot be cleared now, for example because a node does not answer, the slot is examined
# again after this time.
_POSTPONED = timedelta(minutes=5)

_CREATE = (
    "CREATE TABLE {table} (LIKE hrag.leaves INCLUDING STORAGE)",
    # A change of the type resets the storage of the column, so the same command sets it again.
    # Otherwise large vectors would be stored out of line, and scans would take six times as long.
    """
    ALTER TABLE {table} ALTER COLUMN embedding TYPE halfvec({dimension}),
      ALTER COLUMN embedding SET STORAGE PLAIN
    """,
    # A unique key of a distributed table must contain the tenant. It is the last column,
    # because leaves are looked up by ordinal and leaf.
    "ALTER TABLE {table} ADD PRIMARY KEY (ordinal, leaf, tenant_id)",
    "GRANT SELECT ON {table} TO {owner}",
)
_OWNER = """
SELECT rolname FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner WHERE nspname = 'hrag'
"""
_DISTRIBUTE = """
SELECT create_distributed_table(%s, 'tenant_id', colocate_with => 'hrag.tenants')
"""
# Part of the message with which Citus refuses a new table while it moves a shard. The SQLSTATE is
# that of all internal errors.
_IS_LOCKED = "could not acquire the lock"
# Only a home that a collection uses has an HNSW index for sure.
_HOMES_WITH_SPACE = """
SELECT home FROM hrag.home_slots
WHERE dimension = %(dimension)s
GROUP BY home
HAVING bool_or(drop_after IS NULL) AND NOT bool_or(
  get_shard_id_for_distribution_column('hrag.tenants', tenant_id)
  = get_shard_id_for_distribution_column('hrag.tenants', %(tenant_id)s::text))
ORDER BY count(*) DESC, home LIMIT 1
"""
_ADD = """
INSERT INTO hrag.home_slots (home, tenant_id, collection_id, dimension, transaction_id, drop_after)
VALUES (%(home)s, %(tenant_id)s, %(collection_id)s, %(dimension)s, pg_current_xact_id(),
  now() + %(delay)s)
"""
_KEY = "home = %(home)s AND tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
_KEEP = f"UPDATE hrag.home_slots SET drop_after = NULL, transaction_id = NULL WHERE {_KEY}"
_RETIRE = f"""
UPDATE hrag.home_slots SET drop_after = now() + %(delay)s, transaction_id = pg_current_xact_id()
WHERE {_KEY}
"""
_EXISTS = f"SELECT EXISTS (SELECT FROM hrag.home_slots WHERE {_KEY})"
_REMOVE = f"DELETE FROM hrag.home_slots WHERE {_KEY}"
# A slot is not cleared while a transaction that may use its table is running. The condition on
# `pg_snapshot_xmin` waits for transactions that write. A transaction that only reads has no
# transaction id. The condition on `backend_xmin` waits for such transactions, because their
# `backend_xmin` is the oldest transaction id that their snapshot needs. Transactions of another
# database cannot read the table. A process that sends the WAL to a standby has no database.
_DUE = """
SELECT home, tenant_id, collection_id FROM hrag.home_slots
WHERE drop_after < now() AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
AND NOT EXISTS (
    SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()
    AND (datname IS NULL OR datname = current_database())
    AND age(backend_xmin) >= age(transaction_id::xid)
    UNION ALL SELECT FROM pg_replication_slots WHERE age(xmin) >= age(transaction_id::xid))
ORDER BY drop_after LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_LOCK_DUE = f"SELECT FROM hrag.home_slots WHERE {_KEY} AND drop_after < now() FOR UPDATE"
_IS_SHARED = """
SELECT EXISTS (SELECT FROM hrag.home_slots WHERE home = %(home)s
  AND (tenant_id, collection_id) <> (%(tenant_id)s, %(collection_id)s))
"""
# Another transaction, for example of pg_dump, may read the home for hours. Until it ends, the other
# workers would wait for the lock on the list of homes. Citus sends the second setting to the nodes
# only because of the first one, which means nothing to a server without Citus.
_LIMIT_WAITING = (
    b"SET LOCAL citus.propagate_set_commands = local",
    b"SET LOCAL lock_timeout = 2000",
)


class Slot(NamedTuple):
    """The place of one collection in a home."""

    home: int
    tenant_id: str
    collection_id: int


def take_slot(connection: Connection, collection: OpenedCollection) -> int | None:
    """Takes a free slot of an existing home with an HNSW index; returns the id of the home.

    Returns None if there is none, which is always so on a server without Citus. A slot is free for
    the collection if no collection has a slot in this home and this tenant's shard. Two processes
    cannot take slots at the same time.
    """
    if not is_distributed(connection):
        return None
    lock_homes(connection)
    parameters = {"tenant_id": collection.tenant_id, "dimension": collection.settings.dimension}
    row = connection.execute(_HOMES_WITH_SPACE, parameters).fetchone()
    if row is None:
        return None
    _add(connection, collection, row[0])
    return int(row[0])


def create_home(connection: Connection, collection: OpenedCollection) -> int:
    """Creates a home without an HNSW index, with a slot for the collection; returns its id.

    On a Citus cluster, the table is distributed like the other tables, while it is empty. Raises
    StoreUnavailable while a shard is being moved, because Citus then refuses new tables.
    """
    (home,) = connection.execute("SELECT nextval('hrag.home_ids')").fetchone() or (0,)
    (owner,) = connection.execute(_OWNER).fetchone() or ("",)
    table = home_table(home)
    parts = {
        "table": table,
        "dimension": sql.Literal(collection.settings.dimension),
        "owner": sql.Identifier(owner),
    }
    for statement in _CREATE:
        connection.execute(sql.SQL(statement).format(**parts))
    if is_distributed(connection):
        _distribute(connection, table)
    _add(connection, collection, home)
    return int(home)


def _distribute(connection: Connection, table: sql.Identifier) -> None:
    # Citus would refuse the second of two tables that are distributed at the same time.
    lock_homes(connection)
    try:
        connection.execute(_DISTRIBUTE, (table.as_string(),))
    except InternalError as error:
        if _IS_LOCKED not in str(error):
            raise
        raise StoreUnavailable("no home can be created while Citus moves a shard") from error


def _add(connection: Connection, collection: OpenedCollection, home: int) -> None:
    parameters = {"dimension": collection.settings.dimension, "delay": _ABANDONED_AFTER}
    connection.execute(_ADD, {**collection.key, **parameters, "home": home})


def has_slot(connection: Connection, slot: Slot) -> bool:
    """Returns True if the slot exists; False if it was cleared, because nobody used it for long."""
    return connection.execute(_EXISTS, slot._asdict()).fetchone() == (True,)


def keep_used_slot(connection: Connection, slot: Slot) -> bool:
    """Records that the collection uses its slot; returns False if it does not use it.

    The collection may have been deleted, and its slot may be about to be cleared.
    """
    lock_step(connection, slot.tenant_id, slot.collection_id)
    collection = open_by_id(connection, slot.tenant_id, slot.collection_id)
    if collection is None or collection.home != slot.home:
        return False
    connection.execute(_KEEP, slot._asdict())
    return True


def retire_slot(connection: Connection, slot: Slot, delay: timedelta = HOME_RETENTION) -> None:
    """Records that the collection does not use its slot any more; it is cleared after `delay`."""
    connection.execute(_RETIRE, {**slot._asdict(), "delay": delay})


def expect_retirement(connection: Connection, slot: Slot) -> None:
    """Records that the collection will perhaps not use its slot any more.

    Call it before the collection's row changes. If this process ends between this change and
    `retire_slot`, the slot is examined a day later.
    """
    retire_slot(connection, slot, _ABANDONED_AFTER)


def vacuum_home(database: PostgresDatabase, home: int, tenant_id: str) -> None:
    """Removes deleted leaves of the tenant from a home, and updates the statistics of its rows.

    Without statistics, PostgreSQL would not use the HNSW index.
    """
    with database.autocommit() as connection:
        vacuum_shard(connection, home_table(home), tenant_id)


def clear_unused_slot(database: PostgresDatabase) -> bool:
    """Does one step to clear a slot that is no longer used; returns False if none is due.

    A home that a snapshot on this server may still read is not changed. If a standby has
    `hot_standby_feedback`, a home that a snapshot on the standby may read is not changed either.
    If a node does not answer, or if another transaction reads a home that should be dropped, the
    slot is examined again later.
    """
    with database.write() as connection:
        row = connection.execute(_DUE).fetchone()
    if row is None:
        return False
    slot = Slot(*row)
    try:
        _clear(database, slot)
    except StoreUnavailable:
        with database.write() as connection:
            retire_slot(connection, slot, _POSTPONED)
    return True


def _clear(database: PostgresDatabase, slot: Slot) -> None:
    statement = sql.SQL(REMOVE_ROWS).format(table=home_table(slot.home))
    deleted = True
    while deleted:
        with database.write() as connection:
            if not _lock_unused(connection, slot) or _drop_last(connection, slot):
                return
            parameters = {**slot._asdict(), "rows": REMOVED_ROWS}
            deleted = connection.execute(statement, parameters).rowcount > 0
    # Until VACUUM has removed the deleted leaves from the HNSW index, searches of the next
    # collection in this shard would visit them.
    vacuum_home(database, slot.home, slot.tenant_id)
    with database.write() as connection:
        if _lock_unused(connection, slot):
            connection.execute(_REMOVE, slot._asdict())


def _lock_unused(connection: Connection, slot: Slot) -> bool:
    """Returns True if no collection uses the slot, and locks the slot until this transaction ends.

    Another process may have cleared the slot, and the collection may have taken it again. If the
    collection uses the slot, records this. If another process maintains the collection, it may be
    building this home, so the slot is examined again later.
    """
    # Waits for a step that moves leaves into the slot. A later step finds that the collection does
    # not use it.
    lock_step(connection, slot.tenant_id, slot.collection_id)
    if connection.execute(_LOCK_DUE, slot._asdict()).fetchone() is None:
        return False
    if not try_lock_maintenance(connection, slot.collection_id):
        retire_slot(connection, slot, _POSTPONED)
        return False
    return not keep_used_slot(connection, slot)


def _drop_last(connection: Connection, slot: Slot) -> bool:
    """Drops the home, with its slot, if it has no other slot; returns False if it has."""
    lock_homes(connection)
    if connection.execute(_IS_SHARED, slot._asdict()).fetchone() == (True,):
        return False
    for setting in _LIMIT_WAITING:
        connection.run_script(setting)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(home_table(slot.home)))
    connection.execute(_REMOVE, slot._asdict())
    return True
