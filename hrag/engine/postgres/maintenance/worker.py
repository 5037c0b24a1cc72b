"""The background work for a writer: parts of the lexical index, homes, deleted collections.

Any number of processes may run it: an advisory lock keeps two of them from working on one
collection, and what one leaves unfinished another one does. A process looks at the collections
that its own writer has changed at once, and at all of them now and then.
"""

import threading
import time
from collections.abc import Callable
from functools import partial

import structlog

from hrag.config import DEFAULT_HOME_LEAVES
from hrag.engine.postgres.indexes.homes import drain_tail, drop_unused, home_sizes, move_collection
from hrag.engine.postgres.indexes.lexical_index import MIN_PART_LEAVES, build_part, merge_parts
from hrag.engine.postgres.maintenance.advisory_locks import lock_step, try_lock_maintenance
from hrag.engine.postgres.maintenance.reclaim import next_deleted, reclaim_some
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.database import Database
from hrag.engine.postgres.store.opened_collection import Key, OpenedCollection, open_by_number
from hrag.values.deadline import Deadline
from hrag.values.errors import HragError

_log = structlog.get_logger()

_TAIL_LEAVES = 256  # Shorter tails are left as they are.
_DRAINED_TOGETHER = 64  # Leaves: a document's writer waits for them, some 0.1 s.
_MAX_BACKLOG = 32_768  # Leaves that may be scanned besides an index before writers wait.
_PAUSE_S = 1.0
_SURVEY_S = 60.0
_RETRY_S = 5.0  # Until work that failed is tried again: writers may wait for it.
_POLL_S = 0.05
_STOP_S = 10.0

_SURVEY = """
SELECT tenant_id, collection_id FROM hrag.term_vectors
GROUP BY tenant_id, collection_id HAVING sum(leaf_count) >= %(least)s
UNION SELECT tenant_id, collection_id FROM hrag.collections
WHERE home IS NOT NULL OR leaves > %(home_leaves)s
UNION SELECT tenant_id, collection_id FROM hrag.tombstones
"""


