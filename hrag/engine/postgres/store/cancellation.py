"""Cancels the statements of callers that no longer wait for a result.

One thread checks all running transactions twenty times a second. It sends a cancel request for
each transaction whose caller no longer waits or whose deadline has passed. A cancel request
stops the statement that the connection runs when the request arrives. Therefore a transaction
ends only after the server has received any request that is being sent for it, and no other
caller gets the connection before that.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from hrag.engine.postgres.store.connection import Connection
from hrag.values.deadline import NEVER, Deadline

_INTERVAL_S = 0.05
# The server's statement_timeout ends the statement that runs at the deadline. The canceller ends
# later statements of the same transaction, this long after the deadline.
_LATE_S = 0.1
# A busy thread is not put to sleep at once: waking it costs each transaction more than checking
# an empty set twenty times a second.
_SLEEPS_AFTER_S = 1.0
_REQUEST_S = 1.0
"""The longest time that a server may take to receive a cancel request."""


class _Watched:
    """A running transaction that the canceller watches."""

    def __init__(self, connection: Connection, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._lock = threading.Lock()
        self._is_over = False

    def cancel_if_due(self) -> bool:
        """Cancels the current statement if its caller no longer waits for it.

        Returns False if the server did not receive the cancel request.
        """
        if self._deadline.remaining_s > -_LATE_S and self._deadline.is_waiting():
            return True
        with self._lock:
            if self._is_over:
                return True
            try:
                self._connection.cancel_safe(timeout=_REQUEST_S)
            except psycopg.Error:
                return False
        return True

    def end(self) -> None:
        """Waits until no cancel request is being sent, and prevents further ones."""
        with self._lock:
            self._is_over = True


class Canceller:
    """Watches transactions and cancels those that nobody waits for.

    Its thread starts with the first transaction that has a deadline or a caller that can leave.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watched: set[_Watched] = set()
        self._thread: threading.Thread | None = None
        self._sleeps = False
        self._is_closed = False

    @contextmanager
    def watching(self, connection: Connection, deadline: Deadline) -> Iterator[None]:
        """Cancels the statements of the block once the caller of `deadline` no longer waits."""
        if deadline == NEVER:
            yield
            return
        watched = _Watched(connection, deadline)
        self._add(watched)
        try:
            yield
        finally:
            watched.end()
            with self._condition:
                self._watched.discard(watched)

    def close(self) -> None:
        """Stops the thread and waits for its end."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()

    def _add(self, watched: _Watched) -> None:
        with self._condition:
            self._watched.add(watched)
            if self._sleeps:
                self._condition.notify()
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="postgres-canceller", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._is_closed:
            with self._condition:
                if not self._watched and time.monotonic() - last_s > _SLEEPS_AFTER_S:
                    self._sleep()
                else:
                    self._condition.wait(_INTERVAL_S)
                watched = tuple(self._watched)
            if watched:
                last_s = time.monotonic()
            # `all` stops at the first request that the server does not receive: further requests
            # would also wait without success.
            all(transaction.cancel_if_due() for transaction in watched)

    def _sleep(self) -> None:
        """Waits for the next transaction or for `close`."""
        self._sleeps = True
        self._condition.wait_for(lambda: self._watched or self._is_closed)
        self._sleeps = False
