"""A connection on which transactions begin and end without waiting for the server.

BEGIN and SET LOCAL are sent together, without waiting for their reply. The reply is collected when
the caller sends its first statement, so the server works while the caller prepares this statement.
The COMMIT of a read-only transaction is also sent without waiting, because nothing depends on its
reply. This reply is collected before the connection is used again. docs/decisions/postgres.md has
measurements of the time that this saves.

psycopg prepares a statement after some executions. It closes a single prepared statement by a
protocol message, because PgBouncer does not understand DEALLOCATE in transaction mode. It closes
all of them by DEALLOCATE ALL, which PgBouncer understands.

If a statement of a pipeline fails, the server skips the other statements of the pipeline. psycopg
nevertheless regards those that it wanted to prepare as prepared, and each later use of them would
fail. So after a pipeline has failed, the connection forgets and closes all prepared statements, or
is not used again.
"""

import math
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import pq
from psycopg.abc import Params, PQGen
from psycopg.errors import _WaitTimeout
from psycopg.generators import fetch_many
from psycopg.pq.abc import PGresult

from hrag.values.deadline import NEVER, Deadline

Row = tuple[Any, ...]

# A server that has not replied this long after the deadline is considered to hang, because its
# statement_timeout should have ended the statement.
_HANGS_AFTER_S = 1.0
# These settings of the server or the role would end long maintenance again and again, each time
# before it is complete. Maintenance and commands have no deadline, so they turn the settings off
# for their transactions, as pg_dump does.
_NO_LIMITS = b"".join(
    b"; SET LOCAL %s = 0" % name
    for name in (
        b"statement_timeout",
        b"lock_timeout",
        b"idle_in_transaction_session_timeout",
        b"transaction_timeout",
    )
)
_IN_TRANSACTION = (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)


