"""Limits the memory of replies that clients do not read.

gRPC keeps a reply in memory until the client's flow control permits sending the reply. So a client
that makes many calls and never reads a reply could fill the memory. This module counts the bytes of
replies that have not been sent, for each tenant and for all tenants together. It refuses a reply
that would exceed a limit, and cancels a call whose reply is not read in time.
"""

from collections.abc import Mapping
from functools import partial

import grpc
import structlog

from hrag.observe import metrics
from hrag.observe.refusal_limiter import Refusal, RefusalLimiter
from hrag.server.admission.byte_budget import ByteBudget
from hrag.server.admission.timeouts import Timeouts

_log = structlog.get_logger()

_NOT_READ = "the reply was not read in time (HRAG_SEND_TIMEOUT_S)"


def _log_counts(counts: Mapping[Refusal, int]) -> None:
    _log.info("calls_cancelled", count=sum(counts.values()), problem=_NOT_READ)


_LIMITER = RefusalLimiter(_log_counts)
_CANCELLED = Refusal("reply_not_read", "", "")


class _Sending:
    """A message that was passed to gRPC and that the client may not have read yet.

    Two objects of this class are equal only if they are the same object.
    """

    __slots__ = ("context", "size_bytes", "tenant")

    def __init__(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> None:
        self.context = context
        self.tenant = tenant
        self.size_bytes = size_bytes


class UnreadReplies:
    """Counts and limits the bytes of replies that clients have not read yet. Thread-safe."""

    def __init__(self, max_bytes: int, timeout_s: float) -> None:
        """Sets the limits. `max_bytes` limits the unread bytes of all tenants together.

        One tenant may have at most half of `max_bytes`. `timeout_s` is the time in which a client
        must read one message.
        """
        self._budget = ByteBudget(max_bytes, "unread replies", "HRAG_MAX_UNREAD_BYTES")
        self._unread = Timeouts[_Sending](timeout_s, _cancel, "unread-replies")

    @property
    def unread_bytes(self) -> int:
        """The total size, in bytes, of the messages that clients have not read yet."""
        return self._budget.total_bytes

    def send(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> None:
        """Counts the `size_bytes` bytes of a unary call's reply as unread until the call ends.

        Raises TooBusy if the unread bytes of the tenant or of all tenants would exceed a limit.
        """
        sending = self.start(context, tenant, size_bytes)
        if not context.add_callback(partial(self.finish, sending)):
            self.finish(sending)  # The call has ended, so gRPC will not call the callback.

    def start(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> _Sending:
        """Counts a message of `size_bytes` as unread until `finish` is called.

        If `finish` is not called within the time limit, the call is cancelled. Raises TooBusy if
        the unread bytes of the tenant or of all tenants would exceed a limit.
        """
        self._budget.take(tenant, size_bytes)
        sending = _Sending(context, tenant, size_bytes)
        self._unread.add(sending)
        return sending

    def finish(self, sending: _Sending) -> None:
        """Stops counting a message as unread, because it was sent or its call has ended."""
        self._unread.remove(sending)
        self._budget.give(sending.tenant, sending.size_bytes)

    def close(self) -> None:
        """Stops the thread that cancels calls whose replies are not read in time."""
        self._unread.close()


def _cancel(sending: _Sending) -> None:
    metrics.unread_calls_cancelled.inc()
    if _LIMITER.allows(_CANCELLED):
        _log.info("call_cancelled", tenant=sending.tenant, problem=_NOT_READ)
    sending.context.cancel()
