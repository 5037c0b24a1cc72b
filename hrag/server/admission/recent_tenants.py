"""Detects whether one tenant alone has called the service recently."""

import time
from collections.abc import Callable


class RecentTenants:
    """Detects whether one tenant alone has called recently. Not thread-safe."""

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A call counts as recent for `within_s` seconds; `clock` returns monotonic seconds."""
        self._within_s = within_s
        self._clock = clock
        self._last = ""
        # The time of the last call whose tenant was another one than that of the call before it.
        self._changed_s = -within_s

    def note(self, tenant_id: str) -> None:
        """Records a call of the tenant."""
        if self._last and tenant_id != self._last:
            self._changed_s = self._clock()
        self._last = tenant_id

    @property
    def is_alone(self) -> bool:
        """True if within the last `within_s` seconds only one tenant has called."""
        return self._clock() - self._changed_s >= self._within_s
