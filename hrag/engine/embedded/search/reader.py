"""The reader: opens snapshots. A snapshot is a read transaction and a view of the same state.

A view is a collection in memory, with one row for each leaf. A call first begins a transaction and
then gets the view of the state that the transaction reads. So the transaction and the view contain
everything that was committed before the call, and the transaction can read the document of every
row of the view.

Collections are loaded into memory when they are first used, and kept up to date afterwards. If the
loaded collections take more memory than the budget allows, the least recently used collections are
evicted. An evicted collection is loaded again when it is next used.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType

import structlog

from hrag.engine.common.validation import no_summaries
from hrag.engine.embedded.search import document_export
from hrag.engine.embedded.search.document_reader import CitationCache
from hrag.engine.embedded.search.loaded_collection import CollectionDeleted, LoadedCollection
from hrag.engine.embedded.search.selected_rows import FilterResultCache
from hrag.engine.embedded.search.snapshot import EmbeddedSnapshot, SnapshotCaches
from hrag.engine.embedded.search.vector_memory import VectorMemory
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.change_log import changed_after, commit_cursor
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import find_collection
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.store.transactions import Txn
from hrag.engine.engine_documents import ExportedDocument
from hrag.observe import metrics
from hrag.values.collections import Alias, Collection
from hrag.values.deadline import NEVER, Deadline
from hrag.values.errors import HragError
from hrag.values.status import EmbeddedReaderStatus, ReaderStatus

_log = structlog.get_logger()

# A search that waits while another thread loads its collection checks its deadline once in this
# many seconds.
_CHECK_S = 0.05
# A reader has this many locks for loading collections. A thread that loads a collection acquires
# one of these locks, chosen by the id of the collection. So at most this many collections are
# loaded at the same time.
_LOADING_LOCKS = 64
# If the loaded collections take more memory than the budget, collections are evicted until the
# others take at most this share of the budget. Without this margin, nearly every load of a
# collection would have to evict another collection.
_EVICT_TO = 0.9
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """How often the background thread of a reader works. Durations are in seconds."""

    poll_s: float = 0.05
    """The thread looks for new commits at this interval.

    So the thread notices a new segment or a bulk load after at most this time.
    """
    retry_s: float = 1.0
    """If the changes of a collection cannot be applied, the thread tries again after this time."""
    retry_damaged_s: float = 10.0
    """The thread tries to read a damaged segment again after this time.

    Before that, the scrubber has usually verified the segment: each second, the scrubber verifies
    the segments that readers have reported as damaged.
    """


class EmbeddedReader:
    """Opens snapshots of an LMDB store. Implements `hrag.engine.Reader`.

    The loaded collections together take at most `budget_bytes` of memory. Exception: if a single
    search needs collections that are larger than this budget, they are loaded anyway. `limits` says
    how often the background thread works. `caches` are used by all snapshots of the reader. `clock`
    returns seconds. Vectors of segments are kept in memory up to `vector_budget_bytes`; the vectors
    of further segments stay in their files.
    """

    def __init__(
        self,
        store: Store,
        budget_bytes: int = UNLIMITED,
        limits: ReaderLimits = ReaderLimits(),
        caches: SnapshotCaches | None = None,
        clock: Callable[[], float] = time.monotonic,
        vector_budget_bytes: int = UNLIMITED,
    ) -> None:
        self._store = store
        self._budget_bytes = budget_bytes
        self._limits = limits
        self._clock = clock
        self._vector_memory = VectorMemory(vector_budget_bytes)
        self._caches = caches or SnapshotCaches(CitationCache(), FilterResultCache())
        self.loaded: dict[int, LoadedCollection] = {}
        """The collections in memory, by the ids of the collections."""
        self._sizes: dict[int, int] = {}
        self._loading = [threading.Lock() for _ in range(_LOADING_LOCKS)]
        self._accounting = threading.Lock()
        # Two maps from the id of a collection to the time at which the collection is refreshed
        # again. `_failing` has the collections whose last refresh failed. `_damaged` has the
        # collections with damaged segments.
        self._failing: dict[int, float] = {}
        self._damaged: dict[int, float] = {}
        # The background thread has read the store's list of commits up to this position.
        self._position = self._read_commit_cursor()
        # All commits up to this position in the store's list of commits have been applied to every
        # loaded collection. `_cursor_s` is the last time at which all commits had been applied.
        self._cursor = self._position
        self._cursor_s = self._clock()
        self._closing = threading.Event()
        self._background = threading.Thread(target=self._follow, name="change-log", daemon=True)
        self._background.start()

    def snapshot(
        self,
        tenant_id: str,
        collection: str,
        *,
        summaries: bool = False,
        deadline: Deadline = NEVER,
    ) -> AbstractContextManager[EmbeddedSnapshot]:
        """Opens a snapshot of a collection. Implements `Reader.snapshot`.

        If the collection is not in memory, it is loaded first.
        """
        return _OpenSnapshot(self, tenant_id, collection, summaries, deadline)

    def snapshot_in(
        self, txn: Txn, tenant_id: str, collection: str, summaries: bool, deadline: Deadline
    ) -> "EmbeddedSnapshot | list[int]":
        """Returns a snapshot of the state that `txn` reads.

        If a collection has no view of this state, returns the ids of the collections that must be
        loaded; the snapshot is then opened again in another transaction.
        """
        key = ("collection", tenant_id, collection)
        number = txn.cache.once(key, find_collection, txn, tenant_id, collection)
        view = self._view_at(txn, number)
        if not summaries:
            if view is None:
                return [number]
            return EmbeddedSnapshot(txn, tenant_id, self._caches, deadline, view)
        summary_number = self._summaries_of(txn, number)
        summary_view = self._view_at(txn, summary_number)
        if view is None or summary_view is None:
            return [number, summary_number]
        return EmbeddedSnapshot(txn, tenant_id, self._caches, deadline, view, summary_view)

    def begin(self) -> AbstractContextManager[Txn]:
        """Begins a read transaction."""
        return self._store.read()

    def _view_at(self, txn: Txn, number: int) -> View | None:
        """Returns the view of a collection in the state that the transaction reads.

        `number` is the id of the collection. Returns None if the collection is not loaded, or if
        its view is newer than the transaction.
        """
        loaded = self.loaded.get(number)
        if loaded is None:
            return None
        loaded.used_s = self._clock()
        return loaded.view_at(txn)

    def _summaries_of(self, txn: Txn, number: int) -> int:
        """Returns the id of the summary collection that belongs to a collection.

        `number` is the id of the collection. Raises NoSummaries if this collection has no summary
        collection.
        """
        record = txn.collections.require(number)
        if not record.summaries:
            raise no_summaries(record.name)
        return record.summaries

    def sequence(self, tenant_id: str) -> int:
        """Returns the sequence number of the tenant's last change. Implements `Reader.sequence`."""
        with self._store.read() as txn:
            return read_usage(txn, tenant_id).sequence

    def _read_commit_cursor(self) -> int:
        with self._store.read() as txn:
            return commit_cursor(txn)

    def collections(self) -> Iterator[Collection]:
        """Yields the collections of all tenants. Implements `Reader.collections`."""
        return iter(document_export.collections(self._store))

    def aliases(self, tenant_id: str) -> tuple[Alias, ...]:
        """Returns a tenant's aliases, in order of name. Implements `Reader.aliases`."""
        return document_export.aliases(self._store, tenant_id)

    def export(self, tenant_id: str, collection: str) -> Iterator[ExportedDocument]:
        """Yields all documents of a collection. Implements `Reader.export`."""
        return document_export.documents(self._store, tenant_id, collection)

    def status(self) -> ReaderStatus:
        """Returns how far the reader lags behind the commits, and the memory of its collections.

        Implements `Reader.status`.
        """
        committed, cursor = self._read_commit_cursor(), self._cursor
        loaded = list(self.loaded.values())
        return ReaderStatus(
            lag_s=self._clock() - self._cursor_s if cursor < committed else 0.0,
            embedded=EmbeddedReaderStatus(
                sequence=committed,
                applied_sequence=cursor,
                collections_loaded=len(loaded),
                loaded_bytes=sum(self._sizes.values()),
                budget_bytes=self._budget_bytes,
                damaged_segments=sum(collection.damaged for collection in loaded),
            ),
        )

    def preload(self) -> None:
        """Loads all collections that have segments, so that searches do not wait for loading.

        Stops when the memory budget is nearly used up, because loading more collections would evict
        loaded collections. If a collection cannot be loaded, logs the error and continues with the
        next collection. A search in this collection will raise the error again. Implements
        `Reader.preload`.
        """
        with self._store.read() as txn:
            # Only the keys are read. So a damaged value of one collection does not prevent the load
            # of other collections. The damaged value is found when its own collection is loaded.
            keys = txn.segments.keys()
            numbers = {number for number, _ in keys}
        for number in sorted(numbers):
            if sum(self._sizes.values()) >= _EVICT_TO * self._budget_bytes:
                _log.info("memory_budget_full", budget_bytes=self._budget_bytes)
                return
            try:
                self.load(number)
            except Exception as error:
                _log_failure(error, collection=number)

    def close(self) -> None:
        """Stops the background thread. Does not close the store, which the caller has opened."""
        self._closing.set()
        self._background.join()

    def load(self, number: int, keep: Sequence[int] = (), deadline: Deadline = NEVER) -> None:
        """Loads a collection into memory. Does nothing if it is loaded or has been deleted.

        `number` is the id of the collection. To free memory, other collections may be evicted,
        except the collections whose ids are in `keep`. If another thread is loading the collection,
        waits for this thread, and raises DeadlineExceeded or Cancelled if the deadline passes
        meanwhile. Raises any error that reading the store raises.
        """
        with self._loading_lock(number, deadline), suppress(CollectionDeleted):
            if number not in self.loaded:
                loaded = LoadedCollection(self._store, number, self._vector_memory)
                self.loaded[number] = loaded
                # The collection was not in `loaded` during the load, so the background thread may
                # have skipped commits that were made then. The refresh applies these commits.
                self._refresh(number, loaded, keep)

    @contextmanager
    def _loading_lock(self, number: int, deadline: Deadline) -> Iterator[None]:
        """Holds the lock for loading the collection with this id until the block ends.

        Raises DeadlineExceeded or Cancelled if the deadline passes while it waits for the lock.
        """
        lock = self._loading[number % _LOADING_LOCKS]
        while not lock.acquire(timeout=max(min(deadline.remaining_s, _CHECK_S), 0)):
            deadline.check("waiting for the collection to be loaded")
        try:
            yield
        finally:
            lock.release()

    def _account(self, number: int, loaded: LoadedCollection, keep: Sequence[int] = ()) -> None:
        """Records the memory of a collection. Evicts other collections if the budget is exceeded.

        The collections whose ids are in `keep` are not evicted.
        """
        with self._accounting:
            if self.loaded.get(number) is not loaded:
                # Another thread has evicted the collection meanwhile.
                loaded.release_vectors()
                return
            self._sizes[number] = loaded.size_bytes
            total = sum(self._sizes.values())
            if total <= self._budget_bytes:
                return
            oldest = sorted(self.loaded.items(), key=lambda item: item[1].used_s)
            for other, _ in oldest:
                if total <= _EVICT_TO * self._budget_bytes:
                    return
                if other != number and other not in keep:
                    total -= self._sizes.get(other, 0)
                    self.evict(other)
                    metrics.evictions.inc()

    def evict(self, number: int) -> None:
        """Removes the collection with this id from memory.

        Searches that have already opened a snapshot of the collection can continue.
        """
        loaded = self.loaded.pop(number, None)
        for by_number in (self._sizes, self._failing, self._damaged):
            by_number.pop(number, None)
        if loaded is not None:
            loaded.release_vectors()

    def _follow(self) -> None:
        """Runs the background thread: applies new commits at intervals until `close` is called."""
        is_failing = False
        while not self._closing.wait(self._limits.retry_s if is_failing else self._limits.poll_s):
            try:
                self.apply_changes()
                is_failing = False
            except Exception as error:
                if not is_failing:
                    _log_failure(error)
                is_failing = True

    def apply_changes(self) -> None:
        """Applies all new commits to the loaded collections. The background thread calls it.

        If the commits of a collection cannot be applied, the next attempt is made after `retry_s`
        seconds, even if the collection changes earlier.

        `_position` is the position in the store's list of commits up to which this method has read
        the list; it advances at every call. `_cursor` is the position up to which all commits have
        been applied; it advances only if no collection has failed.
        """
        with self._store.read() as txn:
            committed = commit_cursor(txn)
            changed = changed_after(txn, self._position)
        numbers = set(self.loaded) if changed is None else changed
        numbers = {number for number in numbers if number not in self._failing}
        damaged = _due(self._damaged, self._clock())
        for number in damaged:
            self._damaged.pop(number, None)
        for number in numbers | _due(self._failing, self._clock()) | damaged:
            loaded = self.loaded.get(number)
            if loaded is None or self._refresh(number, loaded, retry_damaged=number in damaged):
                self._failing.pop(number, None)
        self._position = committed
        if not self._failing:
            self._cursor, self._cursor_s = committed, self._clock()

    def _refresh(
        self,
        number: int,
        loaded: LoadedCollection,
        keep: Sequence[int] = (),
        *,
        retry_damaged: bool = False,
    ) -> bool:
        """Applies all new commits to one collection. Returns False if an error prevents this.

        `number` is the id of the collection. Of several errors in a row, only the first is logged.
        After an error, the collection is added to `_failing`, and `apply_changes` skips the commits
        of this collection until the next attempt. This method does not remove the collection from
        `_failing` after a success. Only `apply_changes` removes it, when an attempt of
        `apply_changes` has succeeded.
        """
        is_fresh = True
        try:
            loaded.refresh(retry_damaged=retry_damaged)
        except CollectionDeleted:
            with self._accounting:
                self.evict(number)
            loaded.release_vectors()  # Another thread may have evicted the collection before.
            return True
        except Exception as error:
            if number not in self._failing:
                _log_failure(error, collection=number)
            self._failing[number] = self._clock() + self._limits.retry_s
            is_fresh = False
        if loaded.damaged:
            self._damaged.setdefault(number, self._clock() + self._limits.retry_damaged_s)
        self._account(number, loaded, keep)
        return is_fresh


