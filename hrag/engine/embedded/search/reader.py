"""The reader: snapshots of a read transaction and a view that agree on one change.

A call opens a transaction first and takes the view of the same change: what was committed
before the call is in both, and every row of the view is in the transaction. Collections
are loaded when first used and kept up to date from then on. Past a memory budget the least
recently used are evicted, and loaded again when they are used again.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog

from hrag.engine.common.validation import no_summaries
from hrag.engine.embedded.search import document_export
from hrag.engine.embedded.search.document_reader import CitationCache
from hrag.engine.embedded.search.loaded_collection import CollectionDeleted, LoadedCollection
from hrag.engine.embedded.search.selected_rows import SelectionCache
from hrag.engine.embedded.search.snapshot import EmbeddedSnapshot, SnapshotCaches
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import changed_after, commit_cursor
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import find_collection, read_collection
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.engine_documents import Exported
from hrag.observe import metrics
from hrag.values.collections import Alias, Collection
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import HragError
from hrag.values.status import EmbeddedReaderStatus, ReaderStatus

_log = structlog.get_logger()

_POLL_S = 0.05  # How long the background may not notice a new segment or a bulk load.
_CHECK_S = 0.05  # How often a search that waits for another one's load checks its deadline.
_RETRY_S = 1.0  # After a refresh that failed.
_RETRY_DAMAGED_S = 10.0  # The scrubber looks at what was reported every second.
_LOADING_LOCKS = 64  # Collections that can be loaded side by side, by their number.
_EVICT_TO = 0.9  # Of the budget, so that not every load evicts something.
UNLIMITED = 1 << 62


class EmbeddedReader:
    """See `hrag.engine.Reader`. Holds `budget_bytes` at most, or what one search needs."""

    def __init__(self, store: Store, budget_bytes: int = UNLIMITED) -> None:
        self._store = store
        self._budget_bytes = budget_bytes
        self._caches = SnapshotCaches(CitationCache(), SelectionCache())
        self._loaded: dict[int, LoadedCollection] = {}
        self._sizes: dict[int, int] = {}
        self._loading = [threading.Lock() for _ in range(_LOADING_LOCKS)]
        self._accounting = threading.Lock()
        # When collections whose refresh failed, and those with damaged segments, have their next
        # turn, on the monotonic clock.
        self._failing: dict[int, float] = {}
        self._damaged: dict[int, float] = {}
        self._position = self._committed()  # Up to where the background has read the change log.
        self._cursor = self._position  # Up to where every loaded collection has applied it.
        self._cursor_s = time.monotonic()
        self._closing = threading.Event()
        self._background = threading.Thread(target=self._follow, name="change-log", daemon=True)
        self._background.start()

    @contextmanager
    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> Iterator[EmbeddedSnapshot]:
        """See `hrag.engine.Reader.snapshot`."""
        while True:
            with self._store.read() as txn:
                number = txn.cache.once(
                    ("collection", tenant_id, collection),
                    lambda: find_collection(self._store, txn, tenant_id, collection),
                )
                numbers = [number, self._summaries_of(txn, number)] if summaries else [number]
                found = (self._view_at(txn, each) for each in numbers)
                views = [view for view in found if view is not None]
                if len(views) == len(numbers):
                    yield EmbeddedSnapshot(
                        self._store, txn, tenant_id, self._caches, deadline, *views
                    )
                    return
            deadline.check("loading the collection")
            for each in numbers:
                self._load(each, keep=numbers, deadline=deadline)

    def _view_at(self, txn: Txn, number: int) -> View | None:
        """The collection as the transaction sees it, if it is loaded and not past that."""
        loaded = self._loaded.get(number)
        if loaded is None:
            return None
        loaded.used_s = time.monotonic()
        return loaded.view_at(txn)

    def _summaries_of(self, txn: Txn, number: int) -> int:
        """Returns the summary collection of a collection, or raises NoSummaries."""
        record = read_collection(self._store, txn, number)
        if not record.summaries:
            raise no_summaries(record.name)
        return record.summaries

    def sequence(self, tenant_id: str) -> int:
        """See `hrag.engine.Reader.sequence`."""
        with self._store.read() as txn:
            return read_usage(self._store, txn, tenant_id).sequence

    def _committed(self) -> int:
        with self._store.read() as txn:
            return commit_cursor(self._store, txn)

    def collections(self) -> Iterator[Collection]:
        """See `hrag.engine.Reader.collections`."""
        return iter(document_export.collections(self._store))

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """See `hrag.engine.Reader.aliases`."""
        return document_export.aliases(self._store, tenant_id)

    def export(self, tenant_id: str, collection: str) -> Iterator[Exported]:
        """See `hrag.engine.Reader.export`."""
        return document_export.documents(self._store, tenant_id, collection)

    def status(self) -> ReaderStatus:
        """See `hrag.engine.Reader.status`."""
        committed, cursor = self._committed(), self._cursor
        loaded = list(self._loaded.values())
        return ReaderStatus(
            lag_s=time.monotonic() - self._cursor_s if cursor < committed else 0.0,
            embedded=EmbeddedReaderStatus(
                sequence=committed,
                applied_sequence=cursor,
                collections_loaded=len(loaded),
                loaded_bytes=sum(self._sizes.values()),
                budget_bytes=self._budget_bytes,
                damaged_segments=sum(each.damaged for each in loaded),
            ),
        )

    def preload(self) -> None:
        """Loads the collections that have segments, so that no search waits for one.

        Stops at the memory budget: what would be evicted again is left for later. A collection
        that cannot be loaded is logged; searches of it raise its error.
        """
        with self._store.read() as txn:
            # Values are not checked here, so that a damaged one concerns its collection alone.
            entries = txn.entries(self._store.db["segments"])
            found = {schema.read_in_collection(key)[0] for key, _ in entries}
        for number in sorted(found):
            if sum(self._sizes.values()) >= _EVICT_TO * self._budget_bytes:
                _log.info("memory_budget_full", budget_bytes=self._budget_bytes)
                return
            try:
                self._load(number)
            except Exception as error:
                _log_failure(error, collection=number)

    def close(self) -> None:
        """Stops the background thread; the store itself belongs to whoever opened it."""
        self._closing.set()
        self._background.join()

    def _load(self, number: int, keep: Sequence[int] = (), deadline: Deadline = NEVER) -> None:
        """Loads the collection unless it has been deleted; evicts none of those in `keep`.

        Raises what reading the store raises, and DeadlineExceeded or Cancelled if the caller's
        time is over while another thread loads.
        """
        with self._loading_lock(number, deadline), suppress(CollectionDeleted):
            if number not in self._loaded:
                loaded = LoadedCollection(self._store, number)
                self._loaded[number] = loaded
                # The background has passed over what was committed during the load.
                self._refresh(number, loaded, keep)

    @contextmanager
    def _loading_lock(self, number: int, deadline: Deadline) -> Iterator[None]:
        lock = self._loading[number % _LOADING_LOCKS]
        while not lock.acquire(timeout=max(min(deadline.remaining_s, _CHECK_S), 0)):
            deadline.check("waiting for the collection to be loaded")
        try:
            yield
        finally:
            lock.release()

    def _account(self, number: int, loaded: LoadedCollection, keep: Sequence[int] = ()) -> None:
        """Counts a collection's memory, and evicts others if it is too much."""
        with self._accounting:
            if self._loaded.get(number) is not loaded:
                return  # Evicted meanwhile.
            self._sizes[number] = loaded.size_bytes
            total = sum(self._sizes.values())
            if total <= self._budget_bytes:
                return
            oldest = sorted(self._loaded.items(), key=lambda item: item[1].used_s)
            for other, _ in oldest:
                if total <= _EVICT_TO * self._budget_bytes:
                    return
                if other != number and other not in keep:
                    total -= self._sizes.get(other, 0)
                    self._drop(other)
                    metrics.evictions.inc()

    def _drop(self, number: int) -> None:
        """Evicts a collection; running searches keep the view that they began with."""
        for each in (self._loaded, self._sizes, self._failing, self._damaged):
            each.pop(number, None)

    def _follow(self) -> None:
        is_failing = False
        while not self._closing.wait(_RETRY_S if is_failing else _POLL_S):
            try:
                self._apply_changes()
                is_failing = False
            except Exception as error:
                if not is_failing:
                    _log_failure(error)
                is_failing = True

    def _apply_changes(self) -> None:
        """Brings every loaded collection to the store's last change.

        Those that fail are tried again after `_RETRY_S`, whatever is committed meanwhile, and
        keep the cursor, but not the position, from advancing.
        """
        with self._store.read() as txn:
            committed = commit_cursor(self._store, txn)
            changed = changed_after(self._store, txn, self._position)
        numbers = set(self._loaded) if changed is None else changed
        numbers = {number for number in numbers if number not in self._failing}
        damaged = _due(self._damaged)
        for number in damaged:
            self._damaged.pop(number, None)
        for number in numbers | _due(self._failing) | damaged:
            loaded = self._loaded.get(number)
            if loaded is None or self._refresh(number, loaded, retry_damaged=number in damaged):
                self._failing.pop(number, None)
        self._position = committed
        if not self._failing:
            self._cursor, self._cursor_s = committed, time.monotonic()

    def _refresh(
        self,
        number: int,
        loaded: LoadedCollection,
        keep: Sequence[int] = (),
        *,
        retry_damaged: bool = False,
    ) -> bool:
        """Applies what was committed; returns False if that fails, which is logged once.

        A success does not cancel an earlier failure. The background does that, because it has
        passed over the collection's commits meanwhile.
        """
        is_fresh = True
        try:
            loaded.refresh(retry_damaged=retry_damaged)
        except CollectionDeleted:
            with self._accounting:
                self._drop(number)
            return True
        except Exception as error:
            if number not in self._failing:
                _log_failure(error, collection=number)
            self._failing[number] = time.monotonic() + _RETRY_S
            is_fresh = False
        if loaded.damaged:
            self._damaged.setdefault(number, time.monotonic() + _RETRY_DAMAGED_S)
        self._account(number, loaded, keep)
        return is_fresh


def _due(turns: dict[int, float]) -> set[int]:
    """Returns the collections whose turn has come."""
    now = time.monotonic()
    return {number for number, turn_s in list(turns.items()) if turn_s <= now}


def _log_failure(error: Exception, **fields: int) -> None:
    """Logs with a traceback unless the error is a known one."""
    if isinstance(error, (HragError, OSError)):
        _log.error("reader_refresh_failed", problem=str(error), **fields)
    else:
        _log.exception("reader_refresh_failed", exc_info=error, **fields)
