"""The manifest of a collection: the list of its segments, and tombstones of deleted documents.

Segments cover ranges of ordinals that do not overlap. Every existing document with an ordinal up to
the collection's `sealed_ordinal` is in exactly one segment.

When a document that a segment contains is deleted, its leaves stay in the segment's files. The
same transaction writes a tombstone for the document, and adds its leaves to the segment's count of
deleted leaves. The engine's `Reader` reads the tombstones to know which leaves are deleted. The
merge policy reads only the count of deleted leaves, to decide whether to rewrite a segment.

All functions work in the transaction that the caller passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import MAX_ORDINAL, Labels, ordinals_of
from hrag.engine.embedded.segments import leaves, segment_files
from hrag.engine.embedded.segments.segment_files import DamagedSegment
from hrag.engine.embedded.store.change_log import note_commit
from hrag.engine.embedded.store.lmdb_records import SegmentRecord
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.tables import required
from hrag.engine.embedded.store.transactions import Txn
from hrag.values.errors import DataLoss


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A segment in the manifest.

    `deleted_leaves` is the count of its leaves whose documents were deleted after the segment was
    built.
    """

    record: SegmentRecord
    deleted_leaves: int

    @property
    def living_leaves(self) -> int:
        """The count of the segment's leaves whose documents still exist."""
        return self.record.rows - self.deleted_leaves


@dataclass(frozen=True, slots=True)
class Contents:
    """The documents in a segment.

    `ordinals` are the ordinals of the documents, ascending. `counts` are their leaf counts.
    """

    ordinals: NDArray[np.uint64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: Labels) -> "Contents":
        """Returns the documents to which the leaves with these labels belong."""
        return cls(*np.unique(ordinals_of(labels), return_counts=True))


def read_manifest(txn: Txn, collection: int) -> list[ManifestEntry]:
    """Returns the manifest entry of each of a collection's segments, in order of ordinals.

    Raises DataLoss if an entry is damaged.
    """
    return [
        ManifestEntry(record, txn.deleted_leaves.require(key))
        for key, record in txn.segments.entries(collection)
    ]


def add_tombstone(txn: Txn, collection: int, ordinal: int, leaf_count: int) -> None:
    """Writes a tombstone for a deleted document that a segment contains.

    Also adds the document's leaves to the segment's count of deleted leaves. If the count is
    damaged or missing, raises DataLoss before anything is written.
    """
    segment, deleted = read_deleted_leaves(txn, collection, ordinal)
    txn.tombstones.put((collection, ordinal), leaf_count)
    txn.deleted_leaves.put(segment, deleted + leaf_count)


def read_deleted_leaves(txn: Txn, collection: int, ordinal: int) -> tuple[tuple[int, int], int]:
    """Returns a segment's key and its count of deleted leaves.

    The segment is the one that contains the document with this ordinal. The key is the collection
    id and the last ordinal of the segment. Raises DataLoss if the count is damaged or missing.
    """
    counts = txn.deleted_leaves.entries(collection, start=(collection, ordinal))
    return required(next(counts, None))


def deleted_ordinals(
    txn: Txn, collection: int, first: int = 0, last: int = MAX_ORDINAL
) -> NDArray[np.uint64]:
    """Returns the ordinals from `first` to `last` that have tombstones, ascending: `uint64[n]`."""
    tombstones = read_tombstones(txn, collection, first, last)
    return np.array([ordinal for ordinal, _ in tombstones], np.uint64)


