"""Builds a segment from a tail, from merged segments, or from all documents of a collection.

A build makes its files durable before it changes the manifest:

1. It reads the leaves in many short read transactions.
2. It builds the index and makes its files durable, without an open transaction.
3. One write transaction adds the new segment to the manifest, and removes the segments that it
   replaces from the manifest. Until this transaction commits, readers use the old segments.

Documents that are deleted during the build get tombstones, like documents that are deleted after
the build. Only the process that has opened the store for writing builds segments.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import structlog
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels, ordinals_of
from hrag.engine.embedded.maintenance.build_plan import (
    BuildPlan,
    reindex_plan,
    with_newest_analyzer,
)
from hrag.engine.embedded.segments import leaves, manifest, segment_files, vector_part
from hrag.engine.embedded.segments.background_insert import BackgroundInsert
from hrag.engine.embedded.segments.builder import SegmentBuilder
from hrag.engine.embedded.segments.manifest import Contents, ManifestEntry
from hrag.engine.embedded.segments.postings_part import PostingsPart
from hrag.engine.embedded.segments.segment_files import LoadedSegment
from hrag.engine.embedded.segments.vector_part import Insert, VectorPart, insert
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.change_log import note_commit
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.failpoints import reach
from hrag.engine.embedded.store.lmdb_records import Counters, SegmentRecord
from hrag.engine.embedded.store.queries import set_analyzer
from hrag.observe import metrics

_log = structlog.get_logger()

# A build inserts leaves into the index in blocks of about this many leaves. Inserting one block
# takes a fraction of a second.
_BLOCK_LEAVES = 1024
# The items of an index are distinct vectors. An item is unused if all leaves with this vector are
# deleted. If the share of unused items is larger than this, a build does not extend the index but
# begins with an empty index, because many unused items in a graph make search results worse.
_MAX_UNUSED_ITEMS = 0.1
_FLOAT_BYTES = 4
# Besides its vector, a leaf takes at most this much disk space for graph links, label and
# ancestors.
_OVERHEAD_BYTES = 256

BeforeBlock = Callable[[], None]
"""A function that a build calls before each block of leaves. Its exceptions end the build."""


def all_collections(store: Store) -> set[int]:
    """Returns the ids of all collections, including summary collections and damaged collections."""
    with store.read() as txn:
        return set(txn.collections.keys())


def tail_leaves(store: Store, collection: int) -> int:
    """Returns the count of leaves in a collection's tail, without leaves of deleted documents.

    Returns 0 if the collection has been deleted.
    """
    return _read_counters(store, collection).tail_leaves


def tail_bytes(store: Store, collection: int) -> int:
    """Returns the estimated size of the vectors in a collection's tail, in bytes.

    Returns 0 if the collection has been deleted.
    """
    counters = _read_counters(store, collection)
    return counters.vector_bytes * counters.tail_leaves // max(counters.leaves, 1)


def _read_counters(store: Store, collection: int) -> Counters:
    """Returns the counters of a collection. All are 0 if the collection has been deleted."""
    with store.read() as txn:
        if not txn.collections.has(collection):
            return Counters()
        return txn.counters.require(collection)


def build(
    store: Store,
    plan: BuildPlan,
    before_block: BeforeBlock = lambda: None,
    insert: Insert = insert,
    *,
    block_leaves: int = _BLOCK_LEAVES,
) -> SegmentRecord | None:
    """Builds the segment that `plan` describes, and adds it to the collection's manifest.

    Leaves are read in blocks of about `block_leaves` leaves. `before_block` is called before each
    block. The function `insert` inserts the vectors of a block into the vector index. It is called
    in a second thread, while the next block is read.

    Returns the record of the segment, or None if the segment would have no leaves or the collection
    has been deleted. Raises OSError or StorageFull if the disk is full, and any exception that
    `before_block` raises. After an exception, the store is unchanged.
    """
    with metrics.segment_build("tail" if plan.tail else "merge"):
        return _build(store, plan, before_block, insert, block_leaves)


def reindex(
    store: Store, collection: int, threshold: int, before_block: BeforeBlock = lambda: None
) -> int:
    """Builds the index of a collection again from its documents, as one segment.

    Returns the count of leaves in the new segment. If the collection has no segments, and too few
    leaves for one (fewer than `threshold`), builds no segment and returns 0. In this case, too, the
    collection's settings get the newest version of the analyzer. Raises the errors of `build`.
    """
    plan = reindex_plan(store, collection, threshold)
    if plan is None:
        _upgrade_analyzer(store, collection)
        return 0
    record = build(store, plan, before_block)
    return record.rows if record else 0


def _upgrade_analyzer(store: Store, collection: int) -> None:
    """Changes the analyzer in a collection's settings to the analyzer's newest version.

    The collection must have no segments.
    """
    with store.write() as txn:
        if txn.collections.has(collection):
            settings = txn.collections.require(collection).settings
            if set_analyzer(txn, collection, with_newest_analyzer(settings).analyzer):
                note_commit(txn, collection)


def _build(
    store: Store, plan: BuildPlan, before_block: BeforeBlock, insert: Insert, block_leaves: int
) -> SegmentRecord | None:
    bytes_per_leaf = _FLOAT_BYTES * plan.settings.dimension + _OVERHEAD_BYTES
    store.require_space(plan.max_leaves * bytes_per_leaf)
    with BackgroundInsert(insert) as background:
        builder, vectors, documents = _begin(store, plan, background)
        for block in _blocks(documents, block_leaves):
            before_block()
            _add(store, plan, builder, block)
        background.wait()
    reach("seal.built" if plan.tail else "merge.built")
    labels = builder.labels()
    items = 0 if vectors is None else vectors.item_count
    record = _record(plan, _next_id(store), rows=len(labels), items=items)
    if record.rows:
        files = segment_files.write(store.segments, record.segment_id, builder.write)
        record = replace(record, files=files)
    return _publish(store, plan.collection, record, Contents.of(labels))


def _record(plan: BuildPlan, segment_id: int, *, rows: int, items: int) -> SegmentRecord:
    return SegmentRecord(
        segment_id=segment_id,
        space=vector_part.SPACE,
        embedder=plan.settings.embedder,
        dimension=plan.settings.dimension,
        rows=rows,
        items=items,
        first_ordinal=plan.first_ordinal,
        last_ordinal=plan.last_ordinal,
        covered_sequence=plan.covered_sequence,
        files={},
        analyzer=plan.settings.analyzer,
    )


def _next_id(store: Store) -> int:
    with store.write() as txn:
        return txn.next_number(schema.LAST_SEGMENT)


_Builder: TypeAlias = tuple[SegmentBuilder, VectorPart | None]
"""A segment builder, and the part of it that indexes vectors.

