"""One call's look at a collection: search, climb, fetch, walk the tree.

Climbing works on the view's dense arrays alone; only the passages that are returned are
read from LMDB, in the transaction the snapshot holds.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

import numpy as np

import hrag_fast
from hrag.deadline import NEVER, Deadline
from hrag.engine import Describe, Groups, Leaves, Vector
from hrag.engine.embedded.search.documents import CitationCache, StoredDocument, StoredDocuments
from hrag.engine.embedded.search.eligible_rows import Hits, RowNumbers, Scope
from hrag.engine.embedded.search.filter_eval import SelectionCache, rows_that_pass
from hrag.engine.embedded.search.summary_routing import Choosing, rows_in
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store, Txn
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.errors import ChunkNotFound, DocumentNotFound
from hrag.filters import Filter
from hrag.ids import ChunkId
from hrag.passages.auto_merge import Place, standing_for
from hrag.passages.sentence_context import SentenceContext
from hrag.tree import ChunkRecord
from hrag.types import (
    Aggregation,
    ChosenSection,
    ChunkNode,
    CollectionSettings,
    Hierarchy,
    Passage,
    SummaryScope,
)

_LEAF_MASK = schema.MAX_LEAVES - 1
_SHOWN_SECTIONS = 100  # As many as passages.

_KERNEL_CODE = {
    Aggregation.MAX: hrag_fast.MAX,
    Aggregation.SUM: hrag_fast.SUM,
    Aggregation.MEAN: hrag_fast.MEAN,
    Aggregation.COUNT: hrag_fast.COUNT,
}


@dataclass(frozen=True, slots=True)
class Climbed:
    """What the kernel grouped, see `hrag_fast.Groups`, and by which chunks.

    A key's ordinal is its document's; what follows is the index of a chunk of `level`, or
    stands for the chunk that `places` has for the key.
    """

    groups: hrag_fast.Groups
    level: int
    places: Mapping[int, Place] | None = None

    def __len__(self) -> int:
        return len(self.groups.keys)

    def reaching(self, score: float) -> "Climbed":
        count = int(np.count_nonzero(self.groups.scores >= score))
        best = self.groups._replace(
            keys=self.groups.keys[:count], scores=self.groups.scores[:count]
        )
        return replace(self, groups=best)

    def best(self, limit: int | None = None) -> "Iterator[tuple[int, int]]":
        """Numbers and keys of so many groups, or of all, best first."""
        return enumerate(self.groups.keys[:limit].tolist())

    def place(self, key: int) -> Place:
        """Level and index of the chunk a key stands for."""
        return (self.level, key & _LEAF_MASK) if self.places is None else self.places[key]


class EmbeddedSnapshot:
    """See `hrag.engine.Snapshot`. Lives as long as its transaction."""

    def __init__(
        self,
        store: Store,
        txn: Txn,
        tenant_id: str,
        citations: CitationCache,
        selections: SelectionCache,
        view: View,
        summaries: View | None = None,
    ) -> None:
        """`summaries` is the view of the collection's summaries, of the same moment."""
        self._store = store
        self._txn = txn
        self._tenant_id = tenant_id
        self._view = view
        self._scope = Scope(view)
        self._filter: Filter | None = None
        self._deadline = NEVER  # Of the filter.
        self._documents = StoredDocuments(store, txn, citations)
        self._selections = selections
        self._summaries = summaries
        self.sections: tuple[ChosenSection, ...] = ()

    @property
    def settings(self) -> CollectionSettings:
        return self._view.settings

    @property
    def sequence(self) -> int:
        return read_usage(self._store, self._txn, self._tenant_id).sequence

    @property
    def leaf_count(self) -> int:
        return self._scope.leaf_count

    def filtered(self, filter: Filter, deadline: Deadline = NEVER) -> "EmbeddedSnapshot":
        def select() -> RowNumbers:
            rows = rows_that_pass(self._store, self._txn, self._view, filter, deadline)
            return rows.astype(np.uint32)

        # Its words, not the filter itself: equal ones may differ in type, as 1 and True do.
        rows = self._selections.get(self._view, repr(filter), select)
        filtered = copy(self)
        filtered._scope = Scope(self._view, rows)
        filtered._filter, filtered._deadline = filter, deadline
        return filtered

    def summary_first(self, query: Vector, count: int, scope: SummaryScope) -> "EmbeddedSnapshot":
        if self._summaries is None:
            raise TypeError("the snapshot was opened without summaries")
        choosing = Choosing(self._store, self._txn, self._summaries, self._selections)
        choices = choosing.choose(query, count, scope, self._filter, self._deadline)
        within = copy(self)
        within._scope = Scope(self._view, rows_in(self._view, choices), by_comparison=True)
        within.sections = choosing.shown(choices[:_SHOWN_SECTIONS], self._documents, self._view)
        return within

    def search(self, query: Vector, count: int) -> Hits:
        return self._scope.nearest(query, count)

    def climb(self, leaves: Leaves, level: int, aggregation: Aggregation) -> Climbed:
        view, hits = self._view, cast("Hits", leaves)
        groups = hrag_fast.climb(
            hits.rows,
            hits.scores,
            view.labels,
            view.ancestors[level - view.settings.tree.embedding_level],
            view.alive,
            _KERNEL_CODE[aggregation],
        )
        return Climbed(groups, level)

    def auto_merge(
        self, leaves: Leaves, level: int, ratio: float, aggregation: Aggregation
    ) -> Climbed:
        view, hits = self._view, cast("Hits", leaves)
        labels = view.labels[hits.rows]
        alive = view.alive[hits.rows]
        members = np.zeros(len(labels), np.uint32)  # Which of its document's chunks.
        places: dict[int, Place] = {}
        ordinals = labels >> np.uint64(schema.LEAF_BITS)
        by_document = np.argsort(ordinals, kind="stable")
        found, starts = np.unique(ordinals[by_document], return_index=True)
        for ordinal, own in zip(found.tolist(), np.split(by_document, starts)[1:], strict=True):
            if not alive[own[0]]:
                continue
            indexes = (labels[own] & np.uint64(_LEAF_MASK)).tolist()
            tree = self._documents.tree(view.collection, ordinal)
            standing = standing_for(tree, indexes, view.settings.tree.embedding_level, level, ratio)
            chunks = sorted(set(standing.values()), key=lambda place: tree.record(*place))
            number = {place: which for which, place in enumerate(chunks)}
            members[own] = [number[standing[index]] for index in indexes]
            first = ordinal << schema.LEAF_BITS
            places |= {first | which: place for place, which in number.items()}
        rows = np.arange(len(labels), dtype=np.uint32)
        code = _KERNEL_CODE[aggregation]
        groups = hrag_fast.climb(rows, hits.scores, labels, members, alive, code)
        return Climbed(groups._replace(children=hits.rows[groups.children]), level, places)

    def passages(
        self,
        groups: Groups,
        limit: int,
        token_budget: int,
        *,
        merge_adjacent: bool = False,
        cut_last: bool = False,
    ) -> tuple[Passage, ...]:
        climbed = cast("Climbed", groups)
        taken = self._taken(climbed, limit, token_budget, merge_adjacent, cut_last)
        return tuple(self._passage(each, climbed) for each in taken)

    def encoded_passages(
        self,
        groups: Groups,
        limit: int,
        token_budget: int,
        describe: Describe,
        *,
        merge_adjacent: bool = False,
        cut_last: bool = False,
    ) -> tuple[bytes, ...]:
        climbed = cast("Climbed", groups)
        encoder = self._encoder(climbed.groups)
        if not token_budget and not merge_adjacent:  # No chunk depends on another.
            return tuple(
                self._document(key >> schema.LEAF_BITS).encoded(
                    encoder, describe, climbed.place(key), group
                )
                for group, key in climbed.best(limit)
            )
        taken = self._taken(climbed, limit, token_budget, merge_adjacent, cut_last)
        return tuple(self._encoded(each, climbed, encoder, describe) for each in taken)

    def _taken(
        self,
        climbed: Climbed,
        limit: int,
        token_budget: int,
        merge_adjacent: bool,
        cut_last: bool,
    ) -> "list[_Taken]":
        """What will be the passages."""
        if not token_budget and not merge_adjacent:
            return [self._alone(climbed, group, key) for group, key in climbed.best(limit)]
        taken: list[_Taken] = []
        left = token_budget or sys.maxsize
        for group, key in climbed.best():
            full = len(taken) == limit
            if full and not merge_adjacent:
                break
            one = self._alone(climbed, group, key)
            touching = [each for each in taken if each.touches(one)] if merge_adjacent else []
            if full and not touching:
                break
            whole = _widened([*(each.record for each in touching), one.record])
            more = whole.token_count - sum(each.record.token_count for each in touching)
            if more > left and not cut_last:
                continue
            if more > left:
                part = None if touching else self._cut(one, climbed.groups, left)
                taken += [part] if part else []
                break
            left -= more
            if touching:
                touching[0].join([one, *touching[1:]], whole)
                taken = [each for each in taken if each not in touching[1:]]
            else:
                taken.append(one)
        return taken

    def _alone(self, climbed: Climbed, group: int, key: int) -> "_Taken":
        """A group's chunk."""
        ordinal = key >> schema.LEAF_BITS
        document = self._document(ordinal)
        place = climbed.place(key)
        return _Taken(ordinal, document, place, document.tree.record(*place), [group], [])

    def _passage(self, taken: "_Taken", climbed: Climbed) -> Passage:
        document, level = taken.document, self._view.settings.tree.embedding_level
        return Passage(
            document.chunk(*taken.place, taken.record, content=True),
            float(climbed.groups.scores[taken.groups[0]]),
            tuple(
                child
                for leaf, score in self._leaves(taken.groups, climbed.groups)
                if (child := document.matched(level, leaf, score, taken.record))
            ),
            tuple(document.name(*place) for place in taken.merged_places()),
        )

    def _cut(self, taken: "_Taken", groups: hrag_fast.Groups, left: int) -> "_Taken | None":
        """What fits of it, the beginning of its best leaf in any case."""
        level = self._view.settings.tree.embedding_level
        best, _ = next(iter(self._leaves(taken.groups, groups)))
        keep = taken.document.tree.record(level, best)
        record = taken.document.cut(taken.record, keep, left)
        return None if record is None else replace(taken, record=record)

    def _encoder(self, groups: hrag_fast.Groups) -> hrag_fast.PassageEncoder:
        level = self._view.settings.tree.embedding_level
        return hrag_fast.PassageEncoder(self._view.labels, groups, level)

    def _encoded(
        self,
        taken: "_Taken",
        climbed: Climbed,
        encoder: hrag_fast.PassageEncoder,
        describe: Describe,
    ) -> bytes:
        """`encoder` is of all groups."""
        group = taken.groups[0]
        if len(taken.groups) > 1:
            encoder, group = self._encoder(_joined(taken.groups, climbed.groups)), 0
        return taken.document.encoded(
            encoder, describe, taken.place, group, taken.record, taken.merged_places()
        )

    def _leaves(
        self, numbers: Sequence[int], groups: hrag_fast.Groups
    ) -> Iterator[tuple[int, float]]:
        """Indexes and scores of the groups' leaves, best first."""
        rows, scores = _best_first(numbers, groups)
        leaves = self._view.labels[rows] & np.uint64(_LEAF_MASK)
        return zip(leaves.tolist(), scores.tolist(), strict=True)

    def stretches(self, groups: Groups, limit: int, margin: int) -> tuple[SentenceContext, ...]:
        climbed = cast("Climbed", groups)
        best = zip(climbed.groups.keys.tolist(), climbed.groups.scores.tolist(), strict=True)
        return tuple(
            self._document(key >> schema.LEAF_BITS).stretch(*climbed.place(key), score, margin)
            for key, score in islice(best, limit)
        )

    def chunk(self, chunk_id: ChunkId) -> ChunkNode:
        document = self._named(chunk_id)
        return document.node(chunk_id.level, chunk_id.index, content=True)

    def hierarchy(self, chunk_id: ChunkId, depth: int, *, content: bool) -> Hierarchy:
        document = self._named(chunk_id)
        place = (chunk_id.level, chunk_id.index)
        return Hierarchy(
            document.node(*place, content=True),
            tuple(document.node(*above, content=content) for above in document.ancestors(*place)),
            tuple(document.node(*beside, content=content) for beside in document.siblings(*place)),
            tuple(
                document.node(*below, content=content)
                for below in document.descendants(*place, depth)
            ),
        )

    def _named(self, chunk_id: ChunkId) -> "StoredDocument":
        """The chunk's document, having made sure that it holds the chunk."""
        key = schema.document_id(self._view.collection, chunk_id.document_id)
        ordinal = self._txn.get(key, db=self._store.db["document_ids"])
        if ordinal is None:
            raise DocumentNotFound(
                f"the collection has no document {chunk_id.document_id!r}", field="chunk_id"
            )
        document = self._document(schema.read_u64(ordinal))
        counts = document.tree.counts
        if chunk_id.level >= len(counts) or chunk_id.index >= counts[chunk_id.level]:
            raise ChunkNotFound(
                f"document {chunk_id.document_id!r} has no chunk {str(chunk_id)!r}; "
                f"its levels hold {counts} chunks",
                field="chunk_id",
            )
        return document

    def _document(self, ordinal: int) -> StoredDocument:
        return self._documents.get(self._view.collection, ordinal)


