"""The server that the tests of the engine on PostgreSQL use."""

from contextlib import closing

import psycopg
import pytest

from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.processes import is_alive

pytestmark = pytest.mark.postgres


def test_it_is_the_version_that_the_engine_is_made_for(postgres: PostgresServer) -> None:
    assert postgres.run("SHOW server_version_num") >= [("180000",)]
    available = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    assert postgres.run(available) >= [("0.8.0",)]


def test_a_database_of_a_test_is_its_own(postgres: PostgresServer) -> None:
    one, other = postgres.new_database(), postgres.new_database()
    postgres.run("CREATE TABLE mine ()", one)
    assert postgres.run("SELECT to_regclass('mine')", other) == [(None,)]
    for each in (one, other):
        postgres.drop(each)


def test_connections_over_tcp_need_the_password(postgres: PostgresServer) -> None:
    psycopg.connect(postgres.tcp_dsn()).close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.tcp_dsn(password="wrong"))


def test_what_was_committed_is_there_after_a_kill() -> None:
    with closing(PostgresServer()) as server:
        server.run("CREATE TABLE kept AS SELECT 7 AS number")
        pid = server.pid
        server.kill()
        assert not is_alive(pid)
        server.start()
        assert server.run("SELECT number FROM kept") == [(7,)]
        server.stop()
        server.start()
        assert server.run("SELECT number FROM kept") == [(7,)]
    assert not server.home.exists()
