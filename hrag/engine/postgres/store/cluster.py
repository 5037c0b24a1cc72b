"""Asks all nodes of a Citus cluster, so that a node that is down hides only its own tenants.

A statement without a tenant would ask all nodes too, but it would fail as soon as one node is
down. On a database that is not distributed, the one server is asked.

A statement of a tenant does not need this module: it names the tenant, so that it runs on one node.
The exception is VACUUM, which names no tenant. But a transaction that writes rows of a tenant first
calls `hold_placement`.
"""

import json
from collections.abc import Sequence
from typing import Any

import structlog
from psycopg import sql

from hrag.engine.postgres.store.connection import Connection
from hrag.values.errors import StoreUnavailable

_log = structlog.get_logger()

_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
_HAS_SHARDS = """
SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = 'hrag.tenants'::regclass)
"""
# Each node runs one statement, which reads all shards of the table on this node. `%(body)s` is the
# statement for one shard, in which `%%s` stands for the name of the shard.
_ON_NODES = """
WITH nodes AS (
  SELECT nodename::text AS host, nodeport AS port, format(
    'SELECT coalesce(json_agg(found), ''[]'') FROM (%%s) AS found',
    string_agg(format(%(body)s, shard_name(s.logicalrelid, s.shardid)), ' UNION ALL ')) AS command
  FROM pg_dist_shard AS s JOIN pg_dist_placement USING (shardid)
    JOIN pg_dist_node AS n USING (groupid)
  WHERE s.logicalrelid = %(table)s::regclass AND n.noderole = 'primary'
  GROUP BY 1, 2
)
SELECT answer.node_name || ':' || answer.node_port, answer.success, answer.result
FROM (
  SELECT array_agg(host) AS hosts, array_agg(port) AS ports, array_agg(command) AS commands
  FROM nodes) AS asked, master_run_on_worker(hosts, ports, commands, true) AS answer
"""
# Runs a command on the shard of the tenant, which replaces `%%s` in the command.
_ON_SHARD = """
WITH shard AS (
  SELECT nodename::text AS host, nodeport AS port, shard_name(s.logicalrelid, s.shardid) AS name
  FROM pg_dist_shard AS s JOIN pg_dist_placement USING (shardid)
    JOIN pg_dist_node AS n USING (groupid)
  WHERE n.noderole = 'primary'
    AND s.shardid = get_shard_id_for_distribution_column(%(table)s, %(tenant_id)s::text)
)
SELECT answer.node_name || ':' || answer.node_port, answer.success, answer.result FROM (
  SELECT array_agg(host) AS hosts, array_agg(port) AS ports,
    array_agg(format(%(command)s, name)) AS commands FROM shard) AS asked,
  master_run_on_worker(hosts, ports, commands, false) AS answer
"""
_VACUUM = sql.SQL("VACUUM (ANALYZE) {}")
_ON_ONE_SERVER = sql.SQL("SELECT coalesce(json_agg(found), '[]')::text FROM ({}) AS found")
_HOLD_PLACEMENT = "SELECT hrag.hold_placement(%s)"


def hold_placement(connection: Connection, tenant_id: str) -> None:
    """Keeps the tenant's rows on their node and in their shards until this transaction ends.

    Waits while Citus moves or splits the shards. A transaction that writes rows of a tenant calls
    this before its other statements. Otherwise the first statement that writes could wait for the
    end of a split, and then write into a shard that is not used any more: its rows would be lost.
    On a server without Citus, this does nothing.
    """
    connection.execute(_HOLD_PLACEMENT, (tenant_id,))


def has_citus(connection: Connection) -> bool:
    """Returns True if the database has the extension citus, perhaps without any node."""
    return connection.execute(_HAS_CITUS).fetchone() == (True,)


def is_distributed(connection: Connection) -> bool:
    """Returns True if the tables of hrag are distributed over the nodes of a Citus cluster."""
    return has_citus(connection) and connection.execute(_HAS_SHARDS).fetchone() == (True,)


def rows_of_all_nodes(
    connection: Connection, table: str, query: sql.SQL, **values: int
) -> list[dict[str, Any]]:
    """Returns the rows of a query on one table of the schema hrag, from all nodes that answer.

    `query` has `{table}` for the name of the table, a placeholder for each of the `values`, and no
    `%`. On a cluster, it runs for each shard of the table, outside of the transaction. So its
    result must be the union of its results for parts of the table, where all rows of a tenant are
    in the same part. Each row has its values by their columns. For each node that does not answer,
    a warning is logged. Raises StoreUnavailable if no node answers.
    """
    literals = {name: sql.Literal(value) for name, value in values.items()}
    if not is_distributed(connection):
        on_table = query.format(table=sql.Identifier("hrag", table), **literals)
        row = connection.execute(_ON_ONE_SERVER.format(on_table), prepare=False).fetchone()
        return _decoded(row[0]) if row else []
    body = query.format(table=sql.SQL("%s"), **literals).as_string()
    parameters = {"body": body, "table": f"hrag.{table}"}
    answers = connection.execute(_ON_NODES, parameters, prepare=False).fetchall()
    _warn_of_lost_nodes(answers)
    return [row for _, succeeded, result in answers if succeeded for row in _decoded(result)]


def vacuum_shard(connection: Connection, table: sql.Identifier, tenant_id: str) -> None:
    """Runs VACUUM (ANALYZE) on a table; on a cluster, only on the tenant's shard of the table.

    The connection must be in no transaction. Raises StoreUnavailable if the node does not answer.
    """
    name = table.as_string()
    if not is_distributed(connection):
        connection.execute(_VACUUM.format(table))
        return
    command = _VACUUM.format(sql.SQL("%s")).as_string()
    parameters = {"table": name, "tenant_id": tenant_id, "command": command}
    answers = connection.execute(_ON_SHARD, parameters, prepare=False).fetchall()
    _warn_of_lost_nodes(answers)
    if not answers:
        raise StoreUnavailable(f"the table {name} has no shard for a tenant")


def _warn_of_lost_nodes(answers: Sequence[tuple[Any, ...]]) -> None:
    for node, succeeded, result in answers:
        if not succeeded:
            _log.warning("node_without_answer", node=node, problem=result)
    if answers and not any(succeeded for _, succeeded, _ in answers):
        raise StoreUnavailable("no node of the cluster answers")


def _decoded(result: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(result)
    return rows
