"""A database works through PgBouncer in the mode that pools transactions."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import create_or_check, migrate
from hrag.errors import Cancelled, DeadlineExceeded
from hrag.values.deadline import Deadline
from tests.support.servers import pgbouncer
from tests.support.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]


@pytest.fixture
def pooled(postgres: PostgresServer) -> Iterator[str]:
    """The DSN of a new database, which connects to it through PgBouncer."""
    if problem := pgbouncer.why_not():
        pytest.skip(problem)
    name = postgres.new_database()
    with pgbouncer.pooling(postgres, name) as dsn:
        yield dsn
    postgres.drop(name)


def first_value(database: PostgresDatabase, statement: str, *parameters: Any) -> Any:
    """Returns the first value of the first row of a statement."""
    with database.read(Deadline.after(60)) as connection:
        row = connection.execute(statement, parameters).fetchone()
        assert row is not None
        return row[0]


def test_callers_share_two_server_connections(pooled: str, opened: Open) -> None:
    database = opened(pooled, connections=8)
    with ThreadPoolExecutor(8) as threads:
        statement = "SELECT pg_backend_pid() + 0 * %s::int"
        pids = set(threads.map(lambda n: first_value(database, statement, n), range(400)))
    assert len(pids) == 2


def test_statements_stay_prepared_and_old_ones_are_closed(pooled: str, opened: Open) -> None:
    """The test often repeats more statements than psycopg or PgBouncer keeps prepared."""
    database = opened(pooled, connections=4)

    def compute(number: int) -> Any:
        return first_value(database, f"SELECT %s::int + {number % 130}", number)

    numbers = range(130 * 6 * 4)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(compute, numbers)) == [n + n % 130 for n in numbers]


def test_after_failed_pipelines_no_statement_is_missing(pooled: str, opened: Open) -> None:
    """hrag then closes all prepared statements, by DEALLOCATE ALL."""
    database = opened(pooled, connections=4)

    def use(number: int) -> None:
        fails = number % 7 == 6
        try:
            with database.read() as connection, connection.pipeline():
                divided = connection.execute("SELECT 1 / %s::int", (0 if fails else 1,))
                connection.execute(f"SELECT {number % 5} + %s::int", (1,))
                assert divided.fetchall() == [(1,)]
        except psycopg.errors.DivisionByZero:
            assert fails

    def wait(number: int) -> None:
        fails = number % 7 == 6
        try:
            deadline = Deadline.after(0.1 if fails else 60.0)
            with database.read(deadline) as connection, connection.pipeline():
                connection.execute("SELECT pg_sleep(%s)", (60.0 if fails else 0.0,))
                connection.execute(f"SELECT {number % 5} + %s::int", (1,))
        except DeadlineExceeded:
            assert fails

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(300)))
        list(threads.map(wait, range(60)))
        list(threads.map(use, range(300)))


def test_settings_of_a_transaction_do_not_affect_the_next_one(pooled: str, opened: Open) -> None:
    database = opened(pooled)
    with pytest.raises(DeadlineExceeded), database.read(Deadline.after(0.2)) as connection:
        connection.execute("SELECT pg_sleep(60)")
    with database.autocommit() as connection:
        shown = connection.execute("SHOW statement_timeout").fetchall()
        assert shown == [("0",)]
        assert connection.execute("SHOW transaction_isolation").fetchall() == [("read committed",)]


def test_the_statement_of_a_caller_that_leaves_is_cancelled(pooled: str, opened: Open) -> None:
    database = opened(pooled)
    is_waiting = threading.Event()
    is_waiting.set()

    def search() -> None:
        with database.read(Deadline.after(60, is_waiting.is_set)) as connection:
            connection.execute("SELECT 1")
            is_waiting.clear()
            connection.execute("SELECT pg_sleep(60)")

    with pytest.raises(Cancelled):
        search()
    assert first_value(database, "SELECT %s::int", 7) == 7


def test_a_writer_connects_to_the_primary_and_migrates_it(pooled: str, opened: Open) -> None:
    writer = opened(pooled, is_writer=True)
    create_or_check(writer)
    assert migrate(writer).before == migrate(writer).after
    with writer.write() as connection, connection.transaction():
        connection.execute("CREATE TABLE made AS SELECT 7 AS number")
    assert first_value(writer, "SELECT number * %s::int FROM made", 1) == 7
