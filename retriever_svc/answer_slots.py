"""How many answers are written at once, and how many of them for one tenant.

A tenant alone may have all slots. Once another tenant has asked too, each has at most half of
them for a minute, so that one tenant's answers do not keep all others from theirs.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hrag.errors import TooBusy

_SHARING_S = 60.0


class AnswerSlots:
    """Slots for answers. Thread-safe."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._share = -(-count // 2)
        self._clock = clock
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._last = ""  # The tenant that asked last.
        self._others_s = -_SHARING_S  # When another than that asked last.

    @contextmanager
    def slot(self, tenant_id: str) -> Iterator[None]:
        """Holds a slot. Raises TooBusy if there is none for this tenant."""
        with self._lock:
            self._check(tenant_id)
            self._held[tenant_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held[tenant_id] -= 1
                if not self._held[tenant_id]:
                    del self._held[tenant_id]

    def _check(self, tenant_id: str) -> None:
        now = self._clock()
        if self._last and tenant_id != self._last:
            self._others_s = now
        self._last = tenant_id
        if self._held.total() >= self._count:
            raise TooBusy(
                f"{self._count} answers are being written, which is as many as "
                "HRAG_MAX_CONCURRENT_ANSWERS allows at once"
            )
        held = self._held[tenant_id]
        if held >= self._share and now - self._others_s < _SHARING_S:
            raise TooBusy(
                f"{held} answers are being written for tenant {tenant_id!r}; while others ask, it "
                f"has half of the {self._count} that HRAG_MAX_CONCURRENT_ANSWERS allows at once"
            )
