"""Cancels the statements of callers that no longer wait for a result.

One thread checks all running transactions twenty times a second. It sends a cancel request for
each transaction whose caller no longer waits or whose deadline has passed. A cancel request
stops the statement that the connection runs when the request arrives. If another caller already
used the connection then, the request would stop the wrong statement. Therefore, while a cancel
request for a transaction is being sent, the transaction does not end and no other caller gets its
connection.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from hrag.engine.postgres.store.connection import Connection
from hrag.values.deadline import NEVER, Deadline

_INTERVAL_S = 0.05
# The canceller sends its request this long after the deadline. In most cases, the server's
# statement_timeout has then already ended the statement that ran at the deadline. The request
# ends statements of the same transaction that began later.
_LATE_S = 0.1
# After this time without a transaction, the canceller's thread stops its regular checks and sleeps
# until the next transaction. It does not sleep earlier, because waking it for each transaction
# costs more than checking an empty set twenty times a second.
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
        """Cancels the current statement if its caller no longer waits or its deadline has passed.

        Returns False if a cancel request was needed but the server did not receive it.
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
        """Waits until no cancel request is being sent for the transaction; prevents new ones."""
        with self._lock:
            self._is_over = True


class Canceller:
    """Watches transactions, and cancels each one whose caller no longer waits for its result.

    The canceller's thread starts with the first transaction that has a deadline or whose caller
    can stop waiting.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watched: set[_Watched] = set()
        self._thread: threading.Thread | None = None
        self._sleeps = False
        self._is_closed = False

    @contextmanager
    def watching(self, connection: Connection, deadline: Deadline) -> Iterator[None]:
        """Watches the transaction on `connection` during the block.

        Cancels the transaction's statements once `deadline` has passed or once the caller no longer
        waits for the result.
        """
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
        """Stops the canceller's thread and waits for its end."""
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
            # Python's `all` stops at the first request that the server does not receive, because
            # the server would probably not receive further requests either, and each one would take
            # a second.
            all(transaction.cancel_if_due() for transaction in watched)

    def _sleep(self) -> None:
        """Waits for the next transaction or for `close`."""
        self._sleeps = True
        self._condition.wait_for(lambda: self._watched or self._is_closed)
        self._sleeps = False
