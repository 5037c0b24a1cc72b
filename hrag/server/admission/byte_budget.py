"""A limit of the bytes in a server's memory, for each tenant and for all tenants together."""

import threading
from collections import Counter

from hrag.values.errors import TooBusy

_TENANT_SHARE = 2  # A tenant may use one half of all bytes.


class ByteBudget:
    """Counts bytes by tenant. Thread-safe."""

    def __init__(self, max_bytes: int, name: str, setting: str) -> None:
        """`max_bytes` is the limit for all tenants together.

        Error messages mention `name`, the name of the bytes (for example "unread replies"), and
        `setting`, the setting that limits them.
        """
        self._max_bytes = max_bytes
        self._tenant_bytes = max_bytes // _TENANT_SHARE
        self._name = name
        self._setting = setting
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._total = 0

    @property
    def total_bytes(self) -> int:
        """The bytes of all tenants that count at present."""
        return self._total

    def take(self, tenant: str, size_bytes: int) -> None:
        """Counts `size_bytes` until `give` is called; raises TooBusy if they exceed a limit."""
        with self._lock:
            used, total = self._bytes[tenant], self._total
            if used + size_bytes <= self._tenant_bytes and total + size_bytes <= self._max_bytes:
                self._bytes[tenant] = used + size_bytes
                self._total = total + size_bytes
                return
        raise TooBusy(
            f"{self._name} of tenant {tenant!r} have {used} bytes, those of all tenants {total}; "
            f"another {size_bytes} would exceed the limit of {self._tenant_bytes} bytes for a "
            f"tenant or of {self._max_bytes} bytes for all ({self._setting})"
        )

    def give(self, tenant: str, size_bytes: int) -> None:
        """Stops counting `size_bytes` that `take` counted."""
        with self._lock:
            self._total -= size_bytes
            remaining = self._bytes[tenant] - size_bytes
            if remaining:
                self._bytes[tenant] = remaining
            else:
                del self._bytes[tenant]
