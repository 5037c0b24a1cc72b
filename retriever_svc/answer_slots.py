"""Limits how many answers are written at the same time, in total and for one tenant.

Each answer that is being written occupies a slot. A tenant may use all slots while no other tenant
asks a question. If two successive questions come from different tenants, then for one minute each
tenant may use at most half of all slots. So the answers of one tenant cannot block the answers of
all other tenants.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hrag.server.admission.recent_tenants import RecentTenants
from hrag.values.errors import TooBusy

# If two successive questions come from different tenants, each tenant may use at most half of all
# slots for this time.
_SHARING_S = 60.0


class AnswerSlots:
    """Counts the answers that are being written, and refuses answers above a limit. Thread-safe.

    Each answer occupies one of `count` slots while it is being written.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._share = -(-count // 2)
        self._recent = RecentTenants(_SHARING_S, clock)
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()

    @contextmanager
    def slot(self, tenant_id: str) -> Iterator[None]:
        """Occupies a slot for the tenant while the `with` block runs.

        Raises TooBusy if all slots are occupied, or if the tenant occupies half of all slots while
        other tenants ask questions.
        """
        with self._lock:
            self._check(tenant_id)
            self._used[tenant_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._used[tenant_id] -= 1
                if not self._used[tenant_id]:
                    del self._used[tenant_id]

    def _check(self, tenant_id: str) -> None:
        self._recent.note(tenant_id)
        if self._used.total() >= self._count:
            raise TooBusy(
                f"{self._count} answers are being written, which is as many as "
                "HRAG_MAX_CONCURRENT_ANSWERS allows at once"
            )
        used = self._used[tenant_id]
        if used >= self._share and not self._recent.is_alone:
            raise TooBusy(
                f"{used} answers are being written for tenant {tenant_id!r}; while other tenants "
                f"ask questions, a tenant may have at most half of the {self._count} answers that "
                "HRAG_MAX_CONCURRENT_ANSWERS allows at once"
            )
