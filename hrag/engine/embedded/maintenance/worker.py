"""Keeps the index in order, in one background thread: seals, merges, rewrites, reclaims.

Writers tell it which collections changed; it looks at those alone. Losing it loses
nothing: tails stay searchable, and the next start looks at every collection. Where
writers are faster than the index can be built they wait for it (`wait_for_capacity`), so that
the tail, which every search scans, stays small.
"""

import threading
import time
from functools import partial
from typing import Any

import structlog

from hrag import metrics
from hrag.deadline import Deadline
from hrag.embedding import Vectors
from hrag.engine.embedded.maintenance import build_plan, orphan_gc, segment_build
from hrag.engine.embedded.maintenance.build_plan import Source
from hrag.engine.embedded.maintenance.reclaim import reclaim_some
from hrag.engine.embedded.maintenance.scrubber import Inspector
from hrag.engine.embedded.segments.builder import Items, insert
from hrag.engine.embedded.store.environment import Store
from hrag.errors import StorageFull

_log = structlog.get_logger()

_RETRY_S = 10.0  # After a failure, such as a full disk.
_CHORES_S = 1.0  # Between two looks at files; commits come much more often.
_CLOSE_S = 5.0  # A block of leaves is inserted in less; the writing of a file may take more.
# Scanned by a search in a millisecond or two: 10,923 leaves of 384 numbers. But a full tail
# may always gather behind one that is being sealed: else each would wait for the other.
_MAX_TAIL_BYTES = 16 << 20
_MAX_TAILS = 2
_WAIT_S = 0.02  # Between two looks at a tail that is too long.


class _Closing(Exception):
    """Ends a build: the service stops."""


class Sealer:
    """Runs until closed. A tail is sealed once it has `threshold` leaves."""

    def __init__(self, store: Store, threshold: int, grace_s: float = orphan_gc.GRACE_S) -> None:
        self._store = store
        self._threshold = threshold
        self._sweeper = orphan_gc.Sweeper(store, grace_s)
        self._inspector = Inspector(store)
        self._lock = threading.Lock()
        self._changed: set[int] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._failing = False
        self._behind: set[int] = set()  # Collections whose writers have had to wait.
        self._chores_due_s = 0.0
        self._tails_due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="sealer", daemon=True)

    def start(self) -> None:
        """Begins with what an earlier process left unfinished."""
        self._sweeper.clear_unfinished()
        self._inspector.begin()
        self._add(segment_build.all_collections(self._store))
        self._thread.start()

    def changed(self, collection: int) -> None:
        """Tells that a collection has had a commit."""
        self._add({collection})

    def wait_for_capacity(self, collection: int, deadline: Deadline) -> None:
        """Returns once the collection's tail is not too long, or nothing shortens it.

        Raises DeadlineExceeded.
        """
        while (
            self._thread.is_alive()
            and not self._failing
            and segment_build.tail_leaves(self._store, collection) >= _MAX_TAILS * self._threshold
            and segment_build.tail_bytes(self._store, collection) >= _MAX_TAIL_BYTES
        ):
            deadline.check("waiting until the index has room for more")
            self._behind.add(collection)
            self._closing.wait(_WAIT_S)

    def close(self) -> bool:
        """Stops after the block of leaves being inserted; False if that takes too long."""
        self._closing.set()
        self._wake.set()
        self._thread.join(_CLOSE_S)
        return not self._thread.is_alive()

    def _add(self, collections: set[int]) -> None:
        with self._lock:
            self._changed |= collections
        self._wake.set()

    def _take(self) -> set[int]:
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(_CHORES_S)
            self._wake.clear()
            changed: set[int] = set()
            try:
                self._do_chores()
                changed = self._take()
                self._work(changed)
                self._failing = False
            except _Closing:
                return
            except Exception as error:
                self._failing = True
                self._explain(error)
                self._add(changed)
                self._closing.wait(_RETRY_S)

    def _explain(self, error: Exception) -> None:
        metrics.segment_build_failures.inc()
        if isinstance(error, (StorageFull, OSError)):
            _log.error("cannot_seal", problem=str(error), retry_s=_RETRY_S)
        else:
            _log.exception("cannot_seal", retry_s=_RETRY_S, exc_info=error)

    def _work(self, changed: set[int]) -> None:
        while reclaim_some(self._store):
            self._check_closing()
        for collection in sorted(changed):
            if self._advance(collection):
                self._add({collection})  # Others, and files, have their turn before more of it.

    def _do_chores(self) -> None:
        """Looks at files and readers, now and then; what is damaged counts as changed."""
        if time.monotonic() < self._chores_due_s:
            return
        self._chores_due_s = time.monotonic() + _CHORES_S
        self._store.env.reader_check()  # Pages that a killed reader held can be used again.
        self._sweeper.sweep()
        self._add(self._inspector.inspect())

    def _advance(self, collection: int) -> bool:
        """Takes a collection one step on; whether there was one to take.

        Tail and segments by turns, so that neither holds up the other: a tail that is
        always full, or a merge that fails for want of space.
        """
        tail = self._full_tail(collection)
        if tail is None:
            self._behind.discard(collection)
        sealed = self._build(tail)
        damaged = self._inspector.damaged
        return self._build(build_plan.next_source(self._store, collection, damaged)) or sealed

    def _full_tail(self, collection: int, busy: int = 0) -> Source | None:
        return build_plan.tail_source(
            self._store, collection, self._threshold, self._inspector.damaged, busy
        )

    def _build(self, source: Source | None) -> bool:
        """Whether there was anything to build."""
        if source is not None:
            segment_build.build(self._store, source, partial(self._between, source), self._insert)
        return source is not None

    def _between(self, building: Source) -> None:
        """While one segment is built, full tails are sealed, so that no writer waits long.

        They get half of the time, or what is being built would never be done.
        """
        self._check_closing()
        began_s = time.monotonic()
        if began_s < self._tails_due_s:
            return
        later = set()
        for collection in self._take():
            later.add(collection)  # Whatever else it needs comes after.
            busy = building.last_ordinal if collection == building.collection else 0
            if busy and building.tail:
                continue
            source = self._full_tail(collection, busy)
            if source:
                segment_build.build(self._store, source, self._check_closing, self._insert)
        if later:
            with self._lock:
                self._changed |= later
        ended_s = time.monotonic()
        self._tails_due_s = ended_s + (ended_s - began_s)

    def _insert(self, index: Any, vectors: Vectors, items: Items) -> None:
        """Leaves a core to those who search and write, unless writers are held up by this."""
        insert(index, vectors, items, free_cores=0 if self._behind else 1)

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise _Closing
