"""Builds segments: from a tail, from segments that are to be merged, or from everything.

Data first, pointer last: leaves are read in many short transactions, the index is built
and its files made durable with none open, and one write transaction puts the segment in
the manifest in place of those it replaces. Whatever happens before that commit, readers
go on with what they have. Documents that die meanwhile are dead rows, as after any later
delete. One process builds at a time: the one that has the store for writing.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import structlog
from numpy.typing import NDArray

from hrag import metrics
from hrag.engine.embedded.maintenance.build_plan import Source, whole_source
from hrag.engine.embedded.segments import leaves, manifest, segment_files
from hrag.engine.embedded.segments.builder import Builder, Insert, insert
from hrag.engine.embedded.segments.manifest import Contents, Listed
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.labels import ordinals_of
from hrag.engine.embedded.store.queries import collection_exists, read_counters
from hrag.engine.embedded.store.records import Counters, SegmentRecord

_log = structlog.get_logger()

_BLOCK_LEAVES = 1024  # Inserted in a fraction of a second, between two looks at the clock.
_MAX_ROWLESS = 0.1  # Of an index's items; more would spoil the graph that is gone on with.
_FLOAT_BYTES = 4
_BYTES_BESIDE_VECTOR = 256  # Of a leaf in a segment's files, at most: links, labels, ancestors.

Between = Callable[[], None]
"""Called between two blocks of leaves; what it raises ends the building."""


def all_collections(store: Store) -> set[int]:
    """Numbers of the collections that exist."""
    with store.read() as txn:
        return {schema.read_u32(key) for key, _ in store.scan(txn, "collections", b"")}


def tail_leaves(store: Store, collection: int) -> int:
    """Living leaves of the collection that no segment holds; 0 once it is deleted."""
    return _counters(store, collection).tail_leaves


def tail_bytes(store: Store, collection: int) -> int:
    """What the tail's vectors take, about; 0 once the collection is deleted."""
    counters = _counters(store, collection)
    return counters.vector_bytes * counters.tail_leaves // max(counters.leaves, 1)


def _counters(store: Store, collection: int) -> Counters:
    """All zero once the collection is deleted."""
    with store.read() as txn:
        if not collection_exists(store, txn, collection):
            return Counters()
        return read_counters(store, txn, collection)


def build(
    store: Store, source: Source, between: Between = lambda: None, insert: Insert = insert
) -> SegmentRecord | None:
    """Builds and publishes one segment; returns it, or None if nothing in it lives.

    Raises OSError or StorageFull when the disk is full, and whatever `between` raises;
    then all stays as it was.
    """
    with metrics.segment_build("tail" if source.tail else "merge"):
        return _build(store, source, between, insert)


def _build(store: Store, source: Source, between: Between, insert: Insert) -> SegmentRecord | None:
    store.require_space(
        source.leaves * (_FLOAT_BYTES * source.settings.dimension + _BYTES_BESIDE_VECTOR)
    )
    builder, documents = _begin(store, source, insert)
    for some in _blocks(documents):
        between()
        _add(store, source, builder, some)
    index, rows, digests = builder.finish()
    reach("seal.built" if source.tail else "merge.built")
    record = SegmentRecord(
        segment_id=_next_id(store),
        space=segment_files.SPACE,
        embedder=source.settings.embedder,
        dimension=source.settings.dimension,
        rows=len(rows.labels),
        items=len(digests),
        first_ordinal=source.first_ordinal,
        last_ordinal=source.last_ordinal,
        covered_sequence=source.covered_sequence,
        files={},
    )
    if record.rows:
        files = segment_files.write(store.segments, record.segment_id, index, rows, digests)
        record = replace(record, files=files)
    return _publish(store, source.collection, record, Contents.of(rows.labels))


def rebuild(store: Store, collection: int, threshold: int, between: Between) -> int:
    """Makes a collection's segments anew from LMDB; returns how many leaves they index.

    A collection that has no segment and fewer leaves than `threshold` needs none.
    """
    source = whole_source(store, collection, threshold)
    if source is None or not source.documents:
        return 0
    record = build(store, source, between)
    return record.rows if record else 0


def _next_id(store: Store) -> int:
    with store.write() as txn:
        return store.next_number(txn, schema.LAST_SEGMENT)


def _begin(
    store: Store, source: Source, insert: Insert
) -> tuple[Builder, tuple[tuple[int, int], ...]]:
    """A builder that has what it can from the base, and the documents still to be read."""
    tree = source.settings.tree
    heights = tree.top_level - tree.embedding_level + 1
    documents = source.documents
    if source.base is not None:
        builder = _going_on(store, source, source.base, heights, insert)
        if builder is not None:
            return builder, documents
        with store.read() as txn:
            of_base = leaves.covered_ordinals(store, txn, source.collection, source.base.record)
            documents = (*of_base, *documents)
    index = segment_files.new_index(source.settings.dimension, source.leaves)
    return Builder(index, heights, insert), documents


def _going_on(
    store: Store, source: Source, base: Listed, heights: int, insert: Insert
) -> Builder | None:
    """With the base's index and rows, unless it is damaged or holds too much that is dead."""
    try:
        loaded = segment_files.load(store.segments, base.record)
    except segment_files.DamagedSegment as error:
        _log.error("segment_damaged", segment=base.record.segment_id, problem=str(error))
        return None
    living = _living_rows(store, source, base, loaded.rows.labels)
    used = len(np.unique(loaded.rows.items()[living]))
    if used < (1 - _MAX_ROWLESS) * base.record.items:
        return None
    added = sum(count for _, count in source.documents)
    index = segment_files.load_index(store.segments, base.record, base.record.items + added)
    builder = Builder(index, heights, insert)
    builder.go_on_from(segment_files.load_digests(store.segments, base.record), loaded.rows, living)
    return builder


def _living_rows(
    store: Store, source: Source, base: Listed, labels: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    record = base.record
    with store.read() as txn:
        dead = manifest.deleted_ordinals(
            store, txn, source.collection, record.first_ordinal, record.last_ordinal
        )
    return np.isin(ordinals_of(labels), dead, invert=True)


def _blocks(documents: tuple[tuple[int, int], ...]) -> Iterator[list[int]]:
    """Ordinals of documents that have some `_BLOCK_LEAVES` leaves together."""
    block: list[int] = []
    leaf_count = 0
    for ordinal, count in documents:
        block.append(ordinal)
        leaf_count += count
        if leaf_count >= _BLOCK_LEAVES:
            yield block
            block, leaf_count = [], 0
    if block:
        yield block


def _add(store: Store, source: Source, builder: Builder, ordinals: list[int]) -> None:
    """Those of the documents that still live."""
    with store.read() as txn:
        living = [
            ordinal
            for ordinal in ordinals
            if txn.get(schema.in_collection(source.collection, ordinal), db=store.db["ordinals"])
        ]
        block = leaves.read_leaves(store, txn, source.collection, source.settings, living)
    builder.add(block)


def _publish(
    store: Store, collection: int, record: SegmentRecord, contents: Contents
) -> SegmentRecord | None:
    listed = False
    try:
        with store.write() as txn:
            if not collection_exists(store, txn, collection):
                return None
            replaced = manifest.replace(store, txn, collection, record, contents)
            reach("publish.written")
        listed = True
    finally:
        if not listed:
            segment_files.remove(store.segments, record.segment_id)
    reach("publish.committed")
    _log.info(
        "sealed",
        collection=collection,
        segment=record.segment_id,
        leaves=record.rows,
        bytes=record.size_bytes,
        replaced=replaced,
    )
    return record if record.rows else None
