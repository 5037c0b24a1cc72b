"""A limit on the bytes of requests and replies that the gateway buffers at the same time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hrag.values.errors import TooBusy

_CALLER_SHARE = 2  # One caller may use half of the bytes.


class ByteBudget:
    """Counts the bytes of all requests together and of each caller, and limits both.

    A caller is identified by its credential. Callers without a credential have only the limit
    of all requests together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._caller_bytes: Counter[str] = Counter()

    @contextmanager
    def share(self, caller: str) -> Iterator["Share"]:
        """Yields the share of one request of a caller; its bytes are removed at the end."""
        share = Share(self, caller)
        try:
            yield share
        finally:
            share.give_back(share.size_bytes)

    def take(self, caller: str, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if the sum would exceed a limit."""
        caller_bytes = self._caller_bytes[caller]
        if self._used_bytes + size_bytes > self._max_bytes:
            raise TooBusy(
                f"the gateway holds {self._used_bytes:,} bytes of requests and replies; at most "
                f"{self._max_bytes:,} are allowed (HRAG_HTTP_MAX_BUFFERED_BYTES)"
            )
        if caller and caller_bytes + size_bytes > self._max_bytes // _CALLER_SHARE:
            raise TooBusy(
                f"the gateway holds {caller_bytes:,} bytes of this caller's requests and replies; "
                f"at most half of {self._max_bytes:,} are allowed (HRAG_HTTP_MAX_BUFFERED_BYTES)"
            )
        self._used_bytes += size_bytes
        self._caller_bytes[caller] = caller_bytes + size_bytes

    def give_back(self, caller: str, size_bytes: int) -> None:
        """Removes bytes that were added."""
        self._used_bytes -= size_bytes
        self._caller_bytes[caller] -= size_bytes
        if not self._caller_bytes[caller]:
            del self._caller_bytes[caller]


class Share:
    """The bytes of one request and its reply that are buffered now."""

    def __init__(self, budget: ByteBudget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if the caller's bytes or all bytes would exceed the limit."""
        self._budget.take(self._caller, size_bytes)
        self.size_bytes += size_bytes

    def hold(self, size_bytes: int) -> None:
        """Sets the size of this share; raises TooBusy if it grows beyond a limit."""
        if size_bytes > self.size_bytes:
            self.take(size_bytes - self.size_bytes)
        else:
            self.give_back(self.size_bytes - size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Removes bytes that are not buffered any more."""
        self._budget.give_back(self._caller, size_bytes)
        self.size_bytes -= size_bytes
