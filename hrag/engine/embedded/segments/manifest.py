"""Which segments does a collection have, and which of their leaves are deleted?

Segments cover ranges of ordinals that do not overlap; every living document up to the
collection's `sealed_ordinal` is in exactly one of them. Deleting a sealed document writes a
tombstone and raises its segment's deleted count, in one transaction; its leaves stay in the
files. So a reader reads the tombstones to know which leaves live, and the merge policy reads
one count to know whether a segment is worth rewriting. All functions work inside a
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
    """A listed segment, and how many of its leaves were deleted since it was built."""

    record: SegmentRecord
    deleted_leaves: int

    @property
    def living_leaves(self) -> int:
        """Leaves of documents that still exist."""
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
    """Returns the collection's segments in order of ordinals."""
    found = []
    for key, value in store.scan(txn, "segments", schema.u32(collection)):
        deleted = required(txn.get(bytes(key), db=store.db["deleted_leaves"]))
        found.append(ManifestEntry(SegmentRecord.from_bytes(value), schema.read_u64(deleted)))
    return found


def add_tombstone(store: Store, txn: Txn, collection: int, ordinal: int, leaf_count: int) -> None:
    """Records the deletion of a document that a segment holds.

    Raises DataLoss, before anything is written, as `read_deleted_leaves` does.
    """
    segment, deleted = read_deleted_leaves(store, txn, collection, ordinal)
    entry = schema.in_collection(collection, ordinal)
    txn.put(entry, schema.u32(leaf_count), db=store.db["tombstones"])
    txn.put(segment, schema.u64(deleted + leaf_count), db=store.db["deleted_leaves"])


def read_deleted_leaves(store: Store, txn: Txn, collection: int, ordinal: int) -> tuple[bytes, int]:
    """Returns the key of the segment that holds a document, and its number of deleted leaves.

    Raises DataLoss if that number is damaged or missing.
    """
    entry = schema.in_collection(collection, ordinal)
    found = store.scan(txn, "deleted_leaves", schema.u32(collection), entry)
    key, value = required(next(found, None))
    return bytes(key), schema.read_u64(value)


def deleted_ordinals(
    store: Store, txn: Txn, collection: int, first: int = 0, last: int = MAX_ORDINAL
) -> NDArray[np.uint64]:
    """Returns the tombstones from `first` to `last`, ascending: `uint64[n]` ordinals."""
    found = [ordinal for ordinal, _ in _tombstones(store, txn, collection, first, last)]
    return np.array(found, np.uint64)


def _tombstones(
    store: Store, txn: Txn, collection: int, first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yields ordinals from `first` to `last` that have tombstones, with their leaf counts."""
    start = schema.in_collection(collection, first)
    for key, value in store.scan(txn, "tombstones", schema.u32(collection), start):
        ordinal = schema.read_in_collection(key)[1]
        if ordinal > last:
            return
        yield ordinal, schema.read_u32(value)


def repair(store: Store, txn: Txn, collection: int) -> bool:
    """Writes damaged tombstones and all numbers of deleted leaves again.

    Tombstones follow from what the segments hold and what lives. Returns False where a record of a
    segment is damaged, or a file that is needed: then the collection has no segments any more, all
    of its documents are its tail, and the caller has to change the counters.
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
    """Raises DamagedSegment, and leaves the tombstones incomplete."""
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
        deleted = sum(count for _, count in _tombstones(store, txn, collection, *covered))
        key = schema.in_collection(collection, record.last_ordinal)
        txn.put(key, schema.u64(deleted), db=store.db["deleted_leaves"])


def _delete_all(store: Store, txn: Txn, database: str, collection: int) -> None:
    entries = txn.entries(store.db[database], schema.u32(collection))
    for key in [bytes(key) for key, _ in entries]:
        txn.delete(key, db=store.db[database])


def publish(
    store: Store, txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> list[int]:
    """Lists `record` in place of the segments in its range; returns the ids of those.

    Some documents of `contents` may have been deleted since they were read. A record
    without rows is not listed: nothing in its range lives. The tenant's data stays the
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
    replaced = []
    for each in read_manifest(store, txn, collection):
        if record.first_ordinal <= each.record.last_ordinal <= record.last_ordinal:
            key = schema.in_collection(collection, each.record.last_ordinal)
            txn.delete(key, db=store.db["segments"])
            txn.delete(key, db=store.db["deleted_leaves"])
            replaced.append(each.record.segment_id)
    return replaced


def _keep_tombstones(
    store: Store, txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> int:
    """Deletes the tombstones of documents that the new segment does not hold.

    Returns how many leaves the remaining ones stand for.
    """
    tombstones = deleted_ordinals(store, txn, collection, record.first_ordinal, record.last_ordinal)
    held = np.isin(tombstones, contents.ordinals)
    for ordinal in tombstones[~held].tolist():
        txn.delete(schema.in_collection(collection, ordinal), db=store.db["tombstones"])
    return int(contents.counts[np.isin(contents.ordinals, tombstones[held])].sum())


def _add_tombstones(
    store: Store, txn: Txn, collection: int, contents: Contents, after: int = 0
) -> int:
    """Adds tombstones for the documents past the ordinal `after` that do not live.

    Returns how many leaves they had. Of a tail, they are those deleted while it was sealed.
    """
    fresh = contents.ordinals > after
    deleted = 0
    for ordinal, count in zip(
        contents.ordinals[fresh].tolist(), contents.counts[fresh].tolist(), strict=True
    ):
        entry = schema.in_collection(collection, ordinal)
        if not txn.has(entry, db=store.db["ordinals"]):
            txn.put(entry, schema.u32(count), db=store.db["tombstones"])
            deleted += count
    return deleted
