"""Plans the next segment of a collection: its range of ordinals and the documents to read.

The merge policy decides which segments a new segment replaces. This module reads the counts of
leaves that the policy needs, and translates the decision of the policy into a range of ordinals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hrag.engine.embedded.maintenance.merge_policy import (
    MergePlan,
    SegmentStats,
    plan_merge,
    plan_seal,
)
from hrag.engine.embedded.segments import leaves, manifest
from hrag.engine.embedded.segments.manifest import ManifestEntry
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.lmdb_records import Counters
from hrag.engine.embedded.store.transactions import Txn
from hrag.text.analysis import upgraded
from hrag.values.collections import CollectionSettings

Choose = Callable[[Sequence[ManifestEntry], int], MergePlan | None]
"""Returns the next merge of a collection, or None if no merge is due.

The arguments are the segments of the collection, oldest first, and the count of leaves in its tail,
without deleted leaves.
"""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The range of ordinals that a new segment will cover, and where its leaves come from.

    `base` is a segment whose index the build may extend. If `base` is None, the build begins with
    an empty index. `documents` are the documents whose leaves are read from LMDB: pairs of ordinal
    and leaf count. They do not include the documents of `base`. If `tail` is True, the range
    includes the tail. `covered_sequence` is the sequence number of the last change that the new
    segment covers.
    """

    collection: int
    settings: CollectionSettings
    first_ordinal: int
    last_ordinal: int
    covered_sequence: int
    base: ManifestEntry | None
    documents: tuple[tuple[int, int], ...]
    tail: bool

    @property
    def max_leaves(self) -> int:
        """The highest possible count of leaves in the segment.

        If documents are deleted during the build, the segment has fewer leaves.
        """
        living = self.base.living_leaves if self.base else 0
        return living + sum(count for _, count in self.documents)


def merge_plan(
    store: Store, collection: int, damaged: frozenset[int] = frozenset()
) -> BuildPlan | None:
    """Plans the next merge, rewrite or repair of a collection's segments.

    `collection` is the id of the collection. `damaged` are the ids of segments that cannot be read.
    Returns None if nothing is due or the collection has been deleted.
    """

    def choose(entries: Sequence[ManifestEntry], _: int) -> MergePlan | None:
        return plan_merge(_stats(entries, damaged))

    return _plan(store, collection, choose, lambda segment_id: segment_id not in damaged)


def seal_plan(
    store: Store,
    collection: int,
    threshold: int,
    damaged: frozenset[int] = frozenset(),
    busy_ordinal: int = 0,
) -> BuildPlan | None:
    """Plans the sealing of a full tail.

    `collection` is the id of the collection. `damaged` are the ids of segments that cannot be read.
    If another build is running for this collection, `busy_ordinal` is the last ordinal that the
    other build covers. Then the plan does not replace segments up to this ordinal, because the
    other build may replace them. Returns None if the tail has fewer than `threshold` leaves or the
    collection has been deleted.
    """

    def choose(entries: Sequence[ManifestEntry], tail: int) -> MergePlan | None:
        busy = sum(entry.record.first_ordinal <= busy_ordinal for entry in entries)
        return plan_seal(_stats(entries, damaged), tail, threshold, busy)

    return _plan(store, collection, choose, lambda segment_id: segment_id not in damaged)


def reindex_plan(store: Store, collection: int, threshold: int) -> BuildPlan | None:
    """Plans one segment with all documents of a collection, built without the existing indexes.

    The postings of the segment will use the newest version of the collection's analyzer. Returns
    None if the collection has no segments and has too few leaves for one (fewer than `threshold`).
    Also returns None if the collection has been deleted.
    """

    def choose(entries: Sequence[ManifestEntry], tail: int) -> MergePlan | None:
        due = entries or tail >= threshold
        return MergePlan(0, len(entries), tail=True) if due else None

    plan = _plan(store, collection, choose, lambda _: False)
    return None if plan is None else replace(plan, settings=with_newest_analyzer(plan.settings))


