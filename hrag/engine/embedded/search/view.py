"""One collection in memory as it stood at one change: segments, tail, dense arrays.

A view never changes once it is handed out. Advancing makes a new one that shares what
did not change: arrays grow by appending beyond what older views look at, and only the
liveness bytes are copied when something was deleted.

Rows number all leaves of a view: first those of each segment, then the tail's. For every
row there is a label, an ancestor at each level, and whether its document still exists. The
leaves of a living document are in one segment or in the tail, never in both, so a
candidate needs no lookup in LMDB. Segments and tail are each in order of label; the view is
not, if a segment could not be loaded: then its leaves lie in the tail, behind younger ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import RowNumbers
from hrag.engine.common.labels import first_labels, ordinals_of
from hrag.engine.common.sorted_sets import Ordinals, distinct, union
from hrag.engine.embedded.segments import leaves
from hrag.engine.embedded.segments.manifest import deleted_ordinals
from hrag.engine.embedded.segments.segment_files import LoadedSegment
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.lmdb_records import Change, Counters
from hrag.engine.embedded.store.queries import listed_segments, read_counters
from hrag.models.embedding import Vectors
from hrag.text.analysis import LeafTerms
from hrag.values.collections import CollectionSettings
from hrag_fast import rows_of_documents

_GROWTH = 1.5  # Appending n rows one by one copies at most 3 n in all.
_SPARE_SHARE = 8  # Capacity for an eighth of the segments' rows: no memory until used.
_BISECTION_COST = 250  # What finding a document costs, in rows looked at one after the other.
_SLACK = 1024  # Deleted rows that a tail may keep in addition to twice its living ones.

Number = TypeVar("Number", bound=np.number)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """What sources search of the rows that no segment holds: one part for each source.

    `vectors` is `float32[capacity, dimension]`; row r of the view has vector r - tail_base.
    Its terms are `entries[term_starts[i]:term_starts[i + 1]]`, i = r - tail_base, in the form
    of `hrag.text.analysis.LeafTerms`: `int64[capacity + 1]` and `uint64[entry capacity]`.
    """

    vectors: Vectors
    term_starts: NDArray[np.int64]
    entries: NDArray[np.uint64]

    @classmethod
    def empty(cls, dimension: int) -> "Tail":
        """Returns a tail without capacity."""
        vectors = np.empty((0, dimension), np.float32)
        return cls(vectors, np.zeros(1, np.int64), np.empty(0, np.uint64))

    def with_rows(self, used: int, capacity: int) -> "Tail":
        """Returns a copy of the first `used` rows with capacity for `capacity`."""
        vectors = np.empty((capacity, self.vectors.shape[1]), np.float32)
        vectors[:used] = self.vectors[:used]
        term_starts = _with_capacity(self.term_starts, used + 1, capacity + 1)
        return replace(self, vectors=vectors, term_starts=term_starts)

    def with_entries(self, used: int, capacity: int) -> "Tail":
        """Returns the tail with a copy of the entries of its first `used` rows."""
        entries = _with_capacity(self.entries, self.entry_count(used), capacity)
        return replace(self, entries=entries)

    def entry_count(self, used: int) -> int:
        """Returns how many entries the first `used` rows have."""
        return int(self.term_starts[used])

    def write(self, start: int, block: leaves.LeafBlock) -> None:
        """Fills in a block's leaves from row `start` of the tail on, beyond all that is used."""
        end = start + len(block.labels)
        first = self.entry_count(start)
        self.vectors[start:end] = block.vectors
        self.term_starts[start + 1 : end + 1] = first + block.terms.starts[1:]
        self.entries[first : first + len(block.terms.entries)] = block.terms.entries

    def terms(self, rows: NDArray[np.int64], lengths: NDArray[np.uint32]) -> LeafTerms:
        """Returns a copy of the terms of rows of the tail, ascending, which have `lengths`."""
        starts = self.term_starts[rows]
        counts = self.term_starts[rows + 1] - starts
        ends = np.concatenate(([0], np.cumsum(counts)))
        at = np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1])
        return LeafTerms(ends.astype(np.int64), self.entries[at], lengths)

    def size_bytes(self, used: int) -> int:
        """Returns the memory of its first `used` rows."""
        parts = (self.vectors[:used], self.term_starts[: used + 1])
        entries = self.entries[: self.entry_count(used)]
        return sum(part.nbytes for part in (*parts, entries))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class View:
    """See the module. `count` rows are in use; arrays may be longer.

    `labels` is `uint64[capacity]`, `ancestors` `uint32[levels, capacity]`, `alive`
    `uint8[capacity]`, `lengths` `uint32[capacity]`: how many terms each leaf has. `bases` are
    the first rows of the segments, `tail_base` that of the tail; `living` counts the rows
    whose `alive` byte is 1, `living_terms` their lengths. From the change `metadata_sequence` to
    `sequence`, no document's metadata changed. `segment_frequencies` is a cache that searches fill:
    how many living rows of the segments have a term, by its id.
    """

    collection: int
    settings: CollectionSettings
    sequence: int
    metadata_sequence: int
    segments: tuple[LoadedSegment, ...]
    bases: tuple[int, ...]
    labels: NDArray[np.uint64]
    ancestors: NDArray[np.uint32]
    alive: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    tail: Tail
    tail_base: int
    count: int
    living: int
    living_terms: int
    segment_frequencies: dict[int, int] = field(default_factory=dict)

    def segment_rows(self) -> Iterator[tuple[LoadedSegment, int, int]]:
        """Yields each segment with its first row and the one after its last."""
        for segment, base in zip(self.segments, self.bases, strict=True):
            yield segment, base, base + segment.record.rows

    def liveness(self, start: int, end: int) -> NDArray[np.uint8] | None:
        """Returns the `alive` bytes of rows from `start` to `end`; None if all of the view live."""
        return None if self.living == self.count else self.alive[start:end]

    def ordinals(self) -> NDArray[np.uint64]:
        """Returns those of the living documents, ascending: `uint64[n]`."""
        living = self.labels[: self.count][self.alive[: self.count] != 0]
        return union([distinct(ordinals_of(living))])

    def advanced(self, store: Store, txn: Txn, changes: Iterable[Change], sequence: int) -> "View":
        """Returns the view after `changes`, which end at `sequence`, the transaction's."""
        changes = list(changes)
        removed = {change.removed for change in changes}
        added = [c.added for c in changes if c.added and c.added not in removed]
        view = self._without([ordinal for ordinal in removed if ordinal])
        block = leaves.read_leaves(store, txn, self.collection, self.settings, added)
        same_metadata = all(change.added or change.removed for change in changes)
        metadata_sequence = self.metadata_sequence if same_metadata else sequence
        view = view._with(block)._tidied()
        return replace(view, sequence=sequence, metadata_sequence=metadata_sequence)

    def _without(self, ordinals: Sequence[int]) -> "View":
        if not ordinals:
            return self
        deleted = self.rows_of(np.sort(np.array(ordinals, np.uint64)))
        deleted = deleted[self.alive[deleted] != 0]
        if not len(deleted):
            return self
        alive = self.alive.copy()
        alive[deleted] = 0
        return replace(
            self,
            alive=alive,
            living=self.living - len(deleted),
            living_terms=self.living_terms - _total(self.lengths[deleted]),
            segment_frequencies={},
        )

    def rows_of(self, ordinals: Ordinals) -> RowNumbers:
        """Returns the rows of documents' leaves, ascending."""
        if len(ordinals) * _BISECTION_COST > self.count:
            return rows_of_documents(self.labels[: self.count], ordinals)
        return self.rows_between(first_labels(ordinals), first_labels(ordinals + np.uint64(1)))

    def rows_between(self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> RowNumbers:
        """Returns the rows of the labels in each range, ascending if the ranges are."""
        found = []
        for start, end in zip(
            (*self.bases, self.tail_base), (*self._ends(), self.count), strict=True
        ):
            part = self.labels[start:end]
            first = start + np.searchsorted(part, starts)
            counts = start + np.searchsorted(part, ends) - first
            before = np.cumsum(counts) - counts
            found.append(np.repeat(first - before, counts) + np.arange(counts.sum()))
        return np.concatenate(found).astype(np.uint32)

    def _ends(self) -> tuple[int, ...]:
        return (*self.bases[1:], self.tail_base) if self.bases else ()

    def _with(self, block: leaves.LeafBlock) -> "View":
        """The view with a block of living leaves, newer than all others, appended to the tail."""
        start, end = self.count, self.count + len(block.labels)
        view = self._with_capacity(end, len(block.terms.entries))
        view.labels[start:end] = block.labels
        view.ancestors[:, start:end] = block.ancestors
        view.alive[start:end] = 1
        view.lengths[start:end] = block.terms.lengths
        view.tail.write(start - self.tail_base, block)
        return replace(
            view,
            count=end,
            living=view.living + end - start,
            living_terms=view.living_terms + _total(block.terms.lengths),
        )

    def _with_capacity(self, rows: int, more_entries: int) -> "View":
        """The view if it has capacity for `rows` rows and `more_entries` terms, else a copy.

        The copy has capacity for more if the tail has grown before.
        """
        used = self.count - self.tail_base
        growth = _GROWTH if used else 1
        view = self
        if rows > len(self.labels):
            tail_rows = int((rows - self.tail_base) * growth)
            capacity = self.tail_base + max(tail_rows, self.tail_base // _SPARE_SHARE)
            view = replace(
                self,
                labels=_with_capacity(self.labels, self.count, capacity),
                ancestors=_with_capacity(self.ancestors, self.count, capacity),
                alive=_with_capacity(self.alive, self.count, capacity),
                lengths=_with_capacity(self.lengths, self.count, capacity),
                tail=self.tail.with_rows(used, capacity - self.tail_base),
            )
        entries = self.tail.entry_count(used) + more_entries
        if entries > len(self.tail.entries):
            view = replace(view, tail=view.tail.with_entries(used, int(entries * growth)))
        return view

    def _tidied(self) -> "View":
        """The view without the tail's deleted rows, if they are most of it.

        Otherwise a few documents that are replaced over and over would fill the memory.
        """
        base = self.tail_base
        living = base + np.flatnonzero(self.alive[base : self.count])
        if self.count - base <= 2 * len(living) + _SLACK:
            return self
        block = leaves.LeafBlock(
            self.labels[living],
            self.ancestors[:, living],
            self.tail.vectors[living - base],
            self.tail.terms(living - base, self.lengths[living]),
        )
        without_tail = replace(
            self,
            labels=self.labels[:base],
            ancestors=self.ancestors[:, :base],
            alive=self.alive[:base],
            lengths=self.lengths[:base],
            tail=Tail.empty(self.settings.dimension),
            count=base,
            living=self.living - len(living),
            living_terms=self.living_terms - _total(self.lengths[living]),
        )
        return without_tail._with(block)

    @property
    def size_bytes(self) -> int:
        """Memory it takes, its segments included; capacity that is not in use costs none."""
        arrays = (self.labels, self.ancestors, self.alive, self.lengths)
        rows = sum(array[..., : self.count].nbytes for array in arrays)
        tail = self.tail.size_bytes(self.count - self.tail_base)
        return rows + tail + sum(segment.size_bytes for segment in self.segments)


def _with_capacity(array: NDArray[Number], used: int, capacity: int) -> NDArray[Number]:
    """Returns a copy of the first `used` columns with capacity for `capacity`.

    What is not used yet takes no memory where it is large.
    """
    copy = np.empty((*array.shape[:-1], capacity), array.dtype)
    copy[..., :used] = array[..., :used]
    return copy


def _joined(parts: Sequence[NDArray[Number]]) -> NDArray[Number]:
    """Returns the columns of all parts, with spare capacity: a search need not copy them then."""
    count = sum(part.shape[-1] for part in parts)
    shape = (*parts[0].shape[:-1], count + count // _SPARE_SHARE)
    joined = np.empty(shape, parts[0].dtype)
    np.concatenate(parts, axis=-1, out=joined[..., :count])
    return joined


def _total(lengths: NDArray[np.uint32]) -> int:
    return int(lengths.sum(dtype=np.int64))


def load_view(
    store: Store,
    txn: Txn,
    settings: CollectionSettings,
    collection: int,
    loaded: Mapping[int, LoadedSegment],
) -> View:
    """Returns the collection as the transaction sees it.

    It uses those of the segments `loaded`, by id, that the transaction lists. Living leaves
    that are in none of them become the tail, so a segment that cannot be loaded, or has terms
    of another analyzer, costs time and memory, never a result.
    """
    counters = read_counters(store, txn, collection)
    listed = listed_segments(store, txn, collection)
    usable = {
        record.segment_id
        for record in listed
        if record.segment_id in loaded and record.analyzer == settings.analyzer
    }
    used = [loaded[record.segment_id] for record in listed if record.segment_id in usable]
    deleted = deleted_ordinals(store, txn, collection) if used else np.empty(0, np.uint64)
    gaps = [record for record in listed if record.segment_id not in usable]
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
    counts = [segment.record.rows for segment in segments]
    count = sum(counts)
    lengths = [
        segment.rows.lengths if segment.postings else np.zeros(segment.record.rows, np.uint32)
        for segment in segments
    ]
    labels = _joined([np.empty(0, np.uint64), *(s.rows.labels for s in segments)])
    ancestors = _joined([np.empty((heights, 0), np.uint32), *(s.rows.ancestors for s in segments)])
    all_lengths = _joined([np.empty(0, np.uint32), *lengths])
    alive = _joined([np.ones(count, np.uint8)])
    if len(deleted):
        alive[rows_of_documents(labels[:count], deleted)] = 0
    return View(
        collection=collection,
        settings=settings,
        sequence=counters.sequence,
        metadata_sequence=counters.sequence,
        segments=tuple(segments),
        bases=tuple(int(end) for end in np.cumsum([0, *counts])[:-1]),
        labels=labels,
        ancestors=ancestors,
        alive=alive,
        lengths=all_lengths,
        tail=Tail.empty(settings.dimension).with_rows(0, len(labels) - count),
        tail_base=count,
        count=count,
        living=int(alive[:count].sum()),
        living_terms=_total(all_lengths[:count][alive[:count] != 0]),
    )
