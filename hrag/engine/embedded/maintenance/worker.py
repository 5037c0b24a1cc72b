"""The maintenance thread: seals tails, merges and repairs segments, reclaims space.

Writers report the collections that they changed, and the worker examines only these. If the process
is killed, no data is lost: tails stay searchable, and the worker of the next process examines every
collection. If writers are faster than the index can be built, they wait (`wait_for_capacity`). So
the tail, which every search scans, stays small.
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

# After a failure, for instance because of a full disk, the work is retried after this time.
_RETRY_S = 10.0
# A build that failed is retried after this many times the duration of the attempt. So a merge that
# takes minutes and cannot succeed uses at most a tenth of the time, even if its collection changes
# often.
_RETRY_DURATIONS = 10
# Files are examined at most this often, because commits are much more frequent.
_FILES_S = 1.0
# Closing waits this long. Inserting a block of leaves takes less, writing a file may take more.
_CLOSE_S = 5.0
# Writers wait while a tail exceeds both of the next two limits. A search scans 16 MiB of vectors
# (10,923 leaves of 384 dimensions) in one or two milliseconds.
_MAX_TAIL_BYTES = 16 << 20
# This limit is in multiples of the threshold. It lets a second full tail collect while the first is
# sealed. Otherwise writers and sealing would wait for each other.
_MAX_TAILS = 2
# A writer that waits for a shorter tail checks it this often.
_WAIT_S = 0.02


class _Closing(Exception):
    """Ends a build, because the service stops."""


class MaintenanceWorker:
    """The thread that maintains a store's index, until it is closed.

    A tail is sealed when it has `threshold` leaves. Replaced segments stay on disk for `grace_s`
    seconds. `clock` returns seconds.
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
        # Collections whose writers have had to wait.
        self._throttled: set[int] = set()
        # Collections in which sealing or merging failed, for instance because of a damaged document
        # or a full disk. The value is the time at which it is tried again.
        self._seal_retries_s: dict[int, float] = {}
        self._merge_retries_s: dict[int, float] = {}
        self._files_due_s = 0.0
        self._reclaim_due_s = 0.0
        self._tails_due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Starts the thread, which first completes what an earlier process left unfinished."""
        self._orphans.remove_unfinished()
        self._scrubber.begin()
        self._add(segment_build.all_collections(self._store))
        self._thread.start()

    def changed(self, collection: int) -> None:
        """Reports that a transaction changed the collection with this number."""
        self._add({collection})

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Waits until the collection's tail is short enough (backpressure).

        Returns immediately if the worker is not running, if its last round failed, or if sealing
        this tail has failed, because then waiting would not help. Raises DeadlineExceeded or
        Cancelled.
        """
        while (
            self._thread.is_alive()
            and not self._failing
            and collection not in self._seal_retries_s
            and self._is_too_long(collection)
        ):
            deadline.check("waiting until the index has caught up")
            self._throttled.add(collection)
            self._closing.wait(_WAIT_S)

    def _is_too_long(self, collection: int) -> bool:
        """Returns True if the collection's tail is so long that writers must wait.

        Returns False if the collection's counters are damaged.
        """
        try:
            return (
                segment_build.tail_leaves(self._store, collection) >= _MAX_TAILS * self._threshold
                and segment_build.tail_bytes(self._store, collection) >= _MAX_TAIL_BYTES
            )
        except DataLoss:
            return False

    def close(self) -> bool:
        """Stops after the current block of leaves. Returns False if that takes too long."""
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

    def _take_due(self) -> set[int]:
        """Returns the collections that have changed or have to be retried now.

        Removes the changed ones from `_changed`.
        """
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
                self._run_chores()
                changed = self._take_due()
                self._advance_all(changed)
                self._failing = False
            except _Closing:
                return
            except Exception as error:
                self._failing = True
                _report_failure(error, _RETRY_S)
                self._add(changed)
                self._closing.wait(_RETRY_S)

    def _advance_all(self, changed: set[int]) -> None:
        for collection in sorted(changed):
            if self._advance(collection):
                # More may be due. Other collections and the chores come first.
                self._add({collection})

    def _run_chores(self) -> None:
        self._files_due_s = self._run_if_due(self._check_files, self._files_due_s, _FILES_S)
        self._reclaim_due_s = self._run_if_due(self._reclaim, self._reclaim_due_s, 0.0)

    def _run_if_due(self, chore: Callable[[], None], due_s: float, pause_s: float) -> float:
        """Runs a chore if it is due. Returns the time at which it is due next.

        That is `pause_s` after the chore ends, or `_RETRY_S` after a failure. A failure is logged
        and not raised, because it must not prevent other work.
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

    def _check_files(self) -> None:
        """Removes orphans and scrubs segments. Adds damaged collections to the changed ones."""
        # This frees the pages that killed readers kept in use.
        self._store.env.reader_check()
        self._orphans.collect()
        self._add(self._scrubber.scrub())

    def _advance(self, collection: int) -> bool:
        """Seals the collection's tail and merges its segments, if that is due.

        Returns False if nothing was built. At most one build of each kind is done, so that a tail
        that is always full does not delay merges, and a merge that fails, because of a full disk
        or a damaged document, does not delay sealing.
        """
        sealed = self._attempt(self._seal, collection, self._seal_retries_s)
        merged = self._attempt(self._merge, collection, self._merge_retries_s)
        return sealed or merged

    def _attempt(
        self, build: Callable[[int], bool], collection: int, retries_s: dict[int, float]
    ) -> bool:
        """Calls `build` for the collection. Returns True if it built anything.

        A failure is logged, and `retries_s` gets the time before which `build` is not called again
        for the collection, even if it changes. A failure is not raised, so that other collections
        are still processed. Only StoreUnavailable is raised, because it affects the whole store.
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
        plan = self._seal_plan(collection)
        if plan is None:
            self._throttled.discard(collection)
        return self._build(plan)

    def _merge(self, collection: int) -> bool:
        return self._build(build_plan.merge_plan(self._store, collection, self._scrubber.damaged))

    def _seal_plan(self, collection: int, busy_ordinal: int = 0) -> BuildPlan | None:
        return build_plan.seal_plan(
            self._store, collection, self._threshold, self._scrubber.damaged, busy_ordinal
        )

    def _build(self, plan: BuildPlan | None) -> bool:
        """Builds and publishes the segment of a plan. Returns False if the plan is None."""
        if plan is not None:
            segment_build.build(
                self._store, plan, partial(self._seal_full_tails, plan), self._insert
            )
        return plan is not None

    def _seal_full_tails(self, building: BuildPlan) -> None:
        """Seals full tails during the long build of another segment, `building`.

        So no writer waits long. Sealing uses at most half of the time. Otherwise the long build
        might never end.
        """
        self._check_closing()
        began_s = self._clock()
        if began_s < self._tails_due_s:
            return
        changed = self._take_due()
        try:
            for collection in changed:
                if not (building.tail and collection == building.collection):
                    seal = partial(self._seal_during, building)
                    self._attempt(seal, collection, self._seal_retries_s)
        finally:
            with self._lock:
                self._changed |= changed  # They are examined again after the build.
        ended_s = self._clock()
        self._tails_due_s = ended_s + (ended_s - began_s)

    def _seal_during(self, building: BuildPlan, collection: int) -> bool:
        """Seals the collection's tail during another build. Returns False if it is not full."""
        busy_ordinal = building.last_ordinal if collection == building.collection else 0
        plan = self._seal_plan(collection, busy_ordinal)
        if plan is not None:
            segment_build.build(self._store, plan, self._check_closing, self._insert)
        return plan is not None

    def _insert(self, index: Any, vectors: Vectors, items: Items) -> None:
        """Inserts vectors. Keeps a core free for searches and writes unless writers are waiting."""
        insert(index, vectors, items, free_cores=0 if self._throttled else 1)

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise _Closing


def _report_failure(error: Exception, retry_s: float, **fields: int) -> None:
    """Counts and logs a failure, with a traceback unless it is an HragError or an OSError."""
    metrics.segment_build_failures.inc()
    if isinstance(error, (HragError, OSError)):
        _log.error("maintenance_failed", problem=str(error), retry_s=retry_s, **fields)
    else:
        _log.exception("maintenance_failed", retry_s=retry_s, exc_info=error, **fields)
