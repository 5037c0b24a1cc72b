"""Builds segments: from a tail, from segments that are merged, or from all documents.

Data first, pointer last: leaves are read in many short transactions, the index is built
and its files made durable with none open, and one write transaction puts the segment into
the manifest in place of those it replaces. Until that commit, readers use what they have.
Documents deleted meanwhile get tombstones, as after any later deletion. One process builds
at a time: the one that has the store for writing.
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
from hrag.engine.embedded.store.queries import (
    collection_exists,
    read_collection,
    read_counters,
    set_analyzer,
)
from hrag.observe import metrics

_log = structlog.get_logger()

_BLOCK_LEAVES = 1024  # Inserted in a fraction of a second, between two looks at the clock.
_MAX_UNUSED_ITEMS = 0.1  # Share of an index's items; more would spoil the graph to resume from.
_FLOAT_BYTES = 4
_OVERHEAD_BYTES = 256  # At most, for a leaf's links, label and ancestors.

Between = Callable[[], None]
"""Called between two blocks of leaves; an exception that it raises ends the build."""


def all_collections(store: Store) -> set[int]:
    """Returns the numbers of all collections, summary collections and damaged ones included."""
    with store.read() as txn:
        return {schema.read_u32(key) for key, _ in txn.entries(store.db["collections"])}


def tail_leaves(store: Store, collection: int) -> int:
    """Returns the number of living leaves that no segment holds; 0 once deleted."""
    return _counters(store, collection).tail_leaves


def tail_bytes(store: Store, collection: int) -> int:
    """Returns about how many bytes the tail's vectors have; 0 once deleted."""
    counters = _counters(store, collection)
    return counters.vector_bytes * counters.tail_leaves // max(counters.leaves, 1)


def _counters(store: Store, collection: int) -> Counters:
    """All zero once the collection is deleted."""
    with store.read() as txn:
        if not collection_exists(store, txn, collection):
            return Counters()
        return read_counters(store, txn, collection)


def build(
    store: Store, plan: BuildPlan, between: Between = lambda: None, insert: Insert = insert
) -> SegmentRecord | None:
    """Builds and publishes one segment; returns it, or None if nothing in it lives.

    Raises OSError or StorageFull when the disk is full, and whatever `between` raises;
    then the store is as before.
    """
    with metrics.segment_build("tail" if plan.tail else "merge"):
        return _build(store, plan, between, insert)


def reindex(store: Store, collection: int, threshold: int, between: Between = lambda: None) -> int:
    """Builds a collection's index anew from its documents; returns how many leaves it has.

    A collection without segments and with fewer leaves than `threshold` needs none. Raises
    as `build` does.
    """
    plan = reindex_plan(store, collection, threshold)
    if plan is None:
        _upgrade_analyzer(store, collection)
        return 0
    record = build(store, plan, between)
    return record.rows if record else 0


def _upgrade_analyzer(store: Store, collection: int) -> None:
    """Gives a collection that needs no segment the newest version of its analyzer."""
    with store.write() as txn:
        if collection_exists(store, txn, collection):
            settings = read_collection(store, txn, collection).settings
            if set_analyzer(store, txn, collection, with_newest_analyzer(settings).analyzer):
                note_commit(store, txn, collection)


def _build(store: Store, plan: BuildPlan, between: Between, insert: Insert) -> SegmentRecord | None:
    bytes_per_leaf = _FLOAT_BYTES * plan.settings.dimension + _OVERHEAD_BYTES
    store.require_space(plan.max_leaves * bytes_per_leaf)
    builder, vectors, documents = _begin(store, plan, insert)
    for block in _blocks(documents):
        between()
        _add(store, plan, builder, block)
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
        return store.next_number(txn, schema.LAST_SEGMENT)


_Begun: TypeAlias = tuple[SegmentBuilder, VectorPart | None]


def _begin(
    store: Store, plan: BuildPlan, insert: Insert
) -> tuple[SegmentBuilder, VectorPart | None, tuple[tuple[int, int], ...]]:
    """A builder that has resumed from the base if it can, and the documents still to read."""
    documents = plan.documents
    if plan.base is not None:
        resumed = _resumed(store, plan, plan.base, insert)
        if resumed is not None:
            return *resumed, documents
        with store.read() as txn:
            of_base = leaves.covered_ordinals(store, txn, plan.collection, plan.base.record)
            documents = (*of_base, *documents)
    vectors = None
    if plan.settings.dimension:
        index = vector_part.new_index(plan.settings.dimension, plan.max_leaves)
        vectors = VectorPart(index, insert)
    postings = PostingsPart() if plan.settings.analyzer else None
    return *_builder(plan, vectors, postings), documents


def _builder(plan: BuildPlan, vectors: VectorPart | None, postings: PostingsPart | None) -> _Begun:
    parts = [part for part in (vectors, postings) if part is not None]
    return SegmentBuilder(_heights(plan), parts), vectors


def _heights(plan: BuildPlan) -> int:
    tree = plan.settings.tree
    return tree.top_level - tree.embedding_level + 1


def _resumed(store: Store, plan: BuildPlan, base: ManifestEntry, insert: Insert) -> _Begun | None:
    """Resumes from the base's indexes and rows; None if it is damaged or mostly unused."""
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
) -> _Begun:
    """Raises DamagedSegment, or OSError when the disk is full."""
    vectors = postings = None
    if plan.settings.dimension:
        capacity = base.record.items + sum(count for _, count in plan.documents)
        vectors = VectorPart(vector_part.load_index(store.segments, base.record, capacity), insert)
        vectors.resume_from(store.segments, base, living)
    if plan.settings.analyzer:
        postings = PostingsPart()
        postings.resume_from(base, living)
    begun = _builder(plan, vectors, postings)
    begun[0].resume_from(base.rows, living)
    return begun


def _living_rows(
    store: Store, plan: BuildPlan, record: SegmentRecord, labels: Labels
) -> NDArray[np.bool_]:
    with store.read() as txn:
        deleted = manifest.deleted_ordinals(
            store, txn, plan.collection, record.first_ordinal, record.last_ordinal
        )
    return np.isin(ordinals_of(labels), deleted, invert=True)


def _blocks(documents: tuple[tuple[int, int], ...]) -> Iterator[list[int]]:
    """Yields the ordinals in blocks of documents with about `_BLOCK_LEAVES` leaves."""
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


def _add(store: Store, plan: BuildPlan, builder: SegmentBuilder, ordinals: list[int]) -> None:
    """Adds those of the documents that still live."""
    with store.read() as txn:
        living = [
            ordinal
            for ordinal in ordinals
            if txn.get(schema.in_collection(plan.collection, ordinal), db=store.db["ordinals"])
        ]
        block = leaves.read_leaves(store, txn, plan.collection, plan.settings, living)
    builder.add(block)


def _publish(
    store: Store, collection: int, record: SegmentRecord, contents: Contents
) -> SegmentRecord | None:
    published = False
    try:
        with store.write() as txn:
            if not collection_exists(store, txn, collection):
                return None
            set_analyzer(store, txn, collection, record.analyzer)
            replaced = manifest.publish(store, txn, collection, record, contents)
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
