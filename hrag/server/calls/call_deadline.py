"""The deadline of a call: the client's deadline, or the server's if the client sets none."""

import math
import time
from collections.abc import Callable

import grpc

from hrag.values.current_call import CURRENT
from hrag.values.deadline import NEVER, Deadline

# For a call without a deadline, gRPC reports that 9e18 seconds remain. So if the remaining time is
# longer than this, the client has set no deadline.
_NO_DEADLINE_S = 1e15


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """Returns the deadline of the current call, whose gRPC context is `context`."""
    deadline = CURRENT.get().deadline
    if deadline is NEVER:
        return deadline_from(context, math.inf, context.is_active)
    return deadline


def deadline_from(
    context: grpc.ServicerContext, default_s: float, is_active: Callable[[], bool]
) -> Deadline:
    """Returns the deadline of a call that starts now.

    If the client sets no deadline, the deadline is `default_s` seconds from now. `is_active`
    returns False once the client has cancelled the call or disconnected; then the method `check` of
    the deadline raises an error, too.
    """
    remaining_s = context.time_remaining()
    if remaining_s is None or remaining_s > _NO_DEADLINE_S:
        remaining_s = default_s
    return Deadline(time.monotonic() + remaining_s, is_active, _yield_to_others)


def _yield_to_others() -> None:
    # The threads that a call starts check the call's deadline too, but must not sleep. In these
    # threads CURRENT is not the call, so this function does nothing.
    CURRENT.get().yield_to_others()
