"""Groups candidate leaves by the chunk that represents them in the result of a search.

In the mode AUTO_MERGE, `hrag.passages.auto_merge` chooses this chunk: the leaf itself or an
ancestor. In the other modes, the chunk is the leaf's ancestor at the requested level.

The functions work on the arrays of a table of leaves. AUTO_MERGE also reads the trees of the
documents that contain these leaves. A search may run several rounds, each with more candidates. A
later round appends groups, but does not change the groups of earlier rounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hrag_fast
from hrag.engine.common.candidates import LeafTable, ScoredRows, Scores
from hrag.engine.common.labels import (
    Labels,
    first_labels,
    label,
    leaves_of,
    ordinals_of,
    split_label,
)
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.find import FindRequest
from hrag.passages.auto_merge import MERGED_LEAVES, leaves_inside, representatives
from hrag.passages.tree_text import LeafMatch, TreePosition
from hrag.values.search import Aggregation, SearchMode
from hrag.values.tree import Tree

TreeOf = Callable[[int], Tree]
"""Returns a document's tree, given the document's ordinal."""

KERNEL_CODE: Mapping[Aggregation, int] = {
    Aggregation.MAX: hrag_fast.MAX,
    Aggregation.SUM: hrag_fast.SUM,
    Aggregation.MEAN: hrag_fast.MEAN,
    Aggregation.COUNT: hrag_fast.COUNT,
}


class MergedChunk(NamedTuple):
    """A chunk that AUTO_MERGE returns in place of leaves.

    `position` is the level and the index of the chunk. `labels` are the labels of all leaves that
    lie inside the chunk.
    """

    position: TreePosition
    labels: range


@dataclass(slots=True)
class AncestorGroups:
    """The matched leaves of a search, grouped and ranked by `hrag_fast.climb`.

    A group is a chunk with the matched leaves that it represents in the result. Implements the
    protocol `hrag.passages.drafts.MatchedLeaves`.

    The key of a group identifies its chunk. It has the form of a label: a document's ordinal
    combined with the index of a chunk at `ancestor_level`. In AUTO_MERGE, `ancestor_level` is the
    level of the leaves. The chunk of a group may then be above this level. The key of such a group
    contains the index of the first leaf below the chunk in the tree, and `merged[key]` is the
    chunk.

    `groups.children` are the row numbers, in `table`, of the grouped leaves. `lexical` and `dense`
    are the scores of these leaves in the lexical and in the vector search:
    `float32[len(groups.children)]`. If one of the two searches was not made, its scores are None.

    `rerank_scores` has the reranker's scores of the first groups, whose order is the reranker's.
    All other groups are in the order of their scores, as far as the same round of the search has
    found them.
    """

    table: LeafTable
    groups: hrag_fast.Groups
    ancestor_level: int
    merged: Mapping[int, MergedChunk] = field(default_factory=dict)
    lexical: Scores | None = None
    dense: Scores | None = None
    rerank_scores: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.groups.keys)

    @property
    def level(self) -> int:
        """The level of the grouped leaves in the trees of their documents."""
        return self.table.settings.tree.embedding_level

    def reaching(self, score: float) -> "AncestorGroups":
        """Returns only the groups whose score is at least `score`.

        A group is a chunk with its matched leaves.
        """
        mask = self.groups.scores >= score
        return self if mask.all() else self._picked(np.flatnonzero(mask))

    def reranked(self, scores: Mapping[int, float]) -> "AncestorGroups":
        """Returns the groups that a reranker has scored, in its order, before the other groups.

        A group is a chunk with its matched leaves. `scores` has the keys of the scored groups, best
        group first, with their scores. Keys that no group has are ignored.
        """
        if not scores:
            return self
        index_of = {key: index for index, key in enumerate(self.keys)}
        found = [key for key in scores if key in index_of]
        first = np.array([index_of[key] for key in found], np.intp)
        others = np.delete(np.arange(len(self)), first)
        groups = self._picked(np.concatenate([first, others]))
        return replace(groups, rerank_scores=[scores[key] for key in found])

    def _picked(self, indexes: NDArray[np.intp]) -> "AncestorGroups":
        """Returns the groups with these indexes, in this order.

        A group is a chunk with its matched leaves.
        """
        starts = self.groups.starts.astype(np.int64)
        sizes = (starts[1:] - starts[:-1])[indexes]
        picked_starts = np.concatenate(([0], np.cumsum(sizes)))
        offsets = np.repeat(starts[:-1][indexes] - picked_starts[:-1], sizes)
        children = offsets + np.arange(len(offsets))
        groups = hrag_fast.Groups(
            self.groups.keys[indexes],
            self.groups.scores[indexes],
            picked_starts.astype(np.uint32),
            self.groups.children[children],
            self.groups.child_scores[children],
        )
        return replace(
            self,
            groups=groups,
            lexical=None if self.lexical is None else self.lexical[children],
            dense=None if self.dense is None else self.dense[children],
        )

    def followed_by(self, more: "AncestorGroups") -> "AncestorGroups":
        """Returns one object with the groups of this object, followed by the groups of `more`.

        A group is a chunk with its matched leaves. The two objects must have the same table and the
        same level, and no group in common.
        """
        first, second = self.groups, more.groups
        offset = np.uint32(len(first.children))
        groups = hrag_fast.Groups(
            np.concatenate([first.keys, second.keys]),
            np.concatenate([first.scores, second.scores]),
            np.concatenate([first.starts, second.starts[1:] + offset]),
            np.concatenate([first.children, second.children]),
            np.concatenate([first.child_scores, second.child_scores]),
        )
        return replace(
            self,
            groups=groups,
            lexical=_concatenated(self.lexical, more.lexical),
            dense=_concatenated(self.dense, more.dense),
        )

    def in_table(self, table: LeafTable) -> "AncestorGroups":
        """Returns the groups of this object, with the row numbers of their leaves in `table`.

        A group is a chunk with its matched leaves. `table` must contain all leaves of the groups,
        and the labels of `table` must be ascending.
        """
        if table is self.table:
            return self
        labels = self.table.labels[self.groups.children]
        children = np.searchsorted(table.labels, labels).astype(np.uint32)
        return replace(self, table=table, groups=self.groups._replace(children=children))

    @property
    def keys(self) -> list[int]:
        """The keys of the groups, best group first.

        A group is a chunk with its matched leaves, and its key identifies the chunk.
        """
        keys: list[int] = self.groups.keys.tolist()
        return keys

    def chunk_of(self, key: int) -> tuple[int, TreePosition]:
        """Returns the chunk that the key of a group identifies.

        The result is the ordinal of the chunk's document, and the chunk's level and index.
        """
        ordinal, index = split_label(key)
        merged = self.merged.get(key)
        return ordinal, (self.ancestor_level, index) if merged is None else merged.position

    def score(self, group: int) -> float:
        """Returns the score of a group: a chunk with its matched leaves.

        `group` is the index of the group. The best group has the index 0.
        """
        return float(self.groups.scores[group])

    def rerank_score(self, group: int) -> float | None:
        """Returns the reranker's score of a group, or None if the reranker has not scored it.

        A group is a chunk with its matched leaves. `group` is the index of the group.
        """
        return self.rerank_scores[group] if group < len(self.rerank_scores) else None

    def leaves(self, groups: Sequence[int]) -> Sequence[LeafMatch]:
        """Returns the matched leaves of some groups of one document, best leaf first.

        A group is a chunk with its matched leaves. `groups` are the indexes of the groups.
        """
        order = self._best_first(groups)
        leaves = leaves_of(self.table.labels[self.groups.children[order]]).tolist()
        scores = self.groups.child_scores[order].tolist()
        none = [None] * len(leaves)
        lexical = none if self.lexical is None else self.lexical[order].tolist()
        dense = none if self.dense is None else self.dense[order].tolist()
        return list(map(LeafMatch, leaves, scores, lexical, dense))

    def joined(self, groups: Sequence[int]) -> "AncestorGroups":
        """Joins some groups into one group, and returns an object that has only the joined group.

        A group is a chunk with its matched leaves. `groups` are the indexes of the groups to join,
        best group first. The joined group has the leaves of all these groups, and the key and the
        score of the best of them.
        """
        order = self._best_first(groups)
        first = slice(groups[0], groups[0] + 1)
        children = self.groups.children[order]
        joined = hrag_fast.Groups(
            self.groups.keys[first],
            self.groups.scores[first],
            np.array([0, len(children)], np.uint32),
            children,
            self.groups.child_scores[order],
        )
        return replace(
            self,
            groups=joined,
            lexical=None if self.lexical is None else self.lexical[order],
            dense=None if self.dense is None else self.dense[order],
        )

    def _best_first(self, groups: Sequence[int]) -> NDArray[np.integer[Any]] | slice:
        """Returns the indexes, in `self.groups.children`, of the leaves of some groups.

        The best leaf is the first. A leaf is better if a reranker has put its group first, or else
        if its score is higher. A group is a chunk with its matched leaves. `groups` are the indexes
        of the groups, best group first.
        """
        starts, scores = self.groups.starts, self.groups.child_scores
        # `hrag_fast.climb` has already sorted the leaves of each group, best leaf first.
        if len(groups) == 1:
            return slice(*starts[groups[0] : groups[0] + 2].tolist())
        ranges = [np.arange(*starts[group : group + 2]) for group in groups]
        ranks = [min(group, len(self.rerank_scores)) for group in groups]
        indexes = np.concatenate(ranges)
        return indexes[np.lexsort((-scores[indexes], np.repeat(ranks, list(map(len, ranges)))))]


def _concatenated(scores: Scores | None, more_scores: Scores | None) -> Scores | None:
    """Returns two arrays of scores as one array.

    The scores come from one source (the lexical or the vector search). Returns None if this source
    was not searched.
    """
    return None if scores is None or more_scores is None else np.concatenate([scores, more_scores])


def grouped(scored: ScoredRows, request: FindRequest, tree_of: TreeOf) -> AncestorGroups:
    """Groups the leaves of a search's first round by the chunk that represents them in the result.

    In the mode AUTO_MERGE, this is the chunk that `hrag.passages.auto_merge` chooses. In the other
    modes, it is the leaf's ancestor at the requested level.
    """
    if request.mode is not SearchMode.AUTO_MERGE:
        groups = scored.groups
        if groups is None:
            groups = climb(scored, request.level, request.aggregation)
        return _with_source_scores(groups, request.level, scored)
    best = _pick_rows(scored, np.sort(scored.best_first()[:MERGED_LEAVES]))
    merged = auto_merge(best, request.level, request.merge_ratio, request.aggregation, tree_of)
    first = _with_source_scores(merged.groups, merged.ancestor_level, scored, merged.merged)
    return deepened(first, best.labels, scored, request)


def deepened(
    groups: AncestorGroups,
    considered: Labels,
    scored: ScoredRows,
    request: FindRequest,
) -> AncestorGroups:
    """Returns the groups of a search's earlier rounds, followed by the groups of a further round.

    Each round of a search ranks more leaves and groups them by the chunk that represents them.
    `groups` are the groups of the earlier rounds, and `scored` are the leaves of the further round.
    A leaf of `scored` is skipped if its label is in `considered`, or if it belongs to one of the
    earlier groups. `considered` are the labels of all leaves that the earlier rounds ranked. In
    AUTO_MERGE, the remaining leaves are not merged: each of them becomes a separate group. The
    table of `scored` must contain all leaves of the earlier groups.
    """
    groups = groups.in_table(scored.table)
    new = ~is_in(scored.labels, np.sort(considered))
    if request.mode is SearchMode.AUTO_MERGE:
        new &= _outside_merged(groups.merged.values(), scored.labels)
    else:
        new[new] = ~is_in(
            _group_keys(_pick_rows(scored, new), request.level), np.sort(groups.groups.keys)
        )
    more = climb(_pick_rows(scored, new), groups.ancestor_level, request.aggregation)
    return groups.followed_by(_with_source_scores(more, groups.ancestor_level, scored))


def _group_keys(scored: ScoredRows, level: int) -> NDArray[np.uint64]:
    """Returns, for each leaf of `scored`, a key that identifies the leaf's ancestor at `level`.

    Leaves with the same key are in the same group. The keys are `uint64[n]` and have the form of a
    label: the document's ordinal combined with the index of the ancestor.
    """
    table, rows = scored.table, scored.rows
    labels = table.labels[rows]
    ancestors = table.ancestors[level - table.settings.tree.embedding_level][rows]
    keys: NDArray[np.uint64] = first_labels(ordinals_of(labels)) + ancestors
    return keys


def _pick_rows(scored: ScoredRows, indexes: NDArray[np.bool_ | np.intp]) -> ScoredRows:
    """Returns only the rows of `scored` at `indexes`.

    `indexes` may also be a mask, which is True for each row to return.
    """
    return replace(scored, rows=scored.rows[indexes], scores=scored.scores[indexes], groups=None)


def _with_source_scores(
    groups: hrag_fast.Groups,
    level: int,
    scored: ScoredRows,
    merged: Mapping[int, MergedChunk] = MappingProxyType({}),
) -> AncestorGroups:
    """Returns `groups` with the scores that their leaves have in the lexical and the vector search.

    `scored` contains these scores. `level` is the level of the groups, and `merged` has the chunks
    of AUTO_MERGE.
    """
    # If the leaves are ranked by the scores of a single source, `child_scores` are already the
    # scores of this source.
    if scored.scores is scored.dense or scored.scores is scored.lexical:
        lexical, dense = scored.lexical, scored.dense
        lexical = None if lexical is None else groups.child_scores
        dense = None if dense is None else groups.child_scores
    else:
        indexes = hrag_fast.indexes_of(scored.rows, groups.children)
        lexical = None if scored.lexical is None else scored.lexical[indexes]
        dense = None if scored.dense is None else scored.dense[indexes]
    return AncestorGroups(scored.table, groups, level, merged, lexical, dense)


def _outside_merged(merged: Iterable[MergedChunk], labels: Labels) -> NDArray[np.bool_]:
    """Returns a mask that is True for each leaf that lies in none of the chunks: `bool[n]`.

    `labels` are the labels of the leaves, and `merged` are the chunks.
    """
    bounds = np.array([(chunk.labels.start, chunk.labels.stop) for chunk in merged], np.uint64)
    order = np.argsort(labels)
    starts, ends = np.searchsorted(labels, bounds.reshape(-1, 2).T, sorter=order)
    bins = len(labels) + 1
    chunks = np.cumsum(np.bincount(starts, minlength=bins) - np.bincount(ends, minlength=bins))
    outside = np.empty(len(labels), np.bool_)
    outside[order] = chunks[:-1] == 0
    return outside


def climb(scored: ScoredRows, level: int, aggregation: Aggregation) -> hrag_fast.Groups:
    """Groups the leaves of `scored` by their ancestor at `level`, and ranks the groups."""
    table = scored.table
    return hrag_fast.climb(
        scored.rows,
        scored.scores,
        table.labels,
        table.ancestors[level - table.settings.tree.embedding_level],
        table.alive,
        KERNEL_CODE[aggregation],
    )


def auto_merge(
    scored: ScoredRows,
    level: int,
    ratio: float,
    aggregation: Aggregation,
    tree_of: TreeOf,
) -> AncestorGroups:
    """Groups leaves by the chunk that AUTO_MERGE returns in their place, and ranks the groups.

    `scored` has the leaves, and `hrag.passages.auto_merge` chooses the chunk that represents each
    leaf: the leaf itself or an ancestor. `level` is the highest level that such a chunk may
    have. A parent replaces its children only if at least the share `ratio` of them represents
    matched leaves. `tree_of` returns a document's tree, given the document's ordinal.
    """
    table, labels = scored.table, scored.labels
    leaf_level = table.settings.tree.embedding_level
    # One element for each leaf of `scored`. If an ancestor represents the leaf in the result, the
    # element is the index of the first leaf below this ancestor in the tree. Otherwise it is the
    # index of the leaf itself.
    members: list[int] = []
    merged: dict[int, MergedChunk] = {}
    for ordinal, pairs in groupby(map(split_label, labels.tolist()), itemgetter(0)):
        tree, leaves = tree_of(ordinal), [leaf for _, leaf in pairs]
        positions = representatives(tree, leaves, leaf_level, level, ratio)
        first_leaf = {}
        for position in set(positions.values()):
            below = tree.descendants(position, leaf_level)
            first_leaf[position] = below.start
            if position[0] > leaf_level:
                inside = leaves_inside(tree, position, below, leaf_level)
                bounds = label(ordinal, inside.start), label(ordinal, inside.stop)
                merged[label(ordinal, below.start)] = MergedChunk(position, range(*bounds))
        members += [first_leaf[positions[leaf]] for leaf in leaves]
    groups = hrag_fast.climb(
        np.arange(len(scored), dtype=np.uint32),
        scored.scores,
        labels,
        np.array(members, np.uint32),
        table.alive[scored.rows],
        KERNEL_CODE[aggregation],
    )
    groups = groups._replace(children=scored.rows[groups.children])
    return AncestorGroups(table, groups, leaf_level, merged)
