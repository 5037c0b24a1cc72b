"""A database works again after its server was stopped, killed, frozen or out of connections."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from hrag.engine.postgres.store import connection_pool
from hrag.engine.postgres.store.connection_pool import ConnectionTimes
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.errors import DeadlineExceeded, StoreUnavailable
from hrag.values.deadline import Deadline
from tests.support.servers.postgres_server import PASSWORD, PostgresServer
from tests.support.until import until

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]


def first_value(
    database: PostgresDatabase, statement: str, deadline: Deadline | None = None
) -> Any:
    """Returns the first value of the first row of a statement."""
    with database.read(deadline or Deadline.after(60)) as connection:
        row = connection.execute(statement).fetchone()
        assert row is not None
        return row[0]


@pytest.mark.parametrize("end", [PostgresServer.stop, PostgresServer.kill])
def test_a_server_that_comes_back_is_used_again(
    own_server: PostgresServer, opened: Open, end: Callable[[PostgresServer], None]
) -> None:
    database = opened(own_server.tcp_dsn())
    with database.read() as a, database.read() as b:
        assert a.execute("SELECT 1").fetchall() == b.execute("SELECT 1").fetchall()
    end(own_server)
    began_s = time.monotonic()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="not available") as refused:
            first_value(database, "SELECT 7")
        assert PASSWORD not in str(refused.value)
    assert time.monotonic() - began_s < 60
    own_server.start()
    assert first_value(database, "SELECT 7") == 7


def test_idle_connections_are_replaced_after_a_restart_of_the_server(
    own_server: PostgresServer, opened: Open
) -> None:
    database = opened(own_server.dsn())
    with database.read() as a, database.read() as b, database.read() as c:
        for connection in (a, b, c):
            connection.execute("SELECT 1")
    own_server.stop()
    own_server.start()
    with database.read() as a, database.read() as b, database.read() as c:
        for connection in (a, b, c):
            assert connection.execute("SELECT 7").fetchall() == [(7,)]


def test_a_transaction_fails_when_its_server_is_killed(
    own_server: PostgresServer, opened: Open
) -> None:
    database = opened(own_server.dsn())

    def change() -> None:
        with database.write() as connection:
            connection.execute("CREATE TABLE made ()")
            own_server.kill()
            own_server.start()
            connection.execute("SELECT 1")

    with pytest.raises(StoreUnavailable):
        change()
    assert first_value(database, "SELECT to_regclass('made')") is None


def test_a_connection_that_an_administrator_ends_is_replaced(
    own_server: PostgresServer, opened: Open
) -> None:
    database = opened(own_server.dsn())
    pid = first_value(database, "SELECT pg_backend_pid()")
    own_server.run(f"SELECT pg_terminate_backend({pid}, 10000)")
    assert first_value(database, "SELECT pg_backend_pid()") != pid


def test_a_caller_leaves_a_frozen_server_at_its_deadline(
    own_server: PostgresServer, opened: Open
) -> None:
    database = opened(own_server.dsn(connect_timeout=2))
    assert first_value(database, "SELECT 7") == 7
    with own_server.frozen():
        began_s = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            first_value(database, "SELECT 7", Deadline.after(0.1))
        assert time.monotonic() - began_s < 60
    assert first_value(database, "SELECT 7") == 7


def test_a_connection_that_was_idle_for_long_is_tested_before_its_use(
    own_server: PostgresServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "_REPLY_S", 60.0)  # A busy machine is slow.
    database = opened(own_server.dsn(), times=ConnectionTimes(trusted_s=0.0))
    pid = first_value(database, "SELECT pg_backend_pid()")
    assert first_value(database, "SELECT pg_backend_pid()") == pid
    assert first_value(database, "SHOW transaction_isolation") == "repeatable read"


def test_a_health_check_reports_whether_the_server_runs(
    own_server: PostgresServer, opened: Open
) -> None:
    database = opened(own_server.dsn(), times=ConnectionTimes(healthy_s=0.0, check_s=60.0))
    database.check()
    own_server.stop()
    with pytest.raises(StoreUnavailable):
        database.check()
    own_server.start()
    database.check()


def test_a_database_is_healthy_while_all_connections_are_in_use(
    postgres_dsn: str, opened: Open
) -> None:
    """A health check uses a connection that is not one of the pool."""
    database = opened(postgres_dsn, 1, times=ConnectionTimes(healthy_s=0.0, check_s=60.0))
    with database.read() as connection:
        connection.execute("SELECT 1")
        database.check()
        database.check()
    with database.read() as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        ).fetchone() or (0,)
    assert count == 2


def test_a_frozen_server_is_not_healthy(own_server: PostgresServer, opened: Open) -> None:
    dsn = own_server.dsn(connect_timeout=2)
    database = opened(dsn, times=ConnectionTimes(healthy_s=0.0, check_s=0.1))
    assert first_value(database, "SELECT 7") == 7
    with own_server.frozen(), pytest.raises(StoreUnavailable, match=r"did not answer in 0\.1 s"):
        database.check()


def test_a_wrong_password_is_not_repeated_in_the_message(
    postgres: PostgresServer, opened: Open
) -> None:
    database = opened(postgres.tcp_dsn(password="a wrong one"))
    with pytest.raises(StoreUnavailable, match="password authentication failed") as refused:
        first_value(database, "SELECT 7")
    assert "a wrong one" not in str(refused.value)


def test_a_connection_that_the_server_refuses_is_opened_later(
    postgres: PostgresServer, opened: Open
) -> None:
    postgres.run("CREATE ROLE narrow LOGIN CONNECTION LIMIT 1")
    database = opened(postgres.dsn(user="narrow"))
    with database.read() as connection:
        connection.execute("SELECT 1")
        with pytest.raises(StoreUnavailable, match="too many connections"):
            first_value(database, "SELECT 7")
    assert first_value(database, "SELECT 7") == 7


def test_of_several_hosts_the_first_that_answers_is_used(
    postgres: PostgresServer, opened: Open
) -> None:
    hosts = psycopg.conninfo.make_conninfo(
        host=f"127.0.0.1,{postgres.home}", port=f"1,{postgres.port}", user="postgres"
    )
    assert first_value(opened(hosts), "SELECT 7") == 7


def test_a_writer_uses_only_a_server_that_accepts_writes(
    own_server: PostgresServer, opened: Open
) -> None:
    """A server with default_transaction_read_only looks like a standby."""
    writer, reader = opened(own_server.dsn(), is_writer=True), opened(own_server.dsn())
    with writer.write() as connection:
        connection.execute("CREATE TABLE made ()")
    own_server.run("ALTER SYSTEM SET default_transaction_read_only = on")
    own_server.stop()
    own_server.start()
    assert first_value(reader, "SELECT 7") == 7
    with pytest.raises(StoreUnavailable, match="read-only"):
        first_value(writer, "SELECT 7")
    own_server.run("ALTER SYSTEM RESET default_transaction_read_only")
    own_server.run("SELECT pg_reload_conf()")
    until(lambda: own_server.run("SHOW default_transaction_read_only") == [("off",)])
    assert first_value(writer, "SELECT 7") == 7
