"""How many calls each tenant may still make, counted in this process.

A tenant has a bucket of `burst` calls that fills at its rate. What is kept of it is one
number: when the bucket will be full again. A call moves that moment on by the time that one
call takes to come back, and is refused if it would then lie further off than an empty bucket
takes to fill. All in whole nanoseconds, so nothing is lost to rounding. Once the moment has
passed, nothing need be kept of a tenant: memory holds those with calls a short while ago.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

from hrag.errors import RateQuotaExceeded
from hrag.ids import is_name
from hrag.quota.quotas import Quota, QuotaOf

# Some 20 MB. More at once means that names are made up, which only a service can be asked
# with that asks for no credentials, or one of a credential for all; then the tenants that
# were looked at longest ago begin anew.
MAX_TENANTS = 100_000
_LOOKED_AT = 2  # For each that comes, so that they go as fast as they come.


class Rates:
    """Counts calls. Exact also when several threads ask at once."""

    def __init__(
        self,
        quota_of: QuotaOf,
        clock: Callable[[], int] = time.monotonic_ns,
        max_tenants: int = MAX_TENANTS,
    ) -> None:
        self._quota_of = quota_of
        self._clock = clock
        self._max_tenants = max_tenants
        self._full_at: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """How many tenants something is kept of."""
        return len(self._full_at)

    def take(self, tenants: Sequence[str]) -> RateQuotaExceeded | None:
        """Counts one call for each; or none at all, and says why.

        One call that counts for more than the burst needs a full bucket, and the tenant
        then owes the rest.
        """
        calls = {tenants[0]: 1} if len(tenants) == 1 else Counter(tenants)
        asked = [(tenant, count, self._quota_of(tenant)) for tenant, count in calls.items()]
        bounded = [each for each in asked if each[2].calls_per_s is not None]
        if not bounded:
            return None
        with self._lock:
            now = self._clock()
            moved = []
            for tenant_id, count, quota in bounded:
                interval, burst = quota.call_interval_ns, quota.calls_at_once
                full_at = max(self._full_at.get(tenant_id, now), now)
                wait = full_at + min(count, burst) * interval - now - burst * interval
                if wait > 0:
                    return _refusal(tenant_id, quota, wait / 1e9)
                moved.append((tenant_id, full_at + count * interval))
            for tenant_id, full_at in moved:
                self._keep(tenant_id, full_at, now)
        return None

    def _keep(self, tenant_id: str, full_at: int, now: int) -> None:
        if tenant_id in self._full_at:
            self._full_at[tenant_id] = full_at
        elif is_name(tenant_id):  # Any other is refused by whoever is called, and may be long.
            self._make_room(now)
            self._full_at[tenant_id] = full_at

    def _make_room(self, now: int) -> None:
        """Looks at those that were looked at longest ago; forgets them once they are full."""
        for _ in range(min(_LOOKED_AT, len(self._full_at))):
            tenant_id, full_at = self._full_at.popitem(last=False)
            if full_at > now and len(self._full_at) < self._max_tenants - 1:
                self._full_at[tenant_id] = full_at


def _refusal(tenant_id: str, quota: Quota, wait_s: float) -> RateQuotaExceeded:
    return RateQuotaExceeded(
        f"tenant {tenant_id!r} may make {quota.calls_per_s:g} calls a second, "
        f"{quota.calls_at_once:,} at once (HRAG_TENANT_CALLS_PER_S, HRAG_TENANT_BURST, or the "
        f"tenant's own in HRAG_TENANT_QUOTAS_FILE), and has made them; again in {wait_s:.3f} s",
        field="calls",
        retry_s=wait_s,
        tenant_id=tenant_id,
    )
