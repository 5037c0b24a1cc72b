"""Outages of PostgreSQL at each statement of a call, one kind for each way in which a call can end.

`Site.interrupt` makes a call and causes an outage just before the call sends its n-th statement.
Most kinds send a statement of their own first, on the connection of the call and within its
pipeline, if it is in one. This statement never ends by itself: it is cancelled, it reaches a
timeout, its process ends, or it fails. So every statement of a call can be the one that is running
when the outage happens, and the later statements of its pipeline are skipped.

`Site.verify` fails if the outage has left anything behind in the connections of the pool.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import pq

from hrag.engine.postgres.store.connection import Connection, Cursor
from hrag.engine.postgres.store.connection_pool import ConnectionTimes
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.schema import migrate
from hrag.errors import HragError
from hrag.values.current_call import CURRENT, DeadlineOnly
from hrag.values.deadline import Deadline
from tests.crash.postgres_calls import CALLS, MAINTENANCE, Calls
from tests.support.servers.postgres_server import PostgresServer
from tests.support.servers.tcp_proxy import TcpProxy
from tests.support.until import until

CONNECTIONS = 2
"""Maintenance needs two connections: one holds a lock, and the other one works."""
PREPARE_AFTER = 1
"""A statement is prepared at its second use, not at its sixth, so that the tests take less time."""
_SLEEP = "SELECT pg_sleep(60)"
_LOCK = 1
_WAIT = f"SELECT pg_advisory_xact_lock({_LOCK})"
LONG_S = 60.0
"""The deadline of calls that have time enough for each of their statements."""
_SHORT_S = 0.25
_PREPARED = "SELECT name FROM pg_prepared_statements"


class CallerError(Exception):
    """An error of the caller's own, which has nothing to do with PostgreSQL."""


class CallerEnds(BaseException):
    """Something that ends the caller's thread and that no caller handles."""


@dataclass
class Site:
    """A server, a store in it, and the connections whose calls are interrupted.

    The calls of `direct` use the server's Unix socket, and those of `proxied` pass through a proxy.
    """

    server: PostgresServer
    direct: Calls
    proxied: Calls
    proxy: TcpProxy
    dsn: str
    admin: psycopg.Connection[Any] = field(init=False)
    _is_waiting: threading.Event = field(default_factory=threading.Event)
    _frozen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connect()

    def _connect(self) -> None:
        """Opens the administrator's connection, which holds the lock that calls wait for.

        It has no transaction, because an old transaction would prevent that homes are dropped.
        """
        self.admin = psycopg.connect(self.dsn, autocommit=True)
        self.admin.execute(f"SELECT pg_advisory_lock({_LOCK})")

    def count_points(self, name: str, kind: "Kind") -> int:
        """Makes a call; returns before how many of its statements the outage can happen."""
        points = count()
        with kind.hook(lambda _: next(points)):
            CALLS[name](self.direct)
        return next(points)

    def interrupt(self, name: str, kind: "Kind", at: int) -> bool:
        """Makes a call, with an outage before its statement number `at`, counted from 1.

        The call may succeed, or fail with an error that its client can understand. Returns False if
        the call sends fewer statements.
        """
        statements, happened = count(1), threading.Event()

        def act(connection: Connection) -> None:
            if next(statements) == at:
                happened.set()
                kind.act(self, connection)

        calls = self.proxied if kind.needs_proxy else self.direct
        self._is_waiting.set()
        current = CURRENT.get()
        if kind.needs_caller or name not in MAINTENANCE:
            current = DeadlineOnly(Deadline.after(kind.deadline_s, self._is_waiting.is_set))
        token = CURRENT.set(current)
        try:
            with kind.hook(act), suppress(HragError, *kind.raises):
                CALLS[name](calls)
        finally:
            CURRENT.reset(token)
            self._recover()
        return happened.is_set()

    def verify(self, name: str, kind: "Kind", more: str) -> None:
        """Fails if a connection of the pool is in a wrong state, or if a call fails.

        Makes the interrupted call as often as it takes to prepare its statements and to use them
        again, then the call `more`.
        """
        calls = self.proxied if kind.needs_proxy else self.direct
        assert_consistent(calls.database)
        for _ in range(PREPARE_AFTER + 2):
            CALLS[name](calls)
        CALLS[more](calls)

    def close(self) -> None:
        """Closes the administrator's connection."""
        self.admin.close()

    # What the kinds of outages need.

    def leave(self) -> None:
        """Makes the caller stop waiting for the result."""
        self._is_waiting.clear()

    def freeze(self, pid: int) -> None:
        """Stops a process of the server, as on a machine that hangs, until the call has ended."""
        self._frozen.append(pid)
        os.kill(pid, signal.SIGSTOP)

    def _recover(self) -> None:
        """Ends the outage: the server and the network work again."""
        self.proxy.complete()
        while self._frozen:
            os.kill(self._frozen.pop(), signal.SIGCONT)
        if not self.is_connected():
            self.admin.close()
            until(self._can_connect)

    def is_connected(self) -> bool:
        """Returns True if the administrator's connection works."""
        try:
            self.admin.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _can_connect(self) -> bool:
        try:
            self._connect()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def site(server: PostgresServer, dsn: str) -> Iterator[Site]:
    """Fills the empty database of `dsn` and yields the site of its outages."""
    with ExitStack() as stack:
        stack.enter_context(_early_preparation())
        proxy = TcpProxy(server.port)
        stack.callback(proxy.close)
        parameters = psycopg.conninfo.conninfo_to_dict(dsn)
        proxied_dsn = server.tcp_dsn(parameters["dbname"]).replace(
            f"port={server.port}", f"port={proxy.port}"
        )
        direct, proxied = (_opened(stack, each) for each in (dsn, proxied_dsn))
        migrate(direct)
        calls = Calls(direct)
        calls.fill()
        built = Site(server, calls, calls.through(proxied), proxy, dsn)
        stack.callback(built.close)
        yield built
        calls.finish()


