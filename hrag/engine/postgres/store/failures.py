"""What errors of PostgreSQL mean to hrag: one table by SQLSTATE.

An error that is in no table is a bug of hrag and stays what it is. Messages come from the
server or from libpq; neither repeats a password.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from hrag.values.deadline import Deadline
from hrag.values.errors import (
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    HragError,
    InvalidArgument,
    StorageFull,
    StoreMissing,
    StoreUnavailable,
)

SCHEMA = "hrag"
_NAME_OF_SCHEMA = re.compile(rf"\b{SCHEMA}\b")

READ_ONLY = "25006"  # read_only_sql_transaction: the server is a standby now
_QUERY_CANCELED = "57014"
_INSUFFICIENT_PRIVILEGE = "42501"
_NO_TEXT = "22021"  # character_not_in_repertoire: NUL, which psycopg may notice itself
_MISSING = frozenset({"3F000", "42P01"})  # invalid_schema_name, undefined_table
_UNAVAILABLE = frozenset(
    {
        *("53000", "53200", "53300", "53400"),  # resources, memory, connections, temporary files
        *("57P01", "57P02", "57P03", "57P04", "57P05"),  # shut down, starting, dropped, idle
        *(READ_ONLY, "25P03", "25P04"),  # idle and long transactions are ended
        *("28000", "28P01", "3D000"),  # role, password, database
        *("58000", "58030", "58P01"),  # the server's disk and files
    }
)
_CONNECTION_CLASS = "08"
# The server's clock and ours tell apart what statement_timeout ends by so much.
_CLOCKS_DIFFER_S = 0.05


class Conflict(StoreUnavailable):
    """Two transactions conflict, or one deadlocks; running this one again may succeed."""


_PLAIN: dict[str, type[HragError]] = {
    _NO_TEXT: InvalidArgument,
    "40001": Conflict,  # serialization_failure
    "40P01": Conflict,  # deadlock_detected
    "53100": StorageFull,  # disk_full
    "XX001": DataLoss,  # data_corrupted
    "XX002": DataLoss,  # index_corrupted
}
"""Those that the server's own message explains."""


@contextmanager
def translated(deadline: Deadline, role: str = "") -> Iterator[None]:
    """Raises what `error_of` makes of an error of psycopg in the block."""
    try:
        yield
    except psycopg.Error as error:
        known = error_of(error, deadline, role)
        if known is None:
            raise
        raise known from error


def error_of(error: psycopg.Error, deadline: Deadline, role: str = "") -> HragError | None:
    """Returns the error of hrag that an error of psycopg means; None if it is a bug.

    `deadline` is that of the caller whose statement it was, `role` the database's user.
    """
    state = error.sqlstate or (_NO_TEXT if isinstance(error, psycopg.DataError) else "")
    if state == _QUERY_CANCELED:
        return _canceled(error, deadline)
    if state == _INSUFFICIENT_PRIVILEGE:
        return StoreUnavailable(f"the role {role} may not: {_message(error)}")
    if state in _PLAIN:
        return _PLAIN[state](f"PostgreSQL: {_message(error)}")
    if state in _MISSING and _is_ours(error):
        return StoreMissing(f"PostgreSQL holds no store: {_message(error)}")
    if state in _UNAVAILABLE or state.startswith(_CONNECTION_CLASS) or _is_of_connection(error):
        return _unavailable(error, deadline)
    return None


def _canceled(error: psycopg.Error, deadline: Deadline) -> HragError:
    """A statement was canceled: by its timeout, for its caller, or by somebody else."""
    if deadline.remaining_s <= _CLOCKS_DIFFER_S:
        return DeadlineExceeded("the deadline passed while PostgreSQL was working")
    if not deadline.is_waiting():
        return Cancelled("the call was cancelled while PostgreSQL was working")
    return StoreUnavailable(f"PostgreSQL: {_message(error)}")


def _unavailable(error: psycopg.Error, deadline: Deadline) -> HragError:
    if deadline.remaining_s <= 0:
        return DeadlineExceeded("the deadline passed while PostgreSQL did not answer")
    return StoreUnavailable(f"PostgreSQL is not available: {_message(error)}")


def _is_of_connection(error: psycopg.Error) -> bool:
    """Whether libpq lost or did not get a connection: such errors have no SQLSTATE."""
    is_aborted = isinstance(error, psycopg.errors.PipelineAborted)  # By an error before it.
    return isinstance(error, psycopg.OperationalError) and not error.sqlstate and not is_aborted


def _is_ours(error: psycopg.Error) -> bool:
    """Whether what is missing is hrag's schema or in it, not a home that was just dropped.

    The name is in the message, whatever its language and its quotation marks.
    """
    return _NAME_OF_SCHEMA.search(_message(error)) is not None


def _message(error: psycopg.Error) -> str:
    """The message in one line, without the position in a statement."""
    return " ".join((error.diag.message_primary or str(error)).split())
