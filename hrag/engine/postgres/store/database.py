"""Transactions on one database, each with a deadline.

Every statement that the engine sends to PostgreSQL passes through this module. If a caller no
longer waits, its statement is cancelled. Errors of PostgreSQL are raised as errors of
`hrag.errors`. After a connection is lost, the next transaction opens a new connection. If the DSN
names several servers, the new connection goes to a suitable server.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg import conninfo

from hrag.engine.postgres.store.cancellation import Canceller
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.connection_pool import DEFAULT_TIMES, ConnectionTimes, Pool
from hrag.engine.postgres.store.failures import (
    Conflict,
    address_of_node,
    error_of,
    is_of_node,
    is_of_server,
    is_of_statement,
    translated,
)
from hrag.values.current_call import CURRENT
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import DatabaseRefused, DeadlineExceeded, HragError, StoreUnavailable

_log = structlog.get_logger()

Result = TypeVar("Result")

# Sequential scans are off because PostgreSQL keeps the plan of a prepared statement. If the plan
# was made while a table was small, it would scan the whole table even when the table is large.
# Every statement of the engine can use an index instead.
_NO_SEQSCAN = b"; SET LOCAL enable_seqscan = off"
# The usual value of `hnsw.ef_search`. At 100,000 leaves, recall@10 is 0.924 with the value 50,
# 0.985 with 100, and 0.995 with 200.
EF_SEARCH = 200
# The settings of searches in an HNSW index; `vector_source` explains them. With `relaxed_order`,
# pgvector continues its scan until it has found enough rows that are eligible and not deleted.
# Citus does not send these settings to its nodes, where they are settings of the role. If it sent
# them, it would send the whole text, with BEGIN, for each setting.
_INDEX_SETTINGS = b"; SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = %d"
_BEGIN_READING = b"".join(
    (b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", _NO_SEQSCAN, _INDEX_SETTINGS % EF_SEARCH)
)
# BEGIN does not say READ WRITE, because a standby would reject the BEGIN. Without READ WRITE, a
# standby accepts the BEGIN and rejects the first change, with an SQLSTATE that this module
# recognises.
_BEGIN_WRITING = b"BEGIN ISOLATION LEVEL READ COMMITTED" + _NO_SEQSCAN
# A node of a Citus cluster that does not answer is logged at most this often, because many calls
# may fail in a second.
_NODE_LOG_INTERVAL_S = 5.0
_ATTEMPTS = 5
_FIRST_PAUSE_S = 0.01
# The values of connection parameters that the DSN does not set. `connect_timeout` has libpq's
# smallest value, two seconds. It limits the wait for a machine that does not reply at all. A
# machine that runs, but on which PostgreSQL is down, refuses the connection at once. The keepalives
# and `tcp_user_timeout` close a connection when its server has not replied for a minute.
_DEFAULTS = {
    "connect_timeout": "2",
    "client_encoding": "utf8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


class PostgresDatabase:
    """A PostgreSQL database, accessed through a pool of connections. Thread-safe.

    Creating the object opens no connection.
    """

    def __init__(
        self,
        dsn: str,
        max_connections: int,
        application_name: str,
        *,
        is_writer: bool = False,
        times: ConnectionTimes = DEFAULT_TIMES,
    ) -> None:
        """Stores the arguments; raises DatabaseRefused if the DSN is malformed.

        `dsn` is a URI or a keyword string in libpq's syntax. `application_name` is the name
        under which the server's administrator sees this process. With `is_writer`, connections
        go to the primary if the DSN names several hosts.
        """
        parameters: dict[str, Any] = _DEFAULTS | {"fallback_application_name": application_name}
        if is_writer:
            parameters["target_session_attrs"] = "read-write"
        try:
            self._parameters = parameters | conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # The cause is hidden (`from None`) because libpq's message may contain the password.
            raise DatabaseRefused("the DSN of PostgreSQL is malformed") from None
        self._times = times
        self._pool = Pool(self._connect, max_connections, times)
        # Health checks have a separate connection, so that they succeed even while all connections
        # of `_pool` are in use.
        self._check_pool = Pool(self._connect, 1, times)
        self._canceller = Canceller()
        self._healthy_until_s = 0.0
        # Lost nodes of a Citus cluster, and the time before which each is not logged again.
        self._silent_until_s: dict[str, float] = {}

    @contextmanager
    def read(self, deadline: Deadline = NEVER) -> Iterator[Connection]:
        """Runs the block in a read-only transaction that sees one snapshot of the database.

        Without a `deadline`, the deadline of the gRPC call that this thread serves applies, if
        there is one. Neither BEGIN nor COMMIT waits for the server. Raises the errors of `write`.
        """
        with self._transaction(_BEGIN_READING, deadline) as connection:
            yield connection
            connection.end_reading()

    @contextmanager
    def write(self, deadline: Deadline = NEVER) -> Iterator[Connection]:
        """Runs the block in a transaction that is committed at the end, or not at all.

        Each statement sees all changes that other transactions committed before it. The deadline
        applies as for `read`. Raises StoreUnavailable, DatabaseRefused, StoreMissing, StorageFull,
        DataLoss, TooBusy, DeadlineExceeded and Cancelled. If StoreUnavailable is raised by the
        commit, the changes may have been committed.
        """
        with self._transaction(_BEGIN_WRITING, deadline) as connection:
            yield connection
            connection.end_writing()

    def retry(self, change: Callable[[Connection], Result], deadline: Deadline = NEVER) -> Result:
        """Runs `change` in a transaction and returns its result.

        Repeats the transaction if it conflicts with another one, up to five attempts in total.
        Raises the errors of `write`. If the last attempt conflicts too, raises Conflict, which is
        a StoreUnavailable.
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
        raise AssertionError("unreachable: the last attempt returns a result or raises an error")

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """Runs each statement of the block in a separate transaction, without a deadline.

        Some statements, for example VACUUM, cannot run inside a transaction with other statements.
        Raises the errors of `write`.
        """
        with self._connection(NEVER, self._pool) as connection:
            yield connection

    def check(self) -> None:
        """Raises StoreUnavailable if the database does not answer.

        Sends nothing if a transaction succeeded within the last `ConnectionTimes.healthy_s`. The
        check uses a separate connection, which `max_connections` does not include.
        """
        if time.monotonic() >= self._healthy_until_s:
            check_s = self._times.check_s
            deadline = Deadline.after(check_s)
            try:
                with self._transaction(_BEGIN_READING, deadline, self._check_pool) as connection:
                    connection.execute(b"SELECT 1")
                    connection.end_reading()
            except DeadlineExceeded:
                raise StoreUnavailable(f"PostgreSQL did not answer in {check_s:g} s") from None

    def close(self) -> None:
        """Closes idle connections now, and each connection in use when its transaction ends."""
        self._pool.close()
        self._check_pool.close()
        self._canceller.close()

    @contextmanager
    def _transaction(
        self, begin: bytes, deadline: Deadline, pool: Pool | None = None
    ) -> Iterator[Connection]:
        if deadline is NEVER:
            deadline = CURRENT.get().deadline
        deadline.check("asking PostgreSQL")
        with self._connection(deadline, pool or self._pool) as connection:
            connection.begin(begin, deadline)
            with self._canceller.watching(connection, deadline):
                yield connection

    @contextmanager
    def _connection(self, deadline: Deadline, pool: Pool) -> Iterator[Connection]:
        """Runs the block with a connection of the pool.

        Raises the errors of hrag to which `failures` translates the errors of psycopg. After the
        block, the connection returns to the pool. It is closed instead if it cannot be used any
        more, or if an error is not about a statement: such an error could repeat on it for ever.
        """
        with translated(deadline):
            connection = pool.take(deadline)
        connection.deadline = deadline
        is_sound = False
        try:
            yield connection
            is_sound = True
            self._healthy_until_s = time.monotonic() + self._times.healthy_s
        except psycopg.Error as error:
            hrag_error = error_of(error, deadline, connection.info.user)
            if hrag_error is not None and is_of_node(error):
                self._log_lost_node(hrag_error, address_of_node(error))
            is_sound = is_of_statement(error) and connection.abandon()
            if is_of_server(error):
                # The other connections lead to the same server.
                self._pool.replace_all()
                self._check_pool.replace_all()
            if hrag_error is None:
                raise
            raise hrag_error from error
        except BaseException:
            is_sound = connection.abandon()
            raise
        finally:
            pool.give_back(connection, is_sound=is_sound)

    def _log_lost_node(self, error: HragError, node: str) -> None:
        """Logs which node of a Citus cluster is lost; clients do not read its address."""
        now_s = time.monotonic()
        if now_s >= self._silent_until_s.get(node, 0.0):
            self._silent_until_s[node] = now_s + _NODE_LOG_INTERVAL_S
            _log.warning("node_without_answer", node=node, problem=error.detail)

    def _connect(self) -> Connection:
        return Connection.open("", **self._parameters)
