"""The deadline of a call: the client's deadline, or the server's if the client sets none."""

import math

import grpc

from hrag.values.current_call import CURRENT
from hrag.values.deadline import NEVER, Deadline

# For a call without a deadline, gRPC reports that 9e18 seconds remain. So if the remaining time is
# longer than this, the client has set no deadline.
_NO_DEADLINE_S = 1e15


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """Returns the deadline of the current call, whose gRPC context is `context`."""
    deadline = CURRENT.get().deadline
    return deadline_from(context, math.inf) if deadline is NEVER else deadline


def deadline_from(context: grpc.ServicerContext, default_s: float) -> Deadline:
    """Returns the deadline of a call that starts now.

    If the client sets no deadline, the deadline is `default_s` seconds from now. The method `check`
    of the deadline also raises an error once the client has cancelled the call or disconnected.
    """
    remaining_s = context.time_remaining()
    if remaining_s is None or remaining_s > _NO_DEADLINE_S:
        remaining_s = default_s
    return Deadline.after(remaining_s, context.is_active, _yield_to_others)


def _yield_to_others() -> None:
    # The threads that a call starts check the call's deadline too, but must not sleep. In these
    # threads CURRENT is not the call, so this function does nothing.
    CURRENT.get().yield_to_others()
