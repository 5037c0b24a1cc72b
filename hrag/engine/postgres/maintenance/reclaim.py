"""Deletes the rows of deleted collections, some at a time."""

from typing import NamedTuple

from psycopg import sql

from hrag.engine.postgres.indexes.homes import retire_home
from hrag.engine.postgres.maintenance.advisory_locks import lock_step
from hrag.engine.postgres.store.connection import Connection

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
"""Those of the schema hrag that have rows of collections."""

_NEXT = """
SELECT tenant_id, collection_id, home FROM hrag.deleted_collections
LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_REMOVE_SOME = sql.SQL("""
DELETE FROM hrag.{table} WHERE tenant_id = %(tenant_id)s AND ctid = ANY(ARRAY(
    SELECT ctid FROM hrag.{table} WHERE tenant_id = %(tenant_id)s
    AND collection_id = %(collection_id)s LIMIT %(rows)s))
""")
_REMOVE = tuple(_REMOVE_SOME.format(table=sql.Identifier(each)) for each in TABLES)
_REMOVE_ENTRY = """
DELETE FROM hrag.deleted_collections
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""


class DeletedCollection(NamedTuple):
    """A collection whose rows are to be deleted, and its home."""

    tenant_id: str
    collection_id: int
    home: int | None


def next_deleted(connection: Connection) -> DeletedCollection | None:
    """Returns a deleted collection that no other process works on, locked; or None."""
    row = connection.execute(_NEXT).fetchone()
    return None if row is None else DeletedCollection(*row)


def reclaim_some(connection: Connection, deleted: DeletedCollection) -> bool:
    """Deletes some of its rows, and its entry after the last of them; returns True.

    Waits for a step of maintenance that has begun before the collection was deleted: what it
    writes would be left behind.
    """
    lock_step(connection, deleted.collection_id)
    own = {"tenant_id": deleted.tenant_id, "collection_id": deleted.collection_id, "rows": _ROWS}
    for remove in _REMOVE:
        if connection.execute(remove, own).rowcount:
            return True
    if deleted.home is not None:
        retire_home(connection, deleted.tenant_id, deleted.home)
    connection.execute(_REMOVE_ENTRY, own)
    return True
