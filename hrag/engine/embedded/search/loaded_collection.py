"""A collection in memory: its current view, which the change log keeps up to date.

The first thread that needs a change applies it: a search or the background thread. New
segments are loaded while searches use the current view. Then a view with the new segments
replaces it. Until then the tail contains the leaves of the new segments. So a search never waits
for a segment file to see new documents.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from hrag.engine.embedded.search.view import View, load_view
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.segments.damage import is_reported, report_damage
from hrag.engine.embedded.store.change_log import changes_after
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Change, Counters, SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.errors import DataLoss

_log = structlog.get_logger()


class CollectionDeleted(Exception):
    """The collection was deleted. Raised before any data of the collection is read."""


class LoadedCollection:
    """A collection in memory. Safe to use from several threads.

    `number` is the collection's number.
    `used_s` is the time of the monotonic clock at which a search last used it.
    """

    def __init__(self, store: Store, number: int) -> None:
        """Loads the collection `number`. Raises CollectionDeleted if it does not exist."""
        self._store = store
        self.number = number
        self._advancing = threading.Lock()
        # This lock is held while segment files are read; `view_at` does not need it.
        self._refreshing = threading.Lock()
        self._segments: dict[int, segment_files.LoadedSegment] = {}
        self._damaged: set[int] = set()
        # The ids of the segments that the manifest listed at the last load.
        self._listed: set[int] = set()
        self.used_s = time.monotonic()
        self._view = self._load()

    @property
    def view(self) -> View:
        """The current view, which searches and the background thread advance."""
        return self._view

    @property
    def size_bytes(self) -> int:
        """The memory that the current view takes."""
        return self._view.size_bytes

    @property
    def damaged(self) -> int:
        """The number of listed segments that cannot be read.

        Their leaves are in the tail, which is scanned exactly.
        """
        return len(self._damaged)

    @contextmanager
    def _read(self) -> Iterator[Txn]:
        with self._store.read() as txn:
            if not txn.collections.has(self.number):
                raise CollectionDeleted
            yield txn

    def view_at(self, txn: Txn) -> View | None:
        """Returns the view of the change that the transaction reads.

        Applies the changes that the current view lacks. Returns None if the current view is
        newer than the transaction.
        """
        committed = txn.cache.once(
            ("counters", self.number), lambda: txn.counters.require(self.number)
        )
        view = self._view
        if view.sequence < committed.sequence:
            with self._advancing:
                view = self._advance(txn, committed)
        return view if view.sequence == committed.sequence else None

    def refresh(self, *, retry_damaged: bool = False) -> None:
        """Applies all committed changes and loads new segments.

        Searches continue with the current view while new segments are loaded. With
        `retry_damaged`, damaged segments that no longer have a marker are read again.

        Raises CollectionDeleted, and any error that reading the store raises. The next call
        then repeats the steps that failed.
        """
        with self._refreshing:
            with self._read() as txn:
                self.view_at(txn)
                listed = listed_segments(txn, self.number)
                settings = txn.collections.require(self.number).settings
            if retry_damaged:
                self._retry_damaged(listed)
            is_current = (
                {record.segment_id for record in listed} == self._listed
                and settings == self._view.settings  # Reindexing may change the analyzer.
                and not self._damaged & self._segments.keys()
            )
            if not is_current:
                view = self._load()
                with self._advancing:
                    # Searches may have advanced the replaced view meanwhile, so that this one
                    # is older. The next call of `view_at` advances it.
                    self._view = view

    def _retry_damaged(self, listed: list[SegmentRecord]) -> None:
        """Reads damaged segments that have no marker again.

        The scrubber deletes the marker of a segment whose files it finds intact. A segment
        also has no marker if creating the marker failed.
        """
        unmarked = [
            record
            for record in listed
            if record.segment_id in self._damaged
            and not is_reported(self._store.segments, record.segment_id)
        ]
        self._report(self._load_segments(unmarked))

    def _advance(self, txn: Txn, committed: Counters) -> View:
        view = self._view
        if view.sequence >= committed.sequence:
            return view
        changes = self._changes_after(txn, committed, view.sequence)
        if changes is None:
            self._view = self._load_view(txn)
        else:
            self._view = view.advanced(txn, changes, committed.sequence)
        return self._view

    def _changes_after(self, txn: Txn, committed: Counters, sequence: int) -> list[Change] | None:
        """Returns the changes after `sequence`.

        Returns None if the change log begins later or is damaged.
        """
        if sequence < committed.log_start:
            return None
        try:
            return list(changes_after(txn, self.number, sequence))
        except DataLoss:
            return None

    def _load(self) -> View:
        """Loads the listed segments and returns a view of them.

        Segments that are already loaded are not read again. If the list changes meanwhile, the
        files of a replaced segment may be gone. Then the new list is loaded.
        """
        while True:
            with self._read() as txn:
                listed = listed_segments(txn, self.number)
            ids = {record.segment_id for record in listed}
            known = self._segments.keys() | self._damaged
            failed = self._load_segments(
                [record for record in listed if record.segment_id not in known]
            )
            with self._read() as txn:
                now = listed_segments(txn, self.number)
                if {record.segment_id for record in now} != ids:
                    continue
                self._segments = {
                    segment_id: self._segments[segment_id]
                    for segment_id in ids & self._segments.keys()
                }
                self._damaged |= failed.keys()
                view = self._load_view(txn)
            # Set last: after an error, the next call must see that the view is not current.
            self._listed = ids
            self._damaged = ids - self._segments.keys()
            self._report(failed)
            return view

    def _load_segments(self, records: list[SegmentRecord]) -> dict[int, str]:
        """Loads segments. Returns the problem of each segment that cannot be loaded, by its id."""
        failed: dict[int, str] = {}
        for record in records:
            try:
                loaded = segment_files.load(self._store.segments, record)
                self._segments = {**self._segments, record.segment_id: loaded}
            except segment_files.DamagedSegment as error:
                failed[record.segment_id] = str(error)
        return failed

    def _load_view(self, txn: Txn) -> View:
        settings = txn.collections.require(self.number).settings
        return load_view(txn, settings, self.number, self._segments)

    def _report(self, failed: dict[int, str]) -> None:
        for segment_id, problem in failed.items():
            _log.error(
                "segment_damaged",
                segment=segment_id,
                problem=problem,
                effect="its leaves are scanned exactly until the indexer has rebuilt it",
            )
            try:
                report_damage(self._store.segments, segment_id)
            except OSError as error:
                _log.warning("damage_report_failed", segment=segment_id, problem=str(error))
