"""Moves collections to homes: a home is a table with an HNSW index.

Only large collections have a home. One HNSW index over the leaves of all collections would be slow
and would return too few leaves: it would find the nearest leaves of all tenants, and few of these
leaves belong to the tenant that searches. New leaves of every collection are stored in the table
`hrag.leaves`, which has no such index, because inserting into an HNSW index is slow. If a
collection has a home, its leaves in `hrag.leaves` are its tail, and maintenance moves them to the
home. Every leaf of a collection is in exactly one of the two tables. `home_slots` explains which
collections may have the same home.

There are two ways to move a collection to a home.

* A new home is filled and indexed while searches and writes continue to use the old tables. Then
  it becomes the collection's home in one short transaction. The collection's row in
  `hrag.collections` contains the id of its home. A snapshot that was opened before still sees the
  old id in this row, and the old rows of `hrag.leaves`.
* If another home has a place for the collection, which happens on Citus only, this becomes its
  home at once. All leaves are then in the tail, which maintenance empties.
"""

from dataclasses import dataclass
from datetime import timedelta

from psycopg import sql

from hrag.engine.postgres.indexes.home_slots import (
    HOME_RETENTION,
    Slot,
    create_home,
    expect_retirement,
    has_slot,
    keep_used_slot,
    retire_slot,
    take_slot,
    vacuum_home,
)
from hrag.engine.postgres.store.advisory_locks import lock_step
from hrag.engine.postgres.store.arrays import bigints
from hrag.engine.postgres.store.cluster import hold_placement
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.leaf_tables import home_table, tables_of
from hrag.engine.postgres.store.opened_collection import OpenedCollection, open_by_id

# The parameters `m` and `ef_construction` of the HNSW index. pgvector's default for `m` is 16.
# docs/decisions/postgres.md has measurements of these values and of the defaults.
_HNSW_M = 8
_HNSW_EF_CONSTRUCTION = 150
# While an HNSW graph is built in memory, it uses this many bytes for each leaf, in addition to the
# leaf's vector.
_LINK_BYTES = 512
# An HNSW index is vacuumed if a larger share of its leaves is deleted, and more than a few.
_MAX_DELETED = 0.2
_FEW_DELETED = 64
# The smallest and the largest value of `maintenance_work_mem`, in kB, for building an HNSW index.
_MIN_BUILD_KB = 64 << 10
_MAX_BUILD_KB = 2 << 20

_COLLECTION_CONDITION = "tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s"
# Maintenance may move a leaf from the tail to the old home between the statements that read the two
# tables. The tail is read first, so such a leaf is read twice, not missed.
_COPY = f"""
INSERT INTO {{target}} (tenant_id, collection_id, ordinal, leaf, above, embedding)
SELECT tenant_id, collection_id, ordinal, leaf, above, embedding FROM {{source}}
WHERE {_COLLECTION_CONDITION} AND ordinal > %(after)s AND ordinal <= %(last)s
ON CONFLICT DO NOTHING
"""
_INDEX = f"""
CREATE INDEX ON {{table}} USING hnsw (embedding halfvec_ip_ops)
WITH (m = {_HNSW_M}, ef_construction = {_HNSW_EF_CONSTRUCTION})
"""
_REMOVE_DELETED = f"""
DELETE FROM {{target}} AS stored WHERE {_COLLECTION_CONDITION} AND NOT EXISTS (
    SELECT FROM hrag.documents d WHERE d.tenant_id = %(tenant_id)s
    AND d.collection_id = %(collection_id)s AND d.ordinal = stored.ordinal)
"""
_LOCK = "SELECT FROM hrag.tenants WHERE tenant_id = %(tenant_id)s FOR UPDATE"
_SET_HOME = f"""
UPDATE hrag.collections SET home = %(home)s, graph_leaves = %(graph_leaves)s
WHERE {_COLLECTION_CONDITION}
"""
_COUNT_GRAPH = f"""
UPDATE hrag.collections SET graph_leaves = graph_leaves + %(moved)s WHERE {_COLLECTION_CONDITION}
"""
_SET_GRAPH = f"""
UPDATE hrag.collections SET graph_leaves = graph_leaves - %(removed)s
WHERE {_COLLECTION_CONDITION} AND home = %(home)s
"""
_REMOVE_COPIED = f"""
DELETE FROM hrag.leaves WHERE {_COLLECTION_CONDITION} AND ordinal <= %(last)s
"""
_TAIL = f"SELECT count(*) FROM hrag.leaves WHERE {_COLLECTION_CONDITION}"
# A step moves leaves in the order of ordinal and leaf. A writer that deletes leaves has locked
# their document.
_LOCK_DOCUMENTS = f"""
SELECT ordinal FROM hrag.documents WHERE {_COLLECTION_CONDITION} AND ordinal IN (
    SELECT ordinal FROM hrag.leaves WHERE {_COLLECTION_CONDITION}
    ORDER BY ordinal, leaf LIMIT %(max_leaves)s)
ORDER BY ordinal FOR UPDATE SKIP LOCKED
"""
_LAST_MOVED = f"""
SELECT ordinal, leaf FROM (
    SELECT ordinal, leaf FROM hrag.leaves
    WHERE {_COLLECTION_CONDITION} AND ordinal = ANY(%(ordinals)b::bigint[])
    ORDER BY ordinal, leaf LIMIT %(max_leaves)s) AS moved
ORDER BY ordinal DESC, leaf DESC LIMIT 1
"""
_MOVED = f"""
{_COLLECTION_CONDITION} AND ordinal = ANY(%(ordinals)b::bigint[])
AND (ordinal, leaf) <= (%(last_ordinal)s, %(last_leaf)s)
"""
_ADD_MOVED = f"""
INSERT INTO {{home}} (tenant_id, collection_id, ordinal, leaf, above, embedding)
SELECT tenant_id, collection_id, ordinal, leaf, above, embedding FROM hrag.leaves WHERE {_MOVED}
"""
_REMOVE_MOVED = f"DELETE FROM hrag.leaves WHERE {_MOVED}"


