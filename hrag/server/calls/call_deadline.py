"""The deadline of a call: the client's deadline, or the server's if the client sets none."""

import math

import grpc

from hrag.server.admission.cooperative_yield import yield_to_others
from hrag.values.deadline import NEVER, OF_CALL, Deadline

_NO_DEADLINE_S = 1e15  # For a call without a deadline, gRPC reports 9e18 seconds.


def start(context: grpc.ServicerContext, default_s: float) -> None:
    """Sets the deadline of the call that has this context.

    `default_s` is the deadline if the client sets none, in seconds from now.
    """
    OF_CALL.set(_deadline(context, default_s))


def end() -> None:
    """Removes the deadline of a call that has ended from its context."""
    OF_CALL.set(NEVER)


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """Returns the deadline of the call. It ends early if the client cancels or disconnects."""
    started = OF_CALL.get()
    return _deadline(context, math.inf) if started is NEVER else started


def _deadline(context: grpc.ServicerContext, default_s: float) -> Deadline:
    remaining_s = context.time_remaining()
    if remaining_s is None or remaining_s > _NO_DEADLINE_S:
        remaining_s = default_s
    return Deadline.after(remaining_s, context.is_active, yield_to_others)
