"""The maintenance thread: seals tails, merges and repairs segments, reclaims space.

The tail of a collection are its leaves that are in no segment yet. To seal the tail means to build
a segment from it. Writers report the collections that they have changed. The worker checks only
these collections for segments that have to be built. If the process is killed before it has built a
segment, no data is lost: searches still find the leaves of the tail, and the worker of the next
process checks every collection when it starts.

Every search scans the whole tail, so the tail must stay small. If writers add leaves faster than
the index can be built, the writers must wait; see `wait_for_capacity`.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from hrag.engine.embedded.maintenance import build_plan, orphan_gc, segment_build
from hrag.engine.embedded.maintenance.build_plan import BuildPlan
from hrag.engine.embedded.maintenance.reclaim import reclaim_some
from hrag.engine.embedded.maintenance.schedule import (
    Build,
    MaintenanceLimits,
    MaintenanceState,
    Task,
)
from hrag.engine.embedded.maintenance.scrubber import Scrubber
from hrag.engine.embedded.segments.vector_part import Insert, InsertFreeing, Items, insert
from hrag.engine.embedded.store.environment import Store
from hrag.models.embedding import Vectors
from hrag.observe import metrics
from hrag.values.deadline import Deadline
from hrag.values.errors import DataLoss, HragError, StoreUnavailable

_log = structlog.get_logger()

BuildSegment = Callable[[Store, BuildPlan, segment_build.BeforeBlock, Insert], object]
"""Builds the segment that a plan describes, and adds it to the manifest.

