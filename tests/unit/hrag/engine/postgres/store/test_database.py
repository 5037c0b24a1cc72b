"""Transactions isolate readers, end correctly, and observe the deadline of their caller."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from hrag.engine.postgres.store import database as database_module
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.connection_pool import ConnectionTimes
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.errors import (
    Cancelled,
    DeadlineExceeded,
    DocumentNotFound,
    StoreUnavailable,
    TooBusy,
)
from hrag.values.deadline import Deadline
from tests.support.until import until

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]
_SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND \
state = 'active' AND pid <> pg_backend_pid() AND datname = current_database()"


@pytest.fixture
def numbers(database: PostgresDatabase) -> None:
    """The table `numbers`, which has the rows 1 and 2."""
    with database.write() as connection:
        connection.execute("CREATE TABLE numbers (number int PRIMARY KEY)")
        connection.execute("INSERT INTO numbers VALUES (1), (2)")


def first_value(database: PostgresDatabase, statement: str, *parameters: Any) -> Any:
    """Returns the first value of the first row of a statement."""
    with database.read() as connection:
        row = connection.execute(statement, parameters or None).fetchone()
        assert row is not None
        return row[0]


@pytest.mark.usefixtures("numbers")
def test_a_reader_sees_one_snapshot(database: PostgresDatabase) -> None:
    with database.read() as connection:
        assert connection.execute("SELECT sum(number) FROM numbers").fetchall() == [(3,)]
        with database.write() as other:
            other.execute("INSERT INTO numbers VALUES (3)")
        assert connection.execute("SELECT sum(number) FROM numbers").fetchall() == [(3,)]
    assert first_value(database, "SELECT sum(number) FROM numbers") == 6


@pytest.mark.usefixtures("numbers")
def test_a_reader_cannot_change_anything(database: PostgresDatabase) -> None:
    with pytest.raises(StoreUnavailable, match="read-only"), database.read() as connection:
        connection.execute("DELETE FROM numbers")
    assert first_value(database, "SELECT count(*) FROM numbers") == 2


@pytest.mark.usefixtures("numbers")
def test_a_writer_sees_what_others_commit_during_its_transaction(
    database: PostgresDatabase,
) -> None:
    with database.write() as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchall() == [(2,)]
        with database.write() as other:
            other.execute("INSERT INTO numbers VALUES (3)")
        assert connection.execute("SELECT count(*) FROM numbers").fetchall() == [(3,)]


@pytest.mark.usefixtures("numbers")
def test_an_error_in_the_block_rolls_the_transaction_back(database: PostgresDatabase) -> None:
    def change() -> None:
        with database.write() as connection:
            connection.execute("DELETE FROM numbers")
            raise DocumentNotFound("no such document")

    with pytest.raises(DocumentNotFound):
        change()
    assert first_value(database, "SELECT count(*) FROM numbers") == 2


@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("preceding_statements", [0, 1])
def test_a_failed_statement_raises_its_error_at_once(
    database: PostgresDatabase, preceding_statements: int
) -> None:
    with database.read() as connection:
        if preceding_statements:
            connection.execute("SELECT 1")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
    assert first_value(database, "SELECT 7") == 7


@pytest.mark.usefixtures("numbers")
def test_a_writer_that_ignores_a_failed_statement_commits_nothing(
    database: PostgresDatabase,
) -> None:
    def change() -> None:
        with database.write() as connection:
            connection.execute("DELETE FROM numbers")
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        change()
    assert first_value(database, "SELECT count(*) FROM numbers") == 2


def _execute(connection: Connection) -> Any:
    return connection.execute("SELECT pg_current_xact_id_if_assigned() IS NULL").fetchall()


def _copy(connection: Connection) -> Any:
    with connection.cursor() as cursor, cursor.copy("COPY (SELECT 1) TO STDOUT") as copy:
        return list(copy.rows())


def _stream(connection: Connection) -> Any:
    with connection.cursor() as cursor:
        return list(cursor.stream("SELECT 1"))


def _executemany(connection: Connection) -> Any:
    with connection.cursor() as cursor:
        cursor.executemany("SELECT %s::int", [(1,), (2,)], returning=True)
        return cursor.fetchall()


def _pipeline(connection: Connection) -> Any:
    with connection.pipeline():
        return connection.execute("SELECT 1").fetchall()


def _savepoint(connection: Connection) -> Any:
    with connection.transaction():
        return connection.execute("SELECT 1").fetchall()


def _nothing(connection: Connection) -> Any:
    return [connection]


@pytest.mark.parametrize(
    "first", [_execute, _copy, _stream, _executemany, _pipeline, _savepoint, _nothing]
)
def test_the_first_use_of_a_connection_is_in_the_transaction(
    database: PostgresDatabase, first: Any
) -> None:
    with database.read(Deadline.after(30)) as connection:
        assert first(connection)
        state = connection.execute(
            "SELECT current_setting('transaction_isolation'),"
            " current_setting('transaction_read_only'),"
            " current_setting('statement_timeout') <> '0'"
        ).fetchall()
        assert state == [("repeatable read", "on", True)]
    assert first_value(database, "SELECT current_setting('statement_timeout')") == "0"


def test_a_script_runs_as_a_whole_or_not_at_all(database: PostgresDatabase) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), database.write() as connection:
        connection.run_script(b"CREATE TABLE first (); SELECT 1 / 0; CREATE TABLE second ()")
    assert first_value(database, "SELECT to_regclass('first')") is None


@pytest.mark.usefixtures("numbers")
def test_outside_of_transactions_an_index_is_built_concurrently(database: PostgresDatabase) -> None:
    with database.autocommit() as connection:
        connection.execute("CREATE INDEX CONCURRENTLY made ON numbers (number)")
    assert first_value(database, "SELECT to_regclass('made')") is not None


def test_a_statement_ends_at_the_deadline(database: PostgresDatabase) -> None:
    with pytest.raises(DeadlineExceeded), database.read(Deadline.after(0.2)) as connection:
        connection.execute("SELECT pg_sleep(60)")
    assert first_value(database, "SELECT 7") == 7


def test_a_transaction_of_many_statements_ends_at_the_deadline(database: PostgresDatabase) -> None:
    def search() -> None:
        with database.read(Deadline.after(0.3)) as connection:
            while True:
                connection.execute("SELECT pg_sleep(0.01)")

    began_s = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        search()
    assert time.monotonic() - began_s < 60


def test_no_transaction_begins_after_the_deadline(database: PostgresDatabase) -> None:
    with pytest.raises(DeadlineExceeded), database.read(Deadline.after(0)):
        pytest.fail("the block ran")


def test_the_statement_of_a_caller_that_leaves_is_cancelled(database: PostgresDatabase) -> None:
    is_waiting = threading.Event()
    is_waiting.set()

    def search() -> None:
        with database.read(Deadline.after(60, is_waiting.is_set)) as connection:
            connection.execute("SELECT pg_sleep(60)")

    with ThreadPoolExecutor(1) as threads:
        running_search = threads.submit(search)
        until(lambda: first_value(database, _SLEEPING) == 1)
        is_waiting.clear()
        with pytest.raises(Cancelled):
            running_search.result(40)
        until(lambda: first_value(database, _SLEEPING) == 0)


def test_a_cancel_request_never_cancels_another_callers_statement(
    opened: Open, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel request is sent only when its transaction has ended.

    Two callers use the same connection, one after the other.
    """
    database = opened(postgres_dsn, connections=1)
    is_sending, may_send = threading.Event(), threading.Event()
    cancel_safe = Connection.cancel_safe

    def delayed(self: Connection, *, timeout: float = 30.0) -> None:
        is_sending.set()
        assert may_send.wait(60)
        cancel_safe(self, timeout=timeout)

    monkeypatch.setattr(Connection, "cancel_safe", delayed)
    is_waiting = threading.Event()
    is_waiting.set()

    def first() -> None:
        with database.read(Deadline.after(60, is_waiting.is_set)) as connection:
            connection.execute("SELECT 1")
            is_waiting.clear()
            assert is_sending.wait(60)

    def second() -> Any:
        return first_value(database, "SELECT pg_sleep(0.2)::text || 'done'")

    with ThreadPoolExecutor(2) as threads:
        first_caller = threads.submit(first)
        assert is_sending.wait(60)
        second_caller = threads.submit(second)
        # The first caller has left its block. The second caller does not have the connection yet.
        until(lambda: threading.active_count() >= 3)
        assert not first_caller.done()
        assert not second_caller.done()
        may_send.set()
        first_caller.result(60)
        assert second_caller.result(60) == "done"


