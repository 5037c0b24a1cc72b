"""One collection in memory as it stood at one change: segments, tail, dense arrays.

A view never changes once it is handed out. Advancing makes a new one that shares what
did not change: arrays grow by appending beyond what older views look at, and only the
liveness bytes are copied when something died.

Rows number all leaves of a view: first those of each segment, then the tail's. For every
row there is a label, an ancestor at each level, and whether its document still lives. A
living document's leaves are in exactly one place, so a hit needs no look-up in LMDB.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from hrag.embedding import Vectors
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.segments.manifest import deleted_ordinals
from hrag.engine.embedded.segments.segment_files import LoadedSegment
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import listed_segments, read_counters
from hrag.engine.embedded.store.records import Change, Counters
from hrag.types import CollectionSettings

_GROWTH = 1.5  # Appending n rows one by one copies at most 3 n in all.
_SPARE_SHARE = 8  # Room for an eighth of the segments' rows: it costs no memory until used.
_SLACK = 1024  # Dead rows that a tail may keep beside twice its living ones.


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class View:
    """See the module. `count` rows are in use; arrays may be longer.

    `tail` is `float32[capacity, dimension]` and holds the vectors of the rows from
    `tail_base` on; `living` counts the rows whose `alive` byte is 1.
    """

    collection: int
    settings: CollectionSettings
    sequence: int
    segments: tuple[LoadedSegment, ...]
    bases: tuple[int, ...]
    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    alive: NDArray[np.uint8]
    tail: Vectors
    tail_base: int
    count: int
    living: int

    def ordinals(self) -> NDArray[np.uint64]:
        """Of the living documents, ascending."""
        living = self.labels[: self.count][self.alive[: self.count] != 0]
        return each_once(living >> np.uint64(schema.LEAF_BITS))

    def advanced(self, store: Store, txn: Txn, changes: Iterable[Change], sequence: int) -> "View":
        """The view after `changes`, which lead to `sequence`, the transaction's own."""
        changes = list(changes)
        removed = {change.removed for change in changes}
        added = [c.added for c in changes if c.added and c.added not in removed]
        view = self._without([ordinal for ordinal in removed if ordinal])
        block = leaves.read_leaves(store, txn, self.collection, self.settings, added)
        return replace(view._with(block)._tidied(), sequence=sequence)

    def _without(self, ordinals: Sequence[int]) -> "View":
        if not ordinals:
            return self
        dead = self.rows_of(np.array(ordinals, np.uint64))
        dead = dead[self.alive[dead] != 0]
        if not len(dead):
            return self
        alive = self.alive.copy()
        alive[dead] = 0
        return replace(self, alive=alive, living=self.living - len(dead))

    def rows_of(self, ordinals: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Rows of documents' leaves, ascending where the documents are."""
        bits = np.uint64(schema.LEAF_BITS)
        return self.rows_between(ordinals << bits, (ordinals + np.uint64(1)) << bits)

    def rows_between(
        self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Rows of the labels in each range, ascending where the ranges are.

        Each part is in order of label.
        """
        found = []
        for start, end in zip(
            (*self.bases, self.tail_base), (*self._ends(), self.count), strict=True
        ):
            part = self.labels[start:end]
            first = start + np.searchsorted(part, starts)
            counts = start + np.searchsorted(part, ends) - first
            before = np.cumsum(counts) - counts
            found.append(np.repeat(first - before, counts) + np.arange(counts.sum()))
        return np.concatenate(found)

    def _ends(self) -> tuple[int, ...]:
        return (*self.bases[1:], self.tail_base) if self.bases else ()

    def _with(self, block: leaves.LeafBlock) -> "View":
        """With a block of living leaves, newer than all others, at the end of the tail."""
        start, end = self.count, self.count + len(block.labels)
        view = self if end <= len(self.labels) else self._grown(end)
        view.labels[start:end] = block.labels
        view.ancestors[:, start:end] = block.ancestors
        view.alive[start:end] = 1
        view.tail[start - self.tail_base : end - self.tail_base] = block.vectors
        return replace(view, count=end, living=view.living + end - start)

    def _grown(self, needed: int) -> "View":
        """With room for `needed` rows at once, and for more if the tail has grown before."""
        used = self.count - self.tail_base
        tail_rows = int((needed - self.tail_base) * _GROWTH) if used else needed - self.tail_base
        capacity = self.tail_base + max(tail_rows, self.tail_base // _SPARE_SHARE)
        labels = np.empty(capacity, np.uint64)
        ancestors = np.empty((len(self.ancestors), capacity), np.uint32)
        alive = np.zeros(capacity, np.uint8)
        tail = np.empty((capacity - self.tail_base, self.settings.dimension), np.float32)
        labels[: self.count] = self.labels[: self.count]
        ancestors[:, : self.count] = self.ancestors[:, : self.count]
        alive[: self.count] = self.alive[: self.count]
        tail[:used] = self.tail[:used]
        return replace(self, labels=labels, ancestors=ancestors, alive=alive, tail=tail)

    def _tidied(self) -> "View":
        """Without the tail's dead rows, where they are most of it.

        A few documents replaced over and over would fill memory with what they were.
        """
        base = self.tail_base
        living = base + np.flatnonzero(self.alive[base : self.count])
        if self.count - base <= 2 * len(living) + _SLACK:
            return self
        block = leaves.LeafBlock(
            self.labels[living], self.ancestors[:, living], self.tail[living - base]
        )
        without_tail = replace(
            self,
            labels=self.labels[:base],
            ancestors=self.ancestors[:, :base],
            alive=self.alive[:base],
            tail=self.tail[:0],
            count=base,
            living=self.living - len(living),
        )
        return without_tail._with(block)

    @property
    def size_bytes(self) -> int:
        """Memory it takes, that of its segments included."""
        arrays = (self.labels, self.ancestors, self.alive, self.tail)
        used = sum(array.nbytes for array in arrays) * self.count // max(len(self.labels), 1)
        return used + sum(segment.size_bytes for segment in self.segments)


def each_once(ascending: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Without the repetitions."""
    different = np.empty(len(ascending), np.bool_)
    different[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=different[1:])
    return ascending[different]


def load_view(
    store: Store,
    txn: Txn,
    settings: CollectionSettings,
    collection: int,
    loaded: Mapping[int, LoadedSegment],
) -> View:
    """The collection as the transaction sees it.

    Of the segments `loaded`, by id, it takes those that the transaction lists. What lives
    and is in none of them becomes the tail, so a segment that cannot be loaded costs time
    and memory, never an answer.
    """
    counters = read_counters(store, txn, collection)
    listed = listed_segments(store, txn, collection)
    used = [loaded[record.segment_id] for record in listed if record.segment_id in loaded]
    dead = deleted_ordinals(store, txn, collection) if used else np.empty(0, np.uint64)
    gaps = [record for record in listed if record.segment_id not in loaded]
    tail = [
        *(leaves.covered_ordinals(store, txn, collection, record) for record in gaps),
        leaves.living_ordinals(store, txn, collection, counters.sealed_ordinal),
    ]
    view = _over_segments(collection, settings, counters, used, dead)
    ordinals = [ordinal for ordinal, _ in chain.from_iterable(tail)]
    return view._with(leaves.read_leaves(store, txn, collection, settings, ordinals))


def _over_segments(
    collection: int,
    settings: CollectionSettings,
    counters: Counters,
    segments: Sequence[LoadedSegment],
    dead: NDArray[np.uint64],
) -> View:
    heights = settings.tree.top_level - settings.tree.embedding_level + 1
    labels = np.concatenate([np.empty(0, np.uint64), *(s.rows.labels for s in segments)])
    alive = np.ones(len(labels), np.uint8)
    if len(dead):
        alive[np.isin(labels >> np.uint64(schema.LEAF_BITS), dead)] = 0
    none = np.empty((heights, 0), np.uint32)
    return View(
        collection=collection,
        settings=settings,
        sequence=counters.sequence,
        segments=tuple(segments),
        bases=tuple(int(end) for end in np.cumsum([0, *(s.record.rows for s in segments)])[:-1]),
        labels=labels,
        ancestors=np.concatenate([none, *(s.rows.ancestors for s in segments)], axis=1),
        alive=alive,
        tail=np.empty((0, settings.dimension), np.float32),
        tail_base=len(labels),
        count=len(labels),
        living=int(alive.sum()),
    )
