"""A connection whose transaction was given up works for the next caller, or is replaced.

`tests.crash.test_postgres_outages` gives up connections at each statement of each call.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg
import pytest

from hrag.engine.postgres.store import connection_pool
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.write.writer import PostgresWriter
from hrag.errors import DeadlineExceeded, DocumentNotFound, HragError, StoreUnavailable
from hrag.values.current_call import CURRENT, DeadlineOnly
from hrag.values.deadline import NEVER, Deadline
from tests.support.documents.fakes import collection_settings
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.until import PATIENCE_S, until

pytestmark = pytest.mark.postgres

Open = Callable[..., PostgresDatabase]
_PREPARED = "SELECT count(*) FROM pg_prepared_statements"
_LIMITS = (
    "statement_timeout",
    "lock_timeout",
    "transaction_timeout",
    "idle_in_transaction_session_timeout",
)


@pytest.fixture
def single(opened: Open, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> PostgresDatabase:
    """A database with one connection, so that each caller gets that of the caller before.

    It is not replaced because a busy machine delays the reply to its COMMIT or ROLLBACK.
    """
    monkeypatch.setattr(connection_pool, "_REPLY_S", PATIENCE_S)
    return opened(postgres_dsn, connections=1, is_writer=True)


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[TcpProxy]:
    with closing(TcpProxy(postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def proxied(
    opened: Open, postgres: PostgresServer, postgres_dsn: str, proxy: TcpProxy
) -> PostgresDatabase:
    """A database that is reached through `proxy`."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    dsn = postgres.tcp_dsn(name, connect_timeout=int(PATIENCE_S))
    dsn = dsn.replace(f"port={postgres.port}", f"port={proxy.port}")
    return opened(dsn, connections=6)


def value(database: PostgresDatabase, statement: str, deadline: Deadline = NEVER) -> Any:
    """Returns the first value of the first row of a statement, which is not prepared."""
    with database.read(deadline) as connection:
        row = connection.execute(statement, prepare=False).fetchone()
        assert row is not None
        return row[0]


def pid(database: PostgresDatabase) -> int:
    """Returns the process id of the server's process for the next caller's connection."""
    return int(value(database, "SELECT pg_backend_pid()"))


def fail(database: PostgresDatabase, statement: str) -> None:
    """Runs a statement that fails, alone in a transaction."""
    with pytest.raises((HragError, psycopg.Error)), database.write() as connection:
        connection.execute(statement, prepare=False)


def test_a_call_that_waits_for_a_lock_until_its_deadline_does_not_harm_later_calls(
    single: PostgresDatabase, postgres_dsn: str
) -> None:
    """psycopg prepares a statement at its sixth use, here in a pipeline that fails."""
    writer = PostgresWriter(single)

    def create(number: int) -> None:
        writer.create_collection("t", f"c{number}", collection_settings())

    for number in range(5):
        create(number)
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT FROM hrag.tenants WHERE tenant_id = 't' FOR UPDATE")
        token = CURRENT.set(DeadlineOnly(Deadline.after(0.2)))
        with pytest.raises(DeadlineExceeded):
            create(5)
        CURRENT.reset(token)
    for number in range(5, 15):
        create(number)


def _with_two_statements(connection: Connection, *, fails: bool) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1 / %s::int", (0 if fails else 1,))
        connection.execute("SELECT 2 + %s::int", (1,))


def _with_many_rows(connection: Connection, *, fails: bool) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("SELECT 1 / %s::int", [(1,), (0 if fails else 1,), (1,)])


@pytest.mark.parametrize("run", [_with_two_statements, _with_many_rows])
def test_a_failed_pipeline_leaves_no_statement_that_only_the_client_knows(
    single: PostgresDatabase, run: Callable[..., None]
) -> None:
    """The statements are new, are about to be prepared, or are prepared when they fail."""

    def use(*, fails: bool) -> None:
        with single.read() as connection:
            run(connection, fails=fails)

    for uses_before in range(8):
        for _ in range(uses_before):
            use(fails=False)
        with pytest.raises(psycopg.errors.DivisionByZero):
            use(fails=True)
        single._pool.replace_all()
    for _ in range(8):
        use(fails=False)


@pytest.mark.parametrize("error", [DocumentNotFound("no such document"), KeyboardInterrupt()])
def test_an_error_of_the_caller_in_a_failed_pipeline_leaves_no_such_statement(
    single: PostgresDatabase, error: BaseException
) -> None:
    def use(*, fails: bool) -> None:
        with single.write() as connection, connection.pipeline():
            connection.execute("SELECT 1 / %s::int", (0 if fails else 1,))
            connection.execute("SELECT 2 + %s::int", (1,))
            if fails:
                raise error

    for _ in range(5):
        use(fails=False)
    # The server's error is raised if it arrives before the second statement is sent.
    with pytest.raises((type(error), psycopg.errors.DivisionByZero)):
        use(fails=True)
    for _ in range(8):
        use(fails=False)


