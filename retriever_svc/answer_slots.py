"""Limits how many answers are written at the same time, in total and for one tenant.

A tenant may use all slots while no other tenant asks. Once the tenants that ask alternate, each
tenant may use at most half of the slots for one minute. So the answers of one tenant cannot block
the answers of all others.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hrag.server.admission.recent_tenants import RecentTenants
from hrag.values.errors import TooBusy

_SHARING_S = 60.0


class AnswerSlots:
    """The slots for answers. Thread-safe."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._share = -(-count // 2)
        self._recent = RecentTenants(_SHARING_S, clock)
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    @contextmanager
    def slot(self, tenant_id: str) -> Iterator[None]:
        """Holds a slot while the context is open. Raises TooBusy if this tenant gets none."""
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
        self._recent.note(tenant_id)
        if self._held.total() >= self._count:
            raise TooBusy(
                f"{self._count} answers are being written, which is as many as "
                "HRAG_MAX_CONCURRENT_ANSWERS allows at once"
            )
        held = self._held[tenant_id]
        if held >= self._share and not self._recent.is_alone:
            raise TooBusy(
                f"{held} answers are being written for tenant {tenant_id!r}; while others ask, it "
                f"may have half of the {self._count} that HRAG_MAX_CONCURRENT_ANSWERS allows "
                "at once"
            )
