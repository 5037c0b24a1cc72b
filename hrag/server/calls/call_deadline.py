"""The deadline of a call: its caller's, or the server's where the caller gave none."""

import math

import grpc

from hrag.server.admission.cooperative_yield import yield_to_others
from hrag.values.deadline import NEVER, OF_CALL, Deadline

_NO_DEADLINE_S = 1e15  # gRPC says 9e18 where there is none.


def start(context: grpc.ServicerContext, default_s: float) -> None:
    """Fixes the deadline of the call that this context belongs to.

    `default_s` is what a caller without a deadline gets, in seconds from now.
    """
    OF_CALL.set(_deadline(context, default_s))


def end() -> None:
    """Forgets the deadline of a call that has ended."""
    OF_CALL.set(NEVER)


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """Returns the call's deadline, which ends early if the call is cancelled or disconnected."""
    started = OF_CALL.get()
    return _deadline(context, math.inf) if started is NEVER else started


def _deadline(context: grpc.ServicerContext, default_s: float) -> Deadline:
    remaining_s = context.time_remaining()
    if remaining_s is None or remaining_s > _NO_DEADLINE_S:
        remaining_s = default_s
    return Deadline.after(remaining_s, context.is_active, yield_to_others)
