"""Readers use a standby, and the writer continues on it after its promotion."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.errors import StoreUnavailable
from tests.support.servers.postgres_server import PostgresServer, hosts

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]


@pytest.fixture
def standby(own_server: PostgresServer) -> Iterator[PostgresServer]:
    """A standby that replicates `own_server`."""
    with closing(own_server.standby()) as standby:
        yield standby


def is_standby(database: PostgresDatabase) -> bool:
    with database.read() as connection:
        return connection.execute("SELECT pg_is_in_recovery()").fetchall() == [(True,)]


def insert(database: PostgresDatabase) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO numbers VALUES (1)")


def test_the_writer_uses_the_primary_and_readers_prefer_the_standby(
    own_server: PostgresServer, standby: PostgresServer, opened: Open
) -> None:
    writer = opened(hosts(standby, own_server), is_writer=True)
    dsn = hosts(own_server, standby, target_session_attrs="prefer-standby")
    reader = opened(dsn)
    assert not is_standby(writer)
    assert is_standby(reader)
    with writer.write() as connection:
        connection.execute("CREATE TABLE numbers (number int)")
    insert(writer)
    standby.wait_for(own_server)
    with reader.read() as connection:
        assert connection.execute("SELECT * FROM numbers").fetchall() == [(1,)]
    standby.stop()
    assert not is_standby(reader)


def test_after_a_failover_the_writer_continues_on_the_new_primary(
    own_server: PostgresServer, standby: PostgresServer, opened: Open
) -> None:
    writer = opened(hosts(own_server, standby), is_writer=True)
    with writer.write() as connection:
        connection.execute("CREATE TABLE numbers (number int)")
    insert(writer)
    standby.wait_for(own_server)
    own_server.kill()
    with pytest.raises(StoreUnavailable):
        insert(writer)
    standby.promote()
    insert(writer)
    assert standby.run("SELECT count(*) FROM numbers") == [(2,)]


def test_a_writer_does_not_keep_a_connection_to_a_standby(
    own_server: PostgresServer, standby: PostgresServer, opened: Open
) -> None:
    """The DSN leads to the standby, as if by a wrong proxy. The standby rejects the change."""
    misled = opened(standby.dsn())
    assert is_standby(misled)
    with (
        pytest.raises(StoreUnavailable, match="in a read-only transaction"),
        misled.write() as connection,
    ):
        connection.execute("CREATE TABLE made ()")
    standby.promote()
    with misled.write() as connection:
        connection.execute("CREATE TABLE made ()")
