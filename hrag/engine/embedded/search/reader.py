"""Snapshots for searching: a read transaction and a view that agree on one change.

A call opens a transaction first and takes the view of the same sequence: what was
committed before the call is in both, and every row of the view is in the transaction.
Collections are loaded when first asked for and followed from then on; past a budget of
memory the least recently used are let go, and come back when asked for again.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog

from hrag import metrics
from hrag.engine.embedded.search.documents import CitationCache
from hrag.engine.embedded.search.filter_eval import SelectionCache
from hrag.engine.embedded.search.loaded_collection import CollectionGone, Followed
from hrag.engine.embedded.search.snapshot import EmbeddedSnapshot
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import changed_after, commit_cursor
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import find_collection, read_collection
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.errors import NoSummaries
from hrag.types import CollectionSettings, EmbeddedReaderStatus, ReaderStatus

_log = structlog.get_logger()

_POLL_S = 0.05  # How long a new segment or a bulk load goes unnoticed by the background.
_LOADING_LOCKS = 64  # So many collections can be loaded side by side, by their number.
_UNLOAD_TO = 0.9  # Of the budget, so that not every load unloads something.
UNLIMITED = 1 << 62


class EmbeddedReader:
    """See `hrag.engine.Reader`. Holds `budget_bytes` at most, or what one search needs."""

    def __init__(self, store: Store, budget_bytes: int = UNLIMITED) -> None:
        self._store = store
        self._budget_bytes = budget_bytes
        self._citations = CitationCache()
        self._selections = SelectionCache()
        self._followed: dict[int, Followed] = {}
        self._sizes: dict[int, int] = {}
        self._loading = [threading.Lock() for _ in range(_LOADING_LOCKS)]
        self._accounting = threading.Lock()
        self._applied = self._cursor()
        self._applied_s = time.monotonic()
        self._closing = threading.Event()
        self._background = threading.Thread(target=self._follow, name="follow", daemon=True)
        self._background.start()

    @contextmanager
    def snapshot(
        self, tenant_id: str, collection: str, *, summaries: bool = False
    ) -> Iterator[EmbeddedSnapshot]:
        while True:
            with self._store.read() as txn:
                number = find_collection(self._store, txn, tenant_id, collection)
                numbers = [number, self._beside(txn, number)] if summaries else [number]
                found = (self._view_at(txn, each) for each in numbers)
                views = [view for view in found if view is not None]
                if len(views) == len(numbers):
                    yield EmbeddedSnapshot(
                        self._store, txn, tenant_id, self._citations, self._selections, *views
                    )
                    return
            for each in numbers:
                self._load(each, beside=numbers)

    def _view_at(self, txn: Txn, number: int) -> View | None:
        """The collection as the transaction sees it, if it is loaded and not past that."""
        followed = self._followed.get(number)
        if followed is None:
            return None
        followed.used_s = time.monotonic()
        return followed.view_at(txn)

    def _beside(self, txn: Txn, number: int) -> int:
        """The collection of another one's summaries, or NoSummaries."""
        record = read_collection(self._store, txn, number)
        if not record.summaries:
            raise NoSummaries(
                f"collection {record.name!r} has no summaries; they are asked for when a "
                "collection is created, by `summaries` in its settings or HRAG_SUMMARIES",
                field="mode",
            )
        return record.summaries

    def settings(self, tenant_id: str, collection: str) -> CollectionSettings:
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, collection)
            followed = self._followed.get(number)
            if followed is not None:
                return followed.settings
            return read_collection(self._store, txn, number).settings

    def sequence(self, tenant_id: str) -> int:
        with self._store.read() as txn:
            return read_usage(self._store, txn, tenant_id).sequence

    def _cursor(self) -> int:
        with self._store.read() as txn:
            return commit_cursor(self._store, txn)

    def status(self) -> ReaderStatus:
        sequence, applied = self._cursor(), self._applied
        followed = list(self._followed.values())
        return ReaderStatus(
            lag_s=time.monotonic() - self._applied_s if applied < sequence else 0.0,
            embedded=EmbeddedReaderStatus(
                sequence=sequence,
                applied_sequence=applied,
                collections_loaded=len(followed),
                loaded_bytes=sum(self._sizes.values()),
                budget_bytes=self._budget_bytes,
                damaged_segments=sum(each.damaged for each in followed),
            ),
        )

    def load_segmented(self) -> None:
        """Loads collections that have segments, so that no search waits for one.

        Not past the budget: what would be unloaded again is left for later.
        """
        with self._store.read() as txn:
            found = {
                schema.read_in_collection(key)[0]
                for key, _ in self._store.scan(txn, "segments", b"")
            }
        for number in sorted(found):
            if sum(self._sizes.values()) >= _UNLOAD_TO * self._budget_bytes:
                _log.info("memory_budget_full", budget_bytes=self._budget_bytes)
                return
            self._load(number)

    def close(self) -> None:
        """Stops following; the store itself belongs to whoever opened it."""
        self._closing.set()
        self._background.join()

    def _load(self, number: int, beside: Sequence[int] = ()) -> None:
        """Follows the collection from now on, unless it is deleted by now.

        Lets none of those go that are wanted `beside` it.
        """
        with self._loading[number % _LOADING_LOCKS], suppress(CollectionGone):
            if number not in self._followed:
                followed = Followed(self._store, number)
                self._followed[number] = followed
                self._account(number, followed, beside)

    def _account(self, number: int, followed: Followed, beside: Sequence[int] = ()) -> None:
        """Counts a collection's memory, and lets others go where it is too much."""
        with self._accounting:
            if self._followed.get(number) is not followed:
                return  # Let go meanwhile.
            self._sizes[number] = followed.size_bytes
            loaded = sum(self._sizes.values())
            if loaded <= self._budget_bytes:
                return
            oldest = sorted(self._followed.items(), key=lambda item: item[1].used_s)
            for other, _ in oldest:
                if loaded <= _UNLOAD_TO * self._budget_bytes:
                    return
                if other != number and other not in beside:
                    loaded -= self._sizes.get(other, 0)
                    self._forget(other)
                    metrics.evictions.inc()

    def _forget(self, number: int) -> None:
        """Searches under way keep what they began with."""
        self._followed.pop(number, None)
        self._sizes.pop(number, None)

    def _follow(self) -> None:
        while not self._closing.wait(_POLL_S):
            try:
                self._catch_up()
            except Exception:
                _log.exception("cannot_follow")

    def _catch_up(self) -> None:
        """Brings every loaded collection to the store's last change.

        Those that cannot be are tried again the next time.
        """
        with self._store.read() as txn:
            cursor = commit_cursor(self._store, txn)
            changed = changed_after(self._store, txn, self._applied)
        numbers = list(self._followed) if changed is None else changed
        followed = [(number, self._followed.get(number)) for number in numbers]
        failures = [n for n, each in followed if each and not self._refresh(n, each)]
        if not failures:
            self._applied, self._applied_s = cursor, time.monotonic()

    def _refresh(self, number: int, followed: Followed) -> bool:
        try:
            followed.refresh()
            self._account(number, followed)
        except CollectionGone:
            with self._accounting:
                self._forget(number)
        except Exception:
            _log.exception("cannot_follow", collection=number)
            return False
        return True
