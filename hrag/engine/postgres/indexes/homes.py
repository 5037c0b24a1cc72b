"""Homes: separate tables with an HNSW index for the leaves of a large collection.

One HNSW index over the leaves of all tenants would be slow and would return too few leaves to
each tenant: it finds the nearest leaves of all tenants, and few of them belong to the one that
searches. In a home, the table `leaves_<n>` has the index and the table `tail_<n>` receives new
leaves, because inserting into an HNSW index is slow. Every leaf is in one of the two tables.

A new home is filled and indexed while searches and writes continue to use the old one. Then it
replaces the old one in one short transaction. The collection's row contains the number of its
home. Each snapshot uses the tables of the home in its version of that row.
"""

from dataclasses import dataclass
from datetime import timedelta

from psycopg import sql

from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.leaf_tables import tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_number

# The default of pgvector is 16. docs/decisions/postgres.md has measurements of both values.
_HNSW_M = 8
_HNSW_EF_CONSTRUCTION = 150
# While a graph is built in memory, each leaf takes this much in addition to its vector.
_LINK_BYTES = 512
_MIN_BUILD_KB = 64 << 10
_MAX_BUILD_KB = 2 << 20
# A new home that is not in use after this time counts as abandoned.
_ABANDONED_AFTER = timedelta(days=1)
HOME_RETENTION = timedelta(minutes=1)
"""A replaced home is kept for this time, because snapshots on replicas may also read it."""

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
# Both kinds of transactions prevent a drop: those that write, and those that only read. The latter
# have no transaction id, but their `backend_xmin` shows the oldest one that they may see.
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
    """The number of leaves in a collection's HNSW index, and the number of scanned leaves."""

    indexed: int
    scanned: int


def home_sizes(connection: Connection, collection: OpenedCollection) -> HomeSizes:
    """Returns the sizes. It counts the rows of the tail, which is short."""
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
    """Builds a new home whose index has all leaves of a collection; returns their number.

    Writers of the tenant wait only during the last step, which replaces the home. If another
    process replaced the home first, or if the collection was deleted meanwhile, returns 0 and the
    new tables are dropped later. They are also dropped later if the process ends before the last
    step. The replaced home is kept for `retention`.
    """
    with database.write() as connection:
        source = open_by_number(connection, tenant_id, collection_id)
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
        old = open_by_number(connection, tenant_id, collection_id)
        if old is None or old.home != source.home:
            connection.execute(_ABANDON, {"tenant_id": tenant_id, "home": home})
            return 0
        connection.execute(sql.SQL(_REMOVE_DELETED).format(target=leaves), old.key)
        # Leaves that were committed after the copy have greater ordinals.
        _fill(connection, old, tail, source.sequence, old.sequence)
        _replace(connection, old, home, retention)
    with database.autocommit() as connection:
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(leaves))
    return old.leaves


def _create(connection: Connection, collection: OpenedCollection) -> int:
    """Creates the tables of a new home and returns its number."""
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
    """Copies the leaves of documents with ordinals greater than `after` and at most `last`."""
    sources = [sql.SQL(_SOURCE).format(table=table) for table in tables_of(source.home)]
    # One statement sees one state of both tables: leaves may move from the tail to the index.
    statement = sql.SQL(_FILL).format(target=target, sources=sql.SQL(" UNION ALL ").join(sources))
    connection.execute(statement, {**source.key, "after": after, "last": last})


def _build_index(
    connection: Connection, collection: OpenedCollection, leaves: sql.Composable
) -> None:
    """Builds the HNSW index, in memory if the graph fits into the largest build memory."""
    leaf_bytes = 2 * collection.settings.dimension + _LINK_BYTES
    memory_kb = max(_MIN_BUILD_KB, min(_MAX_BUILD_KB, collection.leaves * leaf_bytes // 1024))
    connection.execute("SELECT set_config('maintenance_work_mem', %s, true)", (f"{memory_kb}kB",))
    connection.execute(sql.SQL(_INDEX).format(table=leaves))


def _replace(
    connection: Connection, old: OpenedCollection, home: int, retention: timedelta
) -> None:
    """Replaces the old home, or the collection's rows in the shared table, by a new home."""
    if old.home is None:
        connection.execute(_REMOVE_SHARED, old.key)
    else:
        retire_home(connection, old.tenant_id, old.home, retention)
    connection.execute(_REMOVE_UNUSED, {"tenant_id": old.tenant_id, "home": home})
    connection.execute(_SET_HOME, {**old.key, "home": home})


def drain_tail(connection: Connection, collection: OpenedCollection, max_leaves: int) -> int:
    """Moves at most `max_leaves` leaves from the tail of a home into its index.

    Returns how many were moved. Leaves of documents that a writer is replacing stay in the tail
    until the next call.
    """
    leaves, tail = tables_of(collection.home)
    statement = sql.SQL(_MOVE).format(leaves=leaves, tail=tail)
    (moved,) = connection.execute(
        statement, {**collection.key, "max_leaves": max_leaves}
    ).fetchone() or (0,)
    return int(moved)


def drop_unused(database: PostgresDatabase) -> bool:
    """Drops a home that is no longer used; returns False if there is none.

    A home that a snapshot on this server may still read is not dropped. With
    `hot_standby_feedback`, the same applies to snapshots on a standby.
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
    """Records that the home is not used after this transaction; it is dropped after `retention`."""
    parameters = {"tenant_id": tenant_id, "home": home, "delay": retention}
    connection.execute(_ADD_UNUSED, parameters)
