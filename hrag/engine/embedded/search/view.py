"""One collection in memory as it stood at one change: segments, tail, dense arrays.

A view never changes once it is handed out. Advancing makes a new one that shares what
did not change: arrays grow by appending beyond what older views look at, and only the
liveness bytes are copied when something was deleted.

Rows number all leaves of a view: first those of each segment, then the tail's. For every
row there is a label, an ancestor at each level, and whether its document still exists. The
leaves of a living document are in one segment or in the tail, never in both, so a
candidate needs no lookup in LMDB.
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
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.labels import first_labels, ordinals_of
from hrag.engine.embedded.store.queries import listed_segments, read_counters
from hrag.engine.embedded.store.records import Change, Counters
from hrag.types import CollectionSettings

_GROWTH = 1.5  # Appending n rows one by one copies at most 3 n in all.
_SPARE_SHARE = 8  # Capacity for an eighth of the segments' rows: no memory until used.
_SLACK = 1024  # Deleted rows that a tail may keep in addition to twice its living ones.


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """What sources search of the rows that no segment holds: one part for each source.

    `vectors` is `float32[capacity, dimension]`; row r of the view has vector r - tail_base.
    """

    vectors: Vectors

    @classmethod
    def empty(cls, dimension: int) -> "Tail":
        """Returns a tail without capacity."""
        return cls(np.empty((0, dimension), np.float32))

    def grown(self, used: int, capacity: int) -> "Tail":
        """Returns a copy of the first `used` rows with that capacity."""
        vectors = np.empty((capacity, self.vectors.shape[1]), np.float32)
        vectors[:used] = self.vectors[:used]
        return Tail(vectors)

    def write(self, start: int, block: leaves.LeafBlock) -> None:
        """Fills in a block's leaves from row `start` of the tail on, beyond all that is used."""
        self.vectors[start : start + len(block.labels)] = block.vectors

    @property
    def size_bytes(self) -> int:
        """Memory of its whole capacity."""
        return self.vectors.nbytes


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class View:
    """See the module. `count` rows are in use; arrays may be longer.

    `labels` is `uint64[capacity]`, `ancestors` `uint32[levels, capacity]`, `alive`
    `uint8[capacity]`. `bases` are the first rows of the segments, `tail_base` that of the
    tail; `living` counts the rows whose `alive` byte is 1.
    """

    collection: int
    settings: CollectionSettings
    sequence: int
    segments: tuple[LoadedSegment, ...]
    bases: tuple[int, ...]
    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    alive: NDArray[np.uint8]
    tail: Tail
    tail_base: int
    count: int
    living: int

    def ordinals(self) -> NDArray[np.uint64]:
        """Returns those of the living documents, ascending: `uint64[n]`."""
        living = self.labels[: self.count][self.alive[: self.count] != 0]
        return distinct(ordinals_of(living))

    def advanced(self, store: Store, txn: Txn, changes: Iterable[Change], sequence: int) -> "View":
        """Returns the view after `changes`, which end at `sequence`, the transaction's."""
        changes = list(changes)
        removed = {change.removed for change in changes}
        added = [c.added for c in changes if c.added and c.added not in removed]
        view = self._without([ordinal for ordinal in removed if ordinal])
        block = leaves.read_leaves(store, txn, self.collection, self.settings, added)
        return replace(view._with(block)._tidied(), sequence=sequence)

    def _without(self, ordinals: Sequence[int]) -> "View":
        if not ordinals:
            return self
        deleted = self.rows_of(np.array(ordinals, np.uint64))
        deleted = deleted[self.alive[deleted] != 0]
        if not len(deleted):
            return self
        alive = self.alive.copy()
        alive[deleted] = 0
        return replace(self, alive=alive, living=self.living - len(deleted))

    def rows_of(self, ordinals: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns the rows of documents' leaves, ascending if the documents are."""
        return self.rows_between(first_labels(ordinals), first_labels(ordinals + np.uint64(1)))

    def rows_between(
        self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Returns the rows of the labels in each range, ascending if the ranges are.

        Every segment and the tail are in order of label.
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
        """The view with a block of living leaves, newer than all others, appended to the tail."""
        start, end = self.count, self.count + len(block.labels)
        view = self if end <= len(self.labels) else self._grown(end)
        view.labels[start:end] = block.labels
        view.ancestors[:, start:end] = block.ancestors
        view.alive[start:end] = 1
        view.tail.write(start - self.tail_base, block)
        return replace(view, count=end, living=view.living + end - start)

    def _grown(self, needed: int) -> "View":
        """A copy with capacity for `needed` rows, and for more if the tail has grown before."""
        used = self.count - self.tail_base
        tail_rows = int((needed - self.tail_base) * _GROWTH) if used else needed - self.tail_base
        capacity = self.tail_base + max(tail_rows, self.tail_base // _SPARE_SHARE)
        labels = np.empty(capacity, np.uint64)
        ancestors = np.empty((len(self.ancestors), capacity), np.uint32)
        alive = np.zeros(capacity, np.uint8)
        tail = self.tail.grown(used, capacity - self.tail_base)
        labels[: self.count] = self.labels[: self.count]
        ancestors[:, : self.count] = self.ancestors[:, : self.count]
        alive[: self.count] = self.alive[: self.count]
        return replace(self, labels=labels, ancestors=ancestors, alive=alive, tail=tail)

    def _tidied(self) -> "View":
        """The view without the tail's deleted rows, if they are most of it.

        Otherwise a few documents that are replaced over and over would fill the memory.
        """
        base = self.tail_base
        living = base + np.flatnonzero(self.alive[base : self.count])
        if self.count - base <= 2 * len(living) + _SLACK:
            return self
        block = leaves.LeafBlock(
            self.labels[living], self.ancestors[:, living], self.tail.vectors[living - base]
        )
        without_tail = replace(
            self,
            labels=self.labels[:base],
            ancestors=self.ancestors[:, :base],
            alive=self.alive[:base],
            tail=Tail.empty(self.settings.dimension),
            count=base,
            living=self.living - len(living),
        )
        return without_tail._with(block)

    @property
    def size_bytes(self) -> int:
        """Memory it takes, its segments included; capacity that is not in use costs none."""
        arrays = (self.labels, self.ancestors, self.alive)
        allocated = sum(array.nbytes for array in arrays) + self.tail.size_bytes
        used = allocated * self.count // max(len(self.labels), 1)
        return used + sum(segment.size_bytes for segment in self.segments)


def distinct(ascending: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns each value once, ascending."""
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
    """Returns the collection as the transaction sees it.

    It uses those of the segments `loaded`, by id, that the transaction lists. Living leaves
    that are in none of them become the tail, so a segment that cannot be loaded costs time
    and memory, never a result.
    """
    counters = read_counters(store, txn, collection)
    listed = listed_segments(store, txn, collection)
    used = [loaded[record.segment_id] for record in listed if record.segment_id in loaded]
    deleted = deleted_ordinals(store, txn, collection) if used else np.empty(0, np.uint64)
    gaps = [record for record in listed if record.segment_id not in loaded]
    tail = [
        *(leaves.covered_ordinals(store, txn, collection, record) for record in gaps),
        leaves.living_ordinals(store, txn, collection, counters.sealed_ordinal),
    ]
    view = _over_segments(collection, settings, counters, used, deleted)
    ordinals = [ordinal for ordinal, _ in chain.from_iterable(tail)]
    return view._with(leaves.read_leaves(store, txn, collection, settings, ordinals))


def _over_segments(
    collection: int,
    settings: CollectionSettings,
    counters: Counters,
    segments: Sequence[LoadedSegment],
    deleted: NDArray[np.uint64],
) -> View:
    heights = settings.tree.top_level - settings.tree.embedding_level + 1
    labels = np.concatenate([np.empty(0, np.uint64), *(s.rows.labels for s in segments)])
    alive = np.ones(len(labels), np.uint8)
    if len(deleted):
        alive[np.isin(ordinals_of(labels), deleted)] = 0
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
        tail=Tail.empty(settings.dimension),
        tail_base=len(labels),
        count=len(labels),
        living=int(alive.sum()),
    )
