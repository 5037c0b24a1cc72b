"""Detects whether all recent calls of the service came from the same tenant."""

import time
from collections.abc import Callable


class RecentTenants:
    """Detects whether all recent calls came from the same tenant. Not thread-safe."""

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A call counts as recent for `within_s` seconds; `clock` returns monotonic seconds."""
        self._within_s = within_s
        self._clock = clock
        self._last = ""
        # The time of the last call that came from a different tenant than the previous call.
        self._changed_s = -within_s

    def note(self, tenant_id: str) -> None:
        """Records that the tenant calls now."""
        if self._last and tenant_id != self._last:
            self._changed_s = self._clock()
        self._last = tenant_id

    @property
    def is_alone(self) -> bool:
        """True if all calls of the last `within_s` seconds came from the same tenant."""
        return self._clock() - self._changed_s >= self._within_s
