"""In a cluster of Citus, users of SQL see their tenants alone, on every node and in every shard."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.servers.postgres_server import PASSWORD, PostgresServer

pytestmark = pytest.mark.postgres

_SHARDS = """
SELECT oid::regclass::text FROM pg_class
WHERE relname ~ '^(documents|collections)_[0-9]+$' AND relkind = 'r'
"""
TENANTS = [f"tenant {number}" for number in range(12)]
USERS: dict[str, set[str]] = {"hrag_test_ada": {"tenant 3"}, "hrag_test_bob": set()}
"""Two users of SQL, each with the tenants that are granted to it."""


@pytest.fixture
def nodes(
    pytestconfig: pytest.Config,
    postgres: PostgresServer,
    postgres_dsn: str,
    database: PostgresDatabase,
) -> Iterator[list[str]]:
    """The DSNs of the coordinator and of all nodes of a store with twelve tenants."""
    if pytestconfig.getoption("--engine") != "citus":
        pytest.skip("this test needs a cluster: --engine=citus")
    name = str(psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"])
    writer = PostgresWriter(database)
    for tenant in TENANTS:
        writer.create_collection(tenant, "c", collection_settings())
        writer.put(writer.open(tenant, "c"), prepared("d", sentences(20)))
    with postgres.connect(name) as connection:
        addresses = connection.execute("SELECT nodename, nodeport FROM pg_dist_node").fetchall()
        for user, tenants in USERS.items():
            connection.execute(
                f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}' IN ROLE hrag_sql_reader"
            )
            for tenant in tenants:
                connection.execute("INSERT INTO hrag.sql_tenants VALUES (%s, %s)", (user, tenant))
            # Nodes log in to each other as the user.
            command = "INSERT INTO pg_dist_authinfo VALUES (0, {}, {})"
            line = sql.SQL(command).format(user, make_conninfo(password=PASSWORD))
            connection.execute("SELECT run_command_on_all_nodes(%s)", (line.as_string(),))
    yield [make_conninfo(postgres_dsn, host=host, port=port) for host, port in addresses]
    with postgres.connect(name) as connection:
        for user in USERS:
            connection.execute(f"DROP OWNED BY {user}")
            connection.execute(f"DROP ROLE {user}")


def tenants_in(connection: psycopg.Connection[Any], table: str) -> set[str]:
    """Returns the tenants with rows in a table, as the user of the connection sees them."""
    rows = connection.execute(f"SELECT DISTINCT tenant_id FROM {table}").fetchall()
    return {tenant for (tenant,) in rows}


def test_a_user_of_sql_sees_its_tenants_alone_on_every_node(nodes: list[str]) -> None:
    for user, tenants in USERS.items():
        in_shards = set()
        for node in nodes:
            with psycopg.connect(make_conninfo(node, user=user), autocommit=True) as connection:
                for table in ("chunks", "documents", "collections"):
                    assert tenants_in(connection, f"hrag.{table}") == tenants, (node, table)
                connection.execute("SET citus.override_table_visibility = off")
                shards = connection.execute(_SHARDS).fetchall()
                for (shard,) in shards:
                    in_shards |= tenants_in(connection, shard)
        assert in_shards == tenants
