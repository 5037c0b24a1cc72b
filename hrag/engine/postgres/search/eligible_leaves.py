"""The leaves of a collection that a search may return.

They are all leaves, the leaves of certain documents, or individual leaves. A filter, two-stage
routing and required words determine them. Sources search among them and do not know the reason.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels, leaves_of, ordinals_of
from hrag.engine.common.sorted_sets import is_in
from hrag.engine.postgres.store.arrays import bigints, integers
from hrag.engine.postgres.store.opened_collection import OpenedCollection


@dataclass(frozen=True, slots=True, eq=False)
class EligibleLeaves:
    """The eligible leaves of a collection.

    They are the leaves with these `labels`, the leaves of the documents with these `ordinals`, or
    all leaves if both are None. Both arrays are `uint64[n]`, ascending; at most one is set.
    `count` is the number of eligible leaves.

    In a summary collection, the first leaf of each document is the summary of the whole document.
    With `whole_documents`, only first leaves are eligible. With `sections`, only other leaves are.
    """

    count: int
    ordinals: Labels | None = None
    labels: Labels | None = None
    whole_documents: bool = False
    sections: bool = False

    @classmethod
    def all_of(cls, collection: OpenedCollection) -> "EligibleLeaves":
        """Returns all leaves of the collection."""
        return cls(collection.leaves)

    @classmethod
    def only(cls, labels: Labels) -> "EligibleLeaves":
        """Returns the leaves with these labels, which are ascending."""
        return cls(len(labels), labels=labels)

    @property
    def condition(self) -> str:
        """Further SQL conditions of a statement on leaves, after those on tenant and collection."""
        parts = []
        if self.ordinals is not None:
            parts.append("AND ordinal = ANY(%(ordinals)b::bigint[])")
        if self.labels is not None:
            parts.append(
                "AND (ordinal, leaf) IN "
                "(SELECT * FROM unnest(%(ordinals)b::bigint[], %(leaves)b::integer[]))"
            )
        if self.whole_documents:
            parts.append("AND leaf = 0")
        if self.sections:
            parts.append("AND leaf > 0")
        return " ".join(parts)

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters of `condition`."""
        if self.ordinals is not None:
            return {"ordinals": bigints(self.ordinals)}
        return {} if self.labels is None else parameters_of(self.labels)

    def contains(self, labels: Labels) -> NDArray[np.bool_]:
        """Returns `bool[n]`, true for each of `labels` that is eligible.

        All labels must be of living leaves.
        """
        inside = np.ones(len(labels), np.bool_)
        if self.ordinals is not None:
            inside &= is_in(ordinals_of(labels), self.ordinals)
        if self.labels is not None:
            inside &= is_in(labels, self.labels)
        if self.whole_documents:
            inside &= leaves_of(labels) == 0
        if self.sections:
            inside &= leaves_of(labels) != 0
        return inside


def parameters_of(labels: Labels) -> dict[str, object]:
    """Returns the parameters `ordinals` and `leaves` for the leaves with these labels."""
    return {"ordinals": bigints(ordinals_of(labels)), "leaves": integers(leaves_of(labels))}
