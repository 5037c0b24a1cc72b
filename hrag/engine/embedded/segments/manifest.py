"""The list of a collection's segments, and the tombstones of their deleted documents.

Segments cover ranges of ordinals that do not overlap. Every living document up to the
collection's `sealed_ordinal` is in exactly one segment. Deleting a sealed document writes a
tombstone and raises its segment's deleted count, in one transaction; its leaves stay in the
files. So a reader reads the tombstones to know which leaves are living, and the merge policy reads
one count to decide whether a segment is worth rewriting. All functions work inside a
transaction of the caller.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import MAX_ORDINAL, Labels, ordinals_of
from hrag.engine.embedded.segments import leaves, segment_files
from hrag.engine.embedded.segments.segment_files import DamagedSegment
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import note_commit
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments, read_counters, required
from hrag.values.errors import DataLoss


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A listed segment, and the number of its leaves that were deleted since it was built."""

    record: SegmentRecord
    deleted_leaves: int

    @property
    def living_leaves(self) -> int:
        """The number of leaves whose documents still exist."""
        return self.record.rows - self.deleted_leaves


@dataclass(frozen=True, slots=True)
class Contents:
    """The documents in a new segment: `uint64[n]` ordinals, ascending, with leaf counts."""

    ordinals: NDArray[np.uint64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: Labels) -> "Contents":
        """Returns the documents to which the leaves with these labels belong."""
        return cls(*np.unique(ordinals_of(labels), return_counts=True))


def read_manifest(store: Store, txn: Txn, collection: int) -> list[ManifestEntry]:
    """Returns the collection's segments in order of ordinals. Raises DataLoss."""
    entries = []
    for key, value in store.scan(txn, "segments", schema.u32(collection)):
        deleted = required(txn.get(bytes(key), db=store.db["deleted_leaves"]))
        entries.append(ManifestEntry(SegmentRecord.from_bytes(value), schema.read_u64(deleted)))
    return entries


def add_tombstone(store: Store, txn: Txn, collection: int, ordinal: int, leaf_count: int) -> None:
    """Records the deletion of a document that a segment contains.

    If the segment's count of deleted leaves is damaged or missing, raises DataLoss before anything
    is written.
    """
    segment, deleted = read_deleted_leaves(store, txn, collection, ordinal)
    entry = schema.in_collection(collection, ordinal)
    txn.put(entry, schema.u32(leaf_count), db=store.db["tombstones"])
    txn.put(segment, schema.u64(deleted + leaf_count), db=store.db["deleted_leaves"])


def read_deleted_leaves(store: Store, txn: Txn, collection: int, ordinal: int) -> tuple[bytes, int]:
    """Returns the key of the segment that contains a document, and its number of deleted leaves.

    Raises DataLoss if that number is damaged or missing.
    """
    start = schema.in_collection(collection, ordinal)
    counts = store.scan(txn, "deleted_leaves", schema.u32(collection), start)
    key, value = required(next(counts, None))
    return bytes(key), schema.read_u64(value)


def deleted_ordinals(
    store: Store, txn: Txn, collection: int, first: int = 0, last: int = MAX_ORDINAL
) -> NDArray[np.uint64]:
    """Returns the ordinals from `first` to `last` that have tombstones, ascending: `uint64[n]`."""
    tombstones = _read_tombstones(store, txn, collection, first, last)
    return np.array([ordinal for ordinal, _ in tombstones], np.uint64)


