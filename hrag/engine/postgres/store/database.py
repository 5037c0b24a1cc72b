"""Transactions on one database, with a deadline each: all that the engine asks PostgreSQL goes
through here.

A caller that leaves has its statement cancelled; errors of PostgreSQL arrive as those of
`hrag.errors`. After an error of the connection nothing needs to be done: the next
transaction opens another one, on a server that suits it if the DSN names several.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo

from hrag.engine.postgres.store.cancellation import Canceller
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.connection_pool import Pool
from hrag.engine.postgres.store.failures import READ_ONLY, Conflict, error_of, translated
from hrag.values.deadline import NEVER, OF_CALL, Deadline
from hrag.values.errors import DeadlineExceeded, StoreUnavailable

Result = TypeVar("Result")

# Every statement has an index to use. PostgreSQL keeps the plan of a prepared statement, and one
# made while a table was small would scan it for ever.
_BY_INDEX = b"; SET LOCAL enable_seqscan = off"
# What a search of an HNSW index wants, see `vector_source`. An iterative scan goes on until enough
# rows are eligible and living. SET and not set_config(), which Citus does not send on.
EF_SEARCH = 200  # Recall@10 at 100,000 leaves: 0.924 with 50, 0.985 with 100, 0.995 with 200.
_OF_INDEX = b"; SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = %d"
_BEGIN_READING = b"".join(
    (b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", _BY_INDEX, _OF_INDEX % EF_SEARCH)
)
# Without READ WRITE: what may be written to is the server's to say, and a standby refuses each
# change by an error of its own.
_BEGIN_WRITING = b"BEGIN ISOLATION LEVEL READ COMMITTED" + _BY_INDEX
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.01
_HEALTHY_S = 1.0
"""For how long a transaction that went well says that the database does."""

_CHECK_S = 1.0

# Each of them stands unless the DSN says otherwise. libpq waits at least two seconds for a
# server that does not answer at all; one that is down refuses at once. A connection to a
# machine that vanished ends after a minute.
_DEFAULTS = {
    "connect_timeout": "2",
    "client_encoding": "utf8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class Database:
    """One database, through a pool of connections. Thread-safe; opens none by itself."""

    def __init__(
        self, dsn: str, max_connections: int, application_name: str, *, is_writer: bool = False
    ) -> None:
        """`dsn` is a URI or keywords as libpq reads them, `application_name` what the
        server's administrator sees of this process. With `is_writer`, of several hosts the
        primary is looked for. Raises StoreUnavailable if the DSN is malformed."""
        own: dict[str, Any] = _DEFAULTS | {"fallback_application_name": application_name}
        if is_writer:
            own["target_session_attrs"] = "read-write"
        try:
            self._parameters = own | conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # The message of libpq may hold the password.
            raise StoreUnavailable("the DSN of PostgreSQL is malformed") from None
        self._pool = Pool(self._connect, max_connections)
        # Its own: that all others are in use does not mean that the database is lost.
        self._pool_of_check = Pool(self._connect, 1)
        self._canceller = Canceller()
        self._healthy_until_s = 0.0

    @contextmanager
    def read(self, deadline: Deadline = NEVER) -> Iterator[Connection]:
        """Runs the block in a transaction that sees one state of the database and changes none.

        Without a deadline it has that of the call that this thread works for, if there is one.
        Neither its beginning nor its end waits for the server. Raises what `write` raises.
        """
        with self._transaction(_BEGIN_READING, deadline) as connection:
            yield connection
            connection.end_reading()

    @contextmanager
    def write(self, deadline: Deadline = NEVER) -> Iterator[Connection]:
        """Runs the block in a transaction, committed at its end or not at all.

        Each statement sees what others have committed before it. The deadline is as for `read`.
        Raises StoreUnavailable, StoreMissing, StorageFull, DataLoss, TooBusy, DeadlineExceeded and
        Cancelled; after a StoreUnavailable at the end, the change may have been committed.
        """
        with self._transaction(_BEGIN_WRITING, deadline) as connection:
            yield connection
            connection.end_writing()

    def retry(self, change: Callable[[Connection], Result], deadline: Deadline = NEVER) -> Result:
        """Runs `change` in a transaction, anew when it conflicts with another one.

        Returns its result. Raises what `write` raises; a conflict after some attempts is
        StoreUnavailable.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self.write(deadline) as connection:
                    return change(connection)
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
            deadline.check("repeating a transaction that conflicted with another")
            time.sleep(_FIRST_PAUSE_S * 2**attempt * random.random())
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """Runs each statement of the block in a transaction of its own, without deadline.

        For what PostgreSQL runs in no other way, such as CREATE INDEX CONCURRENTLY. Raises what
        `write` raises.
        """
        with self._connection(NEVER, self._pool) as connection:
            yield connection

    def check(self) -> None:
        """Raises StoreUnavailable if the database does not answer.

        Asks it at most once a second while other transactions go well; on a connection of its
        own, besides those of the limit.
        """
        if time.monotonic() >= self._healthy_until_s:
            deadline = Deadline.after(_CHECK_S)
            try:
                with self._transaction(_BEGIN_READING, deadline, self._pool_of_check) as connection:
                    connection.execute(b"SELECT 1")
                    connection.end_reading()
            except DeadlineExceeded:
                raise StoreUnavailable(f"PostgreSQL did not answer in {_CHECK_S:g} s") from None

    def close(self) -> None:
        """Closes all connections; those in use when their transaction ends."""
        self._pool.close()
        self._pool_of_check.close()
        self._canceller.close()

    @contextmanager
    def _transaction(
        self, begin: bytes, deadline: Deadline, pool: Pool | None = None
    ) -> Iterator[Connection]:
        if deadline is NEVER:
            deadline = OF_CALL.get()
        deadline.check("asking PostgreSQL")
        with self._connection(deadline, pool or self._pool) as connection:
            connection.begin(begin, deadline)
            with self._canceller.watching(connection, deadline):
                yield connection

    @contextmanager
    def _connection(self, deadline: Deadline, pool: Pool) -> Iterator[Connection]:
        """Takes a connection; keeps it afterwards unless something has gone wrong with it."""
        with translated(deadline):
            connection = pool.take(deadline)
        connection.deadline = deadline
        is_sound = False
        try:
            yield connection
            is_sound = True
            self._healthy_until_s = time.monotonic() + _HEALTHY_S
        except psycopg.Error as error:
            known = error_of(error, deadline, connection.info.user)
            is_sound = connection.abandon() and error.sqlstate != READ_ONLY
            if error.sqlstate == READ_ONLY:
                for each in (self._pool, self._pool_of_check):
                    each.close_idle()  # The others lead to the same server.
            if known is None:
                raise
            raise known from error
        except BaseException:
            is_sound = connection.abandon()
            raise
        finally:
            pool.give_back(connection, is_sound=is_sound)

    def _connect(self) -> Connection:
        return Connection.open("", **self._parameters)