@dataclass(frozen=True, slots=True)
class HomeSizes:
    """The counts of a collection's leaves, in its HNSW index and outside of it.

    `indexed` leaves are in the index. `scanned` leaves are not, so each search scans them.
    """

    indexed: int
    scanned: int


def home_sizes(connection: Connection, collection: OpenedCollection) -> HomeSizes:
    """Returns how many leaves of the collection are in its HNSW index, and how many are not.

    If the collection has a home, the statement counts the rows of its tail, which is fast because
    the tail is small.
    """
    if collection.home is None:
        return HomeSizes(0, collection.leaves)
    (scanned,) = connection.execute(_TAIL, collection.key).fetchone() or (0,)
    return HomeSizes(max(collection.leaves - scanned, 0), scanned)


def move_collection(
    database: PostgresDatabase,
    tenant_id: str,
    collection_id: int,
    retention: timedelta = HOME_RETENTION,
) -> int:
    """Moves a collection to another home; returns the count of its leaves.

    If the collection has no home and another home has a place for it, it gets this place, and all
    its leaves are in its tail. Otherwise a new home is built, whose index has all leaves. Writers
    of the tenant wait only during the transaction that changes the collection's row. If another
    process moved the collection first, or if the collection was deleted meanwhile, the function
    returns 0 and the new home is dropped later. It is also dropped later if the process ends before
    the collection uses it. The old home is dropped after `retention`.
    """
    with database.read() as connection:
        source = open_by_id(connection, tenant_id, collection_id)
    if source is None:
        return 0
    home = None
    if source.home is None:
        with database.write() as connection:
            home = take_slot(connection, source)
    if home is not None:
        return _use(database, source, home, 0, retention)
    with database.write() as connection:
        home = create_home(connection, source)
    table = home_table(home)
    with database.write() as connection:
        hold_placement(connection, tenant_id)
        for old in reversed(tables_of(source.home)):
            _copy(connection, source, old, table, 0, source.sequence)
    with database.write() as connection:
        _build_index(connection, source, table)
    leaves = _use(database, source, home, source.sequence, retention)
    if leaves:
        vacuum_home(database, home, tenant_id)
    return leaves


def _copy(
    connection: Connection,
    collection: OpenedCollection,
    source: sql.Composable,
    target: sql.Composable,
    after: int,
    last: int,
) -> None:
    """Copies leaves of the collection from the table `source` into the table `target`.

    Copies the leaves of the documents whose ordinals are greater than `after` and at most `last`.
    """
    statement = sql.SQL(_COPY).format(source=source, target=target)
    connection.execute(statement, {**collection.key, "after": after, "last": last})


