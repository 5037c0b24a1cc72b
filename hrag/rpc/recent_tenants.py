"""Whether a tenant has had the service to itself lately."""

import time
from collections.abc import Callable


class RecentTenants:
    """Notices that the tenants of calls alternate. Not thread-safe."""

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A tenant is not alone for `within_s` seconds after another's call."""
        self._within_s = within_s
        self._clock = clock
        self._last = ""
        self._changed_s = -within_s  # When another tenant than the last one called.

    def is_alone(self, tenant_id: str) -> bool:
        """Notes a call; returns True if no other tenant has called within the time."""
        now = self._clock()
        if self._last and tenant_id != self._last:
            self._changed_s = now
        self._last = tenant_id
        return now - self._changed_s >= self._within_s
