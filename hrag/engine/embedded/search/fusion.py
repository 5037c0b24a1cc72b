"""Fusion: the candidates of one or two sources become one ranking.

A convex combination of normalised scores (Bruch, Gai, Ingber: An Analysis of Fusion Functions
for Hybrid Retrieval, 2023) or reciprocal rank fusion (Cormack, Clarke, Büttcher, 2009). In a
convex combination each source scores every candidate, so that a row's score does not depend
on which others were found.
"""

import numpy as np
from numpy.typing import NDArray

from hrag.engine.embedded.search.candidates import Candidates, RowNumbers, ScoredRows, Scores
from hrag.engine.find import Fusion
from hrag.types import FusionMethod

_RRF_K = 60  # Cormack, Clarke, Büttcher.


def of_one_source(found: Candidates, *, lexical: bool) -> ScoredRows:
    """Returns one source's candidates, ranked by its own scores."""
    order = np.argsort(found.rows)
    rows, scores = found.rows[order], found.scores[order]
    by_terms, by_vector = (scores, None) if lexical else (None, scores)
    return ScoredRows(rows, scores, by_terms, by_vector, found.exact, found.complete)


def fused(
    rows: RowNumbers,
    lexical: Scores,
    dense: Scores,
    found: tuple[Candidates, Candidates],
    fusion: Fusion,
) -> ScoredRows:
    """Returns all rows that the lexical and the dense source `found`, with fused scores.

    `rows` are ascending, with each source's score of every row.
    """
    if fusion.method is FusionMethod.CONVEX:
        scale = 1 - fusion.lowest_cosine
        near = np.maximum(dense - np.float32(fusion.lowest_cosine), 0) / np.float32(scale)
        scores = _weighted(lexical, near, fusion)
    else:
        by_terms, by_vector = (_reciprocal_ranks(rows, each) for each in found)
        scores = _weighted(by_terms, by_vector, fusion)
    return ScoredRows(
        rows,
        scores,
        lexical,
        dense,
        exact=all(each.exact for each in found),
        complete=found[1].complete,  # Then every eligible row is a candidate.
    )


def _weighted(lexical: Scores, dense: Scores, fusion: Fusion) -> Scores:
    weight = np.float32(fusion.lexical_weight)
    return weight * lexical + (1 - weight) * dense


def _reciprocal_ranks(rows: RowNumbers, found: Candidates) -> Scores:
    """1 / (k + rank) of each of `rows` in a source's ranking from 1; 0 for those not in it."""
    order = np.lexsort((found.rows, -found.scores))
    reciprocal = np.zeros(len(rows), np.float32)
    at: NDArray[np.int64] = np.searchsorted(rows, found.rows[order])
    reciprocal[at] = 1 / (_RRF_K + 1 + np.arange(len(order), dtype=np.float32))
    return reciprocal


def with_neighbour_bonus(found: ScoredRows, labels: NDArray[np.uint64], bonus: float) -> Scores:
    """Returns s + bonus * max(s, s of the leaf before, s of the leaf after) of each row.

    Answers often lie beside what matched. Neighbours are those of the same document among the
    candidates; `labels` are the rows' own, which number a document's leaves without gaps.
    """
    scores = found.scores
    best = scores.copy()
    adjacent = np.flatnonzero(
        (labels[1:] == labels[:-1] + np.uint64(1)) & (found.rows[1:] == found.rows[:-1] + 1)
    )
    best[adjacent] = np.maximum(best[adjacent], scores[adjacent + 1])
    best[adjacent + 1] = np.maximum(best[adjacent + 1], scores[adjacent])
    return scores + np.float32(bonus) * best