@dataclass(slots=True, eq=False)
class _Taken:
    """A chunk that will be a passage, or several that touch, joined to the best of them."""

    ordinal: int
    document: "StoredDocument"
    place: Place
    record: ChunkRecord
    groups: list[int]
    joined: list["_Taken"]

    def touches(self, other: "_Taken") -> bool:
        """Whether both are of one document with no token between them."""
        return (
            self.ordinal == other.ordinal
            and other.record.token_start <= _token_end(self.record)
            and self.record.token_start <= _token_end(other.record)
        )

    def join(self, others: "Sequence[_Taken]", whole: ChunkRecord) -> None:
        """Takes in others that are no better; `whole` is the span of all."""
        for other in others:
            self.groups += other.groups
            self.joined += [other, *other.joined]
        self.record = whole

    def merged_places(self) -> list[Place]:
        """The chunks it was joined of, in order of the text; none where it is but one."""
        if not self.joined:
            return []
        places = [self.place, *(each.place for each in self.joined)]
        return sorted(places, key=lambda place: self.document.tree.record(*place))


def _best_first(numbers: Sequence[int], groups: hrag_fast.Groups) -> tuple[RowNumbers, Vector]:
    """Rows and scores of the groups' leaves."""
    if len(numbers) == 1:  # The kernel has put them in order.
        start, end = groups.starts[numbers[0] : numbers[0] + 2].tolist()
        return groups.children[start:end], groups.child_scores[start:end]
    chosen = np.concatenate([np.arange(*groups.starts[n : n + 2]) for n in numbers])
    chosen = chosen[np.argsort(-groups.child_scores[chosen], kind="stable")]
    return groups.children[chosen], groups.child_scores[chosen]


def _joined(numbers: Sequence[int], groups: hrag_fast.Groups) -> hrag_fast.Groups:
    """The groups as one, which scores as the first of them does."""
    rows, scores = _best_first(numbers, groups)
    first = slice(numbers[0], numbers[0] + 1)
    bounds = np.array([0, len(rows)], np.uint32)
    return hrag_fast.Groups(groups.keys[first], groups.scores[first], bounds, rows, scores)


def _token_end(record: ChunkRecord) -> int:
    return record.token_start + record.token_count


def _widened(records: Sequence[ChunkRecord]) -> ChunkRecord:
    """The span of all; all else is the first one's."""
    if len(records) == 1:
        return records[0]
    token_start = min(record.token_start for record in records)
    return records[0]._replace(
        byte_start=min(record.byte_start for record in records),
        byte_end=max(record.byte_end for record in records),
        char_start=min(record.char_start for record in records),
        char_end=max(record.char_end for record in records),
        token_start=token_start,
        token_count=max(map(_token_end, records)) - token_start,
    )
