"""Builds homes: a home is a pair of tables, with an HNSW index, for the leaves of one collection.

Only large collections have a home. The leaves of the other collections are in the table
`hrag.leaves`, which all collections share. One HNSW index over that shared table would be slow and
would return too few leaves: it would find the nearest leaves of all tenants, and few of these
leaves belong to the tenant that searches. In a home, the table `leaves_<n>` has the HNSW index. The
table `tail_<n>` has no such index and receives new leaves, because inserting into an HNSW index is
slow. Every leaf of the collection is in exactly one of the two tables.

A new home is filled and indexed while searches and writes continue to use the old home. Then the
new home replaces the old home in one short transaction. The collection's row in
`hrag.collections` contains the id `<n>` of its home. A snapshot that was opened before the
replacement still sees the old id in this row, and so continues to read the old tables.
"""

from dataclasses import dataclass
from datetime import timedelta

from psycopg import sql

from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.leaf_tables import tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id

# The parameters `m` and `ef_construction` of the HNSW index. pgvector's default for `m` is 16.
# docs/decisions/postgres.md has measurements of these values and of the defaults.
_HNSW_M = 8
_HNSW_EF_CONSTRUCTION = 150
# While an HNSW graph is built in memory, it uses this many bytes for each leaf, in addition to the
# leaf's vector.
_LINK_BYTES = 512
# The smallest and the largest value of `maintenance_work_mem`, in kB, for building an HNSW index.
_MIN_BUILD_KB = 64 << 10
_MAX_BUILD_KB = 2 << 20
# A new home that no collection uses after this time is dropped: its build must have been
# interrupted.
_ABANDONED_AFTER = timedelta(days=1)
HOME_RETENTION = timedelta(minutes=1)
"""A replaced home is dropped after this time, because snapshots on replicas may still read it."""

_CREATE = (
    "CREATE TABLE {table} (LIKE hrag.leaves INCLUDING STORAGE, PRIMARY KEY (ordinal, leaf))",
    "ALTER TABLE {table} ALTER COLUMN embedding TYPE halfvec({dimension})",
)
_FILL = """
INSERT INTO {target} (tenant_id, collection_id, ordinal, leaf, above, embedding)
SELECT tenant_id, collection_id, ordinal, leaf, above, embedding FROM ({sources}) AS stored
WHERE ordinal > %(after)s AND ordinal <= %(last)s
"""
_SOURCE = """
SELECT * FROM {table} WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_INDEX = f"""
CREATE INDEX ON {{table}} USING hnsw (embedding halfvec_ip_ops)
WITH (m = {_HNSW_M}, ef_construction = {_HNSW_EF_CONSTRUCTION})
"""
_REMOVE_DELETED = """
DELETE FROM {target} AS stored WHERE NOT EXISTS (
    SELECT FROM hrag.documents d WHERE d.tenant_id = %(tenant_id)s
    AND d.collection_id = %(collection_id)s AND d.ordinal = stored.ordinal)
"""
_LOCK = "SELECT FROM hrag.tenants WHERE tenant_id = %(tenant_id)s FOR UPDATE"
_SET_HOME = """
UPDATE hrag.collections SET home = %(home)s
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_REMOVE_SHARED = """
DELETE FROM hrag.leaves WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""
_ADD_UNUSED = """
INSERT INTO hrag.unused_homes (tenant_id, home, drop_after)
VALUES (%(tenant_id)s, %(home)s, now() + %(delay)s)
"""
_ABANDON = """
UPDATE hrag.unused_homes SET drop_after = now()
WHERE tenant_id = %(tenant_id)s AND home = %(home)s
"""
_REMOVE_UNUSED = "DELETE FROM hrag.unused_homes WHERE tenant_id = %(tenant_id)s AND home = %(home)s"
# An unused home is not dropped while a transaction that may use its tables is running. The
# condition on `pg_snapshot_xmin` waits for transactions that write. A transaction that only reads
# has no transaction id. The condition on `backend_xmin` waits for such transactions, because their
# `backend_xmin` is the oldest transaction id that their snapshot needs.
_DUE = """
SELECT tenant_id, home FROM hrag.unused_homes
WHERE drop_after < now() AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
AND NOT EXISTS (
    SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()
    AND age(backend_xmin) >= age(transaction_id::xid)
    UNION ALL SELECT FROM pg_replication_slots WHERE age(xmin) >= age(transaction_id::xid))
LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_MOVE = """
WITH locked AS (
    SELECT ordinal FROM hrag.documents
    WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND ordinal IN (
        SELECT ordinal FROM {tail}
        WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
        ORDER BY ordinal, leaf LIMIT %(max_leaves)s)
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM {tail} WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
    AND (ordinal, leaf) IN (
        SELECT ordinal, leaf FROM {tail} WHERE tenant_id = %(tenant_id)s
        AND collection_id = %(collection_id)s AND ordinal IN (SELECT ordinal FROM locked)
        ORDER BY ordinal, leaf LIMIT %(max_leaves)s)
    RETURNING tenant_id, collection_id, ordinal, leaf, above, embedding
), moved AS (
    INSERT INTO {leaves} (tenant_id, collection_id, ordinal, leaf, above, embedding)
    SELECT * FROM removed RETURNING 1
) SELECT count(*) FROM moved
"""


@dataclass(frozen=True, slots=True)
class HomeSizes:
    """The counts of a collection's leaves, in its HNSW index and outside of it.

    `indexed` leaves are in the index. `scanned` leaves are not, so each search scans them.
    """

    indexed: int
    scanned: int


def home_sizes(connection: Connection, collection: OpenedCollection) -> HomeSizes:
    """Returns how many leaves of the collection are in its HNSW index, and how many are not.

    If the collection has an HNSW index, the other leaves are in the tail, a table for new leaves.
    The statement counts the rows of this table, which is fast because it is small.
    """
    if collection.home is None:
        return HomeSizes(0, collection.leaves)
    _, tail = tables_of(collection.home)
    statement = sql.SQL("SELECT count(*) FROM {}").format(tail)
    (scanned,) = connection.execute(statement).fetchone() or (0,)
    return HomeSizes(max(collection.leaves - scanned, 0), scanned)


def move_collection(
    database: PostgresDatabase,
    tenant_id: str,
    collection_id: int,
    retention: timedelta = HOME_RETENTION,
) -> int:
    """Builds a new home whose index has all leaves of a collection; returns the count of leaves.

    A home is a pair of tables for the leaves of one collection, one of them with an HNSW index.
    Writers of the tenant wait only during the transaction that replaces the old home. If another
    process replaced the old home first, or if the collection was deleted meanwhile, the function
    returns 0 and the tables of the new home are dropped later. They are also dropped later if the
    process ends before the old home is replaced. The old home is dropped after `retention`.
    """
    with database.write() as connection:
        source = open_by_id(connection, tenant_id, collection_id)
        if source is None:
            return 0
        home = _create(connection, source)
    leaves, tail = tables_of(home)
    with database.write() as connection:
        _fill(connection, source, leaves, 0, source.sequence)
    with database.write() as connection:
        _build_index(connection, source, leaves)
    with database.write() as connection:
        connection.execute(_LOCK, {"tenant_id": tenant_id})
        old = open_by_id(connection, tenant_id, collection_id)
        if old is None or old.home != source.home:
            connection.execute(_ABANDON, {"tenant_id": tenant_id, "home": home})
            return 0
        connection.execute(sql.SQL(_REMOVE_DELETED).format(target=leaves), old.key)
        # Copies the leaves that were committed after `source` was read. The ordinals of their
        # documents are greater than `source.sequence`, which was then the tenant's last sequence
        # number, because an ordinal is the sequence number of a change.
        _fill(connection, old, tail, source.sequence, old.sequence)
        _replace(connection, old, home, retention)
    with database.autocommit() as connection:
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(leaves))
    return old.leaves


