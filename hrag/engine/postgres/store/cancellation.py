"""Cancels the statements of callers that have left.

One thread looks at the transactions that run, twenty times a second, and sends a cancel
request for those whose caller has left or whose deadline has passed. A cancel request is for
whatever a connection runs when it arrives; so a transaction is not over before a request that
is being sent for it has been received, and no other caller gets its connection earlier.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from hrag.engine.postgres.store.connection import Connection
from hrag.values.deadline import NEVER, Deadline

_INTERVAL_S = 0.05
# statement_timeout ends a statement at its deadline; further ones of the transaction end here.
_LATE_S = 0.1
# Waking the thread costs each transaction more than looking at none twenty times a second.
_SLEEPS_AFTER_S = 1.0
_REQUEST_S = 1.0
"""How long a server may take to receive a cancel request."""


class _Watched:
    """A transaction that runs."""

    def __init__(self, connection: Connection, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._lock = threading.Lock()
        self._is_over = False

    def cancel_if_due(self) -> bool:
        """Cancels the present statement if nobody waits for it.

        Returns False if the server did not receive the request.
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
        """Waits for a request that is being sent; no request is sent from then on."""
        with self._lock:
            self._is_over = True


class Canceller:
    """Watches transactions. Its thread starts with the first that can be left by its caller."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._watched: set[_Watched] = set()
        self._thread: threading.Thread | None = None
        self._sleeps = False
        self._is_closed = False

    @contextmanager
    def watching(self, connection: Connection, deadline: Deadline) -> Iterator[None]:
        """Cancels statements of the block when the caller of `deadline` has left."""
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
        """Ends the thread."""
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
            # Stops at the first that the server does not receive: others would wait in vain.
            all(each.cancel_if_due() for each in watched)

    def _sleep(self) -> None:
        """Waits for the next transaction."""
        self._sleeps = True
        self._condition.wait_for(lambda: self._watched or self._is_closed)
        self._sleeps = False
