"""Deletes the rows of deleted collections in small steps."""

from datetime import timedelta
from typing import NamedTuple

from psycopg import sql

from hrag.engine.postgres.indexes.homes import HOME_RETENTION, retire_home
from hrag.engine.postgres.maintenance.advisory_locks import lock_step
from hrag.engine.postgres.store.connection import Connection

# One step deletes at most this many rows.
_ROWS = 10_000
TABLES = (
    "documents",
    "leaves",
    "terms",
    "term_vectors",
    "postings",
    "postings_parts",
    "tombstones",
)
"""The tables of the schema hrag whose rows belong to a collection."""

_NEXT = """
SELECT tenant_id, collection_id, home FROM hrag.deleted_collections
LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_REMOVE_ROWS = sql.SQL("""
DELETE FROM hrag.{table} WHERE tenant_id = %(tenant_id)s AND ctid = ANY(ARRAY(
    SELECT ctid FROM hrag.{table} WHERE tenant_id = %(tenant_id)s
    AND collection_id = %(collection_id)s LIMIT %(rows)s))
""")
_REMOVE = tuple(_REMOVE_ROWS.format(table=sql.Identifier(table)) for table in TABLES)
_REMOVE_ENTRY = """
DELETE FROM hrag.deleted_collections
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""


class DeletedCollection(NamedTuple):
    """A deleted collection whose rows still exist.

    `home` is the id of its home, the pair of tables with its leaves; None if it had no home.
    """

    tenant_id: str
    collection_id: int
    home: int | None


def next_deleted(connection: Connection) -> DeletedCollection | None:
    """Locks and returns a deleted collection whose rows no other process is deleting.

    Returns None if there is no such collection.
    """
    row = connection.execute(_NEXT).fetchone()
    return None if row is None else DeletedCollection(*row)


def reclaim_some(
    connection: Connection,
    deleted: DeletedCollection,
    home_retention: timedelta = HOME_RETENTION,
) -> bool:
    """Deletes some rows of a deleted collection.

    Always returns True, so that the caller continues until no deleted collection remains.

    If no row remains, deletes the collection from `deleted_collections`. If the collection also has
    a home (a pair of tables for the leaves of a large collection), then records that the home may
    be dropped after `home_retention`. Before anything else, waits for a maintenance step that began
    before the collection was deleted. Otherwise the rows that this step writes would never be
    deleted.
    """
    lock_step(connection, deleted.collection_id)
    parameters = {
        "tenant_id": deleted.tenant_id,
        "collection_id": deleted.collection_id,
        "rows": _ROWS,
    }
    for statement in _REMOVE:
        if connection.execute(statement, parameters).rowcount:
            return True
    if deleted.home is not None:
        retire_home(connection, deleted.tenant_id, deleted.home, home_retention)
    connection.execute(_REMOVE_ENTRY, parameters)
    return True
