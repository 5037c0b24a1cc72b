"""Which segments a collection has, and which of their leaves are dead.

Segments cover ranges of ordinals that do not overlap; every living document up to the
collection's `sealed_ordinal` is in exactly one. When such a document dies, its leaves stay
in the files: `dead` names it, and `dead_leaves` counts for its segment. So a reader knows
what lives by reading what died, and the sealer what is worth rewriting by one look-up.
All functions work inside a transaction of the caller's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.maintenance.merge_policy import Part
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import note_commit
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.labels import ordinals_of
from hrag.engine.embedded.store.queries import read_counters, required
from hrag.engine.embedded.store.records import SegmentRecord


@dataclass(frozen=True, slots=True)
class Listed:
    """A segment of the manifest with what has died in it since it was built."""

    record: SegmentRecord
    dead: int

    def part(self, *, damaged: bool = False) -> Part:
        """The segment as decisions see it."""
        return Part(self.record.rows, self.dead, damaged)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a new segment holds: `uint64[n]` ordinals, ascending, with their leaf counts."""

    ordinals: NDArray[np.uint64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[np.uint64]) -> "Contents":
        return cls(*np.unique(ordinals_of(labels), return_counts=True))


def listed(store: Store, txn: Txn, collection: int) -> list[Listed]:
    """The collection's segments in order of ordinals."""
    found = []
    for key, value in store.scan(txn, "segments", schema.u32(collection)):
        dead = required(txn.get(bytes(key), db=store.db["deleted_leaves"]))
        found.append(Listed(SegmentRecord.from_bytes(value), schema.read_u64(dead)))
    return found


def add_tombstone(store: Store, txn: Txn, collection: int, ordinal: int, leaf_count: int) -> None:
    """Notes that a document which a segment holds has died."""
    entry = schema.in_collection(collection, ordinal)
    txn.put(entry, schema.u32(leaf_count), db=store.db["tombstones"])
    key, value = next(store.scan(txn, "deleted_leaves", schema.u32(collection), entry))
    segment, dead = bytes(key), schema.read_u64(value)
    txn.put(segment, schema.u64(dead + leaf_count), db=store.db["deleted_leaves"])


def deleted_ordinals(
    store: Store, txn: Txn, collection: int, first: int = 0, last: int = schema.MAX_ORDINAL
) -> NDArray[np.uint64]:
    """Dead documents that segments hold, of the ordinals given, ascending."""
    start = schema.in_collection(collection, first)
    found = []
    for key, _ in store.scan(txn, "tombstones", schema.u32(collection), start):
        ordinal = schema.read_in_collection(key)[1]
        if ordinal > last:
            break
        found.append(ordinal)
    return np.array(found, np.uint64)


def replace(
    store: Store, txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> list[int]:
    """Lists `record` in place of the segments in its range; returns their ids.

    Of `contents` some may have died since it was read. A record without rows is not
    listed: nothing in its range lives. The tenant's data stays the same, so no sequence is
    used; readers learn of the commit by the change log's cursor.
    """
    counters = read_counters(store, txn, collection)
    replaced = _unlist(store, txn, collection, record)
    dead = _keep_tombstones(store, txn, collection, record, contents)
    dead += _add_tombstones_of_tail(store, txn, collection, contents, counters.sealed_ordinal)
    if record.rows:
        key = schema.in_collection(collection, record.last_ordinal)
        txn.put(key, record.to_bytes(), db=store.db["segments"])
        txn.put(key, schema.u64(dead), db=store.db["deleted_leaves"])
    if record.last_ordinal > counters.sealed_ordinal:
        later = leaves.living_ordinals(store, txn, collection, record.last_ordinal)
        counters = counters._replace(
            sealed_sequence=record.covered_sequence,
            sealed_ordinal=record.last_ordinal,
            tail_leaves=sum(count for _, count in later),
        )
        txn.put(schema.u32(collection), counters.to_bytes(), db=store.db["counters"])
    note_commit(store, txn, collection)
    return replaced


def _unlist(store: Store, txn: Txn, collection: int, record: SegmentRecord) -> list[int]:
    replaced = []
    for each in listed(store, txn, collection):
        if record.first_ordinal <= each.record.last_ordinal <= record.last_ordinal:
            key = schema.in_collection(collection, each.record.last_ordinal)
            txn.delete(key, db=store.db["segments"])
            txn.delete(key, db=store.db["deleted_leaves"])
            replaced.append(each.record.segment_id)
    return replaced


def _keep_tombstones(
    store: Store, txn: Txn, collection: int, record: SegmentRecord, contents: Contents
) -> int:
    """Forgets the dead that the new segment does not hold; returns the leaves of the rest."""
    tombstones = deleted_ordinals(store, txn, collection, record.first_ordinal, record.last_ordinal)
    held = np.isin(tombstones, contents.ordinals)
    for ordinal in tombstones[~held].tolist():
        txn.delete(schema.in_collection(collection, ordinal), db=store.db["tombstones"])
    return int(contents.counts[np.isin(contents.ordinals, tombstones[held])].sum())


def _add_tombstones_of_tail(
    store: Store, txn: Txn, collection: int, contents: Contents, sealed_ordinal: int
) -> int:
    """Notes what died of the tail while it was sealed; returns how many leaves that is."""
    fresh = contents.ordinals > sealed_ordinal
    dead = 0
    for ordinal, count in zip(
        contents.ordinals[fresh].tolist(), contents.counts[fresh].tolist(), strict=True
    ):
        entry = schema.in_collection(collection, ordinal)
        if txn.get(entry, db=store.db["ordinals"]) is None:
            txn.put(entry, schema.u32(count), db=store.db["tombstones"])
            dead += count
    return dead
