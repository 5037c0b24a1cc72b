"""Turns a collection's tail into a segment.

Data first, pointer last: leaves are copied out in one short read transaction, the index
is built and its files made durable with no transaction open, and one write transaction
lists the segment in the manifest. Whatever happens before that commit, readers go on
with the tail. Documents that die meanwhile are dead rows, as after any later delete.
"""

import structlog

from hrag.engine.embedded import keys, leaves, segments
from hrag.engine.embedded.lookups import collection_exists, read_collection, read_counters
from hrag.engine.embedded.records import Change, ChangeKind, Counters, SegmentRecord
from hrag.engine.embedded.store import Store, Txn
from hrag.engine.embedded.writer import log_change
from hrag.types import CollectionSettings

_log = structlog.get_logger()


def all_collections(store: Store) -> set[int]:
    """Numbers of the collections that exist."""
    with store.read() as txn:
        return {keys.read_u32(key) for key, _ in store.scan(txn, "collections", b"")}


def tail_leaves(store: Store, collection: int) -> int:
    """Living leaves of the collection that no segment holds; 0 once it is deleted."""
    with store.read() as txn:
        if not collection_exists(store, txn, collection):
            return 0
        return read_counters(store, txn, collection).tail_leaves


def seal(store: Store, collection: int, threads: int) -> SegmentRecord | None:
    """Publishes one segment over the collection's tail, if it has one and still exists.

    Raises OSError or StorageFull when the disk is full; then the tail stays as it was.
    """
    read = _read_tail(store, collection)
    if read is None:
        return None
    settings, counters, block = read
    with store.write() as txn:
        segment_id = store.next_number(txn, keys.LAST_SEGMENT)
    distinct = segments.find_distinct(block.vectors)
    index = segments.build_index(block.vectors[distinct.first], threads)
    rows = segments.Rows(block.labels, block.ancestors, distinct.heads, distinct.members)
    record = SegmentRecord(
        segment_id=segment_id,
        space=segments.SPACE,
        embedder=settings.embedder,
        dimension=settings.dimension,
        rows=len(block.labels),
        distinct=len(distinct.first),
        first_ordinal=counters.sealed_ordinal + 1,
        last_ordinal=int(block.labels[-1]) >> keys.LEAF_BITS,
        covered_sequence=counters.sequence,
        files=segments.write(store.segments, segment_id, index, rows),
    )
    return _publish(store, collection, record)


def remove_unlisted(store: Store) -> None:
    """Removes what a killed sealing or purge left: files that no manifest lists.

    Only before sealing starts: a segment's files come before its entry in the manifest.
    """
    with store.read() as txn:
        listed = {
            segments.path_of(store.segments, keys.read_in_collection(key)[1])
            for key, _ in store.scan(txn, "segments", b"")
        }
    for path in store.segments.iterdir():
        if path not in listed:
            segments.remove_tree(path)


def _read_tail(
    store: Store, collection: int
) -> tuple[CollectionSettings, Counters, leaves.LeafBlock] | None:
    with store.read() as txn:
        if not collection_exists(store, txn, collection):
            return None
        settings = read_collection(store, txn, collection).settings
        counters = read_counters(store, txn, collection)
        tail = leaves.living_ordinals(store, txn, collection, counters.sealed_ordinal)
        block = leaves.read_leaves(store, txn, settings, [ordinal for ordinal, _ in tail])
    return (settings, counters, block) if len(block.labels) else None


def _publish(store: Store, collection: int, record: SegmentRecord) -> SegmentRecord | None:
    listed = False
    try:
        with store.write() as txn:
            if not collection_exists(store, txn, collection):
                return None
            _list(store, txn, collection, record)
        listed = True
    finally:
        if not listed:
            segments.remove(store.segments, record.segment_id)
    _log.info(
        "sealed",
        collection=collection,
        segment=record.segment_id,
        leaves=record.rows,
        bytes=record.size_bytes,
    )
    return record


def _list(store: Store, txn: Txn, collection: int, record: SegmentRecord) -> None:
    key = keys.in_collection(collection, record.segment_id)
    txn.put(key, record.to_bytes(), db=store.db["segments"])
    later = leaves.living_ordinals(store, txn, collection, record.last_ordinal)
    counters = read_counters(store, txn, collection)._replace(
        sealed_sequence=record.covered_sequence,
        sealed_ordinal=record.last_ordinal,
        tail_leaves=sum(count for _, count in later),
    )
    sequence = store.next_number(txn, keys.SEQUENCE)
    log_change(store, txn, collection, counters, Change(ChangeKind.SEGMENTS), sequence)
