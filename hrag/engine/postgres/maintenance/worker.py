"""The background worker that maintains the indexes of a writer's collections.

The worker builds and merges the parts of the lexical index. It moves large collections to homes. A
home is a table with an HNSW index. New leaves of a collection are in the table `hrag.leaves`, its
tail; the worker moves them to the home. It also deletes the rows of deleted
collections. Any number of processes may run a worker. An advisory lock prevents two workers from
maintaining the same collection at the same time. What a worker leaves unfinished, another worker
completes. A worker checks a collection as soon as the writer of its process has changed it, and
checks all collections once a minute.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog
from psycopg import sql

from hrag.config import DEFAULT_HOME_LEAVES
from hrag.engine.postgres.indexes.home_slots import (
    HOME_RETENTION,
    clear_unused_slot,
    vacuum_home,
)
from hrag.engine.postgres.indexes.homes import (
    drain_tail,
    home_sizes,
    move_collection,
    vacuum_graph,
)
from hrag.engine.postgres.indexes.lexical_index import (
    FAN_IN,
    MIN_PART_LEAVES,
    build_part,
    merge_parts,
)
from hrag.engine.postgres.maintenance.reclaim import (
    DeletedCollection,
    deleted_collections,
    reclaim_some,
)
from hrag.engine.postgres.store.advisory_locks import lock_step, try_lock_maintenance
from hrag.engine.postgres.store.cluster import is_distributed, rows_of_all_nodes
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import PostgresDatabase
from hrag.engine.postgres.store.opened_collection import Key, OpenedCollection, open_by_id
from hrag.values.deadline import Deadline
from hrag.values.errors import HragError

_log = structlog.get_logger()

_POLL_S = 0.05
_STOP_S = 10.0

# The queries that find work, and their tables. Each node runs them on its own rows.
_SURVEY = {
    "term_vectors": sql.SQL("""
SELECT tenant_id, collection_id FROM {table}
GROUP BY tenant_id, collection_id HAVING sum(leaf_count) >= {min_leaves}
"""),
    "collections": sql.SQL("""
