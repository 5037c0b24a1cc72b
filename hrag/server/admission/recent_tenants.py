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

    def note(self, tenant_id: str) -> None:
        """Counts a call of the tenant."""
        if self._last and tenant_id != self._last:
            self._changed_s = self._clock()
        self._last = tenant_id

    @property
    def is_alone(self) -> bool:
        """True if no other tenant than the last one has called within the time."""
        return self._clock() - self._changed_s >= self._within_s