See `segment_build.build`.
"""


@dataclass(frozen=True, slots=True)
class MaintenanceTasks:
    """The functions with which the worker changes the store. Tests may replace them."""

    build: BuildSegment = segment_build.build
    insert: InsertFreeing = insert
    """Inserts vectors into an index, with all cores except those that shall stay free."""
    reclaim: Callable[[Store], bool] = reclaim_some
    """Erases a part of one deleted collection. Returns False if no deleted collection is left."""


class _BuildStopped(Exception):
    """Raised during a segment build to end the build, because the worker is being closed."""


class MaintenanceWorker:
    """Maintains the segments of a store in a background thread, until it is closed.

    A tail is sealed when it has `threshold` leaves. The files of replaced segments stay on disk for
    `grace_s` seconds. `clock` returns seconds. `limits` says how often the thread works, and when
    writers wait for it. `tasks` are the functions that change the store.
    """

    def __init__(
        self,
        store: Store,
        threshold: int,
        grace_s: float = orphan_gc.GRACE_S,
        clock: Callable[[], float] = time.monotonic,
        limits: MaintenanceLimits = MaintenanceLimits(),  # noqa: B008 - the value is frozen
        tasks: MaintenanceTasks = MaintenanceTasks(),
    ) -> None:
        self._store = store
        self._threshold = threshold
        self._clock = clock
        self._limits = limits
        self._tasks = tasks
        self._orphans = orphan_gc.OrphanCollector(store, grace_s)
        self._scrubber = Scrubber(store)
        self._state = MaintenanceState(limits)
        # Writers and the worker's thread add to `_state.changed`, so a lock guards it.
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        """Starts the thread. Before that, removes temporary files of builds in killed processes.

        The thread first checks for all collections whether a segment has to be built. The thread
        also verifies all segments, one after the other, between its other tasks.
        """
        self._orphans.remove_unfinished()
        self._scrubber.begin()
        self._add(segment_build.all_collections(self._store))
        self._thread.start()

    def changed(self, collection: int) -> None:
        """Reports that a transaction has changed the collection with this id."""
        self._add({collection})

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Waits until the collection's tail is short enough for further writes (backpressure).

        Does not wait, or stops waiting, if the tail might never become shorter. There are three
        such cases: the worker's thread is not running, an error ended the thread's last round of
        maintenance, or the last attempt to seal this tail failed. Raises DeadlineExceeded or
        Cancelled.
        """
        while (
            self._thread.is_alive()
            and self._state.lets_wait(collection)
            and self._is_too_long(collection)
        ):
            deadline.check("waiting until the index has caught up")
            self._state.throttled.add(collection)
            self._closing.wait(self._limits.wait_s)

    def _is_too_long(self, collection: int) -> bool:
        """Returns True if the collection's tail is so long that writers must wait.

        Returns False if the collection's counters are damaged.
        """
        try:
            return self._limits.is_too_long(
                segment_build.tail_leaves(self._store, collection),
                segment_build.tail_bytes(self._store, collection),
                self._threshold,
            )
        except DataLoss:
            return False

    def close(self) -> bool:
        """Stops the thread. A running build ends before it inserts its next block of leaves.

        Returns False if the thread has not ended within `MaintenanceLimits.close_s` seconds.
        """
        self._closing.set()
        self._wake.set()
        if self._thread.ident is None:  # A thread without `ident` was never started.
            return True
        self._thread.join(self._limits.close_s)
        return not self._thread.is_alive()

    def _add(self, collections: set[int]) -> None:
        """Adds the collections with these ids to the changed collections, and wakes the thread."""
        with self._lock:
            self._state.add(collections)
        self._wake.set()

    def _take_due(self) -> set[int]:
        """Returns the ids of the collections for which a build may be due now.

        These are the collections that have changed since the last call, and the collections with a
        failed build that may be retried now.
        """
        with self._lock:
            return self._state.take_due(self._clock())

    def _run(self) -> None:
        """Runs rounds of maintenance until the worker is closed.

        In each round, the thread runs the tasks of the store that are due, and then the builds that
        are due for the changed collections.
        """
        while not self._closing.is_set():
            self._wake.wait(self._limits.files_s)
            self._wake.clear()
            changed: set[int] = set()
            try:
                self._store.require_place()
                self._run_store_tasks()
                changed = self._take_due()
                self._advance_all(changed)
                self._state.is_failing = False
            except _BuildStopped:
                return
            except Exception as error:
                self._state.is_failing = True
                _report_failure(error, self._limits.retry_s)
                self._add(changed)
                self._closing.wait(self._limits.retry_s)

    def _advance_all(self, changed: set[int]) -> None:
        """Builds the segments that are due for the collections with these ids."""
        for collection in sorted(changed):
            if self._advance(collection):
                # Another build may be due for this collection. It is done in the next round, after
                # the builds of other collections and the tasks of the store.
                self._add({collection})

    def _run_store_tasks(self) -> None:
        """Runs the tasks of the whole store that are due: checks files and reclaims space."""
        self._run_if_due(Task.FILES, self._check_files, self._limits.files_s)
        self._run_if_due(Task.RECLAIM, self._reclaim, 0.0)

    def _run_if_due(self, task: Task, run: Callable[[], None], pause_s: float) -> None:
        """Calls `run`, which does a task of the store, if the task is due.

        The task is due again `pause_s` seconds after it has ended, or `MaintenanceLimits.retry_s`
        seconds after it has failed. A failure of the task is logged and not raised, because it must
        not prevent other work.
        """
        if not self._state.is_due(task, self._clock()):
            return
        try:
            run()
        except _BuildStopped:
            raise
        except Exception as error:
            pause_s = self._limits.retry_s
            _report_failure(error, pause_s)
        self._state.postpone(task, self._clock() + pause_s)

    def _reclaim(self) -> None:
        """Erases all deleted collections, a few documents in each transaction."""
        while self._tasks.reclaim(self._store):
            self._check_closing()

    def _check_files(self) -> None:
        """Removes files that no manifest lists, and verifies the files of segments.

        Collections with damaged segments are added to the changed collections, so that a build
        repairs the segments.
        """
        # `reader_check` frees the pages that LMDB still reserves for readers that were killed.
        self._store.env.reader_check()
        self._orphans.collect()
        self._add(self._scrubber.scrub())

    def _advance(self, collection: int) -> bool:
        """Seals the collection's tail and merges its segments, if this is due.

        Returns False if nothing was built. Builds at most two segments: first one by sealing the
        tail, then one by a merge. Because each is tried once per call, merges are done even if the
        tail is always full, and sealing is done even if merges fail (for example because a document
        is damaged).
        """
        sealed = self._attempt(Build.SEAL, self._seal, collection)
        merged = self._attempt(Build.MERGE, self._merge, collection)
        return sealed or merged

    def _attempt(self, build: Build, run: Callable[[int], bool], collection: int) -> bool:
        """Calls `run` for the collection. Returns True if `run` built a segment.

        `build` is the kind of build that `run` does. Raises _BuildStopped if the worker is closed
        during the build, and StoreUnavailable, because it affects the whole store. Any other error
        of `run` is logged and not raised, so that other collections are still processed. After such
        an error, `run` is not called for this collection again for some time, even if the
        collection changes.
        """
        began_s = self._clock()
        if not self._state.may_build(build, collection, began_s):
            return False
        try:
            has_built = run(collection)
        except (_BuildStopped, StoreUnavailable):
            raise
        except Exception as error:
            retry_s = self._state.failed(build, collection, began_s, self._clock())
            _report_failure(error, retry_s, collection=collection)
            return False
        self._state.built(build, collection)
        return has_built

    def _seal(self, collection: int) -> bool:
        """Seals the collection's tail. Returns False if the tail is not full."""
        plan = self._seal_plan(collection)
        if plan is None:
            self._state.throttled.discard(collection)
        return self._build(plan)

    def _merge(self, collection: int) -> bool:
        """Merges, rewrites or repairs a collection's segments. Returns False if nothing is due."""
        return self._build(build_plan.merge_plan(self._store, collection, self._scrubber.damaged))

    def _seal_plan(self, collection: int, busy_ordinal: int = 0) -> BuildPlan | None:
        return build_plan.seal_plan(
            self._store, collection, self._threshold, self._scrubber.damaged, busy_ordinal
        )

    def _build(self, plan: BuildPlan | None) -> bool:
        """Builds the segment that `plan` describes. Returns False if `plan` is None."""
        if plan is not None:
            before_block = partial(self._seal_full_tails, plan)
            self._tasks.build(self._store, plan, before_block, self._insert)
        return plan is not None

    def _seal_full_tails(self, building: BuildPlan) -> None:
        """Seals the full tails of changed collections during the long build of another segment.

        `building` is the plan of the long build. Without this method, writers would have to wait
        until the long build ends. Sealing uses at most half of the thread's time, because otherwise
        the long build might never end.
        """
        self._check_closing()
        began_s = self._clock()
        if not self._state.is_due(Task.TAILS, began_s):
            return
        changed = self._take_due()
        try:
            for collection in changed:
                if not (building.tail and collection == building.collection):
                    seal = partial(self._seal_during, building)
                    self._attempt(Build.SEAL, seal, collection)
        finally:
            with self._lock:
                # After the long build, the next round of maintenance checks these collections
                # again.
                self._state.add(changed)
        ended_s = self._clock()
        self._state.postpone(Task.TAILS, ended_s + (ended_s - began_s))

    def _seal_during(self, building: BuildPlan, collection: int) -> bool:
        """Seals the collection's tail during another build. Returns False if the tail is not full.

        `building` is the plan of the other build.
        """
        busy_ordinal = building.last_ordinal if collection == building.collection else 0
        plan = self._seal_plan(collection, busy_ordinal)
        if plan is not None:
            self._tasks.build(self._store, plan, self._check_closing, self._insert)
        return plan is not None

    def _insert(self, index: Any, vectors: Vectors, items: Items) -> None:
        """Inserts vectors into a vector index.

        Uses all cores if writers wait until a full tail is sealed. Otherwise leaves one core free
        for searches and writes.
        """
        self._tasks.insert(index, vectors, items, free_cores=0 if self._state.throttled else 1)

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise _BuildStopped


def _report_failure(error: Exception, retry_s: float, **fields: int) -> None:
    """Counts and logs a failure. Logs no traceback if `error` is an HragError or an OSError.

    `retry_s` is the time after which the work is retried, in seconds.
    """
    metrics.segment_build_failures.inc()
    if isinstance(error, (HragError, OSError)):
        _log.error("maintenance_failed", problem=str(error), retry_s=retry_s, **fields)
    else:
        _log.exception("maintenance_failed", retry_s=retry_s, exc_info=error, **fields)
