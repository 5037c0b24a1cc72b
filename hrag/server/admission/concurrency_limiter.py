"""A limit per tenant for calls that run and calls that wait.

While others call, a tenant's calls take at most a quarter of the threads; alone, it may take
all but one, which is left for whoever comes next. Python runs one thread at a time, so that
each further one of a greedy tenant costs the others another turn. Calls beyond that wait
without a thread, in the order of their arrival, and those beyond the limit of waiting calls
are refused. So no number of calls, and no cost of a call, takes the threads from another
tenant.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hrag.server.admission.arrival import PendingCall
from hrag.server.admission.recent_tenants import RecentTenants
from hrag.values.errors import TooBusy

_SHARING_S = 1.0  # For so long after another tenant's call, a tenant counts as not alone.


@dataclass(slots=True)
class _Tenant:
    """`suspended` counts calls that wait for something else than their turn."""

    running: int = 0
    suspended: int = 0
    waiting: deque[PendingCall] = field(default_factory=deque)


class ConcurrencyLimiter:
    """Runs each tenant's calls in their order, some at once. Thread-safe."""

    def __init__(
        self,
        threads: int,
        max_waiting: int,
        run: Callable[[PendingCall], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`threads` is how many calls of a tenant may run at once; `run` starts one."""
        self._alone = threads
        self._share = max(1, threads // 4)
        self._max_waiting = max_waiting
        self._run = run
        self._recent = RecentTenants(_SHARING_S, clock)
        self._lock = threading.Lock()
        self._tenants: dict[str, _Tenant] = {}

    def enter(self, tenant: str, call: PendingCall) -> bool:
        """Runs a call at once, or when it is its turn; returns False if it waits.

        Raises TooBusy if too many wait.
        """
        with self._lock:
            state = self._state(tenant)
            if state.running >= self._limit(tenant):
                self._check_waiting(tenant, state)
                state.waiting.append(call)
                return False
            state.running += 1
        self._run(call)
        return True

    def withdraw(self, tenant: str, call: PendingCall) -> bool:
        """Takes a waiting call out of the queue; returns False if it does not wait."""
        with self._lock:
            state = self._tenants.get(tenant)
            if state is None or call not in state.waiting:
                return False
            state.waiting.remove(call)
            self._forget(tenant, state)
            return True

    def leave(self, tenant: str) -> None:
        """Ends a running call."""
        with self._lock:
            state = self._tenants[tenant]
            state.running -= 1
            ready = self._take_ready(tenant, state)
            self._forget(tenant, state)
        for call in ready:
            self._run(call)

    def suspend(self, tenant: str) -> None:
        """Counts a call as waiting for something else; a running one has to `leave` besides.

        Raises TooBusy if too many wait.
        """
        with self._lock:
            state = self._state(tenant)
            self._check_waiting(tenant, state)
            state.suspended += 1

    def resume(self, tenant: str, call: PendingCall) -> None:
        """Runs a suspended call again, at once or when it is its turn."""
        with self._lock:
            state = self._tenants[tenant]
            state.suspended -= 1
            state.waiting.append(call)
            ready = self._take_ready(tenant, state)
        for each in ready:
            self._run(each)

    def release(self, tenant: str) -> None:
        """Ends what `suspend` began, for a call that runs elsewhere."""
        with self._lock:
            state = self._tenants[tenant]
            state.suspended -= 1
            self._forget(tenant, state)

    def _state(self, tenant: str) -> _Tenant:
        state = self._tenants.get(tenant)
        if state is None:
            state = self._tenants[tenant] = _Tenant()
        return state

    def _forget(self, tenant: str, state: _Tenant) -> None:
        if not (state.running or state.suspended or state.waiting):
            del self._tenants[tenant]

    def _limit(self, tenant: str) -> int:
        self._recent.note(tenant)
        is_alone = self._recent.is_alone and len(self._tenants) == 1
        return self._alone if is_alone else self._share

    def _check_waiting(self, tenant: str, state: _Tenant) -> None:
        waiting = len(state.waiting) + state.suspended
        if waiting >= self._max_waiting:
            raise TooBusy(
                f"tenant {tenant!r} has {waiting} waiting calls, as many as "
                "HRAG_TENANT_MAX_WAITING_CALLS allows"
            )

    def _take_ready(self, tenant: str, state: _Tenant) -> list[PendingCall]:
        """Takes the calls whose turn it is and counts them as running."""
        ready = []
        while state.waiting and state.running < self._limit(tenant):
            state.running += 1
            ready.append(state.waiting.popleft())
        return ready
