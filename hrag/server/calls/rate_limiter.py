"""A rate limiter per tenant: the generic cell rate algorithm (GCRA, ITU-T I.371).

GCRA is a token bucket whose state is one number per tenant: the theoretical arrival time
(TAT), at which the bucket is full again. A call advances the TAT by the interval of its
rate; it is refused if the TAT would then lie further ahead than a full burst takes to
refill. Times are whole nanoseconds, so no rounding accumulates. A TAT in the past equals no
state at all, so memory holds only tenants that called recently. Where a tenant's rate has
changed, what is left until the TAT counts as many calls as before. Each process counts by itself.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from hrag.values.errors import RateQuotaExceeded
from hrag.values.ids import is_name
from hrag.values.quotas import Quota, QuotaOf

# About 30 MB. More tenants at once means invented names, which is possible only without
# authentication or with a credential for all tenants. Then the least recently examined
# tenants are forgotten and start with a full bucket.
MAX_TENANTS = 100_000
_EXAMINED_PER_INSERT = 2  # Above 1, so that expired entries go as fast as new ones come.


class _Bucket(NamedTuple):
    """When a tenant's bucket is full again, at the rate of one call each `interval_ns`."""

    full_ns: int
    interval_ns: int


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
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()  # By tenant.
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of tenants with state."""
        return len(self._buckets)

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
                full = self._full_ns(tenant_id, interval, now)
                wait = full + min(count, burst) * interval - now - burst * interval
                if wait > 0:
                    return _refusal(tenant_id, quota, wait / 1e9)
                advanced.append((tenant_id, _Bucket(full + count * interval, interval)))
            for tenant_id, bucket in advanced:
                self._store(tenant_id, bucket, now)
        return None

    def _full_ns(self, tenant_id: str, interval_ns: int, now: int) -> int:
        """When the tenant's bucket is full, or `now` if it is already."""
        bucket = self._buckets.get(tenant_id)
        if bucket is None or bucket.full_ns <= now:
            return now
        if bucket.interval_ns != interval_ns:
            left = (bucket.full_ns - now) * interval_ns // bucket.interval_ns
            bucket = self._buckets[tenant_id] = _Bucket(now + left, interval_ns)
        return bucket.full_ns

    def _store(self, tenant_id: str, bucket: _Bucket, now: int) -> None:
        if tenant_id in self._buckets:
            self._buckets[tenant_id] = bucket
        elif is_name(tenant_id):  # The handler refuses other names, which may be long.
            self._evict(now)
            self._buckets[tenant_id] = bucket

    def _evict(self, now: int) -> None:
        """Examines the least recently examined tenants and drops those with a full bucket."""
        for _ in range(min(_EXAMINED_PER_INSERT, len(self._buckets))):
            tenant_id, bucket = self._buckets.popitem(last=False)
            if bucket.full_ns > now and len(self._buckets) < self._max_tenants - 1:
                self._buckets[tenant_id] = bucket


def _refusal(tenant_id: str, quota: Quota, wait_s: float) -> RateQuotaExceeded:
    return RateQuotaExceeded(
        f"tenant {tenant_id!r} exceeded its limit of {quota.calls_per_s:g} calls a second, "
        f"burst {quota.burst_calls:,} (HRAG_TENANT_CALLS_PER_S, HRAG_TENANT_BURST, or its own "
        f"in HRAG_TENANT_QUOTAS_FILE); retry in {wait_s:.3f} s",
        field="calls",
        retry_s=wait_s,
        tenant_id=tenant_id,
    )
