"""How many bytes of requests and replies the gateway holds at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from hrag.errors import TooBusy


class ByteBudget:
    """The bytes that all requests together may hold."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0

    @contextmanager
    def share(self) -> Iterator["Share"]:
        """Yields the share of one request, which is given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            share.give_back(share.size_bytes)

    def take(self, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if they are too many."""
        if self._held_bytes + size_bytes > self._max_bytes:
            raise TooBusy(
                f"the gateway holds {self._held_bytes:,} bytes of requests and replies; at most "
                f"{self._max_bytes:,} are allowed (HRAG_HTTP_MAX_BUFFERED_BYTES)"
            )
        self._held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Removes bytes that were added."""
        self._held_bytes -= size_bytes


class Share:
    """The bytes that one request holds."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if all requests together hold too many."""
        self._budget.take(size_bytes)
        self.size_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Removes bytes that the request no longer holds."""
        self._budget.give_back(size_bytes)
        self.size_bytes -= size_bytes
