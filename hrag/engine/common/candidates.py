"""Candidates: the leaves that a source returns for a query, before they are grouped.

A source is the lexical or the vector search (`dense`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels
from hrag.values.collections import CollectionSettings
from hrag_fast import Groups

RowNumbers = NDArray[np.uint32]
Scores = NDArray[np.float32]


class LeafTable(Protocol):
    """A table with one row for each leaf. All leaves are of one collection.

    The leaves of a document are adjacent rows. An engine that has a whole collection in memory has
    one table with all leaves of the collection. An engine that reads leaves for each search creates
    a table with the leaves that it has read.
    """

    @property
    def settings(self) -> CollectionSettings:
        """The settings of the collection whose leaves are in the table."""

    @property
    def labels(self) -> NDArray[np.uint64]:
        """The label of the leaf in each row: `uint64[n]`.

        The array may be longer than the table. The elements after the last row are then unused.
        """

    @property
    def ancestors(self) -> NDArray[np.uint32]:
        """The index of each leaf's ancestor at each level: `uint32[levels, n]`.

        Element `[0, r]` is the index of the leaf in row r, element `[1, r]` the index of the leaf's
        parent, and so on.
        """

    @property
    def alive(self) -> NDArray[np.uint8]:
        """1 for each row whose document exists, 0 for each row whose document was deleted.

        The array is `uint8[n]`, with the same n as in `labels`.
        """


@dataclass(slots=True)
class Candidates:
    """The leaves that a source returned for a query, with their scores, in no particular order.

    A source is the lexical or the vector search. `rows` are the row numbers of the leaves in a
    LeafTable: `uint32[n]`, without duplicates. `scores` is `float32[n]`. `exact` is True if it is
    certain that no other leaf that passes the filter has a higher score. `complete` is True if the
    source has no further leaf, so that a request for more candidates would return the same leaves.
    """

    rows: RowNumbers
    scores: Scores
    exact: bool
    complete: bool

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class ScoredRows:
    """The candidates of a search, in ascending order of their row numbers.

    They come from one source or two: the lexical and the vector search. `rows` is `uint32[n]`, the
    row numbers of the leaves in `table`. `scores` is `float32[n]`, the scores by which the leaves
    are ranked. `lexical` and `dense` are the scores in each source, `float32[n]`, or None if the
    source was not searched. `exact` is True if the candidates of each source are certainly the best
    leaves of this source. `complete` is True if no source can return a further leaf. `groups` are
    the groups of the leaves at the request's level, or None if they are not grouped yet.
    """

    table: LeafTable
    rows: RowNumbers
    scores: Scores
    lexical: Scores | None
    dense: Scores | None
    exact: bool
    complete: bool
    groups: Groups | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Labels:
        """The labels of the candidate leaves, in the order of `rows`: `uint64[n]`."""
        return self.table.labels[self.rows]

    def best_first(self) -> NDArray[np.intp]:
        """Returns indexes into `rows`, ordered by descending score of the leaves: `intp[n]`.

        Leaves with equal scores are ordered by row number.
        """
        return np.lexsort((self.rows, -self.scores))


_NONE = Candidates(np.empty(0, np.uint32), np.empty(0, np.float32), exact=True, complete=True)


def best_of(parts: Sequence[Candidates], count: int) -> Candidates:
    """Returns the `count` best of several sets of candidates.

    The sets come from different segments or from the tail, so they have no row in common. Of
    candidates with equal scores, those with lower row numbers are chosen first.
    """
    if not parts:
        return _NONE
    if len(parts) == 1 and len(parts[0]) <= count:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    exact = all(part.exact for part in parts)
    if len(rows) <= count:
        return Candidates(rows, scores, exact, all(part.complete for part in parts))
    lowest = np.partition(scores, len(scores) - count)[-count]
    better = np.flatnonzero(scores > lowest)
    equal = np.flatnonzero(scores == lowest)
    equal = equal[np.argsort(rows[equal])][: count - len(better)]
    chosen = np.concatenate([better, equal])
    return Candidates(rows[chosen], scores[chosen], exact, complete=False)
