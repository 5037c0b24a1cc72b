"""The maintenance thread: seals tails, merges and repairs segments, reclaims space.

Writers report which collections changed, and the worker looks at those alone. Losing it
loses nothing: tails stay searchable, and the next start looks at every collection. Where
writers are faster than the index can be built, they wait for it (`wait_for_capacity`), so
that the tail, which every search scans, stays small.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from hrag.engine.embedded.maintenance import build_plan, orphan_gc, segment_build
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.maintenance.reclaim import reclaim_some
from hrag.engine.embedded.maintenance.scrubber import Scrubber
from hrag.engine.embedded.segments.vector_part import Items, insert
from hrag.engine.embedded.store.environment import Store
from hrag.models.embedding import Vectors
from hrag.observe import metrics
from hrag.values.deadline import Deadline
from hrag.values.errors import DataLoss, HragError, StoreUnavailable

_log = structlog.get_logger()

_RETRY_S = 10.0  # After a failure, such as a full disk.
# After a build that failed, in durations of the attempt. So a merge that takes minutes and cannot
# succeed gets a tenth of the time at most, however often its collection changes.
_RETRY_DURATIONS = 10
_FILES_S = 1.0  # Between two looks at files; commits come much more often.
_CLOSE_S = 5.0  # A block of leaves is inserted in less; the writing of a file may take more.
# A search scans that in a millisecond or two: 10,923 leaves of 384 dimensions. But one full
# tail may always collect behind another that is being sealed: else each would wait for the other.
_MAX_TAIL_BYTES = 16 << 20
_MAX_TAILS = 2
_WAIT_S = 0.02  # Between two looks at a tail that is too long.


class _Closing(Exception):
    """Ends a build because the service stops."""


class MaintenanceWorker:
    """Runs until closed. A tail is sealed once it has `threshold` leaves.

    `grace_s` is how long replaced segments stay on disk; `clock` returns seconds.
    """

    def __init__(
        self,
        store: Store,
        threshold: int,
        grace_s: float = orphan_gc.GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._threshold = threshold
        self._clock = clock
        self._orphans = orphan_gc.OrphanCollector(store, grace_s)
        self._scrubber = Scrubber(store)
        self._lock = threading.Lock()
        self._changed: set[int] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._failing = False
        self._behind: set[int] = set()  # Collections whose writers have had to wait.
        # Collections in which this failed, such as for a damaged document or for lack of space,
        # and when it is tried again.
        self._seal_retries_s: dict[int, float] = {}
        self._merge_retries_s: dict[int, float] = {}
        self._files_due_s = 0.0
        self._reclaim_due_s = 0.0
        self._tails_due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Starts the thread, which begins with what an earlier process left unfinished."""
        self._orphans.remove_unfinished()
        self._scrubber.begin()
        self._add(segment_build.all_collections(self._store))
        self._thread.start()

    def changed(self, collection: int) -> None:
        """Reports a commit in a collection, given by its number."""
        self._add({collection})

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Backpressure: returns once the collection's tail is short enough.

        Returns at once if the worker does not run, or cannot write to the store, or if sealing
        this tail has failed, for then waiting would not help. Raises DeadlineExceeded.
        """
        while (
            self._thread.is_alive()
            and not self._failing
            and collection not in self._seal_retries_s
            and self._is_too_long(collection)
        ):
            deadline.check("waiting until the index has caught up")
            self._behind.add(collection)
            self._closing.wait(_WAIT_S)

    def _is_too_long(self, collection: int) -> bool:
        """Whether a collection's tail is; False if its counters are damaged."""
        try:
            return (
                segment_build.tail_leaves(self._store, collection) >= _MAX_TAILS * self._threshold
                and segment_build.tail_bytes(self._store, collection) >= _MAX_TAIL_BYTES
            )
        except DataLoss:
            return False

    def close(self) -> bool:
        """Stops after the current block of leaves; returns False if that takes too long."""
        self._closing.set()
        self._wake.set()
        if self._thread.ident is None:  # It was never started.
            return True
        self._thread.join(_CLOSE_S)
        return not self._thread.is_alive()

    def _add(self, collections: set[int]) -> None:
        with self._lock:
            self._changed |= collections
        self._wake.set()

    def _take(self) -> set[int]:
        """Takes the collections that have changed, and those that are due to be tried again."""
        with self._lock:
            changed, self._changed = self._changed, set()
        now_s = self._clock()
        retries_s = (*self._seal_retries_s.items(), *self._merge_retries_s.items())
        return changed | {collection for collection, due_s in retries_s if due_s <= now_s}

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_FILES_S)
            self._wake.clear()
            changed: set[int] = set()
            try:
                self._store.require_place()
                self._do_chores()
                changed = self._take()
                self._work(changed)
                self._failing = False
            except _Closing:
                return
            except Exception as error:
                self._failing = True
                _report_failure(error, _RETRY_S)
                self._add(changed)
                self._closing.wait(_RETRY_S)

    def _work(self, changed: set[int]) -> None:
        for collection in sorted(changed):
            if self._advance(collection):
                self._add({collection})  # Others, and files, have their turn first.

    def _do_chores(self) -> None:
        self._files_due_s = self._do(self._look_at_files, self._files_due_s, _FILES_S)
        self._reclaim_due_s = self._do(self._reclaim, self._reclaim_due_s, 0.0)

    def _do(self, chore: Callable[[], None], due_s: float, pause_s: float) -> float:
        """Does a chore if it is due; returns when it is due next, `pause_s` afterwards or later.

        A failure is logged: it must not keep anything else from being done.
        """
        if self._clock() < due_s:
            return due_s
        try:
            chore()
        except _Closing:
            raise
        except Exception as error:
            _report_failure(error, _RETRY_S)
            pause_s = _RETRY_S
        return self._clock() + pause_s

    def _reclaim(self) -> None:
        while reclaim_some(self._store):
            self._check_closing()

    def _look_at_files(self) -> None:
        """Removes orphans and scrubs; a damaged collection counts as changed."""
        self._store.env.reader_check()  # Frees the pages that a killed reader held.
        self._orphans.collect()
        self._add(self._scrubber.scrub())

    def _advance(self, collection: int) -> bool:
        """Builds what the collection needs next; returns False if nothing was built.

        Tail and segments take turns, so that neither holds up the other: a tail that is
        always full, or a merge that fails for lack of space or for a damaged document.
        """
        sealed = self._attempt(self._seal, collection, self._seal_retries_s)
        merged = self._attempt(self._merge, collection, self._merge_retries_s)
        return sealed or merged

    def _attempt(
        self, build: Callable[[int], bool], collection: int, retries_s: dict[int, float]
    ) -> bool:
        """Returns whether `build` built anything for the collection.

        After a failure it is not called again before the time that is noted in `retries_s`,
        whatever is committed meanwhile. A failure keeps no other collection from its turn, but for
        StoreUnavailable, which is raised: it concerns the whole store.
        """
        began_s = self._clock()
        if began_s < retries_s.get(collection, began_s):
            return False
        try:
            built = build(collection)
        except (_Closing, StoreUnavailable):
            raise
        except Exception as error:
            ended_s = self._clock()
            retry_s = max(_RETRY_S, _RETRY_DURATIONS * (ended_s - began_s))
            retries_s[collection] = ended_s + retry_s
            _report_failure(error, retry_s, collection=collection)
            return False
        retries_s.pop(collection, None)
        return built

    def _seal(self, collection: int) -> bool:
        tail = self._seal_plan(collection)
        if tail is None:
            self._behind.discard(collection)
        return self._build(tail)

    def _merge(self, collection: int) -> bool:
        return self._build(build_plan.merge_plan(self._store, collection, self._scrubber.damaged))

    def _seal_plan(self, collection: int, busy: int = 0) -> BuildPlan | None:
        return build_plan.seal_plan(
            self._store, collection, self._threshold, self._scrubber.damaged, busy
        )

    def _build(self, plan: BuildPlan | None) -> bool:
        """Returns whether there was anything to build."""
        if plan is not None:
            segment_build.build(self._store, plan, partial(self._between, plan), self._insert)
        return plan is not None

    def _between(self, building: BuildPlan) -> None:
        """Seals full tails while one segment is built, so that no writer waits long.

        They get half of the time, or the build would never end.
        """
        self._check_closing()
        began_s = self._clock()
        if began_s < self._tails_due_s:
            return
        changed = self._take()
        try:
            for collection in changed:
                if not (building.tail and collection == building.collection):
                    seal = partial(self._seal_beside, building)
                    self._attempt(seal, collection, self._seal_retries_s)
        finally:
            with self._lock:
                self._changed |= changed  # Whatever else they need comes afterwards.
        ended_s = self._clock()
        self._tails_due_s = ended_s + (ended_s - began_s)

    def _seal_beside(self, building: BuildPlan, collection: int) -> bool:
        """Seals the collection's tail if it is full; returns whether it was."""
        busy = building.last_ordinal if collection == building.collection else 0
        plan = self._seal_plan(collection, busy)
        if plan is not None:
            segment_build.build(self._store, plan, self._check_closing, self._insert)
        return plan is not None

    def _insert(self, index: Any, vectors: Vectors, items: Items) -> None:
        """Leaves a core to searches and writes, unless writers wait for the index."""
        insert(index, vectors, items, free_cores=0 if self._behind else 1)

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise _Closing


def _report_failure(error: Exception, retry_s: float, **fields: int) -> None:
    """Counts and logs it, with a traceback unless the error is a known one."""
    metrics.segment_build_failures.inc()
    if isinstance(error, (HragError, OSError)):
        _log.error("maintenance_failed", problem=str(error), retry_s=retry_s, **fields)
    else:
        _log.exception("maintenance_failed", retry_s=retry_s, exc_info=error, **fields)
