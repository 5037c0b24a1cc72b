"""A pool with a limited count of connections to PostgreSQL.

A caller gets the idle connection that was used last, or opens a new connection. The pool has no
background thread. While a server is down, each caller tries to connect and fails; once the server
is up again, the next caller connects to it. If the server has closed an idle connection, for
example by a restart, the pool notices this without a request to the server and replaces the
connection.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from hrag.engine.postgres.store.connection import Connection
from hrag.values.deadline import Deadline
from hrag.values.errors import StoreUnavailable, TooBusy

_POLL_S = 0.05
_REPLY_S = 1.0
"""The pool waits at most this long for a connection's reply to a COMMIT or to a test statement."""
_AT_ONCE_S = 0.01
"""A reply that has arrived is read in this time."""
# A connection of this age is closed and replaced by a new one. The reason is that readers connect
# to a server far away while the nearest server is down. A new connection leads to the nearest
# server again.
_MAX_AGE_S = 1800.0


@dataclass(frozen=True, slots=True)
class ConnectionTimes:
    """Times for the pool and for health checks.

    They limit how long callers wait for connections, and for how long the last reply of the server
    is regarded as proof that it works.
    """

    max_wait_s: float = 3.0
    """The longest time that a caller waits for a connection while all are in use."""
    trusted_s: float = 30.0
    """A connection that was idle for this long is tested with a statement before it is used.

    The reason is that firewalls drop idle connections without notice.
    """
    healthy_s: float = 1.0
    """A successful transaction proves for this long that the database is healthy."""
    check_s: float = 1.0
    """The longest time that the server may take to answer a health check."""


DEFAULT_TIMES = ConnectionTimes()


class Pool:
    """A pool of at most `max_connections` connections. Thread-safe.

    The pool calls `connect` to open a connection.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        max_connections: int,
        times: ConnectionTimes = DEFAULT_TIMES,
    ) -> None:
        self._connect = connect
        self._times = times
        self._max_connections = max_connections
        self._permits = threading.BoundedSemaphore(max_connections)
        self._idle: deque[Connection] = deque()
        self._is_closed = False
        self._replaced_s = 0.0

    def take(self, deadline: Deadline) -> Connection:
        """Returns a connection, outside of any transaction, for the exclusive use of the caller.

        `deadline` is the caller's deadline; raises the errors of `Deadline.check`. Raises TooBusy
        if all connections stay in use for `ConnectionTimes.max_wait_s`. Raises
        psycopg.OperationalError if the server accepts no connection. Raises StoreUnavailable if the
        pool is closed.
        """
        self._wait_for_permit(deadline)
        try:
            return self._take_usable() or self._connect()
        except BaseException:
            self._permits.release()
            raise

    def give_back(self, connection: Connection, *, is_sound: bool) -> None:
        """Returns a connection to the pool for the next caller.

        Closes the connection instead if it is too old, if the pool is closed, or if `is_sound` is
        False, which means that the connection cannot be used any more.
        """
        now_s = time.monotonic()
        oldest_s = max(self._replaced_s, now_s - _MAX_AGE_S)
        if is_sound and not self._is_closed and connection.opened_s > oldest_s:
            connection.returned_s = now_s
            self._idle.append(connection)
        else:
            connection.close()
        self._permits.release()
        if self._is_closed:
            self._close_idle()

    def replace_all(self) -> None:
        """Closes the idle connections now, and each connection in use when it is given back.

        Later callers get new connections.
        """
        self._replaced_s = time.monotonic()
        self._close_idle()

    def close(self) -> None:
        """Closes the connections as `replace_all` does. Later callers get no connection."""
        self._is_closed = True
        self._close_idle()

    def _wait_for_permit(self, deadline: Deadline) -> None:
        if self._is_closed:
            raise StoreUnavailable("the connections to PostgreSQL are closed")
        end_s = time.monotonic() + self._times.max_wait_s
        while not self._permits.acquire(timeout=max(0.0, min(_POLL_S, deadline.remaining_s))):
            deadline.check("waiting for a connection to PostgreSQL")
            if time.monotonic() >= end_s:
                raise TooBusy(
                    f"all {self._max_connections} connections to PostgreSQL are in use; "
                    f"HRAG_POSTGRES_CONNECTIONS is {self._max_connections}",
                    retry_s=1.0,
                )

    def _take_usable(self) -> Connection | None:
        """Returns the most recently used idle connection that works; None if no idle one works.

        Waits only for one of them, because otherwise the test of all connections to a server that
        does not answer could take longer than the caller waits.
        """
        reply_s = _REPLY_S
        while (connection := self._pop_idle()) is not None:
            if connection.is_usable(reply_s):
                if self._answers(connection):
                    return connection
                # The other connections were idle even longer.
                self._close_idle()
            connection.close()
            reply_s = _AT_ONCE_S
        return None

    def _answers(self, connection: Connection) -> bool:
        """Returns True if the server probably answers on this connection.

        If the connection was idle for `ConnectionTimes.trusted_s`, sends a statement to find out.
        """
        if time.monotonic() - connection.returned_s < self._times.trusted_s:
            return True
        try:
            connection.deadline = Deadline.after(_REPLY_S)
            connection.execute(b"SELECT 1", prepare=False)
        except psycopg.Error:
            return False
        return True

    def _close_idle(self) -> None:
        while (connection := self._pop_idle()) is not None:
            connection.close()

    def _pop_idle(self) -> Connection | None:
        """Removes and returns the most recently used idle connection; None if none is idle."""
        try:
            return self._idle.pop()
        except IndexError:
            return None
