"""A limit per tenant for calls that run and calls that wait.

While others call, a tenant's calls take at most its share of the threads; alone, it may take
all but one, which is left for whoever comes next. Calls beyond that wait without a thread, in
the order of their arrival, and those beyond the limit of waiting calls are refused. So no
number of calls, and no cost of a call, delays another tenant by more than its fair share.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hrag.errors import TooBusy
from hrag.rpc.arrival import PendingCall

_SHARING_S = 1.0  # For so long after another tenant's call, a tenant counts as not alone.


@dataclass(slots=True)
class _Tenant:
    """`reserved` counts the waiting calls; `waiting` holds those whose threads have left them."""

    running: int = 0
    reserved: int = 0
    waiting: deque[PendingCall] = field(default_factory=deque)


class ConcurrencyLimiter:
    """Which calls of which tenant may run. Thread-safe."""

    def __init__(
        self,
        threads: int,
        max_waiting: int,
        resume: Callable[[PendingCall], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`threads` is how many calls may run at once; `resume` runs a call that waited."""
        self._alone = max(1, threads - 1)
        self._share = max(1, threads // 2)
        self._max_waiting = max_waiting
        self._resume = resume
        self._clock = clock
        self._lock = threading.Lock()
        self._tenants: dict[str, _Tenant] = {}
        self._last = ""  # The tenant of the last call.
        self._others_s = -_SHARING_S  # When another tenant than that called last.

    def try_enter(self, tenant: str) -> bool:
        """Counts a call as running, or else as waiting, and says which.

        A call that has to wait must be given to `wait`. Raises TooBusy if too many wait.
        """
        with self._lock:
            limit = self._limit(tenant)
            state = self._tenants.get(tenant)
            if state is None:
                state = self._tenants[tenant] = _Tenant()
            if state.running < limit:
                state.running += 1
                return True
            self._reserve(tenant, state)
            return False

    def wait(self, tenant: str, call: PendingCall) -> None:
        """Runs the call when it is its turn; it counts as running then."""
        with self._lock:
            self._tenants[tenant].waiting.append(call)
            ready = self._next(tenant)
        self._resume_all(ready)

    def suspend(self, tenant: str) -> None:
        """Counts a running call as waiting for something else; raises TooBusy if too many do.

        It runs again after `try_enter`, which `resumed` has to precede.
        """
        with self._lock:
            self._reserve(tenant, self._tenants[tenant])
        self.leave(tenant)

    def resumed(self, tenant: str) -> None:
        """Ends what `suspend` began."""
        with self._lock:
            self._tenants[tenant].reserved -= 1

    def leave(self, tenant: str) -> None:
        """Counts a running call as ended."""
        with self._lock:
            state = self._tenants[tenant]
            state.running -= 1
            ready = self._next(tenant)
            if not state.running and not state.reserved:
                del self._tenants[tenant]
        self._resume_all(ready)

    def _limit(self, tenant: str) -> int:
        now = self._clock()
        if tenant != self._last:
            self._last, self._others_s = tenant, now
        is_sharing = len(self._tenants) > 1 or now - self._others_s < _SHARING_S
        return self._share if is_sharing else self._alone

    def _reserve(self, tenant: str, state: _Tenant) -> None:
        if state.reserved >= self._max_waiting:
            raise TooBusy(
                f"tenant {tenant!r} has {state.reserved} waiting calls, as many as "
                "HRAG_TENANT_MAX_WAITING_CALLS allows"
            )
        state.reserved += 1

    def _next(self, tenant: str) -> list[PendingCall]:
        """Takes the calls whose turn it is and counts them as running."""
        state = self._tenants[tenant]
        ready = []
        while state.waiting and state.running < self._limit(tenant):
            state.running += 1
            state.reserved -= 1
            ready.append(state.waiting.popleft())
        return ready

    def _resume_all(self, calls: list[PendingCall]) -> None:
        for call in calls:
            self._resume(call)
