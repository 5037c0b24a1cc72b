"""Migrations: from nothing, from an older version, from several processes at once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from hrag.engine.postgres.store import schema
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.store.schema import Migration, check_version, create_or_check, migrate
from hrag.engine.reports import MigrationReport
from hrag.errors import StoreMissing, StoreUnavailable
from tests.support.servers.postgres_server import PostgresServer
from tests.support.until import until

pytestmark = pytest.mark.postgres

Open = Callable[..., Database]
NEWEST = schema.newest_version()


@pytest.fixture
def name(postgres: PostgresServer) -> Iterator[str]:
    """A database without anything."""
    name = postgres.empty_database()
    yield name
    postgres.drop(name)


@pytest.fixture
def empty(name: str, postgres: PostgresServer, opened: Open) -> Database:
    return opened(postgres.dsn(name))


def add(monkeypatch: pytest.MonkeyPatch, script: bytes) -> None:
    further = (*schema.migrations(), Migration(NEWEST + 1, "further", script))
    monkeypatch.setattr(schema, "migrations", lambda: further)


def check(database: Database) -> None:
    with database.read() as connection:
        check_version(connection)


def test_versions_are_numbered_without_gaps() -> None:
    assert [each.version for each in schema.migrations()] == list(range(1, NEWEST + 1))


def test_an_empty_database_gets_all_versions(empty: Database) -> None:
    with pytest.raises(StoreMissing, match="holds no store"):
        check(empty)
    assert migrate(empty) == MigrationReport(0, NEWEST)
    check(empty)
    assert migrate(empty) == MigrationReport(NEWEST, NEWEST)
    with empty.read() as connection:
        named = connection.execute("SELECT version, name FROM hrag.migrations ORDER BY 1")
        assert named.fetchall() == [(each.version, each.name) for each in schema.migrations()]


def test_a_writer_creates_the_store_and_migrates_none(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_or_check(empty)
    create_or_check(empty)
    add(monkeypatch, b"CREATE TABLE hrag.further ()")
    for refusing in (create_or_check, check):
        with pytest.raises(StoreUnavailable, match="run hrag postgres migrate") as refused:
            refusing(empty)
        assert f"version {NEWEST}, this version of hrag needs {NEWEST + 1}" in str(refused.value)
    assert migrate(empty) == MigrationReport(NEWEST, NEWEST + 1)
    check(empty)


def test_a_store_of_a_newer_version_is_refused(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        add(newer, b"CREATE TABLE hrag.further ()")
        migrate(empty)
    for refusing in (migrate, create_or_check, check):
        with pytest.raises(StoreUnavailable, match="newer version of hrag") as refused:
            refusing(empty)
        assert f"version {NEWEST + 1}" in str(refused.value)
        assert f"supports schema version {NEWEST}" in str(refused.value)


def test_a_migration_that_fails_leaves_the_version_before(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(empty)
    add(monkeypatch, b"CREATE TABLE hrag.further (); SELECT 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty)
    with empty.read() as connection:
        state = "SELECT max(version), to_regclass('hrag.further') FROM hrag.migrations"
        assert connection.execute(state).fetchall() == [(NEWEST, None)]


def test_a_store_that_is_being_made_is_missing_and_never_an_old_one(
    empty: Database, name: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(monkeypatch, b"SELECT pg_advisory_xact_lock(77)")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as thread, postgres.connect(name) as holding:
        holding.execute("SELECT pg_advisory_lock(77)")
        made = thread.submit(migrate, empty)
        until(lambda: postgres.run(waiting, name) == [(1,)])
        with pytest.raises(StoreMissing):
            check(empty)
        holding.execute("SELECT pg_advisory_unlock(77)")
        assert made.result(60) == MigrationReport(0, NEWEST + 1)
    check(empty)


def test_processes_that_start_together_migrate_once(
    name: str, postgres: PostgresServer, opened: Open
) -> None:
    databases = [opened(postgres.dsn(name)) for _ in range(6)]
    with ThreadPoolExecutor(6) as threads:
        reports = list(threads.map(migrate, databases))
    assert {each.after for each in reports} == {NEWEST}
    for each in databases:
        check(each)


def test_the_tables_belong_to_a_role_that_owns_its_database(
    name: str, postgres: PostgresServer, opened: Open
) -> None:
    postgres.run("CREATE ROLE owning LOGIN")
    postgres.run(f"ALTER DATABASE {name} OWNER TO owning")
    postgres.run("CREATE EXTENSION vector", name)
    assert migrate(opened(postgres.dsn(name, user="owning"))).after == NEWEST


def test_a_role_that_may_not_create_the_extension_learns_who_may(
    name: str, postgres: PostgresServer, opened: Open
) -> None:
    postgres.run("CREATE ROLE guest LOGIN")
    guest = opened(postgres.dsn(name, user="guest"))
    with pytest.raises(StoreUnavailable, match="the role guest may not create the extension"):
        migrate(guest)
    postgres.run("CREATE EXTENSION vector", name)
    with pytest.raises(StoreUnavailable, match="the role guest lacks a right: permission denied"):
        migrate(guest)


def test_an_old_extension_is_refused(name: str, postgres: PostgresServer, empty: Database) -> None:
    postgres.run("CREATE EXTENSION vector", name)
    postgres.run("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'", name)
    with pytest.raises(StoreUnavailable, match=r"pgvector 0\.7\.4; hrag needs 0.8 or newer: ALTER"):
        migrate(empty)


def test_an_old_server_is_refused(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_OLDEST_SERVER", 99)
    with pytest.raises(StoreUnavailable, match=r"PostgreSQL \d+; hrag needs 99 or newer"):
        migrate(empty)


def test_a_schema_of_pgvector_that_is_not_searched_is_named_with_what_helps(
    empty: Database, name: str, postgres: PostgresServer, opened: Open
) -> None:
    postgres.run('CREATE SCHEMA "for all"', name)
    postgres.run('CREATE EXTENSION vector SCHEMA "for all"', name)
    with pytest.raises(StoreUnavailable, match='in the schema "for all"') as refused:
        migrate(empty)
    command = str(refused.value).partition("run ")[2].partition(", and GRANT")[0]
    postgres.run(command, name)
    assert migrate(opened(postgres.dsn(name))) == MigrationReport(0, NEWEST)
