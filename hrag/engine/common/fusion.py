"""Fusion: the candidates of one or two sources become one ranking.

A convex combination of normalised scores (Bruch, Gai, Ingber: An Analysis of Fusion Functions
for Hybrid Retrieval, 2023) or reciprocal rank fusion (Cormack, Clarke, Büttcher, 2009). In a
convex combination each source scores every candidate, so that a row's score does not depend
on which others were found.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hrag.engine.common.candidates import (
    Candidates,
    LeafTable,
    RowNumbers,
    ScoredRows,
    Scores,
)
from hrag.engine.find import Fusion
from hrag.values.search import FusionMethod

_RRF_K = 60  # Cormack, Clarke, Büttcher.


def of_one_source(table: LeafTable, found: Candidates, *, lexical: bool) -> ScoredRows:
    """Returns one source's candidates, ranked by its own scores."""
    order = found.rows.argsort()
    rows, scores = found.rows[order], found.scores[order]
    by_terms, by_vector = (scores, None) if lexical else (None, scores)
    return ScoredRows(table, rows, scores, by_terms, by_vector, found.exact, found.complete)


def fused(
    table: LeafTable,
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
        scores = weighted(lexical, near, fusion)
    else:
        by_terms, by_vector = (reciprocal_ranks(rows, each.rows, each.scores) for each in found)
        scores = weighted(by_terms, by_vector, fusion)
    return ScoredRows(
        table,
        rows,
        scores,
        lexical,
        dense,
        exact=all(each.exact for each in found),
        complete=found[1].complete,  # Then every eligible row is a candidate.
    )


def weighted(lexical: Scores, dense: Scores, fusion: Fusion) -> Scores:
    """Returns the convex combination of two scores of each leaf."""
    weight = np.float32(fusion.lexical_weight)
    return weight * lexical + (1 - weight) * dense


def reciprocal_ranks(
    leaves: NDArray[np.unsignedinteger], found: NDArray[np.unsignedinteger], scores: Scores
) -> Scores:
    """Returns 1 / (k + rank) of each of `leaves` in a source's ranking from 1.

    `leaves` are rows or labels, ascending; `found` are those of the source, with its `scores`.
    It is 0 for those that the source has not found.
    """
    order = np.lexsort((found, -scores))
    reciprocal = np.zeros(len(leaves), np.float32)
    at: NDArray[np.int64] = np.searchsorted(leaves, found[order])
    reciprocal[at] = 1 / (_RRF_K + 1 + np.arange(len(order), dtype=np.float32))
    return reciprocal


def with_neighbour_bonus(found: ScoredRows, bonus: float) -> ScoredRows:
    """Returns s + bonus * max(s, s of the leaf before, s of the leaf after) as each row's score.

    Answers often lie beside what matched. Neighbours are those of the same document among the
    candidates: labels number a document's leaves without gaps.
    """
    if not bonus:
        return found
    scores, labels = found.scores, found.table.labels[found.rows]
    best = scores.copy()
    adjacent = np.flatnonzero(labels[1:] == labels[:-1] + np.uint64(1))
    best[adjacent] = np.maximum(best[adjacent], scores[adjacent + 1])
    best[adjacent + 1] = np.maximum(best[adjacent + 1], scores[adjacent])
    return replace(found, scores=scores + np.float32(bonus) * best)
