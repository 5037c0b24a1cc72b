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
from hrag.engine.embedded.segments.damage import report_damage
from hrag.engine.embedded.store.change_log import changes_after
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import (
    collection_exists,
    listed_segments,
    read_collection,
    read_counters,
)
from hrag.engine.embedded.store.records import Counters, SegmentRecord

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
        self._segments: dict[int, segment_files.LoadedSegment] = {}
        self._damaged: set[int] = set()
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

    def refresh(self) -> None:
        """Applies what was committed, or raises CollectionDeleted.

        New segments are loaded while searches go on with the current view.
        """
        with self._read() as txn:
            self.view_at(txn)
            listed = listed_segments(self._store, txn, self._number)
            settings = read_collection(self._store, txn, self._number).settings
        is_same = settings == self._view.settings  # Reindexing may change the analyzer.
        if not is_same or {record.segment_id for record in listed} != self._known:
            view = self._load()
            with self._advancing:
                # It may be older than the one it replaces; each call advances it.
                self._view = view

    @property
    def _known(self) -> set[int]:
        return self._segments.keys() | self._damaged

    def _advance(self, txn: Txn, committed: Counters) -> View:
        view = self._view
        if view.sequence >= committed.sequence:
            return view
        if view.sequence < committed.log_start:
            self._view = self._load_view(txn)
        else:
            changes = changes_after(self._store, txn, self._number, view.sequence)
            self._view = view.advanced(self._store, txn, changes, committed.sequence)
        return self._view

    def _load(self) -> View:
        """A view over the listed segments; those that are loaded already are not read again.

        Files of a segment that has just been replaced may be gone; then the new list is
        read.
        """
        while True:
            with self._read() as txn:
                listed = listed_segments(self._store, txn, self._number)
            ids = {record.segment_id for record in listed}
            failed = self._load_segments(listed)
            with self._read() as txn:
                now = listed_segments(self._store, txn, self._number)
                if {record.segment_id for record in now} != ids:
                    continue
                self._segments = {
                    each: self._segments[each] for each in ids & self._segments.keys()
                }
                self._damaged = (self._damaged & ids) | failed.keys()
                view = self._load_view(txn)
            for segment_id, problem in failed.items():
                self._report(segment_id, problem)
            return view

    def _load_segments(self, listed: list[SegmentRecord]) -> dict[int, str]:
        """Loads new segments; returns what is wrong with those that cannot be loaded."""
        failed: dict[int, str] = {}
        for record in listed:
            if record.segment_id in self._known:
                continue
            try:
                loaded = segment_files.load(self._store.segments, record)
                self._segments = {**self._segments, record.segment_id: loaded}
            except segment_files.DamagedSegment as error:
                failed[record.segment_id] = str(error)
        return failed

    def _load_view(self, txn: Txn) -> View:
        settings = read_collection(self._store, txn, self._number).settings
        return load_view(self._store, txn, settings, self._number, self._segments)

    def _report(self, segment_id: int, problem: str) -> None:
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
