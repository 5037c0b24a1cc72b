"""A rate limiter per tenant: the generic cell rate algorithm (GCRA, ITU-T I.371).

GCRA is a token bucket whose state is one number per tenant: the theoretical arrival time
(TAT), at which the bucket is full again. A call advances the TAT by the interval of its
rate; it is refused if the TAT would then lie further ahead than a full burst takes to
refill. Times are whole nanoseconds, so no rounding accumulates. A TAT in the past equals no
state at all, so memory holds only tenants that called recently. Each process counts by itself.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

from hrag.errors import RateQuotaExceeded
from hrag.ids import is_name
from hrag.quota.quotas import Quota, QuotaOf

# About 20 MB. More tenants at once means invented names, which is possible only without
# authentication or with a credential for all tenants. Then the least recently examined
# tenants are forgotten and start with a full bucket.
MAX_TENANTS = 100_000
_EXAMINED_PER_INSERT = 2  # Above 1, so that expired entries go as fast as new ones come.


class RateLimiter:
    """Counts the calls of tenants against their quotas. Exact and thread-safe."""

    def __init__(
        self,
        quota_of: QuotaOf,
        clock: Callable[[], int] = time.monotonic_ns,
        max_tenants: int = MAX_TENANTS,
    ) -> None:
        """`clock` returns monotonic nanoseconds."""
        self._quota_of = quota_of
        self._clock = clock
        self._max_tenants = max_tenants
        self._arrival_ns: OrderedDict[str, int] = OrderedDict()  # The TAT of each tenant.
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of tenants with state."""
        return len(self._arrival_ns)

    def try_acquire(self, tenants: Sequence[str]) -> RateQuotaExceeded | None:
        """Counts one call for each element of `tenants`, or for none of them.

        Returns None if all are counted, else the error to raise, whose `retry_s` says when
        to try again. A tenant that occurs more often than its burst allows needs a full
        bucket and then owes the rest.
        """
        calls = {tenants[0]: 1} if len(tenants) == 1 else Counter(tenants)
        quotas = [(tenant, count, self._quota_of(tenant)) for tenant, count in calls.items()]
        limited = [each for each in quotas if each[2].calls_per_s is not None]
        if not limited:
            return None
        with self._lock:
            now = self._clock()
            advanced = []
            for tenant_id, count, quota in limited:
                interval, burst = quota.call_interval_ns, quota.burst_calls
                arrival = max(self._arrival_ns.get(tenant_id, now), now)
                wait = arrival + min(count, burst) * interval - now - burst * interval
                if wait > 0:
                    return _refusal(tenant_id, quota, wait / 1e9)
                advanced.append((tenant_id, arrival + count * interval))
            for tenant_id, arrival in advanced:
                self._store(tenant_id, arrival, now)
        return None

    def _store(self, tenant_id: str, arrival: int, now: int) -> None:
        if tenant_id in self._arrival_ns:
            self._arrival_ns[tenant_id] = arrival
        elif is_name(tenant_id):  # The handler refuses other names, which may be long.
            self._evict(now)
            self._arrival_ns[tenant_id] = arrival

    def _evict(self, now: int) -> None:
        """Examines the least recently examined tenants and drops those with a full bucket."""
        for _ in range(min(_EXAMINED_PER_INSERT, len(self._arrival_ns))):
            tenant_id, arrival = self._arrival_ns.popitem(last=False)
            if arrival > now and len(self._arrival_ns) < self._max_tenants - 1:
                self._arrival_ns[tenant_id] = arrival


def _refusal(tenant_id: str, quota: Quota, wait_s: float) -> RateQuotaExceeded:
    return RateQuotaExceeded(
        f"tenant {tenant_id!r} exceeded its limit of {quota.calls_per_s:g} calls a second, "
        f"burst {quota.burst_calls:,} (HRAG_TENANT_CALLS_PER_S, HRAG_TENANT_BURST, or its own "
        f"in HRAG_TENANT_QUOTAS_FILE); retry in {wait_s:.3f} s",
        field="calls",
        retry_s=wait_s,
        tenant_id=tenant_id,
    )