def _create(connection: Connection, collection: OpenedCollection) -> int:
    """Creates the two tables of a new home, without an HNSW index; returns the home's id."""
    (home,) = connection.execute("SELECT nextval('hrag.home_ids')").fetchone() or (0,)
    dimension = sql.Literal(collection.settings.dimension)
    for table in tables_of(home):
        for statement in _CREATE:
            connection.execute(sql.SQL(statement).format(table=table, dimension=dimension))
    parameters = {"tenant_id": collection.tenant_id, "home": home, "delay": _ABANDONED_AFTER}
    connection.execute(_ADD_UNUSED, parameters)
    return int(home)


def _fill(
    connection: Connection, source: OpenedCollection, target: sql.Composable, after: int, last: int
) -> None:
    """Copies leaves of the collection `source` into the table `target`.

    Copies the leaves of the documents whose ordinals are greater than `after` and at most `last`.
    """
    sources = [sql.SQL(_SOURCE).format(table=table) for table in tables_of(source.home)]
    # If the collection has a home, one statement reads both of its tables. Two statements might
    # miss a leaf, because maintenance may move it from one table to the other between them.
    statement = sql.SQL(_FILL).format(target=target, sources=sql.SQL(" UNION ALL ").join(sources))
    connection.execute(statement, {**source.key, "after": after, "last": last})


def _build_index(
    connection: Connection, collection: OpenedCollection, leaves: sql.Composable
) -> None:
    """Builds the HNSW index of the table `leaves`.

    The index is built in memory if it needs at most `_MAX_BUILD_KB` kB.
    """
    leaf_bytes = 2 * collection.settings.dimension + _LINK_BYTES
    memory_kb = max(_MIN_BUILD_KB, min(_MAX_BUILD_KB, collection.leaves * leaf_bytes // 1024))
    connection.execute("SELECT set_config('maintenance_work_mem', %s, true)", (f"{memory_kb}kB",))
    connection.execute(sql.SQL(_INDEX).format(table=leaves))


def _replace(
    connection: Connection, old: OpenedCollection, home: int, retention: timedelta
) -> None:
    """Makes the pair of tables with the id `home` the home of the collection `old`.

    A home is a pair of tables for the leaves of one collection. If the collection had another home,
    that home is dropped after the time `retention`. If it had no home, its rows in the shared table
    `hrag.leaves` are deleted.
    """
    if old.home is None:
        connection.execute(_REMOVE_SHARED, old.key)
    else:
        retire_home(connection, old.tenant_id, old.home, retention)
    connection.execute(_REMOVE_UNUSED, {"tenant_id": old.tenant_id, "home": home})
    connection.execute(_SET_HOME, {**old.key, "home": home})


def drain_tail(connection: Connection, collection: OpenedCollection, max_leaves: int) -> int:
    """Moves at most `max_leaves` leaves of a collection out of its tail; returns their count.

    The tail is the table for new leaves, without an HNSW index. The leaves are moved to the table
    with the HNSW index. A call skips the documents that a writer is changing at this time.
    """
    leaves, tail = tables_of(collection.home)
    statement = sql.SQL(_MOVE).format(leaves=leaves, tail=tail)
    (moved,) = connection.execute(
        statement, {**collection.key, "max_leaves": max_leaves}
    ).fetchone() or (0,)
    return int(moved)


def drop_unused(database: PostgresDatabase) -> bool:
    """Drops one home that is no longer used; returns False if there is no home to drop.

    A home is a pair of tables for the leaves of one collection. A home that a snapshot on this
    server may still read is not dropped. If a standby has `hot_standby_feedback`, a home that a
    snapshot on the standby may read is not dropped either.
    """
    with database.write() as connection:
        row = connection.execute(_DUE).fetchone()
        if row is None:
            return False
        tenant_id, home = row
        for table in tables_of(home):
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        connection.execute(_REMOVE_UNUSED, {"tenant_id": tenant_id, "home": home})
    return True


def retire_home(
    connection: Connection, tenant_id: str, home: int, retention: timedelta = HOME_RETENTION
) -> None:
    """Records that no collection uses the two tables of a home any more.

    `drop_unused` drops the tables after the time `retention`.
    """
    parameters = {"tenant_id": tenant_id, "home": home, "delay": retention}
    connection.execute(_ADD_UNUSED, parameters)
