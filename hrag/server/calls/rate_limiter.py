"""A rate limiter per tenant: the generic cell rate algorithm (GCRA, ITU-T I.371).

GCRA is a token bucket whose state is one timestamp per tenant: the theoretical arrival time
(TAT), which is the time at which the bucket is full again. A call advances the TAT by the interval
between two calls at the tenant's rate. The call is refused if the time until the advanced TAT would
be longer than the time in which an empty bucket becomes full. Times are whole nanoseconds, so no
rounding errors accumulate. A TAT in the past means the same as no TAT, so only tenants that called
recently need memory. If the rate of a tenant has changed, the remaining time until the TAT is
scaled, so that it represents as many calls as before. Each process counts separately.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from hrag.values.errors import RateQuotaExceeded
from hrag.values.ids import is_name
from hrag.values.quotas import Quota, QuotaOf

# At most this many tenants have a bucket. 100,000 buckets need about 30 MB. More tenants call at
# the same time only if a caller invents tenant ids. This is possible without authentication or with
# a credential for all tenants. Then the limiter removes the least recently examined buckets.
# A tenant whose bucket was removed is treated as if its bucket were full.
MAX_TENANTS = 100_000
# How many old buckets are examined when a bucket is added. An examined bucket is removed if it is
# full. Because more buckets are examined than added, full buckets cannot accumulate.
_EXAMINED_PER_INSERT = 2


class _Bucket(NamedTuple):
    """The token bucket of a tenant.

    The bucket is full again at `full_ns`, in monotonic nanoseconds. The tenant's rate is one call
    every `interval_ns`.
    """

    full_ns: int
    interval_ns: int


class RateLimiter:
    """Limits the rate of each tenant's calls to the tenant's quota. Thread-safe."""

    def __init__(
        self,
        quota_of: QuotaOf,
        clock: Callable[[], int] = time.monotonic_ns,
        max_tenants: int = MAX_TENANTS,
    ) -> None:
        """Creates a limiter without buckets. `clock` returns monotonic nanoseconds.

        `quota_of` returns the quota of a tenant. At most `max_tenants` tenants have a bucket.
        """
        self._quota_of = quota_of
        self._clock = clock
        self._max_tenants = max_tenants
        # The keys are tenants; the least recently examined tenant comes first.
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """Returns the count of tenants with a bucket."""
        return len(self._buckets)

    def try_acquire(self, tenants: Sequence[str]) -> RateQuotaExceeded | None:
        """Counts one call for each element of `tenants`; counts no call if any call is refused.

        Returns None if all calls are counted, else the error to raise. The error's `retry_s` is the
        time in seconds after which a retry may succeed.

        A tenant may occur in `tenants` more often than a full bucket has calls. Then its calls are
        accepted only if its bucket is full, and later calls of the tenant have to wait until the
        excess is made up for.
        """
        calls = {tenants[0]: 1} if len(tenants) == 1 else Counter(tenants)
        limited = [
            (tenant, count, quota)
            for tenant, count in calls.items()
            if (quota := self._quota_of(tenant)).calls_per_s is not None
        ]
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
        """Returns the time at which the tenant's bucket is full; `now` if it is full already."""
        bucket = self._buckets.get(tenant_id)
        if bucket is None or bucket.full_ns <= now:
            return now
        if bucket.interval_ns != interval_ns:
            remaining = (bucket.full_ns - now) * interval_ns // bucket.interval_ns
            bucket = self._buckets[tenant_id] = _Bucket(now + remaining, interval_ns)
        return bucket.full_ns

    def _store(self, tenant_id: str, bucket: _Bucket, now: int) -> None:
        if tenant_id in self._buckets:
            self._buckets[tenant_id] = bucket
        elif is_name(tenant_id):  # An invalid id may be long, so it is not stored.
            self._evict(now)
            self._buckets[tenant_id] = bucket

    def _evict(self, now: int) -> None:
        """Examines the least recently examined buckets, and removes full buckets.

        If there are `max_tenants` buckets, also removes examined buckets that are not full.
        """
        for _ in range(min(_EXAMINED_PER_INSERT, len(self._buckets))):
            tenant_id, bucket = self._buckets.popitem(last=False)
            if bucket.full_ns > now and len(self._buckets) < self._max_tenants - 1:
                self._buckets[tenant_id] = bucket


def _refusal(tenant_id: str, quota: Quota, wait_s: float) -> RateQuotaExceeded:
    return RateQuotaExceeded(
        f"tenant {tenant_id!r} exceeded its limit of {quota.calls_per_s:g} calls a second, "
        f"burst {quota.burst_calls:,} (HRAG_TENANT_CALLS_PER_S, HRAG_TENANT_BURST, or its entry "
        f"in HRAG_TENANT_QUOTAS_FILE); retry in {wait_s:.3f} s",
        field="calls",
        retry_s=wait_s,
        tenant_id=tenant_id,
    )
