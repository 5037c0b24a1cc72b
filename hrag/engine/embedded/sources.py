"""What a segment shall be made of, as one transaction sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from hrag.engine.embedded import leaves, manifest
from hrag.engine.embedded.lookups import collection_exists, read_collection, read_counters
from hrag.engine.embedded.manifest import Listed
from hrag.engine.embedded.store import Store, Txn
from hrag.engine.embedded.upkeep import Part, Step, next_step, tail_step
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
    store: Store, collection: int, threshold: int, damaged: frozenset[int] = frozenset()
) -> Source | None:
    """What to build next; None when the collection is in order, or gone.

    `damaged` are ids of segments that cannot be read.
    """

    def choose(listed: Sequence[Listed], tail: int) -> Step | None:
        return next_step(_parts(listed, damaged), tail, threshold)

    return _source(store, collection, choose, damaged)


def tail_source(
    store: Store, collection: int, threshold: int, busy_ordinal: int = 0
) -> Source | None:
    """The same for a full tail alone, beside a build of ordinals up to `busy_ordinal`."""

    def choose(listed: Sequence[Listed], tail: int) -> Step | None:
        busy = sum(each.record.first_ordinal <= busy_ordinal for each in listed)
        return tail_step(_parts(listed), tail, threshold, busy)

    return _source(store, collection, choose)


def whole_source(store: Store, collection: int) -> Source | None:
    """All of a collection, with no use of the segments it has."""

    def choose(listed: Sequence[Listed], _: int) -> Step | None:
        return Step(0, len(listed), tail=True)

    every = frozenset(each.record.segment_id for each in _listed(store, collection))
    return _source(store, collection, choose, every)


def _listed(store: Store, collection: int) -> list[Listed]:
    with store.read() as txn:
        return manifest.listed(store, txn, collection)


def _parts(listed: Sequence[Listed], damaged: frozenset[int] = frozenset()) -> list[Part]:
    return [each.part(damaged=each.record.segment_id in damaged) for each in listed]


def _source(
    store: Store, collection: int, choose: Choose, unusable: frozenset[int] = frozenset()
) -> Source | None:
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
        base = _base(replaced, unusable)
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


def _base(replaced: Sequence[Listed], unusable: frozenset[int]) -> Listed | None:
    """The largest segment, unless it is to be written anew."""
    usable = [each for each in replaced if each.record.segment_id not in unusable]
    largest = max(usable, key=lambda each: each.part().living, default=None)
    return None if largest is None or largest.part().is_spoilt else largest


def _documents(
    store: Store, txn: Txn, collection: int, replaced: Sequence[Listed], base: Listed | None
) -> tuple[tuple[int, int], ...]:
    ranges = [
        (each.record.first_ordinal - 1, each.record.last_ordinal)
        for each in replaced
        if each is not base
    ]
    return tuple(
        chain.from_iterable(
            leaves.living_ordinals(store, txn, collection, after, last) for after, last in ranges
        )
    )
