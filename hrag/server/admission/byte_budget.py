"""A limit of the bytes in a process's memory, for each caller and for all callers together."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hrag.values.errors import TooBusy

_CALLER_SHARE = 2  # A caller may use one half of all bytes.


class ByteBudget:
    """Counts bytes by caller. Thread-safe.

    The callers of a service are tenants. The callers of the gateway are credentials.
    """

    def __init__(
        self, max_bytes: int, name: str, setting: str, *, by_credential: bool = False
    ) -> None:
        """`max_bytes` is the limit for all callers together.

        Error messages mention `name`, the name of the bytes (for example "unread replies"), and
        `setting`, the setting that limits them. They mention a tenant, but no credential, because
        a credential is a secret. With `by_credential`, the caller "" stands for everybody without a
        credential, so only the limit for all callers applies to it.
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
        """The bytes of all callers that count at present."""
        return self._total

    @contextmanager
    def share(self, caller: str) -> Iterator["Share"]:
        """Yields the share of one request; its bytes no longer count when the context ends."""
        share = Share(self, caller)
        try:
            yield share
        finally:
            share.give(share.size_bytes)

    def take(self, caller: str, size_bytes: int) -> None:
        """Counts `size_bytes` until `give` is called; raises TooBusy if they exceed a limit."""
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
            f"{self._name} of {owner} have {used} bytes, those of all {kind}s {total}; another "
            f"{size_bytes} would exceed the limit of {self._caller_max_bytes} bytes for a {kind} "
            f"or of {self._max_bytes} bytes for all ({self._setting})"
        )

    def give(self, caller: str, size_bytes: int) -> None:
        """Stops counting `size_bytes` that `take` counted."""
        with self._lock:
            self._total -= size_bytes
            remaining = self._bytes[caller] - size_bytes
            if remaining:
                self._bytes[caller] = remaining
            else:
                del self._bytes[caller]


class Share:
    """The bytes of one request and its reply that count now. Not thread-safe."""

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
            self.give(self.size_bytes - size_bytes)

    def give(self, size_bytes: int) -> None:
        """Removes bytes that are not in memory any more."""
        self._budget.give(self._caller, size_bytes)
        self.size_bytes -= size_bytes
