"""Candidates: what a source found for a query, before leaves are grouped into passages."""

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
    """Leaves of one collection, numbered as rows; those of a document are neighbours.

    An engine that has all leaves in memory has one table of them; one that has not makes a
    table of those that it has found.
    """

    @property
    def settings(self) -> CollectionSettings:
        """The collection's settings."""

    @property
    def labels(self) -> NDArray[np.uint64]:
        """The label of each row: `uint64[rows]`, or more."""

    @property
    def ancestors(self) -> NDArray[np.uint32]:
        """The index of each row's ancestor at each level, from the leaves' up."""

    @property
    def alive(self) -> NDArray[np.uint8]:
        """Whether each row's document exists: `uint8[rows]`, or more."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of a table, `uint32[n]`, each once, with `float32[n]` scores; in no order.

    `exact`: no other eligible row scores higher for certain. `complete`: the source has no
    further row to give, however many are asked for.
    """

    rows: RowNumbers
    scores: Scores
    exact: bool
    complete: bool

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Candidates of all sources: ascending rows of a table, `uint32[n]`, with `float32[n]` scores.

    `lexical` and `dense` are each source's own scores, None if it was not searched; `scores`
    rank the rows. `exact` and `complete` hold if they do for each source.
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
        """The label of each row, in no order: `uint64[n]`."""
        return self.table.labels[self.rows]

    def best_first(self) -> NDArray[np.intp]:
        """Returns the order of the rows by score; of those with one score, the lower rows first."""
        return np.lexsort((self.rows, -self.scores))


def scores_of(rows: RowNumbers, found: Candidates, score: Callable[[RowNumbers], Scores]) -> Scores:
    """Returns a source's score of each of `rows`, which are ascending and include all `found`.

    `score` computes those that the source has not found, of ascending rows.
    """
    scores = np.empty(len(rows), np.float32)
    missing = np.ones(len(rows), np.bool_)
    at = rows.searchsorted(found.rows)
    scores[at], missing[at] = found.scores, False
    scores[missing] = score(rows[missing])
    return scores


_NONE = Candidates(np.empty(0, np.uint32), np.empty(0, np.float32), exact=True, complete=True)


def best_of(parts: Sequence[Candidates], count: int) -> Candidates:
    """Returns the `count` highest-scoring candidates of parts that share no row.

    Of those with the lowest score, the lower rows.
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
