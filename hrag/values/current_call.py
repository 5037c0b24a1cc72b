"""The call for which the current thread works, for code that no argument of the call reaches.

Log processors read the fields of the call here, and a transaction without an explicit deadline
reads its deadline. A server sets CURRENT once for each call, in the context in which all code of
the call runs. A thread that a call starts works for no call, because new threads have an empty
context.
"""

from collections.abc import Mapping
from contextvars import ContextVar

from hrag.values.deadline import NEVER, Deadline


class Call:
    """The part of a call that every module may read. It has no log fields unless it overrides them.

    `deadline` is the time until which the caller waits.
    """

    deadline: Deadline = NEVER

    def log_fields(self) -> Mapping[str, str]:
        """Returns the fields that each log line of the call has. Called when a line is written."""
        return {}

    def yield_to_others(self) -> None:
        """Sleeps if shorter calls should run first; does nothing unless it is overridden."""


class DeadlineOnly(Call):
    """Work that has a deadline but belongs to no call of a client."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline


NO_CALL = Call()

CURRENT: ContextVar[Call] = ContextVar("call", default=NO_CALL)
"""The current call; NO_CALL if this thread works for none."""