def test_a_connection_is_replaced_if_its_caller_hides_that_a_pipeline_failed(
    single: PostgresDatabase,
) -> None:
    before = pid(single)
    with single.read() as connection, suppress(psycopg.errors.DivisionByZero):
        _with_two_statements(connection, fails=True)
    assert pid(single) != before


def test_after_a_failed_pipeline_the_connection_stays_and_the_server_has_no_statements(
    single: PostgresDatabase,
) -> None:
    for _ in range(8):
        with single.read() as connection:
            _with_two_statements(connection, fails=False)
    assert value(single, _PREPARED) == 2
    before = pid(single)

    def use() -> None:
        with single.read() as connection, connection.pipeline():
            connection.execute("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")
            connection.execute("SELECT 2 + %s::int", (1,))

    with pytest.raises(StoreUnavailable):
        use()
    assert value(single, _PREPARED) == 0
    assert pid(single) == before


def test_an_error_of_the_caller_costs_neither_the_connection_nor_its_statements(
    single: PostgresDatabase,
) -> None:
    for _ in range(8):
        with single.read() as connection:
            _with_two_statements(connection, fails=False)
    before = pid(single)

    def use() -> None:
        with single.write() as connection:
            _with_two_statements(connection, fails=False)
            raise DocumentNotFound("no such document")

    with pytest.raises(DocumentNotFound):
        use()
    assert value(single, _PREPARED) == 2
    assert pid(single) == before


