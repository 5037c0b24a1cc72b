"""Limits the running calls and the waiting calls of each tenant.

The pool of the executor has HRAG_THREADS threads and one more. While only one tenant calls, its
calls may use HRAG_THREADS threads, so that one thread stays free for the next tenant. While several
tenants have calls that have not ended, and for a second after two successive calls came from
different tenants, the calls of each tenant may use at most a quarter of HRAG_THREADS. The reason is
that Python runs one thread at a time: each further thread of a greedy tenant makes the other
tenants wait longer.

Calls beyond a tenant's limit of threads wait without a thread, in the order of their arrival. The
count of a tenant's waiting calls has a limit too, and further calls are refused. So a tenant cannot
occupy the threads that other tenants need, however many calls it makes and however long its calls
run.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hrag.server.admission.arrival import PendingCall
from hrag.server.admission.recent_tenants import RecentTenants
from hrag.values.errors import TooBusy

# If two successive calls come from different tenants, each tenant may use at most a quarter of the
# threads for this time.
_SHARING_S = 1.0


@dataclass(slots=True)
class _Tenant:
    """The calls of a tenant.

    `running` and `suspended` are counts of calls. Suspended calls wait for something other than a
    thread. `waiting` contains the calls that wait for a thread, in the order of their arrival.
    """

    running: int = 0
    suspended: int = 0
    waiting: deque[PendingCall] = field(default_factory=deque)


class ConcurrencyLimiter:
    """Starts the calls of each tenant in the order of their arrival, within the tenant's limit.

    Thread-safe.
    """

    def __init__(
        self,
        threads: int,
        max_waiting: int,
        run: Callable[[PendingCall], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the limiter of a pool that has `threads` threads and one more.

        At most `threads` calls of a tenant run at the same time while no other tenant calls. At
        most `max_waiting` calls of a tenant may wait. `run` is called with each call that may run
        now.
        """
        self._limit_alone = threads
        self._limit_beside_others = max(1, threads // 4)
        self._max_waiting = max_waiting
        self._run = run
        self._recent = RecentTenants(_SHARING_S, clock)
        self._lock = threading.Lock()
        self._tenants: dict[str, _Tenant] = {}

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants that have running, suspended or waiting calls."""
        with self._lock:
            return frozenset(self._tenants)

    def waiting_calls(self, tenant: str) -> int:
        """Returns how many calls of a tenant wait for a thread."""
        with self._lock:
            state = self._tenants.get(tenant)
            return 0 if state is None else len(state.waiting)

    def enter(self, tenant: str, call: PendingCall) -> bool:
        """Runs a call of the tenant. If too many calls of the tenant are running, the call waits.

        Returns False if the call has to wait. Raises TooBusy if too many calls of the tenant wait.
        """
        with self._lock:
            state = self._tenants.get(tenant) or self._new_state(tenant)
            if state.running >= self._limit(tenant):
                self._check_waiting(tenant, state)
                state.waiting.append(call)
                return False
            state.running += 1
        self._run(call)
        return True

    def withdraw(self, tenant: str, call: PendingCall) -> bool:
        """Removes a call from the tenant's waiting calls.

        Returns False if the call is not one of the waiting calls.
        """
        with self._lock:
            state = self._tenants.get(tenant)
            if state is None or call not in state.waiting:
                return False
            state.waiting.remove(call)
            self._forget(tenant, state)
            return True

    def leave(self, tenant: str) -> None:
        """Subtracts an ended call from the tenant's running calls, and runs its waiting calls.

        Only as many waiting calls are run as the tenant's limit allows.
        """
        with self._lock:
            state = self._tenants[tenant]
            state.running -= 1
            ready = self._take_ready(tenant, state) if state.waiting else ()
            self._forget(tenant, state)
        for call in ready:
            self._run(call)

    def suspend(self, tenant: str) -> None:
        """Counts a call as suspended: the call waits for something other than a thread.

        If the call is running, `leave` must be called too. Raises TooBusy if too many calls of the
        tenant wait.
        """
        with self._lock:
            state = self._tenants.get(tenant) or self._new_state(tenant)
            self._check_waiting(tenant, state)
            state.suspended += 1

    def resume(self, tenant: str, call: PendingCall) -> None:
        """Runs a suspended call again.

        If too many calls of the tenant are running, the call first waits for a thread.
        """
        with self._lock:
            state = self._tenants[tenant]
            state.suspended -= 1
            state.waiting.append(call)
            ready = self._take_ready(tenant, state)
        for ready_call in ready:
            self._run(ready_call)

    def release(self, tenant: str) -> None:
        """Subtracts a call from the tenant's suspended calls.

        The call now runs in a dedicated thread, which this class does not limit.
        """
        with self._lock:
            state = self._tenants[tenant]
            state.suspended -= 1
            self._forget(tenant, state)

    def _new_state(self, tenant: str) -> _Tenant:
        state = self._tenants[tenant] = _Tenant()
        return state

    def _forget(self, tenant: str, state: _Tenant) -> None:
        if not (state.running or state.suspended or state.waiting):
            del self._tenants[tenant]

    def _limit(self, tenant: str) -> int:
        self._recent.note(tenant)
        is_alone = len(self._tenants) == 1 and self._recent.is_alone
        return self._limit_alone if is_alone else self._limit_beside_others

    def _check_waiting(self, tenant: str, state: _Tenant) -> None:
        waiting = len(state.waiting) + state.suspended
        if waiting >= self._max_waiting:
            raise TooBusy(
                f"tenant {tenant!r} has {waiting} waiting calls, as many as "
                "HRAG_TENANT_MAX_WAITING_CALLS allows"
            )

    def _take_ready(self, tenant: str, state: _Tenant) -> list[PendingCall]:
        """Returns the waiting calls of the tenant that may run now.

        Removes these calls from the waiting calls, and counts them as running.
        """
        ready = []
        while state.waiting and state.running < self._limit(tenant):
            state.running += 1
            ready.append(state.waiting.popleft())
        return ready
