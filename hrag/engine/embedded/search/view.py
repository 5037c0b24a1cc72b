"""A view: one collection in memory, in the state after one change, as segments, tail and arrays.

A view does not change once it has been returned to a caller. `View.advanced` makes a new view,
which shares with the old view everything that did not change. New rows are appended to the shared
arrays after the last row that older views use. If documents were deleted, only the array `alive` is
copied.

A view has one row for each of its leaves: first the leaves of each segment, then the leaves of the
tail. For every row, the arrays contain the leaf's label, its ancestor at each level, and whether
its document still exists. So a search needs no look-up in LMDB to rank a leaf. The leaves of an
existing document are either in one segment or in the tail, never in both.

The rows of each segment are in order of their labels, and so are the rows of the tail. The rows of
the whole view may be in another order: if a segment cannot be loaded, its leaves are in the tail,
after the rows of newer segments.
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
from hrag.engine.embedded.store.lmdb_records import Change, Counters
from hrag.engine.embedded.store.queries import listed_segments
from hrag.engine.embedded.store.transactions import Txn
from hrag.models.embedding import Vectors
from hrag.text.analysis import LeafTerms
from hrag.values.collections import CollectionSettings
from hrag_fast import rows_of_documents

# If the arrays of a tail are full, their capacity grows by this factor. So appending n rows one by
# one copies at most 3 n rows.
_GROWTH = 1.5
# The arrays have spare capacity for new rows of the tail. The count of spare rows is the count of
# rows in segments divided by this value. Spare rows take no memory until they are used.
_SPARE_SHARE = 8
# Finding the rows of one document by bisection takes as long as a linear scan of this many rows.
_BISECTION_COST = 250
# The deleted rows of a tail are removed once the tail has more rows than this count plus twice the
# count of its rows that are not deleted.
_SLACK = 1024

Number = TypeVar("Number", bound=np.number)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The vectors and terms of those leaves of a view that are in no segment.

    In the arrays of a tail, the leaf in row r of the view has the index i = r - tail_base.

    `vectors` is `float32[capacity, dimension]`, for the search by vectors. `term_starts`,
    `int64[capacity + 1]`, and `entries`, `uint64[capacity for entries]`, are for the search by
    terms. An entry is a term of a leaf in the form of `hrag.text.analysis.LeafTerms`. The leaf with
    the index i has the entries `entries[term_starts[i]:term_starts[i + 1]]`.
    """

    vectors: Vectors
    term_starts: NDArray[np.int64]
    entries: NDArray[np.uint64]

    @classmethod
    def empty(cls, dimension: int) -> "Tail":
        """Returns a tail with a capacity of 0 rows."""
        vectors = np.empty((0, dimension), np.float32)
        return cls(vectors, np.zeros(1, np.int64), np.empty(0, np.uint64))

    def with_rows(self, used: int, capacity: int) -> "Tail":
        """Returns a tail with capacity for `capacity` rows.

        `vectors` and `term_starts` of the first `used` rows are copied. The array `entries` is
        shared with this tail.
        """
        vectors = np.empty((capacity, self.vectors.shape[1]), np.float32)
        vectors[:used] = self.vectors[:used]
        term_starts = _with_capacity(self.term_starts, used + 1, capacity + 1)
        return replace(self, vectors=vectors, term_starts=term_starts)

    def with_entries(self, used: int, capacity: int) -> "Tail":
        """Returns a tail with capacity for `capacity` entries. An entry is a term of a leaf.

        The entries of the first `used` rows are copied. The arrays `vectors` and `term_starts` are
        shared with this tail.
        """
        entries = _with_capacity(self.entries, self.entry_count(used), capacity)
        return replace(self, entries=entries)

    def entry_count(self, used: int) -> int:
        """Returns how many term entries the first `used` rows of the tail have together."""
        return int(self.term_starts[used])

    def write(self, start: int, block: leaves.LeafBlock) -> None:
        """Writes the leaves of a block into the tail, beginning at the index `start`.

        All indexes below `start` are in use already. The tail must have capacity for the block.
        """
        end = start + len(block.labels)
        first = self.entry_count(start)
        self.vectors[start:end] = block.vectors
        self.term_starts[start + 1 : end + 1] = first + block.terms.starts[1:]
        self.entries[first : first + len(block.terms.entries)] = block.terms.entries

    def terms(self, rows: NDArray[np.int64], lengths: NDArray[np.uint32]) -> LeafTerms:
        """Returns a copy of the terms of some leaves of the tail.

        `rows` are the indexes of the leaves in the tail, ascending. `lengths` has the count of
        terms of each of these leaves.
        """
        starts = self.term_starts[rows]
        counts = self.term_starts[rows + 1] - starts
        ends = np.concatenate(([0], np.cumsum(counts)))
        positions = np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1])
        return LeafTerms(ends.astype(np.int64), self.entries[positions], lengths)

    def size_bytes(self, used: int) -> int:
        """Returns the memory that the first `used` rows of the tail take, in bytes."""
        parts = (self.vectors[:used], self.term_starts[: used + 1])
        entries = self.entries[: self.entry_count(used)]
        return sum(part.nbytes for part in (*parts, entries))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class View:
    """A collection in memory, in the state after one change.

    A view has one row for each leaf: first the leaves of the segments, then those of the tail.

    * `collection` is the id of the collection.
    * `sequence` is the sequence number of the change that the view shows.
    * `metadata_sequence` is the sequence number of a change after which no document's metadata
      changed.
    * `bases` has the number of the first row of each segment, and `tail_base` is the number of the
      first row of the tail.
    * `labels` is `uint64[capacity]`: the label of each row.
    * `ancestors` is `uint32[levels, capacity]`: the index of each row's ancestor at each level,
      from the leaves' level up.
    * `alive` is `uint8[capacity]`: 1 if the row's document exists, 0 if it was deleted.
    * `lengths` is `uint32[capacity]`: the count of terms of each leaf.
    * `count` is the count of rows in use. The arrays may have capacity for more rows.
    * `living` is the count of living rows. A row is living if its `alive` byte is 1.
    * `living_terms` is the sum of the `lengths` of the living rows.
    * `segment_frequencies` is a cache that searches fill. It maps the id of a term to the count of
      rows in segments that contain the term, without deleted rows.
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
        """Yields each segment, the number of its first row, and the number after its last row."""
        for segment, base in zip(self.segments, self.bases, strict=True):
            yield segment, base, base + segment.record.rows

    def liveness(self, start: int, end: int) -> NDArray[np.uint8] | None:
        """Returns the `alive` bytes of the rows from `start` up to, but not including, `end`.

        Returns None if no row of the view is deleted.
        """
        return None if self.living == self.count else self.alive[start:end]

    def ordinals(self) -> NDArray[np.uint64]:
        """Returns the ordinals of the documents that exist, ascending: `uint64[n]`."""
        living = self.labels[: self.count][self.alive[: self.count] != 0]
        return union([distinct(ordinals_of(living))])

    def advanced(self, txn: Txn, changes: Iterable[Change], sequence: int) -> "View":
        """Returns the view in the state after the change with the sequence number `sequence`.

        `changes` are all changes of the collection after the state of this view, up to and
        including the change with this number. `txn` must read the state after the last of these
        changes.
        """
        changes = list(changes)
        removed = {change.removed for change in changes}
        added = [c.added for c in changes if c.added and c.added not in removed]
        view = self._without_documents([ordinal for ordinal in removed if ordinal])
        block = leaves.read_leaves(txn, self.collection, self.settings, added)
        same_metadata = all(change.added or change.removed for change in changes)
        metadata_sequence = self.metadata_sequence if same_metadata else sequence
        view = view._with_block(block)._without_deleted_rows()
        return replace(view, sequence=sequence, metadata_sequence=metadata_sequence)

    def _without_documents(self, ordinals: Sequence[int]) -> "View":
        """Returns a view in which the rows of some documents are marked as deleted.

        `ordinals` are the ordinals of these documents.
        """
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

    def rows_of(self, ordinals: Ordinals, bisection_cost: int = _BISECTION_COST) -> RowNumbers:
        """Returns the rows of all leaves of the documents with these ordinals: `uint32[n]`.

        The rows are ascending. For few documents, the rows of each document are found by bisection.
        For many documents, one linear scan of all rows is faster and is used instead. Finding one
        document by bisection is assumed to cost as much as scanning `bisection_cost` rows.
        """
        if len(ordinals) * bisection_cost > self.count:
            return rows_of_documents(self.labels[: self.count], ordinals)
        return self.rows_between(first_labels(ordinals), first_labels(ordinals + np.uint64(1)))

    def rows_between(self, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> RowNumbers:
        """Returns the rows whose labels lie in one of several ranges of labels: `uint32[n]`.

        Range i contains the labels from `starts[i]` up to, but not including, `ends[i]`. If the
        ranges are in ascending order, the rows are ascending, too.
        """
        parts = []
        for start, end in zip(
            (*self.bases, self.tail_base), (*self._segment_ends(), self.count), strict=True
        ):
            labels = self.labels[start:end]
            first = start + np.searchsorted(labels, starts)
            counts = start + np.searchsorted(labels, ends) - first
            preceding = np.cumsum(counts) - counts
            parts.append(np.repeat(first - preceding, counts) + np.arange(counts.sum()))
        return np.concatenate(parts).astype(np.uint32)

    def _segment_ends(self) -> tuple[int, ...]:
        return (*self.bases[1:], self.tail_base) if self.bases else ()

    def _with_block(self, block: leaves.LeafBlock) -> "View":
        """Returns a view that also has the leaves of a block, at the end of its tail.

        The documents of these leaves must exist.
        """
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
        """Returns a view with capacity for `rows` rows and `more_entries` more terms in its tail.

        Returns this view if its capacity is large enough. Otherwise copies the arrays that are too
        small. If the tail has rows already, the copies get more capacity than requested, so that
        the next calls need not copy them again.
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

    def _without_deleted_rows(self) -> "View":
        """Returns a view without the deleted rows of the tail, or this view if they are few.

        They are few if the tail has at most 2 * n + `_SLACK` rows, of which n are not deleted. If
        deleted rows were never removed, a few documents that are replaced again and again would
        fill the memory.
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
        return without_tail._with_block(block)

    @property
    def size_bytes(self) -> int:
        """The memory that the view and its segments take, in bytes, without unused capacity."""
        arrays = (self.labels, self.ancestors, self.alive, self.lengths)
        rows = sum(array[..., : self.count].nbytes for array in arrays)
        tail = self.tail.size_bytes(self.count - self.tail_base)
        return rows + tail + sum(segment.size_bytes for segment in self.segments)


def _with_capacity(array: NDArray[Number], used: int, capacity: int) -> NDArray[Number]:
    """Returns an array with capacity for `capacity` columns and a copy of the first `used` columns.

    A column is an index of the last dimension. If the array is large, its unused columns take no
    memory.
    """
    copy = np.empty((*array.shape[:-1], capacity), array.dtype)
    copy[..., :used] = array[..., :used]
    return copy


def _joined(parts: Sequence[NDArray[Number]]) -> NDArray[Number]:
    """Concatenates arrays along their last dimension, and adds spare capacity at the end.

    Because of the spare capacity, a search that appends new rows usually need not copy the array.
    """
    count = sum(part.shape[-1] for part in parts)
    shape = (*parts[0].shape[:-1], count + count // _SPARE_SHARE)
    joined = np.empty(shape, parts[0].dtype)
    np.concatenate(parts, axis=-1, out=joined[..., :count])
    return joined


def _total(lengths: NDArray[np.uint32]) -> int:
    return int(lengths.sum(dtype=np.int64))


def load_view(
    txn: Txn,
    settings: CollectionSettings,
    collection: int,
    loaded: Mapping[int, LoadedSegment],
) -> View:
    """Returns a view of a collection in the state that the transaction reads.

    `loaded` maps the ids of loaded segments to the segments. The view uses a loaded segment only if
    the manifest lists it and if it was built with the collection's analyzer. The leaves of existing
    documents that are in none of these segments are read into the tail. So if a segment cannot be
    loaded, or was built with another analyzer, searches still find its leaves, but need more time
    and memory for them.
    """
    counters = txn.counters.require(collection)
    listed = listed_segments(txn, collection)
    usable = {
        record.segment_id
        for record in listed
        if record.segment_id in loaded and record.analyzer == settings.analyzer
    }
    used = [loaded[record.segment_id] for record in listed if record.segment_id in usable]
    deleted = deleted_ordinals(txn, collection) if used else np.empty(0, np.uint64)
    gaps = [record for record in listed if record.segment_id not in usable]
    tail = [
        *(leaves.covered_ordinals(txn, collection, record) for record in gaps),
        leaves.living_ordinals(txn, collection, counters.sealed_ordinal),
    ]
    view = _over_segments(collection, settings, counters, used, deleted)
    ordinals = [ordinal for ordinal, _ in chain.from_iterable(tail)]
    return view._with_block(leaves.read_leaves(txn, collection, settings, ordinals))


def _over_segments(
    collection: int,
    settings: CollectionSettings,
    counters: Counters,
    segments: Sequence[LoadedSegment],
    deleted: NDArray[np.uint64],
) -> View:
    """Returns a view that has the leaves of `segments` and an empty tail.

    `deleted` are the ordinals of the deleted documents in these segments, ascending.
    """
    levels = settings.tree.top_level - settings.tree.embedding_level + 1
    counts = [segment.record.rows for segment in segments]
    count = sum(counts)
    lengths = [
        segment.rows.lengths if segment.postings else np.zeros(segment.record.rows, np.uint32)
        for segment in segments
    ]
    labels = _joined([np.empty(0, np.uint64), *(s.rows.labels for s in segments)])
    ancestors = _joined([np.empty((levels, 0), np.uint32), *(s.rows.ancestors for s in segments)])
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
