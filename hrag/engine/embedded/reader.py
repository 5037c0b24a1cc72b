"""Snapshots for searching: a read transaction and a view that agree on one change.

A call opens a transaction first and takes the view of the same sequence: what was
committed before the call is in both, and every row of the view is in the transaction.
Segments are loaded beside the view in use by a background thread, which then swaps in a
new one; until then the tail holds their leaves, so freshness never waits for a file.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import structlog

from hrag.engine.embedded import keys, segments
from hrag.engine.embedded.lookups import (
    collection_exists,
    find_collection,
    listed_segments,
    read_collection,
    read_counters,
)
from hrag.engine.embedded.records import Change, ChangeKind, Counters, SegmentRecord
from hrag.engine.embedded.snapshot import CitationCache, EmbeddedSnapshot
from hrag.engine.embedded.store import Store, Txn
from hrag.engine.embedded.view import View, load_view
from hrag.types import CollectionSettings

_log = structlog.get_logger()

_POLL_S = 0.05  # How long a new segment or a bulk load goes unnoticed by the background.


class _CollectionGone(Exception):
    """The collection was deleted; raised before anything of it is read."""


class _Followed:
    """A collection in memory: the view in use, and how it follows the store."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number
        self._advancing = threading.Lock()
        with self._read() as txn:
            self.settings = read_collection(store, txn, number).settings
            listed = listed_segments(store, txn, number)
        self._view = self._load(listed, {})

    @contextmanager
    def _read(self) -> Iterator[Txn]:
        with self._store.read() as txn:
            if not collection_exists(self._store, txn, self._number):
                raise _CollectionGone
            yield txn

    def view_at(self, txn: Txn) -> View | None:
        """The view of the transaction's own change, or None if it is past that already."""
        committed = read_counters(self._store, txn, self._number)
        view = self._view
        if view.sequence < committed.sequence:
            with self._advancing:
                view = self._advance(txn, committed)
        return view if view.sequence == committed.sequence else None

    def refresh(self) -> None:
        """Follows the store, or raises _CollectionGone.

        New segments are loaded while searches go on with the view in use.
        """
        with self._read() as txn:
            self.view_at(txn)
            listed = listed_segments(self._store, txn, self._number)
        if {record.segment_id for record in listed} != self._listed:
            known = {segment.record.segment_id: segment for segment in self._view.segments}
            view = self._load(listed, known)
            with self._advancing:
                self._view = view  # Perhaps behind the one it replaces; each call advances it.

    def _advance(self, txn: Txn, committed: Counters) -> View:
        view = self._view
        if view.sequence >= committed.sequence:
            return view
        if view.sequence < committed.log_start:
            self._view = self._load_view(txn, view.segments)
        else:
            changes = self._changes(txn, view.sequence)
            self._view = view.advanced(self._store, txn, changes, committed.sequence)
        return self._view

    def _changes(self, txn: Txn, after: int) -> Iterator[Change]:
        start = keys.in_collection(self._number, after + 1)
        for _, value in self._store.scan(txn, "changes", keys.u32(self._number), start):
            change = Change.from_bytes(value)
            if change.kind is not ChangeKind.SEGMENTS:
                yield change

    def _load(self, listed: list[SegmentRecord], known: dict[int, segments.LoadedSegment]) -> View:
        """A view over the segments listed; those `known` are not read again."""
        loaded = [
            segment
            for record in listed
            if (segment := known.get(record.segment_id) or self._load_segment(record))
        ]
        with self._read() as txn:
            view = self._load_view(txn, loaded)
        self._listed = {record.segment_id for record in listed}
        return view

    def _load_view(self, txn: Txn, loaded: Sequence[segments.LoadedSegment]) -> View:
        counters = read_counters(self._store, txn, self._number)
        return load_view(self._store, txn, self.settings, self._number, counters, loaded)

    def _load_segment(self, record: SegmentRecord) -> segments.LoadedSegment | None:
        try:
            return segments.load(self._store.segments, record)
        except segments.DamagedSegment as error:
            _log.error("segment_damaged", segment=record.segment_id, problem=str(error))
            return None


class EmbeddedReader:
    """See `hrag.engine.Reader`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._citations = CitationCache()
        self._followed: dict[int, _Followed] = {}
        self._loading = threading.Lock()
        self._closing = threading.Event()
        self._background = threading.Thread(target=self._follow, name="follow", daemon=True)
        self._background.start()

    @contextmanager
    def snapshot(self, tenant_id: str, collection: str) -> Iterator[EmbeddedSnapshot]:
        while True:
            with self._store.read() as txn:
                number = find_collection(self._store, txn, tenant_id, collection)
                followed = self._followed.get(number)
                view = followed.view_at(txn) if followed else None
                if view is not None:
                    yield EmbeddedSnapshot(self._store, txn, number, view, self._citations)
                    return
            if followed is None:
                self._load(number)

    def settings(self, tenant_id: str, collection: str) -> CollectionSettings:
        with self._store.read() as txn:
            number = find_collection(self._store, txn, tenant_id, collection)
            followed = self._followed.get(number)
            if followed is not None:
                return followed.settings
            return read_collection(self._store, txn, number).settings

    def sequence(self) -> int:
        with self._store.read() as txn:
            return self._store.number(txn, keys.SEQUENCE)

    def load_segmented(self) -> None:
        """Loads every collection that has segments, so that no search waits for one."""
        with self._store.read() as txn:
            found = {
                keys.read_in_collection(key)[0] for key, _ in self._store.scan(txn, "segments", b"")
            }
        for number in found:
            self._load(number)

    def close(self) -> None:
        """Stops following; the store itself belongs to whoever opened it."""
        self._closing.set()
        self._background.join()

    def _load(self, number: int) -> None:
        """Follows the collection from now on, unless it is deleted by now."""
        with self._loading, suppress(_CollectionGone):
            if number not in self._followed:
                self._followed[number] = _Followed(self._store, number)

    def _follow(self) -> None:
        seen = -1
        while not self._closing.wait(_POLL_S):
            committed = self._store.env.info()["last_txnid"]
            if committed == seen:
                continue
            seen = committed
            for number, followed in list(self._followed.items()):
                self._refresh(number, followed)

    def _refresh(self, number: int, followed: _Followed) -> None:
        try:
            followed.refresh()
        except _CollectionGone:
            del self._followed[number]
        except Exception:
            _log.exception("cannot_follow", collection=number)
