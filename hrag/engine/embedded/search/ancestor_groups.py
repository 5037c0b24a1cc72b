"""Groups candidates by the chunk that represents them: an ancestor, or AUTO_MERGE's choice.

Works on the view's dense arrays; AUTO_MERGE also reads the trees of the documents in which
leaves matched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hrag_fast
from hrag.engine.embedded.search.candidates import Candidates, RowNumbers, Scores
from hrag.engine.embedded.search.view import View
from hrag.engine.embedded.store.labels import label, leaves_of, ordinals_of, split_label
from hrag.passages.auto_merge import representatives
from hrag.passages.tree_text import TreePosition
from hrag.tree import Tree
from hrag.types import Aggregation

_KERNEL_CODE = {
    Aggregation.MAX: hrag_fast.MAX,
    Aggregation.SUM: hrag_fast.SUM,
    Aggregation.MEAN: hrag_fast.MEAN,
    Aggregation.COUNT: hrag_fast.COUNT,
}


@dataclass(frozen=True, slots=True)
class AncestorGroups:
    """Candidates grouped and ranked by `hrag_fast.climb`. See `MatchedLeaves`.

    A key is a document's ordinal with the index of a chunk at `ancestor_level`; with
    `positions`, it stands for the chunk that these have for the key.
    """

    view: View
    groups: hrag_fast.Groups
    ancestor_level: int
    positions: Mapping[int, TreePosition] | None = None

    def __len__(self) -> int:
        return len(self.groups.keys)

    @property
    def level(self) -> int:
        """The level of the leaves in their trees."""
        return self.view.settings.tree.embedding_level

    def reaching(self, score: float) -> "AncestorGroups":
        """Returns the groups with this score or a higher one."""
        count = int(np.count_nonzero(self.groups.scores >= score))
        best = self.groups._replace(
            keys=self.groups.keys[:count], scores=self.groups.scores[:count]
        )
        return replace(self, groups=best)

    def keys(self, limit: int | None = None) -> list[int]:
        """Returns the keys of `limit` groups, or of all, best first."""
        keys: list[int] = self.groups.keys[:limit].tolist()
        return keys

    def position(self, key: int) -> TreePosition:
        """Returns level and index of the chunk that a key stands for."""
        if self.positions is None:
            return self.ancestor_level, split_label(key)[1]
        return self.positions[key]

    def score(self, group: int) -> float:
        """Returns the group's score."""
        return float(self.groups.scores[group])

    def leaves(self, groups: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Returns index and score of the leaves of groups of one document, best first."""
        rows, scores = self._best_first(groups)
        leaves = leaves_of(self.view.labels[rows])
        return list(zip(leaves.tolist(), scores.tolist(), strict=True))

    def joined(self, groups: Sequence[int]) -> hrag_fast.Groups:
        """Returns several groups as one, with the key and score of the first."""
        rows, scores = self._best_first(groups)
        first = slice(groups[0], groups[0] + 1)
        bounds = np.array([0, len(rows)], np.uint32)
        return hrag_fast.Groups(
            self.groups.keys[first], self.groups.scores[first], bounds, rows, scores
        )

    def _best_first(self, groups: Sequence[int]) -> tuple[RowNumbers, Scores]:
        """Rows and scores of the groups' leaves."""
        starts, children, scores = (
            self.groups.starts,
            self.groups.children,
            self.groups.child_scores,
        )
        if len(groups) == 1:  # The kernel has sorted them.
            start, end = starts[groups[0] : groups[0] + 2].tolist()
            return children[start:end], scores[start:end]
        chosen = np.concatenate([np.arange(*starts[group : group + 2]) for group in groups])
        chosen = chosen[np.argsort(-scores[chosen], kind="stable")]
        return children[chosen], scores[chosen]


def climb(
    view: View, candidates: Candidates, level: int, aggregation: Aggregation
) -> AncestorGroups:
    """Returns the candidates grouped by their ancestor at `level`."""
    groups = hrag_fast.climb(
        candidates.rows,
        candidates.scores,
        view.labels,
        view.ancestors[level - view.settings.tree.embedding_level],
        view.alive,
        _KERNEL_CODE[aggregation],
    )
    return AncestorGroups(view, groups, level)


def auto_merge(
    view: View,
    candidates: Candidates,
    level: int,
    ratio: float,
    aggregation: Aggregation,
    tree_of: Callable[[int], Tree],
) -> AncestorGroups:
    """Returns the candidates grouped by the chunk that represents them.

    See `hrag.passages.auto_merge`; `level` is the highest, `tree_of` gives a document's tree
    by its ordinal.
    """
    labels, alive = view.labels[candidates.rows], view.alive[candidates.rows]
    members = np.zeros(len(labels), np.uint32)  # Numbers a document's representatives.
    positions: dict[int, TreePosition] = {}
    for ordinal, own in _by_document(labels):
        if not alive[own[0]]:
            continue
        indexes = leaves_of(labels[own]).tolist()
        tree = tree_of(ordinal)
        chosen = representatives(tree, indexes, view.settings.tree.embedding_level, level, ratio)
        chunks = sorted(set(chosen.values()), key=lambda position: tree.record(*position))
        number = {position: which for which, position in enumerate(chunks)}
        members[own] = [number[chosen[index]] for index in indexes]
        positions |= {label(ordinal, which): position for position, which in number.items()}
    rows = np.arange(len(labels), dtype=np.uint32)
    code = _KERNEL_CODE[aggregation]
    groups = hrag_fast.climb(rows, candidates.scores, labels, members, alive, code)
    groups = groups._replace(children=candidates.rows[groups.children])
    return AncestorGroups(view, groups, level, positions)


def _by_document(labels: NDArray[np.uint64]) -> list[tuple[int, NDArray[np.integer[Any]]]]:
    """Ordinals, each with the places of its labels."""
    ordinals = ordinals_of(labels)
    order = np.argsort(ordinals, kind="stable")
    found, starts = np.unique(ordinals[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts)[1:], strict=True))
