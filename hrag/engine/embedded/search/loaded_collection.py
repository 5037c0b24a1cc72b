"""A collection in memory: its current view, which is kept up to date with the change log.

The first thread that needs a committed change applies it to the view: the thread of a search or the
background thread. While new segments are loaded, searches continue to use the current view. The
leaves of the new segments are in the segments or the tail of the current view, too. After the load,
a view with the new segments replaces the current view. So a search sees new documents without
waiting until a segment file is loaded.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import structlog

from hrag.engine.embedded.search.stored_vectors import StoredVectors
from hrag.engine.embedded.search.vector_memory import VectorMemory
from hrag.engine.embedded.search.view import View, load_view
from hrag.engine.embedded.segments import segment_files
from hrag.engine.embedded.segments.damage import is_reported, report_damage
from hrag.engine.embedded.store.change_log import changes_after
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Change, Counters, SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.errors import DataLoss

_FLOAT_BYTES = 4

_log = structlog.get_logger()


class CollectionDeleted(Exception):
    """The collection was deleted. Raised before any data of the collection is read."""


class LoadedCollection:
    """A collection in memory. Safe to use from several threads.

    `number` is the id of the collection. `vector_memory` decides which segments have their vectors
    in memory; the vectors of the others stay in their files. `used_s` is the time of the monotonic
    clock, in seconds, at which a search last used the collection.
    """

    def __init__(self, store: Store, number: int, vector_memory: VectorMemory) -> None:
        """Loads the collection with the id `number`. Raises CollectionDeleted if it is deleted."""
        self._store = store
        self.number = number
        self._advancing = threading.Lock()
        # A thread holds this lock while it reads segment files. `view_at` does not need the lock,
        # so searches do not wait for the files.
        self._refreshing = threading.Lock()
        self._segments: dict[int, segment_files.LoadedSegment] = {}
        self._damaged: set[int] = set()
        self._vector_memory = vector_memory
        self._vector_owner = object()
        self._stored_vectors = StoredVectors(
            store, number, partial(_report_unreadable, store.segments)
        )
        # The ids of the segments that the manifest listed at the last load.
        self._listed: set[int] = set()
        self.used_s = time.monotonic()
        try:
            self._view = self._load()
        except BaseException:
            self.release_vectors()
            raise

    @property
    def view(self) -> View:
        """The current view.

        Searches and the background thread replace the current view with newer views.
        """
        return self._view

    @property
    def size_bytes(self) -> int:
        """The memory that the current view and its segments take, in bytes."""
        return self._view.size_bytes

    @property
    def damaged(self) -> int:
        """The count of segments in the manifest whose files are damaged.

        If a segment could not be loaded, its leaves are in the tail of the view, which is scanned
        exactly. If its file was damaged later, vectors that cannot be read are read from LMDB. Such
        a segment is counted until the scrubber has replaced it, or has found it intact.
        """
        unreadable = {
            segment_id
            for segment_id in self._stored_vectors.unreadable & self._segments.keys()
            if self._may_be_reported(segment_id)
        }
        return len(self._damaged | unreadable)

    def _may_be_reported(self, segment_id: int) -> bool:
        """Returns False if the folder of the segments has no `.damaged` marker of a segment."""
        try:
            return is_reported(self._store.segments, segment_id)
        except OSError:
            return True

    def release_vectors(self) -> None:
        """Stops counting the vectors in memory. The reader calls it when it evicts the collection.

        If a load is running then, it must be called again after the load.
        """
        self._vector_memory.retain(self._vector_owner, ())

    @contextmanager
    def _read(self) -> Iterator[Txn]:
        """Begins a read transaction. Raises CollectionDeleted if the collection is deleted."""
        with self._store.read() as txn:
            if not txn.collections.has(self.number):
                raise CollectionDeleted
            yield txn

    def view_at(self, txn: Txn) -> View | None:
        """Returns the view of the state that the transaction reads.

        If the current view is older, applies the missing changes to it first. Returns None if the
        current view is newer than the transaction.
        """
        committed = txn.cache.once(("counters", self.number), txn.counters.require, self.number)
        view = self._view
        if view.sequence < committed.sequence:
            with self._advancing:
                view = self._advance(txn, committed)
        return view if view.sequence == committed.sequence else None

    def refresh(self, *, retry_damaged: bool = False) -> None:
        """Applies all committed changes to the view, and loads new segments.

        Searches continue with the current view while new segments are loaded. If `retry_damaged` is
        True, also tries again to load damaged segments. But a segment that still has its `.damaged`
        marker is not loaded, because the scrubber has not verified it yet.

        Raises CollectionDeleted, and any error that reading the store raises. After an error, the
        next call repeats the steps that failed.
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
                and settings == self._view.settings  # A reindex may have changed the analyzer.
                and not self._damaged & self._segments.keys()
            )
            if not is_current:
                view = self._load()
                with self._advancing:
                    # During the load, searches may have applied further changes to the replaced
                    # view. The next call of `view_at` applies these changes to the new view, too.
                    self._view = view

    def _retry_damaged(self, listed: list[SegmentRecord]) -> None:
        """Tries again to load the damaged segments that have no `.damaged` marker.

        The scrubber deletes the marker of a segment if it finds the segment's files intact. A
        segment also has no marker if the marker could not be created.
        """
        unmarked = [
            record
            for record in listed
            if record.segment_id in self._damaged
            and not is_reported(self._store.segments, record.segment_id)
        ]
        _report(self._store.segments, self._load_segments(unmarked))

    def _advance(self, txn: Txn, committed: Counters) -> View:
        """Applies all changes that `txn` can read to the current view; returns the new view.

        `committed` are the collection's counters in `txn`.
        """
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
        """Returns the changes of the collection after the sequence number `sequence`.

        Returns None if the change log is damaged, or if the oldest of these changes are no longer
        in the change log.
        """
        if sequence < committed.log_start:
            return None
        try:
            return list(changes_after(txn, self.number, sequence))
        except DataLoss:
            return None

    def _load(self) -> View:
        """Loads the segments that the manifest lists, and returns a view with these segments.

        Segments that are already loaded are not read again. If the manifest changes during the
        load, the load is repeated with the new manifest, because the files of a segment that the
        old manifest lists may have been removed.
        """
        while True:
            with self._read() as txn:
                listed = listed_segments(txn, self.number)
            ids = {record.segment_id for record in listed}
            # Segments that are replaced make room for their successors. For a short time, the
            # vectors of both are in memory.
            self._vector_memory.retain(self._vector_owner, ids)
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
                self._retain_vectors()
                self._damaged |= failed.keys()
                view = self._load_view(txn)
            # `_listed` is set last. If an error occurs before, `refresh` still finds that the view
            # is not current, and loads it again.
            self._listed = ids
            self._damaged = ids - self._segments.keys()
            _report(self._store.segments, failed)
            return view

    def _load_segments(self, records: list[SegmentRecord]) -> dict[int, str]:
        """Loads segments into `_segments`.

        Returns a dictionary for the segments that cannot be loaded, from the id of a segment to a
        description of its damage.
        """
        failed: dict[int, str] = {}
        for record in records:
            try:
                loaded = segment_files.load(
                    self._store.segments, record, vector_source=self._source_of(record)
                )
                self._segments = {**self._segments, record.segment_id: loaded}
            except segment_files.DamagedSegment as error:
                failed[record.segment_id] = str(error)
        self._retain_vectors()
        return failed

    def _retain_vectors(self) -> None:
        """Stops counting the vectors of segments that are not loaded."""
        self._vector_memory.retain(self._vector_owner, self._segments.keys())

    def _source_of(self, record: SegmentRecord) -> StoredVectors | None:
        """Returns None if the vectors of a segment are to be read into memory."""
        vector_bytes = _FLOAT_BYTES * record.dimension * record.items
        in_memory = self._vector_memory.admit(self._vector_owner, record.segment_id, vector_bytes)
        return None if in_memory else self._stored_vectors

    def _load_view(self, txn: Txn) -> View:
        settings = txn.collections.require(self.number).settings
        return load_view(txn, settings, self.number, self._segments)


def _report_unreadable(folder: Path, segment_id: int, problem: str) -> None:
    """Reports a segment of which a vector cannot be read from its file."""
    effect = "vectors that cannot be read are read from LMDB until the indexer has rebuilt it"
    _report(folder, {segment_id: problem}, effect)


def _report(
    folder: Path,
    failed: dict[int, str],
    effect: str = "its leaves are scanned exactly until the indexer has rebuilt it",
) -> None:
    """Logs damaged segments, and creates their `.damaged` markers for the scrubber.

    `folder` is the folder of all segments. `failed` maps the id of each damaged segment to a
    description of the damage. `effect` says what it means for searches.
    """
    for segment_id, problem in failed.items():
        _log.error("segment_damaged", segment=segment_id, problem=problem, effect=effect)
        try:
            report_damage(folder, segment_id)
        except OSError as error:
            _log.warning("damage_report_failed", segment=segment_id, problem=str(error))
