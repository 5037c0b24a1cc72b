"""A table of the leaves that a search has found so far."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import RowNumbers, Scores
from hrag.engine.common.labels import Labels
from hrag.engine.common.sorted_sets import is_in
from hrag.values.collections import CollectionSettings


@dataclass(frozen=True, slots=True, eq=False)
class CandidateLeaves:
    """A table of leaves, in ascending order of their labels and without duplicates.

    No leaf in the table belongs to a deleted document. `labels` is `uint64[n]`. `ancestors`,
    `uint32[levels, n]`, has the index of each leaf's ancestor at each level. `cosines`,
    `float32[n]`, has the similarity of each leaf and the query's vector; all are NaN if the search
    has no vector. Implements `hrag.engine.common.candidates.LeafTable`.
    """

    settings: CollectionSettings
    labels: Labels
    ancestors: NDArray[np.uint32]
    cosines: Scores

    @classmethod
    def none(cls, settings: CollectionSettings) -> "CandidateLeaves":
        """Returns a table without rows."""
        levels = settings.tree.top_level - settings.tree.embedding_level + 1
        ancestors = np.empty((levels, 0), np.uint32)
        return cls(settings, np.empty(0, np.uint64), ancestors, np.empty(0, np.float32))

    @property
    def alive(self) -> NDArray[np.uint8]:
        """An array of ones, `uint8[n]`: no leaf in the table belongs to a deleted document."""
        return np.ones(len(self.labels), np.uint8)

    def rows(self, labels: Labels) -> RowNumbers:
        """Returns the row number of each label, `uint32[n]`; all labels must be in the table."""
        return np.searchsorted(self.labels, labels).astype(np.uint32)

    def missing(self, labels: Labels) -> Labels:
        """Returns the `labels` that are not in the table."""
        return labels[~is_in(labels, self.labels)]

    def plus(self, more: "CandidateLeaves") -> "CandidateLeaves":
        """Returns a table with the leaves of this table and of `more`."""
        new = ~is_in(more.labels, self.labels)
        labels = np.concatenate([self.labels, more.labels[new]])
        order = np.argsort(labels, kind="stable")
        ancestors = np.concatenate([self.ancestors, more.ancestors[:, new]], axis=1)
        cosines = np.concatenate([self.cosines, more.cosines[new]])
        return CandidateLeaves(
            self.settings,
            labels[order],
            np.ascontiguousarray(ancestors[:, order]),
            cosines[order],
        )
