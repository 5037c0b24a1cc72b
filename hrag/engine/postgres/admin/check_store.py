"""Checks the store as a whole, in one snapshot.

This check finds rows and tables that belong to no collection, wrong totals of tenants, and names
that do not match a collection. A check of single collections cannot find such problems.
"""

from collections import Counter
from collections.abc import Iterator

from psycopg import sql
from psycopg.errors import UndefinedTable

from hrag.engine.postgres.maintenance.reclaim import TABLES
from hrag.engine.postgres.store.cluster import is_distributed
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.leaf_tables import home_table

_USAGE = """
SELECT t.tenant_id FROM hrag.tenants t LEFT JOIN (
    SELECT tenant_id, count(*) FILTER (WHERE named) AS collections,
      sum(documents) FILTER (WHERE named) AS documents, sum(stored_bytes) AS stored_bytes
    FROM (SELECT *, record ->> 'summarises' = '0' AS named FROM hrag.collections) AS stored
    GROUP BY tenant_id) AS sums USING (tenant_id)
WHERE (t.collections, t.documents, t.stored_bytes) IS DISTINCT FROM
  (coalesce(sums.collections, 0), coalesce(sums.documents, 0), coalesce(sums.stored_bytes, 0))
"""
# Finds collections with a sequence number or an ordinal that is greater than the last sequence
# number of their tenant. A later change would get the same number a second time.
_FUTURE = """
SELECT c.tenant_id, c.collection_id FROM hrag.collections c
LEFT JOIN hrag.tenants t USING (tenant_id)
WHERE t.sequence IS NULL OR t.sequence < c.sequence OR EXISTS (
    SELECT FROM hrag.documents d WHERE d.tenant_id = c.tenant_id
    AND d.collection_id = c.collection_id AND greatest(d.ordinal, d.sequence) > t.sequence)
"""
_NAMES = """
SELECT tenant_id, name FROM hrag.names n FULL JOIN (
    SELECT tenant_id, collection_id, record ->> 'name' AS first_name FROM hrag.collections
    WHERE record ->> 'summarises' = '0') AS c USING (tenant_id, collection_id)
GROUP BY tenant_id, collection_id, name, first_name, is_alias
HAVING first_name IS NULL OR name IS NULL OR (first_name = name) = is_alias
"""
_STRAY = sql.SQL("""
SELECT DISTINCT tenant_id, collection_id FROM hrag.{table}
LEFT JOIN hrag.collections c USING (tenant_id, collection_id)
LEFT JOIN hrag.deleted_collections d USING (tenant_id, collection_id)
WHERE c.tenant_id IS NULL AND d.tenant_id IS NULL
""")
_STRAYS = {table: _STRAY.format(table=sql.Identifier(table)) for table in TABLES}
_TABLES_OF_HOMES = """
SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = 'hrag_homes' AND relkind = 'r' AND relname ~ '^leaves_[0-9]+$'
"""
# The places of collections in homes, by the table `home_slots` and by the collections themselves.
_SLOTS = """
SELECT home, tenant_id, collection_id, drop_after IS NULL, {shard} FROM hrag.home_slots
"""
_SHARD = "get_shard_id_for_distribution_column('hrag.tenants', tenant_id)"
_HOMES = "SELECT home, tenant_id, collection_id FROM hrag.collections WHERE home IS NOT NULL"
_DELETED = "SELECT home, tenant_id, collection_id FROM hrag.deleted_collections"
# A document of the copy of a collection that this collection does not have. A copy is filled while
# its collection is embedded again.
_COPIES = """
SELECT c.tenant_id, c.collection_id, d.document_id
FROM hrag.collections c JOIN hrag.documents d USING (tenant_id, collection_id)
WHERE c.record ? 'copy_of' AND NOT EXISTS (
  SELECT FROM hrag.documents s WHERE s.tenant_id = c.tenant_id
  AND s.collection_id = (c.record ->> 'copy_of')::bigint AND s.document_id = d.document_id)
ORDER BY c.tenant_id, c.collection_id, d.document_id
"""
_OWNERS = "SELECT DISTINCT tenant_id, collection_id FROM {table}"


def problems_of_store(connection: Connection) -> Iterator[str]:
    """Yields a message for each problem; the message names the tenant, collection or table."""
    for (tenant_id,) in connection.execute(_USAGE).fetchall():
        yield f"tenant {tenant_id}: its usage does not match its collections"
    for place in connection.execute(_FUTURE).fetchall():
        yield f"{_describe(*place)}: it has changes after the last sequence number of its tenant"
    for tenant_id, name in connection.execute(_NAMES).fetchall():
        yield f"tenant {tenant_id}: the name {name} does not match a collection"
    for tenant_id, collection_id, document_id in connection.execute(_COPIES).fetchall():
        yield f"{_describe(tenant_id, collection_id)}: document {document_id!r} is only in the copy"
    for table, statement in _STRAYS.items():
        for place in connection.execute(statement).fetchall():
            yield f"{_describe(*place)}: the table {table} has rows of it, but it does not exist"
    yield from _check_homes(connection)


def _describe(tenant_id: str, collection_id: int) -> str:
    return f"tenant {tenant_id}, collection id {collection_id}"


def _check_homes(connection: Connection) -> Iterator[str]:
    """Checks the homes, which are tables with the leaves of large collections.

    The table of each home must exist, and must have no leaves of a collection without a place in
    it. Each collection with a home must have a place there, and each place that is in use must be
    used by its collection. Two collections must not be in the same shard of a home; on a server
    without Citus, each table is one shard. A home that nobody uses may be dropped during the check.
    Yields one message for each problem.
    """
    shard = sql.SQL(_SHARD if is_distributed(connection) else "0")
    slots = connection.execute(sql.SQL(_SLOTS).format(shard=shard)).fetchall()
    places = {tuple(slot[:3]) for slot in slots}
    used = set(connection.execute(_HOMES).fetchall())
    deleted = set(connection.execute(_DELETED).fetchall())
    for home, *collection in sorted(used - places):
        yield f"{_describe(*collection)}: it has home {home}, but no place in it"
    in_use = {tuple(slot[:3]) for slot in slots if slot[3]}
    for home, *collection in sorted(in_use - used - deleted):
        yield f"{_describe(*collection)}: it has a place in home {home}, but does not use it"
    for (home, _), count in sorted(Counter((slot[0], slot[4]) for slot in slots).items()):
        if count > 1:
            yield f"home {home} has {count} collections in one shard"
    tables = {name for (name,) in connection.execute(_TABLES_OF_HOMES).fetchall()}
    in_use_homes = {place[0] for place in in_use | used}
    for home in sorted({slot[0] for slot in slots} | in_use_homes):
        owners = _owners(connection, home)
        if owners is None and home in in_use_homes:
            yield f"the table hrag_homes.leaves_{home} is missing"
        tables.discard(f"leaves_{home}")
        for owner in owners or ():
            if (home, *owner) not in places:
                place = _describe(*owner)
                yield f"home {home} has leaves of {place}, which has no place in it"
    for table in sorted(tables):
        yield f"the table hrag_homes.{table} belongs to no collection"


def _owners(connection: Connection, home: int) -> list[tuple[str, int]] | None:
    """Returns the collections with leaves in a home; None if the home does not exist."""
    statement = sql.SQL(_OWNERS).format(table=home_table(home))
    try:
        with connection.transaction():
            return connection.execute(statement).fetchall()
    except UndefinedTable:
        return None