class MaintenanceWorker:
    """See `hrag.engine.protocols.Maintenance`. Thread-safe."""

    def __init__(self, database: Database, home_leaves: int = DEFAULT_HOME_LEAVES) -> None:
        """Collections with more than `home_leaves` leaves get a home."""
        self._database = database
        self._home_leaves = home_leaves
        self._changed: set[tuple[str, int]] = set()
        self._backlogs: dict[int, int] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the work, first on all collections."""
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """Stops after the present step; False if that takes too long."""
        self._closing.set()
        self._wake.set()
        if self._thread is None:
            return True
        self._thread.join(_STOP_S)
        return not self._thread.is_alive()

    def changed(self, tenant_id: str, collection_id: int) -> None:
        """Called after each commit that changed a collection's documents."""
        with self._lock:
            self._changed.add((tenant_id, collection_id))
        self._wake.set()

    def wait_for_capacity(self, collection_id: int, deadline: Deadline) -> None:
        """Waits while too many leaves of a collection are in no index; raises DeadlineExceeded."""
        while self._thread is not None and self._backlogs.get(collection_id, 0) > _MAX_BACKLOG:
            deadline.check("waiting for maintenance")
            time.sleep(min(_POLL_S, max(deadline.remaining_s, 0)))

    def _run(self) -> None:
        next_survey_s = 0.0
        while not self._closing.is_set():
            self._wake.clear()
            if time.monotonic() >= next_survey_s:
                is_done = self._succeeds(self._survey)
                next_survey_s = time.monotonic() + (_SURVEY_S if is_done else _RETRY_S)
            is_done = self._work_on_changed()
            self._closing.wait(_PAUSE_S)
            pause_s = max(next_survey_s - time.monotonic(), 0)
            self._wake.wait(pause_s if is_done else min(pause_s, _RETRY_S))

    def _succeeds(self, work: Callable[[], None], collection_id: int | None = None) -> bool:
        """Does the work; logs an error of it and returns False, so that other work goes on."""
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
        """Notes collections that may have work for us, and finishes what was deleted."""
        least = {"least": MIN_PART_LEAVES, "home_leaves": self._home_leaves}
        with self._database.read() as connection:
            found = set(connection.execute(_SURVEY, least).fetchall())
        with self._lock:
            self._changed |= found
        while not self._closing.is_set() and self._reclaim():
            pass
        while not self._closing.is_set() and drop_unused(self._database):
            pass

    def _reclaim(self) -> bool:
        with self._database.write() as connection:
            deleted = next_deleted(connection)
            return deleted is not None and reclaim_some(connection, deleted)

    def _work_on_changed(self) -> bool:
        """Maintains the collections that have changed; False if some are to be tried again."""
        with self._lock:
            changed, self._changed = self._changed, set()
        is_done = True
        for tenant_id, collection_id in sorted(changed):
            if self._closing.is_set():
                break
            work = partial(self.maintain, tenant_id, collection_id)
            if not self._succeeds(work, collection_id):
                is_done = False
                with self._lock:
                    self._changed.add((tenant_id, collection_id))
        return is_done

    def maintain(self, tenant_id: str, collection_id: int, *, every_leaf: bool = False) -> None:
        """Does all that is due for a collection, unless another process is doing it.

        With `every_leaf`, tails and term vectors are indexed however few they are.
        """
        with self._database.write() as guard:
            if not try_lock_maintenance(guard, collection_id):
                self._backlogs.pop(collection_id, None)  # The other process knows it.
                return
            self._index_words(tenant_id, collection_id, every_leaf)
            self._index_vectors(tenant_id, collection_id, every_leaf)

    def _index_words(self, tenant_id: str, collection_id: int, every_leaf: bool) -> None:
        key: Key = {"tenant_id": tenant_id, "collection_id": collection_id}
        least = 1 if every_leaf else MIN_PART_LEAVES
        while self._step(collection_id, "part_built", partial(build_part, key=key, least=least)):
            pass
        while self._step(collection_id, "parts_merged", partial(merge_parts, key=key)):
            pass

    def _step(self, collection_id: int, event: str, work: Callable[[Connection], int]) -> bool:
        """Runs a step in a transaction of its own; False if there was nothing to do."""
        if self._closing.is_set():
            return False
        began_s = time.monotonic()
        leaves = 0
        with self._database.write() as connection:
            lock_step(connection, collection_id)
            leaves = work(connection)
        if leaves:
            seconds = round(time.monotonic() - began_s, 3)
            _log.info(event, collection=collection_id, leaves=leaves, seconds=seconds)
        return leaves > 0

    def _index_vectors(self, tenant_id: str, collection_id: int, every_leaf: bool) -> None:
        short_tail = 0 if every_leaf else _TAIL_LEAVES
        while not self._closing.is_set():
            with self._database.read() as connection:
                collection = open_by_number(connection, tenant_id, collection_id)
                if collection is None or not collection.settings.dimension:
                    self._backlogs.pop(collection_id, None)
                    return
                sizes = home_sizes(connection, collection)
            self._backlogs[collection_id] = sizes.scanned
            if self._wants_move(collection, sizes.indexed, sizes.scanned, every_leaf):
                self._move(collection)
            elif collection.home is None or sizes.scanned <= short_tail:
                return
            else:
                with self._database.write() as connection:
                    if not drain_tail(connection, collection, _DRAINED_TOGETHER):
                        return

    def _wants_move(
        self, collection: OpenedCollection, indexed: int, scanned: int, every_leaf: bool
    ) -> bool:
        """Whether a new index over everything costs less than inserting the tail leaf by leaf."""
        if collection.home is None:
            return scanned > (0 if every_leaf else self._home_leaves)
        return scanned > max(indexed, self._home_leaves)

    def _move(self, collection: OpenedCollection) -> None:
        began_s = time.monotonic()
        leaves = move_collection(self._database, collection.tenant_id, collection.collection_id)
        _log.info(
            "home_built",
            collection=collection.collection_id,
            leaves=leaves,
            seconds=round(time.monotonic() - began_s, 3),
        )
