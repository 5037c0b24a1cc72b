"""How many bytes of requests and replies the gateway holds at once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hrag.values.errors import TooBusy

_CALLER_SHARE = 2  # A caller may hold one in so many of the bytes.


class ByteBudget:
    """The bytes that all requests together may hold, and those of one caller.

    A caller is a credential. Those without one have no bound of their own.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0
        self._of_caller: Counter[str] = Counter()

    @contextmanager
    def share(self, caller: str) -> Iterator["Share"]:
        """Yields the share of one request of a caller, which is given back at the end."""
        share = Share(self, caller)
        try:
            yield share
        finally:
            share.give_back(share.size_bytes)

    def take(self, caller: str, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if they are too many."""
        own = self._of_caller[caller]
        if self._held_bytes + size_bytes > self._max_bytes:
            raise TooBusy(
                f"the gateway holds {self._held_bytes:,} bytes of requests and replies; at most "
                f"{self._max_bytes:,} are allowed (HRAG_HTTP_MAX_BUFFERED_BYTES)"
            )
        if caller and own + size_bytes > self._max_bytes // _CALLER_SHARE:
            raise TooBusy(
                f"the gateway holds {own:,} bytes of this caller's requests and replies, of at "
                f"most half of {self._max_bytes:,} (HRAG_HTTP_MAX_BUFFERED_BYTES)"
            )
        self._held_bytes += size_bytes
        self._of_caller[caller] = own + size_bytes

    def give_back(self, caller: str, size_bytes: int) -> None:
        """Removes bytes that were added."""
        self._held_bytes -= size_bytes
        self._of_caller[caller] -= size_bytes
        if not self._of_caller[caller]:
            del self._of_caller[caller]


class Share:
    """The bytes that one request holds."""

    def __init__(self, budget: ByteBudget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if the caller, or all requests together, hold too many."""
        self._budget.take(self._caller, size_bytes)
        self.size_bytes += size_bytes

    def hold(self, size_bytes: int) -> None:
        """Makes it so many bytes; raises TooBusy as `take` does."""
        if size_bytes > self.size_bytes:
            self.take(size_bytes - self.size_bytes)
        else:
            self.give_back(self.size_bytes - size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Removes bytes that the request no longer holds."""
        self._budget.give_back(self._caller, size_bytes)
        self.size_bytes -= size_bytes