The second element is None if the collection has no vectors.
"""


def _begin(
    store: Store, plan: BuildPlan, insert: Insert
) -> tuple[SegmentBuilder, VectorPart | None, tuple[tuple[int, int], ...]]:
    """Returns a segment builder, its vector part, and the documents to add to the builder.

    The vector part is None if the collection has no vectors. The documents are pairs of ordinal and
    leaf count. If possible, the builder contains the rows and indexes of the plan's base segment.
    Otherwise the builder is empty, and the documents to add include the documents of the base
    segment.
    """
    documents = plan.documents
    if plan.base is not None:
        resumed = _try_to_resume(store, plan, plan.base, insert)
        if resumed is not None:
            return *resumed, documents
        with store.read() as txn:
            base_documents = leaves.covered_ordinals(txn, plan.collection, plan.base.record)
            documents = (*base_documents, *documents)
    vectors = None
    if plan.settings.dimension:
        index = vector_part.new_index(plan.settings.dimension, plan.max_leaves)
        vectors = VectorPart(index, insert)
    postings = PostingsPart() if plan.settings.analyzer else None
    return *_make_builder(plan, vectors, postings), documents


def _make_builder(
    plan: BuildPlan, vectors: VectorPart | None, postings: PostingsPart | None
) -> _Builder:
    """Creates a segment builder for a plan. Returns the builder and `vectors`.

    `vectors` and `postings` are the parts of the builder. `vectors` is None if the collection has
    no vectors. `postings` is None if the collection has no lexical index.
    """
    parts = [part for part in (vectors, postings) if part is not None]
    return SegmentBuilder(_level_count(plan), parts), vectors


def _level_count(plan: BuildPlan) -> int:
    """Returns the count of levels from the leaves' level up to the top level, including both."""
    tree = plan.settings.tree
    return tree.top_level - tree.embedding_level + 1


