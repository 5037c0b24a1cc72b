"""Translates errors of PostgreSQL to errors of hrag, by their SQLSTATE.

An error without a translation is a bug of hrag and is raised unchanged. A translated error contains
the message of the server or of libpq, which never contains a password. If it may contain a user or
an address, it is the error's `detail`, which clients do not get.

In a cluster of Citus, hrag is connected to the coordinator, which reports errors of other nodes. If
a node is lost, the coordinator's connections still work, and other tenants are served.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from hrag.values.deadline import Deadline
from hrag.values.errors import (
    Cancelled,
    DatabaseRefused,
    DataLoss,
    DeadlineExceeded,
    HragError,
    InvalidArgument,
    StorageFull,
    StoreMissing,
    StoreUnavailable,
)

SCHEMA = "hrag"
_SCHEMA_NAME = re.compile(rf"\b{SCHEMA}\b")

# PostgreSQL's condition read_only_sql_transaction: the server has become a standby.
_READ_ONLY = "25006"
_QUERY_CANCELED = "57014"
# PostgreSQL's condition lock_not_available: a statement reached the server's lock_timeout.
_LOCK_NOT_AVAILABLE = "55P03"
_INSUFFICIENT_PRIVILEGE = "42501"
# PostgreSQL's condition character_not_in_repertoire: a text contains NUL. If psycopg detects the
# NUL before it sends the text, its error has no SQLSTATE.
_NO_TEXT = "22021"
# PostgreSQL's conditions invalid_schema_name and undefined_table: a schema or a table is missing.
_MISSING = frozenset({"3F000", "42P01"})
_UNAVAILABLE = frozenset(
    {
        # The server lacks resources, memory, connections or space for temporary files.
        *("53000", "53200", "53300", "53400"),
        # The server ended an idle session, an idle transaction, or a long transaction.
        *("57P05", "25P03", "25P04"),
        # The server's disk or one of its files failed.
        *("58000", "58030", "58P01"),
    }
)
# The role, the password or the database is wrong.
_REFUSED = frozenset({"28000", "28P01", "3D000"})
# The same in an error that a new connection failed with, which has no SQLSTATE. The messages are
# those of the server, of PgBouncer and of libpq. Servers that write another language than English
# are not understood: their refusals count as errors of the connection.
_REFUSED_CONNECTION = re.compile(
    r"password authentication failed|no password supplied|pg_hba\.conf"
    r"|(role|database|user) \"[^\"]*\" does not exist|no such (database|user)"
    r"|is not permitted to log in|permission denied for database"
    r"|unrecognized configuration parameter|server does not support SSL"
    r"|root certificate file|certificate verify failed"
    # psycopg's error for parameters with which libpq tries no server.
    r"|^connection is bad: (?!connection to server)"
)
# The server is read-only, shuts down, starts, has crashed, or dropped the database.
_SERVER_LOST = frozenset({_READ_ONLY, "57P01", "57P02", "57P03", "57P04"})
_CONNECTION_CLASS = "08"
# The SQLSTATEs with which Citus reports that another node is lost: it does not answer, or it has
# ended the coordinator's connection.
_NODE_LOST = frozenset({"08006", "57P01", "57P02", "57P03"})
# Messages of Citus about another node, which have an SQLSTATE of another class. Citus does not
# translate its messages.
_LOST_NODE = re.compile(
    r"^(failure on connection marked as essential"
    r"|execution cannot recover from multiple connection failures"
    r"|\S+ is a metadata node, but is out of sync)"
)
# Citus reports that the shard for which it planned the statement was split or moved meanwhile. A
# new plan finds the new shard.
_OLD_SHARD = re.compile(
    r"^(could not find valid entry for shard"
    r"|could not find any healthy placement for shard"
    r"|no active placements were found for shard) (placement )?\d"
)
# The names of shards end with the number of the shard. No other table of hrag has such a name.
_SHARD_NAME = re.compile(rf"\b({SCHEMA}\.[a-z_]+|{SCHEMA}_homes\.leaves_\d+)_\d+\b")
# The address of the node in such a message, or in the context of an error that the node reported.
_ADDRESS = re.compile(r"[^\s@]+:\d+(?=[\s,]|$)")
# The server measures statement_timeout with its own clock. So a statement may reach its timeout up
# to this long before its deadline by the clock of this process.
_CLOCKS_DIFFER_S = 0.05


class Conflict(StoreUnavailable):
    """The transaction conflicts with another one or with a move of its shard; repeat it."""


# PostgreSQL's names of these conditions are serialization_failure (40001), deadlock_detected
# (40P01), disk_full (53100), data_corrupted (XX001) and index_corrupted (XX002).
_ERROR_BY_SQLSTATE: dict[str, type[HragError]] = {
    _NO_TEXT: InvalidArgument,
    "40001": Conflict,
    "40P01": Conflict,
    "53100": StorageFull,
    "XX001": DataLoss,
    "XX002": DataLoss,
}
"""The class of hrag's error for an SQLSTATE; the error has the message of the server."""
_OF_STATEMENTS = _MISSING.union(_ERROR_BY_SQLSTATE, {_QUERY_CANCELED, _LOCK_NOT_AVAILABLE})


