"""The owner, services, users of SQL and all other users have exactly the rights they need."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from hrag.engine.postgres.admin.check import check
from hrag.engine.postgres.maintenance.worker import MaintenanceWorker
from hrag.engine.postgres.search.reader import PostgresReader
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import HragError
from tests.support.documents.fakes import (
    collection_settings,
    find,
    prepared,
    query_vector,
    sentences,
)
from tests.support.manuals import ROOT
from tests.support.servers.postgres_server import PostgresServer
from tests.support.until import until

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]

READABLE = {"chunks", "collections", "documents", "sql_tenants"}
"""The tables and the view that users of SQL may read. Each table has a row security policy."""


def as_role(dsn: str, role: str) -> psycopg.Connection[tuple[object, ...]]:
    """Returns a connection of the user `role`."""
    return psycopg.connect(psycopg.conninfo.make_conninfo(dsn, user=role), autocommit=True)


def values(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> set[object]:
    """Returns the distinct values of the first column of a statement's rows."""
    return {row[0] for row in connection.execute(statement)}


@pytest.fixture
def filled(database: PostgresDatabase) -> None:
    """The tenants `t` and `u` with one document each."""
    for tenant in ("t", "u"):
        writer = PostgresWriter(database)
        writer.create_collection(tenant, "c", collection_settings())
        writer.put(writer.open(tenant, "c"), prepared(f"of-{tenant}", sentences(20)))


