"""Candidates: the leaves that a source returns for a query, before they are grouped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.labels import Labels
from hrag.values.collections import CollectionSettings

RowNumbers = NDArray[np.uint32]
Scores = NDArray[np.float32]


class LeafTable(Protocol):
    """Leaves of one collection, numbered as rows. The leaves of a document are adjacent rows.

    An engine that has all leaves in memory has one table of all leaves. Another engine creates a
    table of the leaves that it has read.
    """

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""

    @property
    def labels(self) -> NDArray[np.uint64]:
        """The label of each row: `uint64[n]`, where n is at least the number of rows."""

    @property
    def ancestors(self) -> NDArray[np.uint32]:
        """The index of each row's ancestor at each level: `uint32[levels, n]`.

        Row 0 of the array is the level of the leaves, row 1 the next level up, and so on.
        """

    @property
    def alive(self) -> NDArray[np.uint8]:
        """Is 1 where the document of a row exists, else 0: `uint8[n]`, with n as in `labels`."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of a table, `uint32[n]`, with their scores, `float32[n]`, in no order.

    No row occurs twice. `exact` is True if certainly no other eligible row has a higher score.
    `complete` is True if the source has no further row, so a larger number of candidates would give
    the same rows.
    """

    rows: RowNumbers
    scores: Scores
    exact: bool
    complete: bool

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """The candidates of all sources, in ascending order of their rows.

    `rows` is `uint32[n]` and `scores` is `float32[n]`; `scores` rank the rows. `lexical` and
    `dense` are the scores of each source, None if the source was not searched. `exact` and
    `complete` are True if they are True for each source.
    """

    table: LeafTable
    rows: RowNumbers
    scores: Scores
    lexical: Scores | None
    dense: Scores | None
    exact: bool
    complete: bool

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Labels:
        """The label of each row, in the order of `rows`: `uint64[n]`."""
        return self.table.labels[self.rows]

    def best_first(self) -> NDArray[np.intp]:
        """Returns the indexes of the rows by descending score. Equal scores are ordered by row."""
        return np.lexsort((self.rows, -self.scores))


def scores_of(
    rows: RowNumbers, candidates: Candidates, score: Callable[[RowNumbers], Scores]
) -> Scores:
    """Returns a source's score of each of `rows`: `float32[n]`.

    `rows` are ascending and include all `candidates`. `score` computes the scores of the other
    rows, which it receives in ascending order.
    """
    scores = np.empty(len(rows), np.float32)
    missing = np.ones(len(rows), np.bool_)
    positions = rows.searchsorted(candidates.rows)
    scores[positions], missing[positions] = candidates.scores, False
    scores[missing] = score(rows[missing])
    return scores


_NONE = Candidates(np.empty(0, np.uint32), np.empty(0, np.float32), exact=True, complete=True)


def best_of(parts: Sequence[Candidates], count: int) -> Candidates:
    """Returns the `count` best candidates of several parts that have no row in common.

    Among candidates with the lowest score that is returned, those with lower rows are preferred.
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
