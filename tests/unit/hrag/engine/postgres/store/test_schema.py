"""Migrations create a store or update an old one, even if several processes migrate at once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from hrag.engine.postgres.store import schema
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import Migration, check_version, create_or_check, migrate
from hrag.engine.reports import MigrationReport
from hrag.errors import DatabaseRefused, StoreMissing, StoreUnavailable
from tests.support.servers.postgres_server import PostgresServer
from tests.support.until import until

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]
NEWEST = schema.newest_version()


@pytest.fixture
def name(postgres: PostgresServer) -> Iterator[str]:
    """The name of an empty database."""
    name = postgres.empty_database()
    yield name
    postgres.drop(name)


@pytest.fixture
def empty(name: str, postgres: PostgresServer, opened: Open) -> PostgresDatabase:
    """The empty database `name`."""
    return opened(postgres.dsn(name))


def add_migration(monkeypatch: pytest.MonkeyPatch, script: bytes) -> None:
    """Adds a migration to the known ones, as a newer version of hrag would."""
    further = (*schema.migrations(), Migration(NEWEST + 1, "further", script))
    monkeypatch.setattr(schema, "migrations", lambda: further)


def check(database: PostgresDatabase) -> None:
    """Checks the schema version as a reader does."""
    with database.read() as connection:
        check_version(connection)


STATE = (
    """
    SELECT oid, relname, relkind, xmin FROM pg_class
    WHERE relnamespace = 'hrag'::regnamespace ORDER BY oid
    """,
    """
    SELECT oid, proname, xmin FROM pg_proc
    WHERE pronamespace = 'hrag'::regnamespace ORDER BY oid
    """,
    "SELECT *, xmin FROM hrag.migrations ORDER BY version",
)


def state_of(database: PostgresDatabase) -> list[object]:
    """Returns all relations and functions of the store, and which transactions wrote them."""
    with database.read() as connection:
        return [connection.execute(statement).fetchall() for statement in STATE]


def test_schema_versions_are_numbered_without_gaps() -> None:
    assert [step.version for step in schema.migrations()] == list(range(1, NEWEST + 1))


def test_an_empty_database_gets_all_versions(empty: PostgresDatabase) -> None:
    with pytest.raises(StoreMissing, match="holds no store"):
        check(empty)
    assert migrate(empty) == MigrationReport(0, NEWEST)
    check(empty)
    assert migrate(empty) == MigrationReport(NEWEST, NEWEST)
    with empty.read() as connection:
        rows = connection.execute("SELECT version, name FROM hrag.migrations ORDER BY 1")
        assert rows.fetchall() == [(step.version, step.name) for step in schema.migrations()]


def test_a_writer_creates_a_store_but_does_not_migrate_one(
    empty: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_or_check(empty)
    create_or_check(empty)
    add_migration(monkeypatch, b"CREATE TABLE hrag.further ()")
    before = state_of(empty)
    for call in (create_or_check, check):
        with pytest.raises(StoreUnavailable, match="run hrag postgres migrate") as refused:
            call(empty)
        assert state_of(empty) == before
        assert f"version {NEWEST}, this version of hrag needs {NEWEST + 1}" in str(refused.value)
    assert migrate(empty) == MigrationReport(NEWEST, NEWEST + 1)
    check(empty)


def test_a_store_of_a_newer_version_is_refused(
    empty: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        add_migration(newer, b"CREATE TABLE hrag.further ()")
        migrate(empty)
    before = state_of(empty)
    for call in (migrate, create_or_check, check):
        with pytest.raises(StoreUnavailable, match="newer version of hrag") as refused:
            call(empty)
        assert state_of(empty) == before
        assert f"version {NEWEST + 1}" in str(refused.value)
        assert f"supports schema version {NEWEST}" in str(refused.value)


def test_a_migration_that_fails_leaves_the_previous_version(
    empty: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(empty)
    add_migration(monkeypatch, b"CREATE TABLE hrag.further (); SELECT 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty)
    with empty.read() as connection:
        state = "SELECT max(version), to_regclass('hrag.further') FROM hrag.migrations"
        assert connection.execute(state).fetchall() == [(NEWEST, None)]


def test_a_store_that_is_being_created_is_reported_as_missing_and_not_as_old(
    empty: PostgresDatabase, name: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_migration(monkeypatch, b"SELECT pg_advisory_xact_lock(77)")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as thread, postgres.connect(name) as blocker:
        blocker.execute("SELECT pg_advisory_lock(77)")
        migration = thread.submit(migrate, empty)
        until(lambda: postgres.run(waiting, name) == [(1,)])
        with pytest.raises(StoreMissing):
            check(empty)
        blocker.execute("SELECT pg_advisory_unlock(77)")
        assert migration.result(60) == MigrationReport(0, NEWEST + 1)
    check(empty)


def test_processes_that_start_at_the_same_time_migrate_once(
    name: str, postgres: PostgresServer, opened: Open
) -> None:
    databases = [opened(postgres.dsn(name)) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        reports = list(threads.map(migrate, databases))
    assert {report.after for report in reports} == {NEWEST}
    for database in databases:
        check(database)


def test_a_role_that_owns_its_database_may_create_the_store(
    name: str, postgres: PostgresServer, opened: Open
) -> None:
    postgres.run("CREATE ROLE owning LOGIN")
    postgres.run(f"ALTER DATABASE {name} OWNER TO owning")
    postgres.run("CREATE EXTENSION vector", name)
    assert migrate(opened(postgres.dsn(name, user="owning"))).after == NEWEST


def test_the_error_says_who_may_create_the_extension(
    name: str, postgres: PostgresServer, opened: Open
) -> None:
    postgres.run("CREATE ROLE guest LOGIN")
    guest = opened(postgres.dsn(name, user="guest"))
    with pytest.raises(DatabaseRefused, match="the role guest may not create the extension"):
        migrate(guest)
    postgres.run("CREATE EXTENSION vector", name)
    with pytest.raises(DatabaseRefused, match="lacks a right: the role guest: permission denied"):
        migrate(guest)
    with pytest.raises(DatabaseRefused, match="role guest may not create one: run hrag postgres"):
        create_or_check(guest)


def test_an_old_extension_is_refused(
    name: str, postgres: PostgresServer, empty: PostgresDatabase
) -> None:
    postgres.run("CREATE EXTENSION vector", name)
    postgres.run("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'", name)
    with pytest.raises(DatabaseRefused, match=r"pgvector 0\.7\.4; hrag needs 0.8 or newer: ALTER"):
        migrate(empty)


def test_an_old_server_is_refused(empty: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable, match=r"PostgreSQL \d+; hrag needs 99 or newer"):
        migrate(empty, oldest_server=99)


def test_the_error_says_how_to_search_the_schema_of_pgvector(
    empty: PostgresDatabase, name: str, postgres: PostgresServer, opened: Open
) -> None:
    postgres.run('CREATE SCHEMA "for all"', name)
    postgres.run('CREATE EXTENSION vector SCHEMA "for all"', name)
    with pytest.raises(DatabaseRefused, match='in the schema "for all"') as refused:
        migrate(empty)
    command = str(refused.value).partition("run ")[2].partition(", and GRANT")[0]
    postgres.run(command, name)
    assert migrate(opened(postgres.dsn(name))) == MigrationReport(0, NEWEST)


def test_a_role_that_nodes_of_a_cluster_would_refuse_cannot_open_the_store(
    empty: PostgresDatabase,
    name: str,
    postgres: PostgresServer,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    migrate(empty)
    postgres.run("CREATE ROLE without_login ROLE CURRENT_USER IN ROLE hrag_service", name)
    service = opened(postgres.dsn(name, options="-c role=without_login"))
    check(service)  # The only server does not log in to another one.
    monkeypatch.setattr(schema, "is_distributed", lambda _: True)
    for call in (create_or_check, check):
        with pytest.raises(DatabaseRefused, match=r"refuse the role without_login.*citus\.sql"):
            call(service)
    postgres.run("ALTER ROLE without_login LOGIN")
    check(service)


def test_a_database_with_citus_but_without_nodes_is_reported(
    empty: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "has_citus", lambda _: True)
    monkeypatch.setattr(schema, "_COUNT_NODES", "SELECT 0")
    assert migrate(empty) == MigrationReport(0, NEWEST, lacks_nodes=True)