@pytest.fixture
def roles(postgres: PostgresServer, postgres_dsn: str) -> Iterator[str]:
    """The DSN of a store with two users of SQL: ada may read the tenant `t`, bob no tenant."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        for role in ("ada", "bob"):
            connection.execute(f"CREATE ROLE {role} LOGIN IN ROLE hrag_sql_reader")
        connection.execute("INSERT INTO hrag.sql_tenants VALUES ('ada', 't')")
    yield postgres_dsn
    for role in ("ada", "bob"):
        postgres.run(f"DROP ROLE {role}")


@pytest.fixture
def service(postgres: PostgresServer, postgres_dsn: str) -> Iterator[str]:
    """The DSN of a user who has the rights of a service and no others."""
    postgres.run("CREATE ROLE indexer LOGIN IN ROLE hrag_service")
    postgres.run("ALTER ROLE indexer SET role = 'hrag_service'")
    yield psycopg.conninfo.make_conninfo(postgres_dsn, user="indexer")
    database = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    postgres.run("DROP OWNED BY hrag_service", str(database))
    postgres.run("DROP ROLE indexer")


def test_the_role_public_has_no_rights(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        granted = values(
            connection,
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace, aclexplode(c.relacl) AS granted"
            " WHERE n.nspname LIKE 'hrag%' AND granted.grantee = 0"
            " UNION ALL SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n"
            " ON n.oid = p.pronamespace,"
            " aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS granted"
            " WHERE n.nspname LIKE 'hrag%' AND granted.grantee = 0"
            " UNION ALL SELECT n.nspname FROM pg_namespace n, aclexplode(n.nspacl) AS granted"
            " WHERE n.nspname LIKE 'hrag%' AND granted.grantee = 0",
        )
    assert granted == set()


def test_users_of_sql_may_read_only_tables_with_policies(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        relations = connection.execute(
            "SELECT relname, relkind, relrowsecurity,"
            " has_any_column_privilege('hrag_sql_reader', c.oid, 'SELECT'),"
            " has_any_column_privilege('hrag_sql_reader', c.oid, 'INSERT, UPDATE')"
            " OR has_table_privilege('hrag_sql_reader', c.oid, 'DELETE, TRUNCATE')"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE nspname = 'hrag' AND relkind IN ('r', 'p', 'v', 'm')"
        ).fetchall()
    assert len(relations) > 12
    for name, kind, has_policies, may_read, may_write in relations:
        assert may_read == (name in READABLE)
        assert has_policies == (name in READABLE and kind != "v")
        assert not may_write


def test_a_service_has_rights_on_every_table_of_the_store(postgres_dsn: str) -> None:
    """A migration that adds a table must call hrag.grant_roles()."""
    with psycopg.connect(postgres_dsn) as connection:
        writable = values(
            connection,
            "SELECT relname FROM pg_class WHERE relnamespace = 'hrag'::regnamespace"
            " AND relkind = 'r' AND has_table_privilege('hrag_service', oid, 'SELECT')"
            " AND has_table_privilege('hrag_service', oid, 'INSERT')"
            " AND has_table_privilege('hrag_service', oid, 'UPDATE')"
            " AND has_table_privilege('hrag_service', oid, 'DELETE')",
        )
        tables = values(
            connection,
            "SELECT relname FROM pg_class"
            " WHERE relnamespace = 'hrag'::regnamespace AND relkind = 'r'",
        )
    assert tables - writable == {"migrations", "sql_tenants"}


@pytest.mark.usefixtures("filled")
def test_a_user_of_sql_sees_only_the_tenants_that_are_granted_to_it(roles: str) -> None:
    tenants = "SELECT DISTINCT tenant_id FROM hrag."
    with as_role(roles, "ada") as ada, as_role(roles, "bob") as bob:
        for table in ("chunks", "documents", "collections"):
            assert values(ada, tenants + table) == {"t"}
            assert values(bob, tenants + table) == set()
        assert values(ada, "SELECT id FROM hrag.chunks WHERE tenant_id = 'u'") == set()
        assert values(bob, "SELECT tenant_id FROM hrag.sql_tenants") == set()


@pytest.mark.usefixtures("filled")
def test_a_user_of_sql_cannot_gain_access_to_another_tenant(roles: str) -> None:
    attempts = (
        "SET ROLE ada",
        "SET SESSION AUTHORIZATION ada",
        "INSERT INTO hrag.sql_tenants VALUES ('bob', 't')",
        "UPDATE hrag.sql_tenants SET role_name = 'bob'",
        "DELETE FROM hrag.documents",
        "UPDATE hrag.documents SET tenant_id = 't'",
        "ALTER TABLE hrag.documents DISABLE ROW LEVEL SECURITY",
        "SET row_security = off; SELECT id FROM hrag.chunks",
        "SELECT * FROM hrag.documents",  # bob has no right to read some columns.
        "SELECT * FROM hrag.leaves",
        "SELECT * FROM hrag.terms",
        "SELECT * FROM hrag.tenants",
        "CALL hrag.grant_roles()",
        "CREATE TABLE hrag.mine ()",
    )
    for attempt in attempts:
        with (
            as_role(roles, "bob") as bob,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            bob.execute(attempt)


@pytest.mark.usefixtures("filled")
def test_functions_of_a_user_of_sql_do_not_replace_functions_of_the_policies(
    postgres: PostgresServer, postgres_dsn: str, roles: str
) -> None:
    database = str(psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"])
    postgres.run("CREATE SCHEMA traps AUTHORIZATION bob", database)
    with as_role(roles, "bob") as bob, ExitStack() as at_end:
        at_end.callback(postgres.run, "DROP OWNED BY bob CASCADE", database)
        bob.execute(
            "CREATE FUNCTION traps.gather(text[], text) RETURNS text[] LANGUAGE sql"
            " AS $$ SELECT ARRAY['t', 'u'] $$;"
            "CREATE AGGREGATE traps.array_agg(text)"
            " (SFUNC = traps.gather, STYPE = text[], INITCOND = '{t}');"
            "CREATE TEMP TABLE sql_tenants AS SELECT 'bob' AS role_name, 't' AS tenant_id;"
            "SET search_path = traps, pg_temp, pg_catalog"
        )
        assert bob.execute("SELECT array_agg('x'::text)").fetchone() == (["t", "u"],)
        for table in ("chunks", "documents", "collections"):
            assert values(bob, "SELECT tenant_id FROM hrag." + table) == set()


@pytest.mark.usefixtures("filled")
def test_a_failing_condition_reveals_nothing_about_other_tenants(roles: str) -> None:
    """A division by zero would reveal that a row of the tenant `u` exists."""
    guess = "SELECT id FROM hrag.chunks WHERE 1 / (tenant_id <> 'u')::integer = 1"
    with as_role(roles, "ada") as ada:
        assert values(ada, guess)


@pytest.mark.usefixtures("filled")
def test_the_tenants_of_a_user_of_sql_are_looked_up_in_the_index(roles: str) -> None:
    with as_role(roles, "ada") as ada:
        ada.execute("SET enable_seqscan = off")
        lines = ada.execute("EXPLAIN SELECT id FROM hrag.chunks WHERE document_id = 'of-t'")
        plan = "\n".join(str(line) for (line,) in lines)
    # The function would run for each row if it were a part of a filter.
    lookups = re.findall(r"(.*): \(*tenant_id = ANY \(hrag.readable_tenants\(\)", plan)
    assert {lookup.strip() for lookup in lookups} == {"Index Cond"}
    assert len(lookups) == 2
    assert "Seq Scan on documents" not in plan


def test_a_service_that_is_not_the_owner_does_all_its_work(
    service: str, opened: Open, postgres_dsn: str
) -> None:
    database = opened(service)
    worker = MaintenanceWorker(database, home_leaves=8)
    writer = PostgresWriter(database)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    for number in range(4):
        result = writer.put(collection, prepared(f"d{number}", sentences(30), seed=number))
    worker.maintain("t", collection.collection_id, every_leaf=True)
    writer.delete(collection, "d0")
    writer.put_metadata(collection, "d3", result.sequence, {"new": 1}, "")
    with PostgresReader(database).snapshot("t", "c") as snapshot:
        assert find(snapshot, query_vector(1), 5).passages
    with psycopg.connect(postgres_dsn) as connection:
        assert values(
            connection, "SELECT tableowner FROM pg_tables WHERE schemaname = 'hrag_homes'"
        ) == {"hrag_service"}
    writer.delete_collection("t", "c")
    worker.start()
    until(lambda: not is_reclaiming(database))
    until(worker.close)


def is_reclaiming(database: PostgresDatabase) -> bool:
    """Returns True while rows of a deleted collection are left."""
    with database.read() as connection:
        entries = connection.execute("SELECT FROM hrag.deleted_collections").fetchall()
    return entries != []


@pytest.mark.usefixtures("filled")
def test_policies_change_no_query_plan_of_a_service(service: str, postgres_dsn: str) -> None:
    statement = (
        "EXPLAIN SELECT d.record, d.tree FROM hrag.collections c JOIN hrag.documents d"
        " USING (tenant_id, collection_id) WHERE tenant_id = 't' AND collection_id = 1"
        " AND ordinal = ANY ('{1,2,3}') AND octet_length(body) > 0"
    )
    plans = []
    for dsn in (postgres_dsn, service):
        with psycopg.connect(dsn) as connection:
            plans.append(connection.execute(statement).fetchall())
    assert plans[0] == plans[1]


def test_an_owner_without_the_right_to_create_roles_creates_a_store(
    postgres: PostgresServer, opened: Open
) -> None:
    name = postgres.empty_database()
    postgres.run("CREATE EXTENSION vector", name)
    postgres.run("CREATE ROLE plain LOGIN")
    postgres.run(f"ALTER DATABASE {name} OWNER TO plain")
    try:
        migrate(opened(postgres.dsn(name, "plain")))
    finally:
        postgres.drop(name)
        postgres.run("DROP ROLE plain")


def run_roles_script(server: PostgresServer, database: str, secrets: Path) -> str:
    """Runs deploy/postgres/roles.sql; returns its error messages, empty if there are none."""
    psql = [str(server.binaries / "psql"), "--no-psqlrc", "--dbname", server.dsn(database)]
    file = str(ROOT / "deploy/postgres/roles.sql")
    process = subprocess.run(
        [*psql, "--set", f"secrets={secrets}", "--file", file],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (process.returncode == 0) == (process.stderr == "")
    return process.stderr


def test_the_roles_that_the_script_creates_suffice_for_a_store(
    own_server: PostgresServer, opened: Open, tmp_path: Path
) -> None:
    secrets = tmp_path / "a 'folder'"
    secrets.mkdir()
    name = own_server.empty_database()
    (secrets / "owner").write_text("the owner's '")
    assert "needs the files owner and service" in run_roles_script(own_server, name, secrets)
    assert own_server.run("SELECT rolname FROM pg_roles WHERE rolname ~ '^hrag'") == []
    (secrets / "service").write_text("an old password")
    for password in ("an old password", "the service's '"):
        (secrets / "service").write_text(password)
        assert run_roles_script(own_server, name, secrets) == ""
    owner = opened(own_server.tcp_dsn(name, "hrag_owner", password="the owner's '"))
    migrate(owner)
    service = opened(own_server.tcp_dsn(name, "hrag", password="the service's '"))
    writer = PostgresWriter(service)
    writer.create_collection("t", "c", collection_settings())
    collection = writer.open("t", "c")
    for number in range(4):
        writer.put(collection, prepared(f"d{number}", sentences(30), seed=number))
    worker = MaintenanceWorker(service, home_leaves=8)
    worker.maintain("t", collection.collection_id, every_leaf=True)
    assert check(owner).problems == ()
    with PostgresReader(service).snapshot("t", "c") as snapshot:
        assert snapshot.name == "c"
    with pytest.raises(HragError), service.write() as connection:
        connection.execute("CREATE TABLE hrag.other ()")
    assert own_server.run("SELECT tablename FROM pg_tables WHERE schemaname = 'hrag_homes'", name)
    assert check(owner).problems == ()