def _opened(stack: ExitStack, dsn: str) -> PostgresDatabase:
    database = PostgresDatabase(dsn, CONNECTIONS, "tests", is_writer=True, times=ConnectionTimes())
    stack.callback(database.close)
    return database


@contextmanager
def _early_preparation() -> Iterator[None]:
    """Makes psycopg prepare statements after PREPARE_AFTER uses inside the block."""
    opening = Connection.open.__func__  # type: ignore[attr-defined]

    def open_connection(cls: type[Connection], dsn: str, **parameters: Any) -> Connection:
        connection = opening(cls, dsn, **parameters)
        connection.prepare_threshold = PREPARE_AFTER
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "open", classmethod(open_connection))
        yield


def assert_consistent(database: PostgresDatabase, connections: int = CONNECTIONS) -> None:
    """Fails if a connection of the pool is in a wrong state.

    Takes all connections of the pool at the same time. Each must be in the transaction that it was
    taken for, and the server must have each statement that psycopg regards as prepared.
    """
    with ExitStack() as stack:
        taken = [stack.enter_context(database.read()) for _ in range(connections)]
        for connection in taken:
            rows = connection.execute(_PREPARED, prepare=False).fetchall()
            known = {name.decode() for name in connection._prepared._names.values()}
            lacking = known - {name for (name,) in rows}
            assert not lacking, f"the server has not prepared {sorted(lacking)}"
            assert connection.pgconn.pipeline_status == pq.PipelineStatus.OFF, "in a pipeline"
            assert connection.execute("SHOW transaction_read_only").fetchall() == [("on",)]


@contextmanager
def _before_statement(act: Callable[[Connection], object]) -> Iterator[None]:
    """Calls `act` with the connection before each statement, also before each COPY."""
    execute, copy, is_acting = Cursor.execute, Cursor.copy, threading.local()

    def observe(cursor: Cursor) -> None:
        if not getattr(is_acting, "value", False):
            is_acting.value = True
            try:
                act(cursor._conn)
            finally:
                is_acting.value = False

    def observed_execute(cursor: Cursor, *args: Any, **kwargs: Any) -> Any:
        observe(cursor)
        return execute(cursor, *args, **kwargs)

    def observed_copy(cursor: Cursor, *args: Any, **kwargs: Any) -> Any:
        observe(cursor)
        return copy(cursor, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "execute", observed_execute)
        patch.setattr(Cursor, "copy", observed_copy)
        yield


@contextmanager
def _before_wait(act: Callable[[Connection], object]) -> Iterator[None]:
    """Calls `act` with the connection before each exchange with the server.

    Exchanges are the statements, the end of a pipeline, COMMIT, and each buffer of a COPY.
    """
    wait = Connection.wait

    def observed(connection: Connection, *args: Any, **kwargs: Any) -> Any:
        act(connection)
        return wait(connection, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "wait", observed)
        yield


@dataclass(frozen=True)
class Kind:
    """A kind of outage. `act` causes it, on the connection that is about to send a statement.

    `deadline_s` is the time for which the caller waits. Maintenance has a caller only if the outage
    `needs_caller`. With `at_waits`, the outage can happen before each exchange with the server, not
    only before statements. The call may raise errors of hrag, and those in `raises`.
    """

    act: Callable[[Site, Connection], None]
    deadline_s: float = LONG_S
    needs_caller: bool = False
    needs_proxy: bool = False
    at_waits: bool = False
    raises: tuple[type[BaseException], ...] = ()

    def hook(self, act: Callable[[Connection], object]) -> AbstractContextManager[None]:
        """Calls `act` inside the block at each point at which the outage can happen."""
        return (_before_wait if self.at_waits else _before_statement)(act)


