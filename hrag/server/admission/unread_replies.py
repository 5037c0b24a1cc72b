"""Bounds the replies that clients do not read.

gRPC keeps a reply in memory until the client's flow control lets it go. A client that never
reads could so fill the memory with one call after another. Here the bytes of replies on their
way are counted, for each tenant and for all; what would exceed a limit is refused, and a call
whose reply is not read in time is cancelled.
"""

from functools import partial

import grpc

from hrag.server.admission.byte_budget import ByteBudget
from hrag.server.admission.timeouts import Timeouts


class _Sending:
    """A message that gRPC has and the client may not; compared by identity."""

    __slots__ = ("context", "size_bytes", "tenant")

    def __init__(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> None:
        self.context = context
        self.tenant = tenant
        self.size_bytes = size_bytes


class UnreadReplies:
    """Counts replies until their clients have read them. Thread-safe."""

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        """`timeout_s` is how long a client may take to read one message."""
        self._budget = ByteBudget(max_bytes, "unread replies", "HRAG_MAX_UNREAD_BYTES")
        self._unread = Timeouts[_Sending](timeout_s, _cancel, "unread-replies")

    @property
    def unread_bytes(self) -> int:
        """Bytes of all messages on their way."""
        return self._budget.total_bytes

    def send(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> None:
        """Counts the only reply of a call until the call ends; raises TooBusy, see `start`."""
        sending = self.start(context, tenant, size_bytes)
        if not context.add_callback(partial(self.finish, sending)):
            self.finish(sending)  # The client has gone.

    def start(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> _Sending:
        """Counts a message until `finish`; cancels the call if that takes too long.

        Raises TooBusy if unread messages, of the tenant or of all, would exceed their limit.
        """
        self._budget.take(tenant, size_bytes)
        sending = _Sending(context, tenant, size_bytes)
        self._unread.add(sending)
        return sending

    def finish(self, sending: _Sending) -> None:
        """Ends the counting: the message was sent, or its call has ended."""
        self._unread.remove(sending)
        self._budget.give(sending.tenant, sending.size_bytes)

    def close(self) -> None:
        """Stops cancelling."""
        self._unread.close()


def _cancel(sending: _Sending) -> None:
    sending.context.cancel()