@contextmanager
def translated(deadline: Deadline, role: str = "") -> Iterator[None]:
    """Translates an error of psycopg that the block raises to the error that `error_of` returns.

    If `error_of` returns None, the error of psycopg is raised unchanged.
    """
    try:
        yield
    except psycopg.Error as error:
        hrag_error = error_of(error, deadline, role)
        if hrag_error is None:
            raise
        raise hrag_error from error


def error_of(error: psycopg.Error, deadline: Deadline, role: str = "") -> HragError | None:
    """Returns the error of hrag for an error of psycopg; None if it is a bug of hrag.

    `deadline` is the deadline of the caller whose statement failed. `role` is the name of the
    database user.
    """
    sqlstate = _sqlstate(error)
    if sqlstate in (_QUERY_CANCELED, _LOCK_NOT_AVAILABLE):
        return _cancellation_error(error, deadline)
    if refusal := _refusal(error, role):
        return refusal
    kind = Conflict if _is_of_old_shard(error) else _ERROR_BY_SQLSTATE.get(sqlstate)
    if kind is not None:
        return kind(f"PostgreSQL: {_message(error)}")
    if sqlstate in _MISSING and _names_hrag_schema(error):
        return StoreMissing(f"PostgreSQL holds no store: {_message(error)}")
    if sqlstate in _UNAVAILABLE or is_of_server(error) or is_of_node(error):
        return _unavailable_error(error, deadline)
    return None


def is_of_statement(error: psycopg.Error) -> bool:
    """Returns True if the next transaction on the same connection has no reason to fail too.

    Returns False if the error is about the connection, the server or the role, and if its cause is
    unknown. Such an error might repeat on the connection for ever.
    """
    return _sqlstate(error) in _OF_STATEMENTS or is_of_node(error) or _is_of_old_shard(error)


def is_of_server(error: psycopg.Error) -> bool:
    """Returns True if other connections to the same server probably fail too.

    The server or the network is lost, or the server has become a standby. Returns False if a node
    of a Citus cluster is lost but not the coordinator: then transactions on other nodes succeed.
    """
    sqlstate = _sqlstate(error)
    says_lost = sqlstate in _SERVER_LOST or sqlstate.startswith(_CONNECTION_CLASS)
    return (says_lost and not is_of_node(error)) or _is_connection_error(error)


def is_of_node(error: psycopg.Error) -> bool:
    """Returns True if the coordinator of a cluster reports that another node is not available.

    A server that ends a connection of its own says FATAL. The coordinator says ERROR, and its
    connections continue to work.
    """
    if error.diag.severity_nonlocalized != "ERROR":
        return False
    return error.sqlstate in _NODE_LOST or bool(_LOST_NODE.search(_message(error)))