def with_newest_analyzer(settings: CollectionSettings) -> CollectionSettings:
    """Returns a collection's settings with the newest version of its analyzer."""
    return replace(settings, analyzer=upgraded(settings.analyzer))


def segment_stats(entry: ManifestEntry, *, damaged: bool = False) -> SegmentStats:
    """Returns the facts about a segment that the merge policy needs.

    `damaged` is True if the segment's files cannot be read.
    """
    return SegmentStats(entry.record.rows, entry.deleted_leaves, damaged)


def _stats(entries: Sequence[ManifestEntry], damaged: frozenset[int]) -> list[SegmentStats]:
    return [segment_stats(entry, damaged=entry.record.segment_id in damaged) for entry in entries]


def _plan(
    store: Store, collection: int, choose: Choose, is_usable: Callable[[int], bool]
) -> BuildPlan | None:
    """Returns the build plan for the merge that the function `choose` returns.

    Returns None if `choose` returns None, or if the collection has been deleted. `is_usable` gets
    the id of a segment, and returns True if a build may extend the segment's index.
    """
    with store.read() as txn:
        if not txn.collections.has(collection):
            return None
        entries = manifest.read_manifest(txn, collection)
        counters = txn.counters.require(collection)
        merge = choose(entries, counters.tail_leaves)
        if merge is None:
            return None
        replaced = entries[merge.first : merge.last]
        base = _choose_base([entry for entry in replaced if is_usable(entry.record.segment_id)])
        tail = _tail_documents(txn, collection, counters) if merge.tail else ()
        last, covered = _last_covered(counters, replaced, tail, sealing=merge.tail)
        return BuildPlan(
            collection=collection,
            settings=txn.collections.require(collection).settings,
            first_ordinal=(
                replaced[0].record.first_ordinal if replaced else counters.sealed_ordinal + 1
            ),
            last_ordinal=last,
            covered_sequence=covered,
            base=base,
            documents=(*_documents(txn, collection, replaced, base), *tail),
            tail=merge.tail,
        )


def _tail_documents(txn: Txn, collection: int, counters: Counters) -> tuple[tuple[int, int], ...]:
    return tuple(leaves.living_ordinals(txn, collection, counters.sealed_ordinal))


def _last_covered(
    counters: Counters,
    replaced: Sequence[ManifestEntry],
    tail: Sequence[tuple[int, int]],
    *,
    sealing: bool,
) -> tuple[int, int]:
    """Returns the last ordinal and the last sequence number that a new segment covers.

    The segment covers the documents with ordinals up to the last ordinal, and the changes with
    sequence numbers up to the last sequence number. `replaced` are the segments that the new
    segment replaces, and `tail` are the documents of the tail. `sealing` is True if the new segment
    includes the tail.
    """
    if sealing:
        return tail[-1][0] if tail else counters.sealed_ordinal, counters.sequence
    newest = replaced[-1].record
    return newest.last_ordinal, newest.covered_sequence


def _choose_base(usable: Sequence[ManifestEntry]) -> ManifestEntry | None:
    """Returns the segment whose index a build extends: the largest of the segments in `usable`.

    Returns None if `usable` is empty, or if so many leaves of the largest segment are deleted that
    its index has to be built again.
    """
    largest = max(usable, key=lambda entry: entry.living_leaves, default=None)
    return None if largest is None or segment_stats(largest).needs_rewrite else largest


def _documents(
    txn: Txn,
    collection: int,
    replaced: Sequence[ManifestEntry],
    base: ManifestEntry | None,
) -> tuple[tuple[int, int], ...]:
    """Returns the documents of the segments `replaced` except `base`: those that are not deleted.

    `base` is one of these segments or None. The documents are pairs of ordinal and leaf count.
    """
    ranges = (
        leaves.covered_ordinals(txn, collection, entry.record)
        for entry in replaced
        if entry is not base
    )
    return tuple(chain.from_iterable(ranges))
