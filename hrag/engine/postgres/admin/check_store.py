"""Checks the store as a whole, in one snapshot.

This check finds rows and tables that belong to no collection, wrong totals of tenants, and names
that do not match a collection. A check of single collections cannot find such problems.
"""

from collections.abc import Iterator

from psycopg import sql

from hrag.engine.postgres.maintenance.reclaim import TABLES
from hrag.engine.postgres.store.connection import Connection

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
SELECT relname::text, relname IN (SELECT unnest(ARRAY['leaves_' || home, 'tail_' || home]) FROM (
    SELECT home FROM hrag.collections UNION ALL SELECT home FROM hrag.deleted_collections
    UNION ALL SELECT home FROM hrag.unused_homes) AS known WHERE home IS NOT NULL)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = 'hrag_homes' AND relkind = 'r'
"""
_HOMES = "SELECT home, count(*) FROM hrag.collections WHERE home IS NOT NULL GROUP BY home"


def problems_of_store(connection: Connection) -> Iterator[str]:
    """Yields a message for each problem; the message names the tenant, collection or table."""
    for (tenant_id,) in connection.execute(_USAGE).fetchall():
        yield f"tenant {tenant_id}: its usage does not match its collections"
    for place in connection.execute(_FUTURE).fetchall():
        yield f"{_describe(*place)}: it has changes after the last sequence number of its tenant"
    for tenant_id, name in connection.execute(_NAMES).fetchall():
        yield f"tenant {tenant_id}: the name {name} does not match a collection"
    for table, statement in _STRAYS.items():
        for place in connection.execute(statement).fetchall():
            yield f"{_describe(*place)}: the table {table} has rows of it, but it does not exist"
    yield from _check_homes(connection)


def _describe(tenant_id: str, collection_id: int) -> str:
    return f"tenant {tenant_id}, collection id {collection_id}"


def _check_homes(connection: Connection) -> Iterator[str]:
    """Checks the homes. Each is a pair of tables with the leaves of one large collection.

    A home must not belong to several collections, and both of its tables must exist. Each table in
    the schema `hrag_homes` must belong to a home that is in use or will be dropped. Yields one
    message for each problem.
    """
    tables: dict[str, bool] = dict(connection.execute(_TABLES_OF_HOMES).fetchall())
    for table, is_known in sorted(tables.items()):
        if not is_known:
            yield f"the table hrag_homes.{table} belongs to no collection"
    for home, owners in connection.execute(_HOMES).fetchall():
        if owners > 1:
            yield f"home {home} belongs to {owners} collections"
        for table in (f"leaves_{home}", f"tail_{home}"):
            if table not in tables:
                yield f"the table hrag_homes.{table} is missing"
