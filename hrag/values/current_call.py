"""The call for which the current thread works, for functions that have no parameter `call`.

A log processor adds the fields of the current call to each log line. A transaction without an
explicit deadline uses the deadline of the current call. The current call is the value of the
context variable CURRENT. A server sets this variable once for each call, in the context in which
all code of the call runs. A thread that a call starts works for no call, because new threads have
an empty context.
"""

from collections.abc import Mapping
from contextvars import ContextVar

from hrag.values.deadline import NEVER, Deadline


class Call:
    """The properties of a call that every module may read.

    `deadline` is the time until which the caller waits. This base class has no log fields;
    a subclass may override `log_fields`.
    """

    deadline: Deadline = NEVER

    def log_fields(self) -> Mapping[str, str]:
        """Returns the names and values of the fields that each log line of the call has.

        This method is called each time a line is written.
        """
        return {}

    def yield_to_others(self) -> None:
        """Sleeps briefly if short calls of other tenants should run before this call continues.

        The base class does not sleep.
        """


class DeadlineOnly(Call):
    """Work that has a deadline but belongs to no call of a client."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline


NO_CALL = Call()

CURRENT: ContextVar[Call] = ContextVar("call", default=NO_CALL)
"""The current call; NO_CALL if this thread works for no call."""