def _due(retries_s: dict[int, float], now_s: float) -> set[int]:
    """Returns the ids of the collections whose time in `retries_s` is not later than `now_s`."""
    return {number for number, retry_s in list(retries_s.items()) if retry_s <= now_s}


def _log_failure(error: Exception, **fields: int) -> None:
    """Logs the error. Logs no traceback if it is an HragError or an OSError."""
    if isinstance(error, (HragError, OSError)):
        _log.error("reader_refresh_failed", problem=str(error), **fields)
    else:
        _log.exception("reader_refresh_failed", exc_info=error, **fields)


class _OpenSnapshot(AbstractContextManager[EmbeddedSnapshot]):
    """Opens a snapshot at the beginning of a `with` block, and closes it at the end.

    See `EmbeddedReader.snapshot`. Each search opens a snapshot, and a generator as a context
    manager would take twice as long.
    """

    __slots__ = ("_collection", "_deadline", "_reader", "_summaries", "_tenant_id", "_transaction")

    def __init__(
        self,
        reader: EmbeddedReader,
        tenant_id: str,
        collection: str,
        summaries: bool,
        deadline: Deadline,
    ) -> None:
        self._reader = reader
        self._tenant_id = tenant_id
        self._collection = collection
        self._summaries = summaries
        self._deadline = deadline

    def __enter__(self) -> EmbeddedSnapshot:
        reader = self._reader
        while True:
            self._transaction = reader.begin()
            txn = self._transaction.__enter__()
            try:
                opened = reader.snapshot_in(
                    txn, self._tenant_id, self._collection, self._summaries, self._deadline
                )
            except BaseException:
                self._transaction.__exit__(*sys.exc_info())
                raise
            if isinstance(opened, EmbeddedSnapshot):
                return opened
            self._transaction.__exit__(None, None, None)
            self._deadline.check("loading the collection")
            for number in opened:
                reader.load(number, keep=opened, deadline=self._deadline)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._transaction.__exit__(kind, error, traceback)
