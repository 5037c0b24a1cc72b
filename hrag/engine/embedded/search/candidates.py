"""Candidates: what a source found for a query, before leaves are grouped into passages."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RowNumbers = NDArray[np.uint32]
Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of a view, `uint32[n]`, each once, with `float32[n]` scores; in no order.

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
    """Candidates of all sources, rows ascending: `uint32[n]`, with `float32[n]` scores.

    `lexical` and `dense` are each source's own scores, None if it was not searched; `scores`
    rank the rows. `exact` and `complete` hold if they do for each source.
    """

    rows: RowNumbers
    scores: Scores
    lexical: Scores | None
    dense: Scores | None
    exact: bool
    complete: bool

    def __len__(self) -> int:
        return len(self.rows)


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