def address_of_node(error: psycopg.Error) -> str:
    """Returns the address, with the port, of the node that an error of `is_of_node` is about."""
    for text in (_message(error), error.diag.context or ""):
        if found := _ADDRESS.search(text):
            return found[0]
    return "unknown"


def _is_of_old_shard(error: psycopg.Error) -> bool:
    """Returns True if Citus has split or moved the shard that the statement was planned for."""
    message = _message(error)
    if error.sqlstate in _MISSING:
        return bool(_SHARD_NAME.search(message))
    return bool(_OLD_SHARD.search(message))


def _cancellation_error(error: psycopg.Error, deadline: Deadline) -> HragError:
    """Returns the error for a statement that was cancelled.

    The statement reached its timeout or a timeout of the server, its caller no longer waits, or
    another session of the database cancelled it.
    """
    if deadline.remaining_s <= _CLOCKS_DIFFER_S:
        return DeadlineExceeded("the deadline passed while PostgreSQL was working")
    if not deadline.is_waiting():
        return Cancelled("the call was cancelled while PostgreSQL was working")
    return StoreUnavailable(f"PostgreSQL: {_message(error)}")


def _refusal(error: psycopg.Error, role: str) -> DatabaseRefused | None:
    """Returns an error that says what an operator must do; None if the error is no refusal."""
    sqlstate, message = _sqlstate(error), _message(error)
    if sqlstate == _INSUFFICIENT_PRIVILEGE:
        remedy = "deploy/postgres/roles.sql grants what hrag needs"
        return DatabaseRefused(
            "the role of hrag in PostgreSQL lacks a right",
            detail=f"the role {role}: {message}; {remedy}",
        )
    is_refused = _is_connection_error(error) and _REFUSED_CONNECTION.search(message)
    if sqlstate in _REFUSED or is_refused:
        remedy = "correct HRAG_POSTGRES_DSN, or the role or the database that it names"
        return DatabaseRefused("PostgreSQL refuses the connection", detail=f"{message}; {remedy}")
    return None


def _unavailable_error(error: psycopg.Error, deadline: Deadline) -> HragError:
    if deadline.remaining_s <= 0:
        return DeadlineExceeded("the deadline passed while PostgreSQL did not answer")
    subject = "a node of the cluster" if is_of_node(error) else "PostgreSQL"
    return StoreUnavailable(f"{subject} is not available", detail=_message(error))


def _is_connection_error(error: psycopg.Error) -> bool:
    """Returns True if libpq lost the connection or could not open one.

    Such errors have no SQLSTATE.
    """
    # A PipelineAborted error has no SQLSTATE, but it is not an error of the connection: an earlier
    # statement of the same pipeline has failed.
    is_aborted = isinstance(error, psycopg.errors.PipelineAborted)
    return isinstance(error, psycopg.OperationalError) and not error.sqlstate and not is_aborted


def _sqlstate(error: psycopg.Error) -> str:
    """Returns the SQLSTATE of an error; empty if it has none.

    If psycopg itself detects that a text contains NUL, returns the SQLSTATE of the server for this.
    """
    return error.sqlstate or (_NO_TEXT if isinstance(error, psycopg.DataError) else "")


def _names_hrag_schema(error: psycopg.Error) -> bool:
    """Returns True if the message says that hrag's schema or one of its tables is missing.

    Returns False if a table in the schema hrag_homes is missing. This schema has separate tables
    for large collections, and such a table may have just been dropped. Messages are in the server's
    language, with quotation marks of that language. So the message is searched only for the name of
    the schema.
    """
    return _SCHEMA_NAME.search(_message(error)) is not None


def _message(error: psycopg.Error) -> str:
    """Returns the error's primary message in one line, without the position in the statement."""
    return " ".join((error.diag.message_primary or str(error)).split())