def _try_to_resume(
    store: Store, plan: BuildPlan, base: ManifestEntry, insert: Insert
) -> _Builder | None:
    """Returns a segment builder that contains the rows and the indexes of a base segment.

    Leaves out the rows of deleted documents. Returns None if the base segment is damaged, or if too
    many vectors in its index belong only to deleted leaves.
    """
    try:
        loaded = segment_files.load(store.segments, base.record, with_graph=False)
        living = _living_rows(store, plan, base.record, loaded.rows.labels)
        used = len(np.unique(loaded.items[living]))
        if used < (1 - _MAX_UNUSED_ITEMS) * base.record.items:
            return None
        return _resume(store, plan, loaded, living, insert)
    except segment_files.DamagedSegment as error:
        _log.error("segment_damaged", segment=base.record.segment_id, problem=str(error))
        return None


def _resume(
    store: Store,
    plan: BuildPlan,
    base: LoadedSegment,
    living: NDArray[np.bool_],
    insert: Insert,
) -> _Builder:
    """Returns a segment builder that contains the rows and the indexes of a base segment.

    `living` is True for each row of the base segment whose document still exists. Only these rows
    are added. Raises DamagedSegment, or OSError if the disk is full.
    """
    vectors = postings = None
    if plan.settings.dimension:
        capacity = base.record.items + sum(count for _, count in plan.documents)
        vectors = VectorPart(vector_part.load_index(store.segments, base.record, capacity), insert)
        vectors.resume_from(store.segments, base, living)
    if plan.settings.analyzer:
        postings = PostingsPart()
        postings.resume_from(base, living)
    builder = _make_builder(plan, vectors, postings)
    builder[0].resume_from(base.rows, living)
    return builder


def _living_rows(
    store: Store, plan: BuildPlan, record: SegmentRecord, labels: Labels
) -> NDArray[np.bool_]:
    """Returns a mask that is True for each row of a segment whose document still exists.

    `record` is the record of the segment, and `labels` are the labels of its rows.
    """
    with store.read() as txn:
        deleted = manifest.deleted_ordinals(
            txn, plan.collection, record.first_ordinal, record.last_ordinal
        )
    return np.isin(ordinals_of(labels), deleted, invert=True)


def _blocks(documents: tuple[tuple[int, int], ...], block_leaves: int) -> Iterator[list[int]]:
    """Yields the ordinals of documents in blocks.

    `documents` are pairs of ordinal and leaf count. A block ends as soon as its documents together
    have at least `block_leaves` leaves. The last block may have fewer leaves.
    """
    block: list[int] = []
    leaf_count = 0
    for ordinal, count in documents:
        block.append(ordinal)
        leaf_count += count
        if leaf_count >= block_leaves:
            yield block
            block, leaf_count = [], 0
    if block:
        yield block


def _add(store: Store, plan: BuildPlan, builder: SegmentBuilder, ordinals: list[int]) -> None:
    """Adds the leaves of documents to a segment builder.

    `ordinals` are the ordinals of the documents. Documents that were deleted after the plan was
    made are skipped.
    """
    with store.read() as txn:
        living = [
            ordinal
            for ordinal in ordinals
            if txn.ordinals.get((plan.collection, ordinal)) is not None
        ]
        block = leaves.read_leaves(txn, plan.collection, plan.settings, living)
    builder.add(block)


def _publish(
    store: Store, collection: int, record: SegmentRecord, contents: Contents
) -> SegmentRecord | None:
    """Adds a segment to the manifest of its collection. The segment's files must be complete.

    `contents` are the documents in the segment. Returns the record of the segment, or None if the
    segment has no leaves. If the collection has been deleted, removes the files of the segment and
    returns None. The files are also removed before an exception is raised.
    """
    published = False
    try:
        with store.write() as txn:
            if not txn.collections.has(collection):
                return None
            set_analyzer(txn, collection, record.analyzer)
            replaced = manifest.publish(txn, collection, record, contents)
            reach("publish.written")
        published = True
    finally:
        if not published:
            segment_files.remove(store.segments, record.segment_id)
    reach("publish.committed")
    _log.info(
        "segment_published",
        collection=collection,
        segment=record.segment_id,
        leaves=record.rows,
        bytes=record.size_bytes,
        replaced=replaced,
    )
    return record if record.rows else None
