"""Limits how many bytes a process keeps in memory for each caller and for all callers."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hrag.values.errors import TooBusy

_CALLER_SHARE = 2  # A caller may use one half of all bytes.


class ByteBudget:
    """Counts the bytes in memory for each caller, up to a limit. Thread-safe.

    The callers of a service are tenants. The callers of the gateway are credentials.
    """

    def __init__(
        self, max_bytes: int, name: str, setting: str, *, by_credential: bool = False
    ) -> None:
        """`max_bytes` is the limit for all callers together.

        Error messages mention `name`, the name of the bytes (for example "unread replies"), and
        `setting`, the setting that limits them. They mention a tenant, but no credential, because
        a credential is a secret. With `by_credential`, the caller "" means everybody without a
        credential, so only the limit for all callers applies to "".
        """
        self._max_bytes = max_bytes
        self._caller_max_bytes = max_bytes // _CALLER_SHARE
        self._name = name
        self._setting = setting
        self._by_credential = by_credential
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._total = 0

    @property
    def total_bytes(self) -> int:
        """The sum of the bytes that count at present for all callers."""
        return self._total

    @contextmanager
    def share(self, caller: str) -> Iterator["Share"]:
        """Yields a `Share` that counts the bytes of one request.

        When the context ends, these bytes no longer count.
        """
        share = Share(self, caller)
        try:
            yield share
        finally:
            share.give(share.size_bytes)

    def take(self, caller: str, size_bytes: int) -> None:
        """Counts `size_bytes` until `give` is called; raises TooBusy beyond a limit."""
        has_share = bool(caller) or not self._by_credential
        with self._lock:
            used, total = self._bytes[caller], self._total
            exceeds_share = has_share and used + size_bytes > self._caller_max_bytes
            if not exceeds_share and total + size_bytes <= self._max_bytes:
                self._bytes[caller] = used + size_bytes
                self._total = total + size_bytes
                return
        kind, owner = "tenant", f"tenant {caller!r}"
        if self._by_credential:
            kind, owner = "caller", "this caller" if caller else "callers without a credential"
        raise TooBusy(
            f"{self._name} of {owner} have {used} bytes, and those of all {kind}s {total} bytes; "
            f"another {size_bytes} bytes would exceed the limit of {self._caller_max_bytes} bytes "
            f"for a {kind} or of {self._max_bytes} bytes for all ({self._setting})"
        )

    def give(self, caller: str, size_bytes: int) -> None:
        """Stops counting `size_bytes` that `take` has counted for the caller."""
        with self._lock:
            self._total -= size_bytes
            remaining = self._bytes[caller] - size_bytes
            if remaining:
                self._bytes[caller] = remaining
            else:
                del self._bytes[caller]


class Share:
    """Counts the bytes that one request and its reply have in memory. Not thread-safe."""

    def __init__(self, budget: ByteBudget, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self.size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Adds bytes; raises TooBusy if the limit of the caller or of all would be exceeded."""
        self._budget.take(self._caller, size_bytes)
        self.size_bytes += size_bytes

    def hold(self, size_bytes: int) -> None:
        """Sets the size of this share; raises TooBusy if a limit would be exceeded."""
        if size_bytes > self.size_bytes:
            self.take(size_bytes - self.size_bytes)
        else:
            self.give(self.size_bytes - size_bytes)

    def give(self, size_bytes: int) -> None:
        """Removes bytes that are not in memory any more."""
        self._budget.give(self._caller, size_bytes)
        self.size_bytes -= size_bytes