def test_an_error_of_a_statement_keeps_the_connection(single: PostgresDatabase) -> None:
    before = pid(single)
    for sqlstate in ("40001", "40P01", "53100", "57014", "55P03", "XX001"):
        fail(single, f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$")
        assert pid(single) == before, sqlstate


def test_an_error_of_the_server_or_without_explanation_replaces_the_connection(
    single: PostgresDatabase,
) -> None:
    """Such an error could repeat on the same connection for ever."""
    for sqlstate in ("25006", "42501", "53200", "58030", "26000", "0A000", "XX000"):
        before = pid(single)
        fail(single, f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$")
        assert pid(single) != before, sqlstate


def test_a_right_that_a_role_gets_by_a_setting_is_used_at_once(
    opened: Open, postgres: PostgresServer, postgres_dsn: str
) -> None:
    """A role gets its settings when it connects, so connections of before lack the right."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    postgres.run("CREATE ROLE switching LOGIN")
    try:
        database = opened(postgres.dsn(name, user="switching"))
        statement = "SELECT count(*) FROM hrag.tenants"
        with pytest.raises(StoreUnavailable, match="permission"):
            value(database, statement)
        postgres.run("ALTER ROLE switching SUPERUSER")
        postgres.run("ALTER ROLE switching SET role = 'postgres'")
        assert value(database, "SELECT current_user::text") == "postgres"
        assert value(database, statement) == 0
    finally:
        postgres.run("DROP ROLE switching")


# Connections whose server disappears without notice.


def take_all(database: PostgresDatabase, count: int) -> None:
    """Opens so many connections, which are idle afterwards."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(database.read(Deadline.after(60))).execute("SELECT 1")


def test_after_one_call_has_failed_on_a_silent_network_no_other_call_fails(
    proxied: PostgresDatabase, proxy: TcpProxy
) -> None:
    """All idle connections lead to the server that has disappeared."""

    def call() -> None:
        with proxied.read(Deadline.after(0.1)) as connection:
            connection.execute("SELECT 1")
            proxy.silence()
            connection.execute("SELECT 1")

    take_all(proxied, 6)
    with pytest.raises(DeadlineExceeded):
        call()
    take_all(proxied, 6)


def test_a_caller_does_not_test_one_silent_connection_after_the_other(
    proxied: PostgresDatabase, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections wait for the reply to their COMMIT, the first of them for a second."""
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(proxied.read()).execute("SELECT 1")
        proxy.silence()
    waits_s: list[float] = []
    is_usable = Connection.is_usable

    def observed(self: Connection, timeout_s: float) -> bool:
        waits_s.append(timeout_s)
        return is_usable(self, timeout_s)

    monkeypatch.setattr(Connection, "is_usable", observed)
    assert value(proxied, "SELECT 7") == 7
    assert len(waits_s) == 6
    assert sum(waits_s) < 2


@pytest.mark.parametrize("resets", [False, True])
def test_a_connection_that_the_network_ends_is_replaced(
    proxied: PostgresDatabase, proxy: TcpProxy, resets: bool
) -> None:
    take_all(proxied, 6)
    proxy.cut(resets=resets)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: take_all(proxied, 1), range(20)))


@pytest.mark.parametrize("resets", [False, True])
def test_a_connection_that_ends_within_a_message_is_replaced(
    proxied: PostgresDatabase, proxy: TcpProxy, resets: bool
) -> None:

    def call(cut_after_bytes: int) -> None:
        with proxied.read() as connection:
            connection.execute("SELECT 1")
            proxy.cut(resets=resets, after_bytes=cut_after_bytes)
            for _ in range(10):
                connection.execute("SELECT %s::text", ("x" * 2000,)).fetchall()

    for after_bytes in (1, 50, 100, 150, 200, 300, 1000, 20_000):
        with pytest.raises(StoreUnavailable):
            call(after_bytes)
        assert value(proxied, "SELECT 7") == 7


# A COPY that ends before its last row.


def _copy_rows(connection: Connection, stop: Callable[[int], None]) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY copied FROM STDIN") as copying:
        for number in range(2000):
            stop(number)
            copying.write_row(("x" * 500,))


@pytest.mark.parametrize("ends", ["cancelled", "terminated", "raises", "leaves"])
def test_a_copy_that_ends_early_leaves_a_working_connection(
    single: PostgresDatabase, postgres: PostgresServer, ends: str
) -> None:
    with single.write() as connection:
        connection.execute("CREATE TABLE copied (value text)")
    is_waiting = threading.Event()

    def end(connection: Connection) -> None:
        session = connection.info.backend_pid
        if ends == "cancelled":
            postgres.run(f"SELECT pg_cancel_backend({session})")
        elif ends == "terminated":
            postgres.run(f"SELECT pg_terminate_backend({session}, 10000)")
        elif ends == "raises":
            raise DocumentNotFound("no such document")
        else:
            is_waiting.clear()
            time.sleep(0.1)

    def copy(last_row: int) -> None:
        is_waiting.set()
        with single.write(Deadline.after(60, is_waiting.is_set)) as connection:
            _copy_rows(connection, lambda row: end(connection) if row == last_row else None)
            connection.execute("SELECT pg_sleep(60)")

    for last_row in (0, 1, 1000, 1999):
        with pytest.raises(HragError):
            copy(last_row)
        for _ in range(2):
            with single.write() as connection:
                _copy_rows(connection, lambda _: None)
    assert value(single, "SELECT count(*) FROM copied") == 16_000


# Timeouts of the server, which an administrator has set for all users of a database.


@pytest.fixture
def limit(postgres: PostgresServer, postgres_dsn: str) -> Callable[[str, str], None]:
    """A function that sets a timeout for all later connections to the test's database."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    return lambda setting, time: postgres.run(f"ALTER DATABASE {name} SET {setting} = '{time}'")


@pytest.fixture
def locked(postgres_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The connection of another user, whose transaction holds the advisory lock 7."""
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(7)")
        yield other


_WAIT = "SELECT pg_advisory_xact_lock(7)::text"


def test_timeouts_of_the_server_do_not_end_work_without_a_deadline(
    opened: Open, postgres_dsn: str, locked: psycopg.Connection[Any], limit: Callable[..., None]
) -> None:
    """Otherwise no index of a large collection could be built."""
    for setting in _LIMITS:
        limit(setting, "100ms")
    with opened(postgres_dsn).write() as connection, ThreadPoolExecutor(1) as threads:
        connection.execute("SELECT pg_sleep(0.2)")
        time.sleep(0.2)
        waiting = threads.submit(connection.execute, _WAIT)
        time.sleep(0.2)
        locked.commit()
        waiting.result(60)


@pytest.mark.parametrize("setting", _LIMITS)
def test_a_call_that_a_timeout_of_the_server_ends_can_be_repeated(
    opened: Open,
    postgres_dsn: str,
    locked: psycopg.Connection[Any],
    limit: Callable[..., None],
    setting: str,
) -> None:
    """The deadline of a call replaces the server's statement_timeout, in both directions."""
    limit(setting, "50ms")
    database = opened(postgres_dsn)
    is_replaced = setting == "statement_timeout"

    def call() -> None:
        with database.read(Deadline.after(0.5 if is_replaced else 60)) as connection:
            connection.execute("SELECT 1")
            if setting.startswith("idle"):
                time.sleep(0.3)
            connection.execute(_WAIT)

    with pytest.raises(DeadlineExceeded if is_replaced else StoreUnavailable):
        call()
    locked.rollback()

    def succeeds() -> bool:
        with suppress(StoreUnavailable):  # A slow machine may exceed the server's limit again.
            return value(database, _WAIT, Deadline.after(60)) == ""
        return False

    until(succeeds)


def test_idle_connections_that_the_server_ends_are_replaced(
    opened: Open, postgres: PostgresServer, postgres_dsn: str, limit: Callable[..., None]
) -> None:
    limit("idle_session_timeout", "1s")
    database = opened(postgres_dsn)
    take_all(database, 4)
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"
    until(lambda: postgres.run(sessions) == [(0,)])
    take_all(database, 4)