def _sends(*statements: str) -> Callable[[Site, Connection], None]:
    """Returns an act that sends statements before the statement of the call."""

    def act(site: Site, connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement, prepare=False)

    return act


def _fails(sqlstate: str) -> Kind:
    """Returns the kind whose statement fails with this SQLSTATE."""
    return Kind(_sends(f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$"))


def _raises(error: type[BaseException], *, at_waits: bool = False) -> Kind:
    def act(site: Site, connection: Connection) -> None:
        raise error

    return Kind(act, at_waits=at_waits, raises=(error,))


def _leaves(site: Site, connection: Connection) -> None:
    site.leave()
    connection.execute(_SLEEP, prepare=False)


def _is_idle(site: Site, connection: Connection) -> None:
    """Makes the server end the session because its transaction is idle for too long."""
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 2", prepare=False)
    time.sleep(0.02)


def _is_ended_by_an_administrator(site: Site, connection: Connection) -> None:
    with suppress(psycopg.OperationalError):
        site.admin.execute("SELECT pg_terminate_backend(%s, 10000)", (_pid(connection),))


def _pid(connection: Connection) -> int:
    """Returns the id of the server's process; never 0, which means the test's process group."""
    pid = connection.pgconn.backend_pid
    assert pid > 0
    return pid


def _freezes(site: Site, connection: Connection) -> None:
    site.freeze(_pid(connection))


def _crashes(site: Site, connection: Connection) -> None:
    """Kills the server's process of this connection, after which the server restarts itself."""
    os.kill(_pid(connection), signal.SIGKILL)
    # The server ends all other sessions before it restarts.
    until(lambda: not site.is_connected())


def _restarts(end: Callable[[PostgresServer], None]) -> Kind:
    def act(site: Site, connection: Connection) -> None:
        end(site.server)
        site.server.start()

    return Kind(act)


def _cuts(after_bytes: int, *, resets: bool) -> Kind:
    def act(site: Site, connection: Connection) -> None:
        site.proxy.cut(resets=resets, after_bytes=after_bytes)

    return Kind(act, needs_proxy=True)


def _is_silent(site: Site, connection: Connection) -> None:
    site.proxy.silence()


QUICK: dict[str, Kind] = {
    "cancelled": Kind(_sends("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)")),
    "terminated": Kind(_sends("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(60)")),
    "terminated at an exchange": Kind(_is_ended_by_an_administrator, at_waits=True),
    "the caller leaves": Kind(_leaves, needs_caller=True),
    "the deadline passes": Kind(_sends(_SLEEP), _SHORT_S, needs_caller=True),
    "waits for a lock": Kind(_sends(_WAIT), _SHORT_S, needs_caller=True),
    "statement_timeout": Kind(_sends("SET LOCAL statement_timeout = 2", _SLEEP)),
    "lock_timeout": Kind(_sends("SET LOCAL lock_timeout = 2", _WAIT)),
    "transaction_timeout": Kind(_sends("SET LOCAL transaction_timeout = 2", _SLEEP)),
    "idle_in_transaction_session_timeout": Kind(_is_idle),
    "conflict": _fails("40001"),
    "deadlock": _fails("40P01"),
    "full disk": _fails("53100"),
    "no memory": _fails("53200"),
    "failed disk": _fails("58030"),
    "standby": _fails("25006"),
    "lost right": _fails("42501"),
    "damaged table": _fails("XX001"),
    "a bug": Kind(_sends("SELECT 1 / 0"), raises=(psycopg.errors.DivisionByZero,)),
    "an error of the caller": _raises(CallerError),
    "an error of the caller at an exchange": _raises(CallerError, at_waits=True),
    "the end of the caller": _raises(CallerEnds, at_waits=True),
    "FIN": _cuts(0, resets=False),
    "RST": _cuts(0, resets=True),
    "a message in part": _cuts(30, resets=False),
    "half a statement": _cuts(200, resets=True),
    "half of many statements": _cuts(5000, resets=True),
}
"""The kinds of outages that take at most a quarter of a second, by their names."""

SLOW: dict[str, Kind] = {
    "silence": Kind(_is_silent, _SHORT_S, needs_caller=True, needs_proxy=True),
    "frozen": Kind(_freezes, _SHORT_S, needs_caller=True),
    "a killed session": Kind(_crashes),
    "a stopped server": _restarts(PostgresServer.stop),
    "a killed server": _restarts(PostgresServer.kill),
}
"""The kinds of outages that take longer, by their names."""