def read_tombstones(txn: Txn, collection: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the ordinal and the leaf count of each document that has a tombstone.

    Yields only ordinals from `first` to `last`, both included.
    """
    start = collection, first
    for (_, ordinal), leaf_count in txn.tombstones.entries(collection, start=start):
        if ordinal > last:
            return
        yield ordinal, leaf_count


def repair(txn: Txn, folder: Path, collection: int) -> bool:
    """Repairs a collection's tombstones and counts of deleted leaves. Returns False if it fails.

    `folder` is the folder of all segments. If a tombstone is damaged, writes all tombstones of the
    collection again: one for each document that a segment contains, but that no longer exists.
    Then, also if no tombstone is damaged, counts the deleted leaves of each segment again.

    The repair fails in two cases:

    * The record of a segment is damaged.
    * A tombstone is damaged, and so is a segment file that is needed to write the tombstones again.

    In both cases, this function removes all segments of the collection from the manifest. All
    documents of the collection are then in its tail, and the caller must change the counters of the
    collection accordingly.
    """
    try:
        listed = listed_segments(txn, collection)
        ordinals = list(txn.tombstones.keys(collection))
        if any(txn.tombstones.get_sound(key) is None for key in ordinals):
            _rewrite_tombstones(txn, folder, collection, listed)
    except (DataLoss, DamagedSegment):
        for table in (txn.segments, txn.tombstones, txn.deleted_leaves):
            table.clear(collection)
        return False
    _recount_deleted_leaves(txn, collection, listed)
    return True


def _rewrite_tombstones(
    txn: Txn, folder: Path, collection: int, listed: Sequence[SegmentRecord]
) -> None:
    """Writes all tombstones of a collection again.

    Reads the labels in the segments' files, because a label contains the ordinal of its document.
    Each document that a segment contains, but that no longer exists, gets a tombstone. Raises
    DamagedSegment if a file is damaged. After this error, some tombstones are missing.
    """
    txn.tombstones.clear(collection)
    for record in listed:
        (labels,) = segment_files.load_arrays(folder, record, ["labels"])
        _add_tombstones(txn, collection, Contents.of(labels))


def _recount_deleted_leaves(txn: Txn, collection: int, listed: Sequence[SegmentRecord]) -> None:
    txn.deleted_leaves.clear(collection)
    for record in listed:
        covered = record.first_ordinal, record.last_ordinal
        deleted = sum(count for _, count in read_tombstones(txn, collection, *covered))
        txn.deleted_leaves.put((collection, record.last_ordinal), deleted)


def publish(txn: Txn, collection: int, record: SegmentRecord, contents: Contents) -> list[int]:
    """Adds a new segment to the manifest; returns the ids of the segments that it replaces.

    `record` is the record of the new segment, which replaces all segments in its range of ordinals.
    `contents` are the documents in the new segment. Some of these documents may have been deleted
    since the build read them. After this call, each of these documents has a tombstone.

    If the new segment has no rows, it is not added to the manifest, because no document in its
    range exists any more. The tenant's documents do not change, so the tenant's sequence number
    does not change either. So that readers notice the new segment, an entry is added to the store's
    list of commits.
    """
    counters = txn.counters.require(collection)
    replaced = _unlist(txn, collection, record)
    deleted = _remove_obsolete_tombstones(txn, collection, record, contents)
    deleted += _add_tombstones(txn, collection, contents, counters.sealed_ordinal)
    if record.rows:
        key = collection, record.last_ordinal
        txn.segments.put(key, record)
        txn.deleted_leaves.put(key, deleted)
    if record.last_ordinal >= counters.sealed_ordinal:
        later = leaves.living_ordinals(txn, collection, record.last_ordinal)
        counters = counters._replace(
            sealed_sequence=max(record.covered_sequence, counters.sealed_sequence),
            sealed_ordinal=record.last_ordinal,
            tail_leaves=sum(count for _, count in later),
        )
        txn.counters.put(collection, counters)
    note_commit(txn, collection)
    return replaced


def _unlist(txn: Txn, collection: int, record: SegmentRecord) -> list[int]:
    """Removes the segments in the range of ordinals of `record` from the manifest.

    Returns the ids of these segments.
    """
    replaced = []
    for entry in read_manifest(txn, collection):
        if record.first_ordinal <= entry.record.last_ordinal <= record.last_ordinal:
            key = collection, entry.record.last_ordinal
            txn.segments.delete(key)
            txn.deleted_leaves.delete(key)
            replaced.append(entry.record.segment_id)
    return replaced


def _remove_obsolete_tombstones(
    txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> int:
    """Removes the tombstones of documents that the new segment does not contain.

    Only looks at documents in the new segment's range of ordinals. Keeps the tombstones of
    documents that the new segment contains. Returns the total leaf count of the documents whose
    tombstones are kept.
    """
    tombstones = deleted_ordinals(txn, collection, record.first_ordinal, record.last_ordinal)
    is_contained = np.isin(tombstones, contents.ordinals)
    for ordinal in tombstones[~is_contained].tolist():
        txn.tombstones.delete((collection, ordinal))
    has_tombstone = np.isin(contents.ordinals, tombstones[is_contained])
    return int(contents.counts[has_tombstone].sum())


def _add_tombstones(txn: Txn, collection: int, contents: Contents, after: int = 0) -> int:
    """Adds a tombstone for each document of `contents` that no longer exists.

    Skips documents with ordinals up to `after`. Returns the total leaf count of the documents that
    got a tombstone. For example, when a tail is sealed, a document gets a tombstone if it was
    deleted while the segment was built.
    """
    is_after = contents.ordinals > after
    deleted = 0
    for ordinal, count in zip(
        contents.ordinals[is_after].tolist(), contents.counts[is_after].tolist(), strict=True
    ):
        key = collection, ordinal
        if not txn.ordinals.has(key):
            txn.tombstones.put(key, count)
            deleted += count
    return deleted