def test_callers_that_leave_do_not_disturb_other_callers(database: PostgresDatabase) -> None:
    """Every third caller has left, and all callers use the same connections."""

    def search(number: int) -> Any:
        has_left = number % 3 == 0
        deadline = Deadline.after(60, lambda: not has_left)
        try:
            with database.read(deadline) as connection:
                return connection.execute(
                    "SELECT %s::int, pg_sleep(0.02)::text", (number,)
                ).fetchall()
        except Cancelled:
            assert has_left
            return None

    with ThreadPoolExecutor(4) as threads:
        for number, rows in enumerate(threads.map(search, range(200))):
            assert rows in ([(number, "")], None if number % 3 == 0 else [])


def test_no_thread_watches_callers_that_cannot_leave(database: PostgresDatabase) -> None:
    before = threading.active_count()
    assert first_value(database, "SELECT 7") == 7
    assert threading.active_count() <= before  # A thread of an earlier test may have ended.


def test_the_error_says_how_many_connections_are_in_use(opened: Open, postgres_dsn: str) -> None:
    database = opened(postgres_dsn, connections=2, times=ConnectionTimes(max_wait_s=0.2))
    with (
        database.read(),
        database.read(),
        pytest.raises(TooBusy, match="all 2 connections"),
        database.read(),
    ):
        pytest.fail("there was a third connection")
    assert first_value(database, "SELECT 7") == 7