def _read_tombstones(
    store: Store, txn: Txn, collection: int, first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yields the ordinals from `first` to `last` that have tombstones, with their leaf counts."""
    start = schema.in_collection(collection, first)
    for key, value in store.scan(txn, "tombstones", schema.u32(collection), start):
        ordinal = schema.read_in_collection(key)[1]
        if ordinal > last:
            return
        yield ordinal, schema.read_u32(value)


def repair(store: Store, txn: Txn, collection: int) -> bool:
    """Repairs a collection's tombstones and its counts of deleted leaves.

    If a tombstone is damaged, all are computed again: a document that a segment contains, but that
    no longer exists, has a tombstone. All counts are computed again in any case.

    Returns False if a segment's record, or a file that is needed, is damaged. Then the collection
    has no segments any more, all of its documents are its tail, and the caller must change the
    counters.
    """
    try:
        listed = listed_segments(store, txn, collection)
        tombstones = store.db["tombstones"]
        entries = txn.entries(tombstones, schema.u32(collection))
        if not all(txn.is_sound(key, value, tombstones) for key, value in entries):
            _rewrite_tombstones(store, txn, collection, listed)
    except (DataLoss, DamagedSegment):
        for database in ("segments", "tombstones", "deleted_leaves"):
            _delete_all(store, txn, database, collection)
        return False
    _recount_deleted_leaves(store, txn, collection, listed)
    return True


def _rewrite_tombstones(
    store: Store, txn: Txn, collection: int, listed: Sequence[SegmentRecord]
) -> None:
    """Writes all tombstones again, from the labels in the segments' files.

    Raises DamagedSegment; then the tombstones are incomplete.
    """
    _delete_all(store, txn, "tombstones", collection)
    for record in listed:
        (labels,) = segment_files.load_arrays(store.segments, record, ["labels"])
        _add_tombstones(store, txn, collection, Contents.of(labels))


def _recount_deleted_leaves(
    store: Store, txn: Txn, collection: int, listed: Sequence[SegmentRecord]
) -> None:
    _delete_all(store, txn, "deleted_leaves", collection)
    for record in listed:
        covered = record.first_ordinal, record.last_ordinal
        deleted = sum(count for _, count in _read_tombstones(store, txn, collection, *covered))
        key = schema.in_collection(collection, record.last_ordinal)
        txn.put(key, schema.u64(deleted), db=store.db["deleted_leaves"])


def _delete_all(store: Store, txn: Txn, database: str, collection: int) -> None:
    entries = txn.entries(store.db[database], schema.u32(collection))
    for key in [bytes(key) for key, _ in entries]:
        txn.delete(key, db=store.db[database])


def publish(
    store: Store, txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> list[int]:
    """Lists `record` instead of the segments in its range; returns the ids of the latter.

    Some documents of `contents` may have been deleted since they were read. A record without rows
    is not listed, because no document in its range exists any more. The tenant's data stays the
    same, so no sequence is used; readers notice the commit by the change log's cursor.
    """
    counters = read_counters(store, txn, collection)
    replaced = _unlist(store, txn, collection, record)
    deleted = _keep_tombstones(store, txn, collection, record, contents)
    deleted += _add_tombstones(store, txn, collection, contents, counters.sealed_ordinal)
    if record.rows:
        key = schema.in_collection(collection, record.last_ordinal)
        txn.put(key, record.to_bytes(), db=store.db["segments"])
        txn.put(key, schema.u64(deleted), db=store.db["deleted_leaves"])
    if record.last_ordinal >= counters.sealed_ordinal:
        later = leaves.living_ordinals(store, txn, collection, record.last_ordinal)
        counters = counters._replace(
            sealed_sequence=max(record.covered_sequence, counters.sealed_sequence),
            sealed_ordinal=record.last_ordinal,
            tail_leaves=sum(count for _, count in later),
        )
        txn.put(schema.u32(collection), counters.to_bytes(), db=store.db["counters"])
    note_commit(store, txn, collection)
    return replaced


def _unlist(store: Store, txn: Txn, collection: int, record: SegmentRecord) -> list[int]:
    """Removes the segments in the range of `record` from the list; returns their ids."""
    replaced = []
    for entry in read_manifest(store, txn, collection):
        if record.first_ordinal <= entry.record.last_ordinal <= record.last_ordinal:
            key = schema.in_collection(collection, entry.record.last_ordinal)
            txn.delete(key, db=store.db["segments"])
            txn.delete(key, db=store.db["deleted_leaves"])
            replaced.append(entry.record.segment_id)
    return replaced


def _keep_tombstones(
    store: Store, txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> int:
    """Deletes the tombstones of documents that the new segment does not contain.

    Returns how many leaves the documents with the remaining tombstones have.
    """
    tombstones = deleted_ordinals(store, txn, collection, record.first_ordinal, record.last_ordinal)
    is_contained = np.isin(tombstones, contents.ordinals)
    for ordinal in tombstones[~is_contained].tolist():
        txn.delete(schema.in_collection(collection, ordinal), db=store.db["tombstones"])
    has_tombstone = np.isin(contents.ordinals, tombstones[is_contained])
    return int(contents.counts[has_tombstone].sum())


def _add_tombstones(
    store: Store, txn: Txn, collection: int, contents: Contents, after: int = 0
) -> int:
    """Adds tombstones for documents of `contents` that no longer exist.

    Only documents with an ordinal above `after` count. Returns how many leaves they had. When a
    tail is sealed, they are the documents that were deleted while the segment was built.
    """
    is_after = contents.ordinals > after
    deleted = 0
    for ordinal, count in zip(
        contents.ordinals[is_after].tolist(), contents.counts[is_after].tolist(), strict=True
    ):
        entry = schema.in_collection(collection, ordinal)
        if not txn.has(entry, db=store.db["ordinals"]):
            txn.put(entry, schema.u32(count), db=store.db["tombstones"])
            deleted += count
    return deleted
