"""The PostgreSQL server of the tests has the required version and keeps its data."""

from contextlib import closing

import psycopg
import pytest

from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.processes import is_alive

pytestmark = pytest.mark.postgres


def test_the_server_has_the_version_that_the_engine_requires(postgres: PostgresServer) -> None:
    assert postgres.run("SHOW server_version_num") >= [("180000",)]
    available = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    assert postgres.run(available) >= [("0.8.0",)]


def test_each_new_database_is_separate(postgres: PostgresServer) -> None:
    first, second = postgres.new_database(), postgres.new_database()
    postgres.run("CREATE TABLE mine ()", first)
    assert postgres.run("SELECT to_regclass('mine')", second) == [(None,)]
    for database in (first, second):
        postgres.drop(database)


def test_connections_over_tcp_need_the_password(postgres: PostgresServer) -> None:
    psycopg.connect(postgres.tcp_dsn()).close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.tcp_dsn(password="wrong"))


def test_committed_rows_survive_a_kill_and_a_stop() -> None:
    with closing(PostgresServer()) as server:
        server.run("CREATE TABLE committed AS SELECT 7 AS number")
        pid = server.pid
        server.kill()
        assert not is_alive(pid)
        server.start()
        assert server.run("SELECT number FROM committed") == [(7,)]
        server.stop()
        server.start()
        assert server.run("SELECT number FROM committed") == [(7,)]
    assert not server.home.exists()
