"""Groups candidates by the chunk that represents them: an ancestor, or AUTO_MERGE's choice.

Works on the dense arrays of a table of leaves; AUTO_MERGE also reads the trees of the documents
whose leaves it may merge. Groups of a later round are appended: those of earlier rounds never
change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
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
"""Returns a document's tree by its ordinal."""

_KERNEL_CODE = {
    Aggregation.MAX: hrag_fast.MAX,
    Aggregation.SUM: hrag_fast.SUM,
    Aggregation.MEAN: hrag_fast.MEAN,
    Aggregation.COUNT: hrag_fast.COUNT,
}


class MergedChunk(NamedTuple):
    """A chunk above the leaves that AUTO_MERGE chose, and the labels of all leaves inside it."""

    position: TreePosition
    labels: range


@dataclass(frozen=True, slots=True)
class AncestorGroups:
    """Candidates grouped and ranked by `hrag_fast.climb`. See `MatchedLeaves`.

    A key is a document's ordinal with the index of a chunk at `ancestor_level`. In AUTO_MERGE
    that is the leaves' level, and the key of a `merged` chunk is its first leaf's. `lexical` and
    `dense` are each source's scores of `groups.children`, None if it was not searched.
    """

    table: LeafTable
    groups: hrag_fast.Groups
    ancestor_level: int
    merged: Mapping[int, MergedChunk] = field(default_factory=dict)
    lexical: Scores | None = None
    dense: Scores | None = None

    def __len__(self) -> int:
        return len(self.groups.keys)

    @property
    def level(self) -> int:
        """The level of the leaves in their trees."""
        return self.table.settings.tree.embedding_level

    def reaching(self, score: float) -> "AncestorGroups":
        """Returns the groups with this score or a higher one."""
        return self._only(self.groups.scores >= score)

    def _only(self, chosen: NDArray[np.bool_]) -> "AncestorGroups":
        if chosen.all():
            return self
        starts = self.groups.starts.astype(np.int64)
        sizes = starts[1:] - starts[:-1]
        children = np.repeat(chosen, sizes)
        groups = hrag_fast.Groups(
            self.groups.keys[chosen],
            self.groups.scores[chosen],
            np.concatenate(([0], np.cumsum(sizes[chosen]))).astype(np.uint32),
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
        """Returns all groups of both, of the same table and level; they share no key."""
        first, rest = self.groups, more.groups
        offset = np.uint32(len(first.children))
        groups = hrag_fast.Groups(
            np.concatenate([first.keys, rest.keys]),
            np.concatenate([first.scores, rest.scores]),
            np.concatenate([first.starts, rest.starts[1:] + offset]),
            np.concatenate([first.children, rest.children]),
            np.concatenate([first.child_scores, rest.child_scores]),
        )
        return replace(
            self,
            groups=groups,
            lexical=_both(self.lexical, more.lexical),
            dense=_both(self.dense, more.dense),
        )

    def in_table(self, table: LeafTable) -> "AncestorGroups":
        """Returns the groups with the row numbers of another table that has all their leaves."""
        if table is self.table:
            return self
        labels = self.table.labels[self.groups.children]
        children = np.searchsorted(table.labels, labels).astype(np.uint32)
        return replace(self, table=table, groups=self.groups._replace(children=children))

    @property
    def keys(self) -> list[int]:
        """The groups' keys, best first."""
        keys: list[int] = self.groups.keys.tolist()
        return keys

    def position(self, key: int) -> TreePosition:
        """Returns level and index of the chunk that a key stands for."""
        if key in self.merged:
            return self.merged[key].position
        return self.ancestor_level, split_label(key)[1]

    def score(self, group: int) -> float:
        """Returns the group's score."""
        return float(self.groups.scores[group])

    def leaves(self, groups: Sequence[int]) -> Sequence[LeafMatch]:
        """Returns the leaves of groups of one document, best first."""
        chosen = self._best_first(groups)
        leaves = leaves_of(self.table.labels[self.groups.children[chosen]]).tolist()
        scores = self.groups.child_scores[chosen].tolist()
        none = [None] * len(leaves)
        lexical = none if self.lexical is None else self.lexical[chosen].tolist()
        dense = none if self.dense is None else self.dense[chosen].tolist()
        return list(map(LeafMatch, leaves, scores, lexical, dense))

    def joined(self, groups: Sequence[int]) -> "AncestorGroups":
        """Returns several groups as one, with the key and score of the first."""
        chosen = self._best_first(groups)
        first = slice(groups[0], groups[0] + 1)
        children = self.groups.children[chosen]
        joined = hrag_fast.Groups(
            self.groups.keys[first],
            self.groups.scores[first],
            np.array([0, len(children)], np.uint32),
            children,
            self.groups.child_scores[chosen],
        )
        return replace(
            self,
            groups=joined,
            lexical=None if self.lexical is None else self.lexical[chosen],
            dense=None if self.dense is None else self.dense[chosen],
        )

    def _best_first(self, groups: Sequence[int]) -> NDArray[np.integer[Any]] | slice:
        """Where the groups' leaves are in `groups.children`, best first."""
        starts, scores = self.groups.starts, self.groups.child_scores
        if len(groups) == 1:  # The kernel has sorted them.
            return slice(*starts[groups[0] : groups[0] + 2].tolist())
        chosen = np.concatenate([np.arange(*starts[group : group + 2]) for group in groups])
        return chosen[np.argsort(-scores[chosen], kind="stable")]


def _both(first: Scores | None, more: Scores | None) -> Scores | None:
    return None if first is None or more is None else np.concatenate([first, more])


def grouped(found: ScoredRows, request: FindRequest, tree_of: TreeOf) -> AncestorGroups:
    """Returns the rows of a first round, grouped as the request's mode wants."""
    if request.mode is not SearchMode.AUTO_MERGE:
        groups = climb(found, request.level, request.aggregation)
        return _with_source_scores(groups, found)
    best = _rows_of(found, np.sort(found.best_first()[:MERGED_LEAVES]))
    merged = auto_merge(best, request.level, request.merge_ratio, request.aggregation, tree_of)
    groups = _with_source_scores(merged, found)
    return deepened(groups, best.labels, found, request)


def deepened(
    groups: AncestorGroups,
    considered: Labels,
    found: ScoredRows,
    request: FindRequest,
) -> AncestorGroups:
    """Returns the groups with those of a further round after them.

    Leaves that were `considered` before, by label, are skipped, and so are those that fall into
    one of the groups. In AUTO_MERGE the others are not merged. The further round's
    table has all leaves of the groups.
    """
    groups = groups.in_table(found.table)
    new = ~is_in(found.labels, np.sort(considered))
    if request.mode is SearchMode.AUTO_MERGE:
        new &= _outside(groups.merged.values(), found.labels)
    else:
        new[new] = ~is_in(_keys(_rows_of(found, new), request.level), np.sort(groups.groups.keys))
    more = climb(_rows_of(found, new), groups.ancestor_level, request.aggregation)
    return groups.followed_by(_with_source_scores(more, found))


def _keys(found: ScoredRows, level: int) -> NDArray[np.uint64]:
    """The key of each row's group."""
    table, rows = found.table, found.rows
    labels = table.labels[rows]
    ancestors = table.ancestors[level - table.settings.tree.embedding_level][rows]
    keys: NDArray[np.uint64] = first_labels(ordinals_of(labels)) + ancestors
    return keys


def _rows_of(found: ScoredRows, chosen: NDArray[np.bool_ | np.intp]) -> ScoredRows:
    return replace(found, rows=found.rows[chosen], scores=found.scores[chosen])


def _with_source_scores(groups: AncestorGroups, found: ScoredRows) -> AncestorGroups:
    own = groups.groups
    if found.scores is found.dense or found.scores is found.lexical:  # Of one source alone.
        lexical, dense = found.lexical, found.dense
        lexical = None if lexical is None else own.child_scores
        dense = None if dense is None else own.child_scores
    else:
        at = found.rows.searchsorted(own.children)
        lexical = None if found.lexical is None else found.lexical[at]
        dense = None if found.dense is None else found.dense[at]
    return AncestorGroups(groups.table, own, groups.ancestor_level, groups.merged, lexical, dense)


def _outside(merged: Iterable[MergedChunk], labels: Labels) -> NDArray[np.bool_]:
    """Which of the labels are of leaves in none of the chunks: `bool[n]`."""
    bounds = np.array([(each.labels.start, each.labels.stop) for each in merged], np.uint64)
    order = np.argsort(labels)
    starts, ends = np.searchsorted(labels, bounds.reshape(-1, 2).T, sorter=order)
    places = len(labels) + 1
    chunks = np.cumsum(np.bincount(starts, minlength=places) - np.bincount(ends, minlength=places))
    outside = np.empty(len(labels), np.bool_)
    outside[order] = chunks[:-1] == 0
    return outside


def climb(found: ScoredRows, level: int, aggregation: Aggregation) -> AncestorGroups:
    """Returns the rows grouped by their ancestor at `level`."""
    table = found.table
    groups = hrag_fast.climb(
        found.rows,
        found.scores,
        table.labels,
        table.ancestors[level - table.settings.tree.embedding_level],
        table.alive,
        _KERNEL_CODE[aggregation],
    )
    return AncestorGroups(table, groups, level)


def auto_merge(
    found: ScoredRows,
    level: int,
    ratio: float,
    aggregation: Aggregation,
    tree_of: TreeOf,
) -> AncestorGroups:
    """Returns the rows grouped by the chunk that represents them.

    See `hrag.passages.auto_merge`; `level` is the highest, `tree_of` gives a document's tree
    by its ordinal.
    """
    table, labels = found.table, found.labels
    leaf_level = table.settings.tree.embedding_level
    members: list[int] = []  # Of each row, the leaf in its group's key.
    merged: dict[int, MergedChunk] = {}
    for ordinal, own in groupby(map(split_label, labels.tolist()), itemgetter(0)):
        tree, leaves = tree_of(ordinal), [leaf for _, leaf in own]
        chosen = representatives(tree, leaves, leaf_level, level, ratio)
        first = {}
        for position in set(chosen.values()):
            below = tree.descendants(position, leaf_level)
            first[position] = below.start
            if position[0] > leaf_level:
                inside = leaves_inside(tree, position, below, leaf_level)
                bounds = label(ordinal, inside.start), label(ordinal, inside.stop)
                merged[label(ordinal, below.start)] = MergedChunk(position, range(*bounds))
        members += [first[chosen[leaf]] for leaf in leaves]
    groups = hrag_fast.climb(
        np.arange(len(found), dtype=np.uint32),
        found.scores,
        labels,
        np.array(members, np.uint32),
        table.alive[found.rows],
        _KERNEL_CODE[aggregation],
    )
    groups = groups._replace(children=found.rows[groups.children])
    return AncestorGroups(table, groups, leaf_level, merged)
