"""Which leaves of a collection a search may find: all, those of documents, or single ones.

A filter, the routing by summaries and required words select. Sources search among the leaves
and do not know why they were selected.
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
    """All leaves of a collection; those of the documents `ordinals`; or those of `labels`.

    Both are `uint64[n]`, ascending; at most one is given. `count` is how many leaves are
    eligible. With `whole_documents`, only the first leaf of each document is, without it and
    with `sections`, all others: in a summary collection the first leaf is the summary of the
    whole document.
    """

    count: int
    ordinals: Labels | None = None
    labels: Labels | None = None
    whole_documents: bool = False
    sections: bool = False

    @classmethod
    def all_of(cls, collection: OpenedCollection) -> "EligibleLeaves":
        """Every leaf of the collection."""
        return cls(collection.leaves)

    @classmethod
    def only(cls, labels: Labels) -> "EligibleLeaves":
        """These leaves, ascending."""
        return cls(len(labels), labels=labels)

    @property
    def condition(self) -> str:
        """What follows the conditions on tenant and collection in a statement on leaves."""
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
        """Those of `condition`."""
        if self.ordinals is not None:
            return {"ordinals": bigints(self.ordinals)}
        return {} if self.labels is None else parameters_of(self.labels)

    def contains(self, labels: Labels) -> NDArray[np.bool_]:
        """Returns which of `labels`, all of living leaves, are eligible: `bool[n]`."""
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
    """Leaves by label as the parameters `ordinals` and `leaves`."""
    return {"ordinals": bigints(ordinals_of(labels)), "leaves": integers(leaves_of(labels))}
