"""Connections that are open, and a limit of how many there are.

Whoever needs a connection takes the one that was used last, or opens one; nothing happens in
the background. So a server that is down costs each caller one refused connection, and one
that is back is found by the next caller. An idle connection that the server has closed, by a
restart for example, is noticed without asking the server and replaced.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

import psycopg

from hrag.engine.postgres.store.connection import Connection
from hrag.values.deadline import Deadline
from hrag.values.errors import StoreUnavailable, TooBusy

MAX_WAIT_S = 3.0
"""How long a caller waits for a connection while all are busy."""

_POLL_S = 0.05
_REPLY_S = 1.0
"""How long the reply to the last COMMIT of a connection may take."""
# Firewalls forget connections without telling. One that was idle for so long is asked first.
_TRUSTED_S = 30.0
# After a failover to another server, readers come back to the nearest one.
_MAX_AGE_S = 1800.0


class Pool:
    """At most `max_connections` connections that `connect` opens. Thread-safe."""

    def __init__(self, connect: Callable[[], Connection], max_connections: int) -> None:
        self._connect = connect
        self._max_connections = max_connections
        self._permits = threading.BoundedSemaphore(max_connections)
        self._idle: deque[Connection] = deque()
        self._is_closed = False

    def take(self, deadline: Deadline) -> Connection:
        """Returns a connection for the caller of `deadline` alone, outside of any transaction.

        Raises TooBusy if all are in use for MAX_WAIT_S, psycopg.OperationalError if the server
        accepts none, StoreUnavailable after `close`, and what `Deadline.check` raises.
        """
        self._wait_for_permit(deadline)
        try:
            return self._usable() or self._connect()
        except BaseException:
            self._permits.release()
            raise

    def give_back(self, connection: Connection, *, is_sound: bool) -> None:
        """Keeps a connection for the next caller, or closes it if it is not `is_sound`."""
        now_s = time.monotonic()
        if is_sound and not self._is_closed and now_s - connection.opened_s < _MAX_AGE_S:
            connection.returned_s = now_s
            self._idle.append(connection)
        else:
            connection.close()
        self._permits.release()
        if self._is_closed:
            self.close_idle()

    def close_idle(self) -> None:
        """Closes the connections that nobody uses."""
        while (connection := self._last_idle()) is not None:
            connection.close()

    def close(self) -> None:
        """Closes the idle connections now, and each other one when it is given back."""
        self._is_closed = True
        self.close_idle()

    def _wait_for_permit(self, deadline: Deadline) -> None:
        if self._is_closed:
            raise StoreUnavailable("the connections to PostgreSQL are closed")
        end_s = time.monotonic() + MAX_WAIT_S
        while not self._permits.acquire(timeout=max(0.0, min(_POLL_S, deadline.remaining_s))):
            deadline.check("waiting for a connection to PostgreSQL")
            if time.monotonic() >= end_s:
                raise TooBusy(
                    f"all {self._max_connections} connections to PostgreSQL are in use; "
                    f"HRAG_POSTGRES_CONNECTIONS is {self._max_connections}",
                    retry_s=1.0,
                )

    def _usable(self) -> Connection | None:
        """Returns the idle connection that was used last and still works, if there is one."""
        while (connection := self._last_idle()) is not None:
            if connection.is_usable(_REPLY_S) and _answers(connection):
                return connection
            connection.close()
        return None

    def _last_idle(self) -> Connection | None:
        """Takes the idle connection that was used last, if there is one."""
        try:
            return self._idle.pop()
        except IndexError:
            return None


def _answers(connection: Connection) -> bool:
    """Whether a connection that was idle for long has been kept by the network."""
    if time.monotonic() - connection.returned_s < _TRUSTED_S:
        return True
    try:
        connection.deadline = Deadline.after(_REPLY_S)
        connection.execute(b"SELECT 1", prepare=False)
    except psycopg.Error:
        return False
    return True
