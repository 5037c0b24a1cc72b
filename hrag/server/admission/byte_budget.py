"""Limits how many bytes a process keeps in memory for each caller and for all callers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hrag.values.errors import TooBusy

_CALLER_SHARE = 2  # One caller may use at most half of `max_bytes`, the limit for all callers.


class ByteBudget:
    """Counts the bytes that each caller has in memory; refuses bytes beyond a limit. Thread-safe.

    The callers of a service are tenants. The callers of the gateway are credentials.
    """

    def __init__(
        self, max_bytes: int, name: str, setting: str, *, by_credential: bool = False
    ) -> None:
        """Creates a budget of `max_bytes` for all callers together, half of it for one caller.

        Error messages contain `name`, which says what the bytes are (for example "unread replies"),
        and `setting`, the name of the setting that limits the bytes. Without `by_credential`,
        callers are tenants, and a message names the tenant. With `by_credential`, callers are
        credentials, and a message does not name the credential, because it is secret. The caller
        "" stands for everybody without a credential, so only the limit for all callers applies
        to it.
        """
        self._max_bytes = max_bytes
        self._caller_max_bytes = max_bytes // _CALLER_SHARE
        self._name = name
        self._setting = setting
        self._by_credential = by_credential
        self._lock = threading.Lock()
        self._bytes: dict[str, int] = {}
        self._total = 0

    @property
    def total_bytes(self) -> int:
        """The count of bytes that all callers together have in memory now."""
        return self._total

    @contextmanager
    def share(self, caller: str) -> Iterator["Share"]:
        """Yields a `Share` that counts the bytes of one request of the caller.

        At the end of the `with` block, the bytes of the `Share` do not count any more.
        """
        share = Share(self, caller)
        try:
            yield share
        finally:
            share.give(share.size_bytes)

    def take(self, caller: str, size_bytes: int) -> None:
        """Counts `size_bytes` more bytes of the caller, until `give` is called.

        Raises TooBusy if the caller would exceed half of `max_bytes`, or if all callers together
        would exceed `max_bytes`.
        """
        has_share = bool(caller) or not self._by_credential
        with self._lock:
            used, total = self._bytes.get(caller, 0), self._total
            exceeds_share = has_share and used + size_bytes > self._caller_max_bytes
            if not exceeds_share and total + size_bytes <= self._max_bytes:
                self._bytes[caller] = used + size_bytes
                self._total = total + size_bytes
                return
        kind, owner = "tenant", f"tenant {caller!r}"
        if self._by_credential:
            kind, owner = "caller", "this caller" if caller else "callers without a credential"
        raise TooBusy(
            f"{self._name} of {owner} have {used} bytes, and {self._name} of all {kind}s have "
            f"{total} bytes; another {size_bytes} bytes would exceed the limit of "
            f"{self._caller_max_bytes} bytes for a {kind} or of {self._max_bytes} bytes for all "
            f"{kind}s ({self._setting})"
        )

    def give(self, caller: str, size_bytes: int) -> None:
        """Subtracts `size_bytes` from the bytes that `take` has counted for the caller."""
        with self._lock:
            self._total -= size_bytes
            remaining = self._bytes.get(caller, 0) - size_bytes
            if remaining:
                self._bytes[caller] = remaining
            else:
                self._bytes.pop(caller, None)


class Share:
    """Counts the bytes that one request and its reply have in memory. Not thread-safe."""

    def __init__(self, budget: ByteBudget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Adds `size_bytes` to the count of bytes; raises TooBusy if a limit would be exceeded."""
        self._budget.take(self._caller, size_bytes)
        self.size_bytes += size_bytes

    def hold(self, size_bytes: int) -> None:
        """Sets the count of bytes to `size_bytes`; raises TooBusy if a limit would be exceeded."""
        if size_bytes > self.size_bytes:
            self.take(size_bytes - self.size_bytes)
        else:
            self.give(self.size_bytes - size_bytes)

    def give(self, size_bytes: int) -> None:
        """Stops counting `size_bytes` bytes, because they are not in memory any more."""
        self._budget.give(self._caller, size_bytes)
        self.size_bytes -= size_bytes