class Cursor(psycopg.Cursor[Row]):
    """A cursor that runs one statement at a time and receives results in binary format."""

    _conn: "Connection"

    def __init__(self, connection: "Connection", **options: Any) -> None:
        super().__init__(connection, **options)
        self.format = pq.Format.BINARY

    def execute(self, query: Any, params: Params | None = None, **options: Any) -> Self:
        self._conn.settle()
        return super().execute(query, params, **options)

    def executemany(self, *args: Any, **kwargs: Any) -> None:
        self._conn.settle()
        super().executemany(*args, **kwargs)

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        self._conn.settle()
        return super().copy(*args, **kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[Row]:
        self._conn.settle()
        return super().stream(*args, **kwargs)


class Connection(psycopg.Connection[Row]):
    """A connection to one server, used by one thread at a time."""

    deadline: Deadline = NEVER
    """The deadline of the current transaction."""
    _awaits_reply: bool = False
    """True if the reply to the last statements that `_post` sent was not collected yet."""
    _has_failed_pipeline: bool = False
    """True if psycopg may regard statements as prepared that the server has not prepared."""
    opened_s: float = 0.0
    """The time at which the connection was opened, by `time.monotonic`."""
    returned_s: float = 0.0
    """The time at which the connection was last returned to the pool, by `time.monotonic`."""

    @classmethod
    def open(cls, dsn: str, **parameters: Any) -> "Connection":
        """Opens a connection to the server.

        Raises psycopg.OperationalError if the server does not accept the connection.
        """
        connection = cls.connect(dsn, autocommit=True, cursor_factory=Cursor, **parameters)
        if not psycopg.capabilities.has_send_close_prepared():
            # If a connection has too many prepared statements, psycopg closes the oldest one. With
            # this version of libpq it would send DEALLOCATE, which PgBouncer does not understand.
            # So the count of prepared statements is not limited, and none is closed.
            connection.prepared_max = None
        connection.opened_s = connection.returned_s = time.monotonic()
        return connection

    def begin(self, statement: bytes, deadline: Deadline) -> None:
        """Sends `statement`, which begins a transaction; does not wait for the reply.

        Each statement of the transaction may run until `deadline`. Without a deadline, it may run
        as long as it needs, whatever timeouts the server has for other users.
        """
        self.deadline = deadline
        if deadline.at_s < math.inf:
            timeout_ms = max(1, math.ceil(deadline.remaining_s * 1000))
            statement += b"; SET LOCAL statement_timeout = %d" % timeout_ms
        else:
            statement += _NO_LIMITS
        self._post(statement)

    def settle(self) -> None:
        """Collects the reply to the statements that `_post` sent, if it was not collected yet.

        Raises the psycopg.Error of the first of these statements that failed.
        """
        if self._awaits_reply:
            self._awaits_reply = False
            _check(self.wait(fetch_many(self.pgconn)))

    def run_script(self, script: bytes) -> None:
        """Runs several statements, separated by semicolons, in the current transaction."""
        self.settle()
        psycopg.Cursor(self).execute(script)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        self.settle()
        with super().pipeline() as pipeline:
            yield pipeline

    @contextmanager
    def transaction(self, *args: Any, **kwargs: Any) -> Iterator[psycopg.Transaction]:
        """Runs the block in a savepoint of the current transaction."""
        self.settle()
        with super().transaction(*args, **kwargs) as transaction:
            yield transaction

    def end_reading(self) -> None:
        """Ends a read-only transaction; does not wait for the reply."""
        self.settle()
        self._post(b"COMMIT")

    def end_writing(self) -> None:
        """Commits, and returns once the server has confirmed the commit.

        If a statement of the transaction has failed, raises
        psycopg.errors.InFailedSqlTransaction and changes nothing: PostgreSQL itself would roll
        back without an error.
        """
        self.settle()
        if self.pgconn.transaction_status == pq.TransactionStatus.INERROR:
            raise psycopg.errors.InFailedSqlTransaction(
                "the transaction cannot be committed, because one of its statements has failed"
            )
        self.commit()

    def abandon(self) -> bool:
        """Rolls back the current transaction, if one is open.

        Does not wait for the reply, unless a pipeline of the transaction has failed. Returns False
        if the connection cannot be used any more.
        """
        try:
            self.settle()
            if self.pgconn.transaction_status in _IN_TRANSACTION:
                if self._has_failed_pipeline:
                    # psycopg's own method also forgets and closes all prepared statements.
                    self.rollback()
                    self._has_failed_pipeline = False
                else:
                    self._post(b"ROLLBACK")
        except psycopg.Error:
            return False
        return self._awaits_reply or self._is_idle()

    def is_usable(self, timeout_s: float) -> bool:
        """Returns True if the connection is idle and the server has not closed it.

        Waits at most `timeout_s` for the reply to the last COMMIT or ROLLBACK. Sends nothing to
        the server.
        """
        try:
            if self._awaits_reply:
                self._awaits_reply = False
                _check(super().wait(fetch_many(self.pgconn), timeout=timeout_s))
            return self._is_idle() and not _is_readable(self.pgconn.socket)
        except (psycopg.Error, _WaitTimeout):
            return False

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        """Waits for the server as psycopg does, but at most until one second after the deadline.

        A working server ends each statement at its statement_timeout; a hanging server does not.
        If the server does not reply in time, raises psycopg.errors.ConnectionTimeout. The caller
        must then close the connection.
        """
        limit_s = max(0.0, self.deadline.remaining_s) + _HANGS_AFTER_S
        is_limited = timeout is None and limit_s < math.inf
        try:
            return super().wait(gen, interval, limit_s if is_limited else timeout)
        except BaseException as error:
            if self.pgconn.pipeline_status != pq.PipelineStatus.OFF:
                self._has_failed_pipeline = True
            if is_limited and isinstance(error, _WaitTimeout):
                raise psycopg.errors.ConnectionTimeout("the server does not answer") from None
            raise

    def _post(self, script: bytes) -> None:
        """Sends one or more statements without waiting; `settle` collects their reply."""
        self.pgconn.send_query(script)
        self.pgconn.flush()
        self._awaits_reply = True

    def _is_idle(self) -> bool:
        """Returns True if the connection is ready for the next transaction."""
        return (
            self.pgconn.transaction_status == pq.TransactionStatus.IDLE
            and self.pgconn.pipeline_status == pq.PipelineStatus.OFF
            and not self._has_failed_pipeline
        )


def _check(results: list[PGresult]) -> None:
    """Raises a psycopg.Error for the first error among the results, if there is an error."""
    for result in results:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)


def _is_readable(fileno: int) -> bool:
    """Returns True if the server has sent data that is not the reply to a request.

    In most cases, the data is a notice that the server closes the connection.
    """
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))
