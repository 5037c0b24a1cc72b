"""Deletes the rows of deleted collections in small steps."""

from datetime import timedelta
from typing import NamedTuple

from psycopg import sql

from hrag.engine.postgres.indexes.home_slots import HOME_RETENTION, Slot, retire_slot
from hrag.engine.postgres.store.advisory_locks import lock_step
from hrag.engine.postgres.store.cluster import hold_placement, rows_of_all_nodes
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.queries import REMOVE_ROWS, REMOVED_ROWS

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

_DELETED = sql.SQL("SELECT tenant_id, collection_id, home FROM {table}")
_LOCK = """
SELECT FROM hrag.deleted_collections
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s FOR UPDATE SKIP LOCKED
"""
_REMOVE = tuple(
    sql.SQL(REMOVE_ROWS).format(table=sql.Identifier("hrag", table)) for table in TABLES
)
_REMOVE_ENTRY = """
DELETE FROM hrag.deleted_collections
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
"""


class DeletedCollection(NamedTuple):
    """A deleted collection whose rows still exist.

    `home` is the id of its home, a table with an HNSW index; None if it had no home.
    """

    tenant_id: str
    collection_id: int
    home: int | None


def deleted_collections(database: PostgresDatabase) -> list[DeletedCollection]:
    """Returns the deleted collections whose rows still exist, of all tenants whose nodes answer."""
    with database.read() as connection:
        rows = rows_of_all_nodes(connection, "deleted_collections", _DELETED)
    return [DeletedCollection(**row) for row in rows]


def reclaim_some(
    database: PostgresDatabase,
    deleted: DeletedCollection,
    home_retention: timedelta = HOME_RETENTION,
) -> bool:
    """Deletes some rows of a deleted collection; returns False if nothing is left to do.

    Also returns False if another process is deleting its rows.

    If no row remains, deletes the collection from `deleted_collections`. If the collection also had
    a home, then its place in the home may be cleared after `home_retention`. Before anything else,
    waits for a maintenance step that began before the collection was deleted. Otherwise the rows
    that this step writes would never be deleted.
    """
    parameters = {
        "tenant_id": deleted.tenant_id,
        "collection_id": deleted.collection_id,
        "rows": REMOVED_ROWS,
    }
    with database.write() as connection:
        lock_step(connection, deleted.tenant_id, deleted.collection_id)
        if not connection.execute(_LOCK, parameters).rowcount:
            return False
        for statement in _REMOVE:
            if connection.execute(statement, parameters).rowcount:
                return True
    # On Citus, the list of homes is on another node than the tenant's rows. If this process ends
    # between the two transactions, both are repeated.
    if deleted.home is not None:
        slot = Slot(deleted.home, deleted.tenant_id, deleted.collection_id)
        with database.write() as connection:
            retire_slot(connection, slot, home_retention)
    with database.write() as connection:
        hold_placement(connection, deleted.tenant_id)
        connection.execute(_REMOVE_ENTRY, parameters)
    return False