def _build_index(
    connection: Connection, collection: OpenedCollection, table: sql.Composable
) -> None:
    """Builds the HNSW index of a home.

    The index is built in memory if it needs at most `_MAX_BUILD_KB` kB.
    """
    leaf_bytes = 2 * collection.settings.dimension + _LINK_BYTES
    memory_kb = max(_MIN_BUILD_KB, min(_MAX_BUILD_KB, collection.leaves * leaf_bytes // 1024))
    connection.execute("SELECT set_config('maintenance_work_mem', %s, true)", (f"{memory_kb}kB",))
    connection.execute(sql.SQL(_INDEX).format(table=table))


def _use(
    database: PostgresDatabase,
    source: OpenedCollection,
    home: int,
    copied: int,
    retention: timedelta,
) -> int:
    """Makes the table with the id `home` the home of a collection; returns the count of its leaves.

    `source` is the collection as it was when its leaves were copied to the home. It has the leaves
    of documents whose ordinals are at most `copied`. Returns 0 if the collection was deleted or has
    another home now than `source`; then the new home will be dropped. Also returns 0 if the new
    home was dropped already, because this process took too long.
    """
    new = Slot(home, *source.tenant_and_id)
    old = None if source.home is None else Slot(source.home, *source.tenant_and_id)
    if old is not None:
        with database.write() as connection:
            expect_retirement(connection, old)
    with database.write() as connection:
        hold_placement(connection, source.tenant_id)
        connection.execute(_LOCK, source.key)
        # No leaf is moved from the tail to the old home at the same time.
        lock_step(connection, *source.tenant_and_id)
        collection = open_by_id(connection, *source.tenant_and_id)
        is_current = (
            collection is not None and collection.home == source.home and has_slot(connection, new)
        )
        if collection is not None and is_current:
            _replace(connection, collection, home, copied)
    with database.write() as connection:
        if not is_current:
            retire_slot(connection, new, timedelta(0))
            return 0
        keep_used_slot(connection, new)
        if old is not None:
            retire_slot(connection, old, retention)
    return collection.leaves if collection is not None else 0


def _replace(connection: Connection, collection: OpenedCollection, home: int, copied: int) -> None:
    """Changes the collection's row, and the tables so that each leaf is in one of them.

    The ordinal of a document is the sequence number of a change. `copied` was the tenant's last
    sequence number when the home was filled, so later documents have greater ordinals.
    """
    if copied:
        removed = sql.SQL(_REMOVE_DELETED).format(target=home_table(home))
        connection.execute(removed, collection.key)
        connection.execute(_REMOVE_COPIED, {**collection.key, "last": copied})
        if collection.home is not None:
            # Maintenance has moved these leaves from the tail since the home was filled.
            _, tail = tables_of(home)
            _copy(
                connection,
                collection,
                home_table(collection.home),
                tail,
                copied,
                collection.sequence,
            )
    graph_leaves = collection.leaves if copied else 0
    connection.execute(_SET_HOME, {**collection.key, "home": home, "graph_leaves": graph_leaves})


def drain_tail(connection: Connection, collection: OpenedCollection, max_leaves: int) -> int:
    """Moves at most `max_leaves` leaves of a collection out of its tail; returns their count.

    The leaves are moved from `hrag.leaves` to the collection's home. A call skips the documents
    that a writer is changing at this time. If the collection was deleted, or if it has another home
    by now, nothing is moved.
    """
    lock_step(connection, *collection.tenant_and_id)
    current = open_by_id(connection, *collection.tenant_and_id)
    if current is None or current.home is None or current.home != collection.home:
        return 0
    parameters = {**collection.key, "max_leaves": max_leaves}
    locked = connection.execute(_LOCK_DOCUMENTS, parameters).fetchall()
    ordinals = bigints([ordinal for (ordinal,) in locked])
    last = connection.execute(_LAST_MOVED, {**parameters, "ordinals": ordinals}).fetchone()
    if last is None:
        return 0
    moved = {
        **collection.key,
        "ordinals": ordinals,
        "last_ordinal": last[0],
        "last_leaf": last[1],
    }
    connection.execute(sql.SQL(_ADD_MOVED).format(home=home_table(current.home)), moved)
    count = connection.execute(_REMOVE_MOVED, moved).rowcount
    # Last, because writers of the collection wait for this row.
    connection.execute(_COUNT_GRAPH, {**collection.key, "moved": count})
    return count


def vacuum_graph(database: PostgresDatabase, collection: OpenedCollection, living: int) -> bool:
    """Removes deleted leaves from the HNSW index if too many of its leaves are deleted.

    `living` is the count of leaves in the index that are not deleted. Returns False if nothing had
    to be done. Autovacuum removes deleted leaves too, but does not record it in the collection's
    row; searches would continue to visit more leaves than necessary.
    """
    removed = collection.in_graph - living
    if collection.home is None or removed <= _MAX_DELETED * collection.in_graph + _FEW_DELETED:
        return False
    vacuum_home(database, collection.home, collection.tenant_id)
    with database.write() as connection:
        hold_placement(connection, collection.tenant_id)
        parameters = {**collection.key, "removed": removed, "home": collection.home}
        connection.execute(_SET_GRAPH, parameters)
    return True
