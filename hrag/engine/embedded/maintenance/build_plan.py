"""What a segment shall be made of, as one transaction sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from hrag.engine.embedded.maintenance.merge_policy import Part, Step, next_step, tail_step
from hrag.engine.embedded.segments import leaves, manifest
from hrag.engine.embedded.segments.manifest import Listed
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.queries import (
    collection_exists,
    read_collection,
    read_counters,
)
from hrag.types import CollectionSettings

Choose = Callable[[Sequence[Listed], int], Step | None]
"""From a collection's segments and the living leaves of its tail to what to build."""


@dataclass(frozen=True, slots=True)
class Source:
    """The range of ordinals a segment shall cover, and where its leaves are.

    `base` is a segment whose index may be gone on with; `documents` are ordinals with
    their leaf counts, to be read from LMDB.
    """

    collection: int
    settings: CollectionSettings
    first_ordinal: int
    last_ordinal: int
    covered_sequence: int
    base: Listed | None
    documents: tuple[tuple[int, int], ...]
    tail: bool

    @property
    def leaves(self) -> int:
        """No more than so many will be in the segment."""
        living = self.base.part().living if self.base else 0
        return living + sum(count for _, count in self.documents)


def next_source(
    store: Store, collection: int, damaged: frozenset[int] = frozenset()
) -> Source | None:
    """What to build next of segments; None when they are in order, or the collection gone.

    `damaged` are ids of segments that cannot be read.
    """

    def choose(listed: Sequence[Listed], _: int) -> Step | None:
        return next_step(_parts(listed, damaged))

    return _source(store, collection, choose, lambda segment_id: segment_id not in damaged)


def tail_source(
    store: Store,
    collection: int,
    threshold: int,
    damaged: frozenset[int] = frozenset(),
    busy_ordinal: int = 0,
) -> Source | None:
    """The same for a full tail, perhaps beside a build of ordinals up to `busy_ordinal`."""

    def choose(listed: Sequence[Listed], tail: int) -> Step | None:
        busy = sum(each.record.first_ordinal <= busy_ordinal for each in listed)
        return tail_step(_parts(listed, damaged), tail, threshold, busy)

    return _source(store, collection, choose, lambda segment_id: segment_id not in damaged)


def whole_source(store: Store, collection: int, threshold: int) -> Source | None:
    """All of a collection, with no use of the segments it has.

    None where it has none, and fewer leaves than `threshold`.
    """

    def choose(listed: Sequence[Listed], tail: int) -> Step | None:
        return Step(0, len(listed), tail=True) if listed or tail >= threshold else None

    return _source(store, collection, choose, lambda _: False)


def _parts(listed: Sequence[Listed], damaged: frozenset[int]) -> list[Part]:
    return [each.part(damaged=each.record.segment_id in damaged) for each in listed]


def _source(
    store: Store, collection: int, choose: Choose, usable: Callable[[int], bool]
) -> Source | None:
    """`usable` says, of a segment's id, whether its index may be gone on with."""
    with store.read() as txn:
        if not collection_exists(store, txn, collection):
            return None
        listed = manifest.listed(store, txn, collection)
        counters = read_counters(store, txn, collection)
        step = choose(listed, counters.tail_leaves)
        if step is None:
            return None
        replaced = listed[step.first : step.last]
        first = replaced[0].record.first_ordinal if replaced else counters.sealed_ordinal + 1
        if step.tail:
            tail = list(leaves.living_ordinals(store, txn, collection, counters.sealed_ordinal))
            last, covered = tail[-1][0] if tail else counters.sealed_ordinal, counters.sequence
        else:
            newest = replaced[-1].record
            tail, last, covered = [], newest.last_ordinal, newest.covered_sequence
        base = _base([each for each in replaced if usable(each.record.segment_id)])
        return Source(
            collection=collection,
            settings=read_collection(store, txn, collection).settings,
            first_ordinal=first,
            last_ordinal=last,
            covered_sequence=covered,
            base=base,
            documents=(*_documents(store, txn, collection, replaced, base), *tail),
            tail=step.tail,
        )


def _base(usable: Sequence[Listed]) -> Listed | None:
    """The largest segment, unless it is to be written anew."""
    largest = max(usable, key=lambda each: each.part().living, default=None)
    return None if largest is None or largest.part().is_spoilt else largest


def _documents(
    store: Store, txn: Txn, collection: int, replaced: Sequence[Listed], base: Listed | None
) -> tuple[tuple[int, int], ...]:
    ranges = (
        leaves.covered_ordinals(store, txn, collection, each.record)
        for each in replaced
        if each is not base
    )
    return tuple(chain.from_iterable(ranges))