def test_a_caller_waits_for_a_connection_until_its_deadline(
    opened: Open, postgres_dsn: str
) -> None:
    database = opened(postgres_dsn, connections=1)
    with (
        database.read(),
        pytest.raises(DeadlineExceeded, match="waiting for a connection"),
        database.read(Deadline.after(0.1)),
    ):
        pytest.fail("there was a second connection")


def test_a_caller_gets_the_connection_that_another_caller_returns(
    opened: Open, postgres_dsn: str
) -> None:
    database = opened(postgres_dsn, connections=1)
    with ThreadPoolExecutor(1) as threads:
        with database.read():
            waiting = threads.submit(first_value, database, "SELECT 7")
        assert waiting.result(60) == 7


@pytest.mark.usefixtures("numbers")
def test_transactions_that_deadlock_are_repeated(database: PostgresDatabase) -> None:
    both_have_locked = threading.Barrier(2)
    attempts: list[int] = []

    def change(mine: int, others: int) -> int:
        def swap(connection: Connection) -> int:
            connection.execute("UPDATE numbers SET number = number WHERE number = %s", (mine,))
            if mine not in attempts:
                attempts.append(mine)
                both_have_locked.wait(60)
            else:
                attempts.append(mine)
            connection.execute("UPDATE numbers SET number = number WHERE number = %s", (others,))
            return mine

        return database.retry(swap)

    with ThreadPoolExecutor(2) as threads:
        changes = [threads.submit(change, 1, 2), threads.submit(change, 2, 1)]
        assert [change.result(60) for change in changes] == [1, 2]
    assert len(attempts) == 3


def test_a_transaction_that_always_conflicts_fails_after_five_attempts(
    database: PostgresDatabase,
) -> None:
    attempts = []

    def conflict(connection: Connection) -> None:
        attempts.append(1)
        connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

    with pytest.raises(StoreUnavailable):
        database.retry(conflict)
    assert len(attempts) == 5


def test_statements_are_prepared_and_results_are_binary(database: PostgresDatabase) -> None:
    for _ in range(8):
        with database.read() as connection:
            cursor = connection.execute("SELECT %s::int8, now()", (5,))
            row = cursor.fetchone()
            assert row is not None
            assert row[0] == 5
            assert cursor.pgresult is not None
            assert cursor.pgresult.fformat(0) == 1
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s"
    assert first_value(database, prepared, "%now()%") == 1


def test_the_server_shows_the_application_name_of_its_connections(
    database: PostgresDatabase,
) -> None:
    assert first_value(database, "SHOW application_name") == "hrag-tests"


def test_a_closed_database_refuses_every_transaction(opened: Open, postgres_dsn: str) -> None:
    database = opened(postgres_dsn)
    assert first_value(database, "SELECT 7") == 7
    database.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        first_value(database, "SELECT 7")


def test_a_lost_node_of_a_cluster_is_logged_once_in_a_while(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_NODE_LOG_INTERVAL_S", 600.0)  # A busy machine is slow.
    statement = """
        DO $$ BEGIN RAISE connection_failure
        USING MESSAGE = 'connection to the remote node service@pg-1:5432 failed'; END $$
    """
    with capture_logs() as log:
        for _ in range(3):
            with (
                pytest.raises(StoreUnavailable, match="a node of the cluster") as failed,
                database.read() as connection,
            ):
                connection.execute(statement)
            assert "pg-1" not in failed.value.message
    assert [entry["node"] for entry in log if entry["event"] == "node_without_answer"] == [
        "pg-1:5432"
    ]
