"""The leaves of a collection that a search may return.

Without any restriction, all leaves of the collection are eligible. Three things restrict the
eligible leaves: the request's filter, the words that it requires, and two-stage routing, which
searches only the best sections. The lexical and the dense source find only
eligible leaves.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels, leaves_of, ordinals_of
from hrag.engine.common.sorted_sets import Ordinals, is_in
from hrag.engine.postgres.store.arrays import bigints, integers
from hrag.engine.postgres.store.connection import Connection
from hrag.engine.postgres.store.opened_collection import OpenedCollection

_LEAF_COUNT = """
SELECT coalesce(sum(leaf_count), 0) FROM hrag.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s
AND ordinal = ANY(%(ordinals)b::bigint[])
"""


@dataclass(frozen=True, slots=True, eq=False)
class EligibleLeaves:
    """The eligible leaves of a collection.

    If `labels` is set, the leaves with these labels are eligible. If `ordinals` is set, the leaves
    of the documents with these ordinals are eligible. Otherwise all leaves are eligible. Both
    arrays are `uint64[n]`, ascending; at most one of them is set. `count` is the count of eligible
    leaves.

    In a summary collection, the first leaf of each document is the summary of the whole document,
    and each other leaf is the summary of a section. With `sections`, only the other leaves are
    eligible.
    """

    count: int
    ordinals: Labels | None = None
    labels: Labels | None = None
    sections: bool = False

    @classmethod
    def all_of(cls, collection: OpenedCollection) -> "EligibleLeaves":
        """Creates the object for which all leaves of the collection are eligible."""
        return cls(collection.leaves)

    @classmethod
    def of_documents(
        cls, connection: Connection, collection: OpenedCollection, ordinals: Ordinals
    ) -> "EligibleLeaves":
        """Creates the object for which only the leaves of these documents are eligible.

        `ordinals` must be in ascending order. Reads how many leaves the documents have.
        """
        parameters = {**collection.key, "ordinals": bigints(ordinals)}
        (count,) = connection.execute(_LEAF_COUNT, parameters).fetchone() or (0,)
        return cls(int(count), ordinals=ordinals)

    @classmethod
    def only(cls, labels: Labels) -> "EligibleLeaves":
        """Creates the object for which only the leaves with these labels are eligible.

        `labels` must be in ascending order.
        """
        return cls(len(labels), labels=labels)

    @property
    def condition(self) -> str:
        """SQL conditions, each beginning with AND, that exclude the leaves that are not eligible.

        A statement appends them to its conditions on tenant and collection. The text is empty if
        all leaves are eligible.
        """
        parts = []
        if self.ordinals is not None:
            parts.append("AND ordinal = ANY(%(ordinals)b::bigint[])")
        if self.labels is not None:
            parts.append(
                "AND (ordinal, leaf) IN "
                "(SELECT * FROM unnest(%(ordinals)b::bigint[], %(leaves)b::integer[]))"
            )
        if self.sections:
            parts.append("AND leaf > 0")
        return " ".join(parts)

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters of the SQL conditions in `condition`."""
        if self.ordinals is not None:
            return {"ordinals": bigints(self.ordinals)}
        return {} if self.labels is None else parameters_of(self.labels)

    def contains(self, labels: Labels) -> NDArray[np.bool_]:
        """Returns `bool[n]`: for each of `labels`, True if the leaf with this label is eligible.

        None of these leaves may belong to a deleted document.
        """
        inside = np.ones(len(labels), np.bool_)
        if self.ordinals is not None:
            inside &= is_in(ordinals_of(labels), self.ordinals)
        if self.labels is not None:
            inside &= is_in(labels, self.labels)
        if self.sections:
            inside &= leaves_of(labels) != 0
        return inside


def parameters_of(labels: Labels) -> dict[str, object]:
    """Returns the statement parameters `ordinals` and `leaves` for the leaves with these labels."""
    return {"ordinals": bigints(ordinals_of(labels)), "leaves": integers(leaves_of(labels))}