SELECT tenant_id, collection_id FROM {table} WHERE home IS NOT NULL OR leaves > {home_leaves}
"""),
    "tombstones": sql.SQL("SELECT DISTINCT tenant_id, collection_id FROM {table}"),
}


@dataclass(frozen=True, slots=True)
class MaintenanceLimits:
    """The sizes and intervals by which a worker decides when to do which work."""

    min_part_leaves: int = MIN_PART_LEAVES
    """A part of the lexical index is built from at least this many leaves."""
    fan_in: int = FAN_IN
    """Parts of the lexical index are in tiers by their count of leaves.

    The smallest count of a tier is this many times the smallest count of the tier below. Parts are
    merged as soon as they have enough leaves for a higher tier.
    """
    tail_leaves: int = 256
    """A tail that has at most this many leaves is not drained."""
    drained_leaves: int = 64
    """One transaction moves at most this many leaves from a tail to the HNSW index.

    A writer that changes a document of these leaves waits for the transaction, about 0.1 s.
    """
    max_backlog: int = 32_768
    """Writers wait while more leaves than this are in no HNSW index, so that searches scan them."""
    home_retention: timedelta = HOME_RETENTION
    """A home that was replaced is dropped after this time."""
    pause_s: float = 1.0
    """The worker pauses for this time after each round of work."""
    survey_s: float = 60.0
    """The worker checks all collections at this interval."""
    retry_s: float = 5.0
    """Failed work is retried after this time, which is short because writers may be waiting."""


DEFAULT_LIMITS = MaintenanceLimits()


class MaintenanceWorker:
    """Maintains the indexes of collections in a background thread. Thread-safe.

    Implements `hrag.engine.protocols.Maintenance`.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        home_leaves: int = DEFAULT_HOME_LEAVES,
        limits: MaintenanceLimits = DEFAULT_LIMITS,
    ) -> None:
        """Creates the worker; `start` starts its thread.

        A collection with more than `home_leaves` leaves gets a home, a table with an HNSW index.
        """
        self._database = database
        self._home_leaves = home_leaves
        self._limits = limits
        self._changed: set[tuple[str, int]] = set()
        self._backlogs: dict[int, int] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread, which first checks all collections for work."""
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """Stops the thread after its current step; waits at most 10 s for the end of this step.

        Returns False if the step does not end in this time.
        """
        self._closing.set()
        self._wake.set()
        if self._thread is None:
            return True
        self._thread.join(_STOP_S)
        return not self._thread.is_alive()

    def changed(self, tenant_id: str, collection_id: int) -> None:
        """Records that a commit has changed documents of a collection, and wakes the worker."""
        with self._lock:
            self._changed.add((tenant_id, collection_id))
        self._wake.set()

    def backlog(self, collection_id: int) -> int:
        """Returns how many leaves of a collection are in no HNSW index, so that searches scan them.

        The worker counted them when it last maintained the collection. Returns 0 if the worker
        does not maintain the collection.
        """
        return self._backlogs.get(collection_id, 0)

    def wait_for_capacity(self, collection_id: int, deadline: Deadline) -> None:
        """Waits while too many leaves of a collection are in no HNSW index.

        More than `MaintenanceLimits.max_backlog` such leaves are too many. Raises the errors of
        `Deadline.check`.
        """
        max_backlog = self._limits.max_backlog
        while self._thread is not None and self.backlog(collection_id) > max_backlog:
            deadline.check("waiting for maintenance")
            time.sleep(min(_POLL_S, max(deadline.remaining_s, 0)))

    def _run(self) -> None:
        limits = self._limits
        next_survey_s = 0.0
        while not self._closing.is_set():
            self._wake.clear()
            if time.monotonic() >= next_survey_s:
                succeeded = self._try(self._survey)
                next_survey_s = time.monotonic() + (
                    limits.survey_s if succeeded else limits.retry_s
                )
            succeeded = self._maintain_changed()
            self._closing.wait(limits.pause_s)
            pause_s = max(next_survey_s - time.monotonic(), 0)
            self._wake.wait(pause_s if succeeded else min(pause_s, limits.retry_s))

    def _try(self, work: Callable[[], None], collection_id: int | None = None) -> bool:
        """Runs `work` and returns True; if it fails, logs the error and returns False."""
        try:
            work()
        except HragError as error:
            _log.warning("maintenance_failed", collection=collection_id, problem=str(error))
        except Exception:
            _log.exception("maintenance_failed", collection=collection_id)
        else:
            return True
        return False

    def _survey(self) -> None:
        """Finds all collections that may need maintenance; `_maintain_changed` then maintains them.

        Also deletes the rows of deleted collections, and the leaves in homes that no collection
        uses any more. On a cluster, finds the collections on all nodes that answer.
        """
        limits = {"min_leaves": self._limits.min_part_leaves, "home_leaves": self._home_leaves}
        for table, query in _SURVEY.items():
            with self._database.read() as connection:
                rows = rows_of_all_nodes(connection, table, query, **limits)
            with self._lock:
                self._changed |= {(row["tenant_id"], row["collection_id"]) for row in rows}
        for deleted in deleted_collections(self._database):
            self._try(partial(self._reclaim, deleted), deleted.collection_id)
        while not self._closing.is_set() and clear_unused_slot(self._database):
            pass

    def _reclaim(self, deleted: DeletedCollection) -> None:
        while not self._closing.is_set() and reclaim_some(
            self._database, deleted, self._limits.home_retention
        ):
            pass

    def _maintain_changed(self) -> bool:
        """Maintains the collections that have changed; returns False if this fails for any."""
        with self._lock:
            changed, self._changed = self._changed, set()
        succeeded = True
        for tenant_id, collection_id in sorted(changed):
            if self._closing.is_set():
                break
            work = partial(self.maintain, tenant_id, collection_id)
            if not self._try(work, collection_id):
                succeeded = False
                with self._lock:
                    self._changed.add((tenant_id, collection_id))
        return succeeded

    def maintain(self, tenant_id: str, collection_id: int, *, every_leaf: bool = False) -> None:
        """Does all maintenance that a collection needs, unless another process is doing it.

        With `every_leaf`, indexes all leaves, even if only a few are not indexed yet.
        """
        with self._database.write() as guard:
            if not try_lock_maintenance(guard, collection_id):
                # Another process maintains the collection. Only that process knows the backlog: the
                # count of leaves that are in no HNSW index.
                self._backlogs.pop(collection_id, None)
                return
            self._index_terms(tenant_id, collection_id, every_leaf)
            self._index_vectors(tenant_id, collection_id, every_leaf)

    def _index_terms(self, tenant_id: str, collection_id: int, every_leaf: bool) -> None:
        key: Key = {"tenant_id": tenant_id, "collection_id": collection_id}
        min_leaves = 1 if every_leaf else self._limits.min_part_leaves
        build = partial(build_part, key=key, min_leaves=min_leaves)
        while self._step(tenant_id, collection_id, "part_built", build):
            pass
        merge = partial(merge_parts, key=key, fan_in=self._limits.fan_in)
        while self._step(tenant_id, collection_id, "parts_merged", merge):
            pass

    def _step(
        self, tenant_id: str, collection_id: int, event: str, work: Callable[[Connection], int]
    ) -> bool:
        """Runs `work` in a separate transaction; returns False if it processed no leaves.

        `work` returns how many leaves it processed, and `event` is the name of the log event.
        """
        if self._closing.is_set():
            return False
        began_s = time.monotonic()
        leaves = 0
        with self._database.write() as connection:
            lock_step(connection, tenant_id, collection_id)
            leaves = work(connection)
        if leaves:
            seconds = round(time.monotonic() - began_s, 3)
            _log.info(event, collection=collection_id, leaves=leaves, seconds=seconds)
        return leaves > 0

    def _index_vectors(self, tenant_id: str, collection_id: int, every_leaf: bool) -> None:
        short_tail = 0 if every_leaf else self._limits.tail_leaves
        moved_leaves = 0
        while not self._closing.is_set():
            with self._database.read() as connection:
                collection = open_by_id(connection, tenant_id, collection_id)
                if collection is None or not collection.settings.dimension:
                    self._backlogs.pop(collection_id, None)
                    return
                sizes = home_sizes(connection, collection)
                has_nodes = is_distributed(connection)
            self._backlogs[collection_id] = sizes.scanned
            needs_home = self._needs_new_home(
                collection, sizes.indexed, sizes.scanned, every_leaf, has_nodes
            )
            if needs_home:
                self._move(collection)
                moved_leaves = 0
                continue
            if collection.home is not None and sizes.scanned > short_tail:
                with self._database.write() as connection:
                    drained = drain_tail(connection, collection, self._limits.drained_leaves)
                moved_leaves += drained
                if drained:
                    continue
            if collection.home is not None and 2 * moved_leaves > sizes.indexed:
                # The statistics of the home are from a time when it was empty or small.
                vacuum_home(self._database, collection.home, tenant_id)
            vacuum_graph(self._database, collection, sizes.indexed)
            return

    def _needs_new_home(
        self,
        collection: OpenedCollection,
        indexed: int,
        scanned: int,
        every_leaf: bool,
        has_nodes: bool,
    ) -> bool:
        """Returns True if the collection must move to a home, or to another one.

        A home is a table with an HNSW index. A collection without a home needs one if it has more
        than `home_leaves` leaves or, with `every_leaf`, at least one leaf. A collection with a home
        needs a new one if its tail has more leaves than the index and more than `home_leaves`.
        Building a new index then costs less than inserting the leaves of the tail into the old
        index one by one. `indexed` is the count of leaves in the index, and `scanned` is the count
        of the other leaves. On a cluster (`has_nodes`), collections share homes, so a collection
        keeps its home, and its tail is emptied in steps.
        """
        if collection.home is None:
            return scanned > (0 if every_leaf else self._home_leaves)
        return not has_nodes and scanned > max(indexed, self._home_leaves)

    def _move(self, collection: OpenedCollection) -> None:
        began_s = time.monotonic()
        leaves = move_collection(
            self._database,
            collection.tenant_id,
            collection.collection_id,
            self._limits.home_retention,
        )
        _log.info(
            "home_built",
            collection=collection.collection_id,
            leaves=leaves,
            seconds=round(time.monotonic() - began_s, 3),
        )
