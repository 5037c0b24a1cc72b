"""A collection in memory: its current view, kept up to date from the change log.

Changes are applied by whoever needs them first: a search, or the background thread. New
segments are loaded while the current view serves, then swapped in; until then the tail holds their
leaves, so freshness never waits for a file.
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
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import Change, Counters, SegmentRecord
from hrag.engine.embedded.store.queries import (
    collection_exists,
    listed_segments,
    read_collection,
    read_counters,
)
from hrag.values.errors import DataLoss

_log = structlog.get_logger()


class CollectionDeleted(Exception):
    """The collection was deleted; raised before anything of it is read."""


class LoadedCollection:
    """One collection; safe to use from several threads.

    `used_s` is when a search last used it, on the monotonic clock.
    """

    def __init__(self, store: Store, number: int) -> None:
        """Loads it, or raises CollectionDeleted."""
        self._store = store
        self._number = number
        self._advancing = threading.Lock()
        self._refreshing = threading.Lock()  # Held while files are read; `view_at` does without.
        self._segments: dict[int, segment_files.LoadedSegment] = {}
        self._damaged: set[int] = set()
        self._listed: set[int] = set()  # The segments that were listed at the last load.
        self.used_s = time.monotonic()
        self._view = self._load()

    @property
    def size_bytes(self) -> int:
        """Memory of the current view."""
        return self._view.size_bytes

    @property
    def damaged(self) -> int:
        """How many listed segments cannot be read; their leaves are scanned exactly."""
        return len(self._damaged)

    @contextmanager
    def _read(self) -> Iterator[Txn]:
        with self._store.read() as txn:
            if not collection_exists(self._store, txn, self._number):
                raise CollectionDeleted
            yield txn

    def view_at(self, txn: Txn) -> View | None:
        """Returns the view of the transaction's own change, or None if it is past that."""
        committed = txn.cache.once(
            ("counters", self._number), lambda: read_counters(self._store, txn, self._number)
        )
        view = self._view
        if view.sequence < committed.sequence:
            with self._advancing:
                view = self._advance(txn, committed)
        return view if view.sequence == committed.sequence else None

    def refresh(self, *, retry_damaged: bool = False) -> None:
        """Applies what was committed, or raises CollectionDeleted.

        New segments are loaded while searches go on with the current view. With
        `retry_damaged`, damaged segments whose marker is gone are read again. Raises what
        reading the store raises; the next call tries again what this one left.
        """
        with self._refreshing:
            with self._read() as txn:
                self.view_at(txn)
                listed = listed_segments(self._store, txn, self._number)
                settings = read_collection(self._store, txn, self._number).settings
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
                    # It may be older than the one it replaces; each call advances it.
                    self._view = view

    def _retry_damaged(self, listed: list[SegmentRecord]) -> None:
        """Reads damaged segments again unless they have a marker.

        The scrubber deletes the marker of a segment that it finds sound. A segment whose
        marker could not be created has none either.
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
            self._view = view.advanced(self._store, txn, changes, committed.sequence)
        return self._view

    def _changes_after(self, txn: Txn, committed: Counters, sequence: int) -> list[Change] | None:
        """The changes after `sequence`; None if the log begins later or is damaged."""
        if sequence < committed.log_start:
            return None
        try:
            return list(changes_after(self._store, txn, self._number, sequence))
        except DataLoss:
            return None

    def _load(self) -> View:
        """A view over the listed segments; those that are loaded already are not read again.

        Files of a segment that has just been replaced may be gone; then the new list is
        read.
        """
        while True:
            with self._read() as txn:
                listed = listed_segments(self._store, txn, self._number)
            ids = {record.segment_id for record in listed}
            known = self._segments.keys() | self._damaged
            failed = self._load_segments([each for each in listed if each.segment_id not in known])
            with self._read() as txn:
                now = listed_segments(self._store, txn, self._number)
                if {record.segment_id for record in now} != ids:
                    continue
                self._segments = {
                    each: self._segments[each] for each in ids & self._segments.keys()
                }
                self._damaged |= failed.keys()
                view = self._load_view(txn)
            # Only now: after an error, the next call must see that the view is not current.
            self._listed = ids
            self._damaged = ids - self._segments.keys()
            self._report(failed)
            return view

    def _load_segments(self, records: list[SegmentRecord]) -> dict[int, str]:
        """Loads segments; returns what is wrong with those that cannot be loaded, by id."""
        failed: dict[int, str] = {}
        for record in records:
            try:
                loaded = segment_files.load(self._store.segments, record)
                self._segments = {**self._segments, record.segment_id: loaded}
            except segment_files.DamagedSegment as error:
                failed[record.segment_id] = str(error)
        return failed

    def _load_view(self, txn: Txn) -> View:
        settings = read_collection(self._store, txn, self._number).settings
        return load_view(self._store, txn, settings, self._number, self._segments)

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
