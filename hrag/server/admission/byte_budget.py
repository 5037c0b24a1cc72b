"""Bytes that tenants hold in a server's memory, bounded in all and for each."""

import threading
from collections import Counter

from hrag.values.errors import TooBusy

_TENANT_SHARE = 2  # A tenant may hold one in so many of the bytes.


class ByteBudget:
    """Counts bytes by tenant. Thread-safe."""

    def __init__(self, max_bytes: int, what: str, setting: str) -> None:
        """`what` names the bytes in errors, as in "unread replies", and `setting` their limit."""
        self._max_bytes = max_bytes
        self._tenant_bytes = max_bytes // _TENANT_SHARE
        self._what = what
        self._setting = setting
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._total = 0

    @property
    def total_bytes(self) -> int:
        """Bytes of all tenants."""
        return self._total

    def take(self, tenant: str, size_bytes: int) -> None:
        """Counts bytes until `give`; raises TooBusy if they exceed a limit."""
        with self._lock:
            held, total = self._bytes[tenant], self._total
            if held + size_bytes <= self._tenant_bytes and total + size_bytes <= self._max_bytes:
                self._bytes[tenant] = held + size_bytes
                self._total = total + size_bytes
                return
        raise TooBusy(
            f"{self._what} of tenant {tenant!r} have {held} bytes, those of all {total}; with "
            f"another {size_bytes} they would exceed {self._tenant_bytes} bytes of a tenant or "
            f"{self._max_bytes} of all ({self._setting})"
        )

    def give(self, tenant: str, size_bytes: int) -> None:
        """Ends what `take` began."""
        with self._lock:
            self._total -= size_bytes
            left = self._bytes[tenant] - size_bytes
            if left:
                self._bytes[tenant] = left
            else:
                del self._bytes[tenant]
