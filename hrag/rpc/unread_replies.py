"""Bounds the replies that clients do not read.

gRPC keeps a reply in memory until the client's flow control lets it go. A client that never
reads could so fill the memory with one call after another. Here the bytes of replies on their
way are counted, for each tenant and for all; what would exceed a limit is refused, and a call
whose reply is not read in time is cancelled.
"""

import threading
from collections import Counter
from functools import partial

import grpc

from hrag.errors import TooBusy
from hrag.rpc.timeouts import Timeouts

_TENANT_SHARE = 2  # A tenant may hold one in so many of the bytes.


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
        self._max_bytes = max_bytes
        self._tenant_bytes = max_bytes // _TENANT_SHARE
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._total = 0
        self._unread = Timeouts[_Sending](timeout_s, _cancel, "unread-replies")

    @property
    def unread_bytes(self) -> int:
        """Bytes of all messages on their way."""
        return self._total

    def send(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> None:
        """Counts the only reply of a call until the call ends; raises TooBusy, see `start`."""
        sending = self.start(context, tenant, size_bytes)
        if not context.add_callback(partial(self.finish, sending)):
            self.finish(sending)  # The client has gone.

    def start(self, context: grpc.ServicerContext, tenant: str, size_bytes: int) -> _Sending:
        """Counts a message until `finish`; cancels the call if that takes too long.

        Raises TooBusy if unread messages, of the tenant or of all, would exceed their limit.
        """
        with self._lock:
            held = self._bytes[tenant]
            if held + size_bytes > self._tenant_bytes or self._total + size_bytes > self._max_bytes:
                raise TooBusy(
                    f"replies of {held} bytes to tenant {tenant!r} are unread, {self._total} "
                    f"bytes to all; with this one of {size_bytes} bytes they would exceed "
                    f"{self._tenant_bytes} bytes of a tenant or {self._max_bytes} of all "
                    "(HRAG_MAX_UNREAD_BYTES)"
                )
            self._bytes[tenant] = held + size_bytes
            self._total += size_bytes
        sending = _Sending(context, tenant, size_bytes)
        self._unread.add(sending)
        return sending

    def finish(self, sending: _Sending) -> None:
        """Ends the counting: the message was sent, or its call has ended."""
        self._unread.remove(sending)
        with self._lock:
            self._total -= sending.size_bytes
            left = self._bytes[sending.tenant] - sending.size_bytes
            if left:
                self._bytes[sending.tenant] = left
            else:
                del self._bytes[sending.tenant]

    def close(self) -> None:
        """Stops cancelling."""
        self._unread.close()


def _cancel(sending: _Sending) -> None:
    sending.context.cancel()
