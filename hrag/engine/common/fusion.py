"""Fusion: combines the candidates of one or two sources into one ranking.

A source is the lexical or the vector search (`dense`), and its candidates are the leaves that it
returned.

Implements a convex combination of normalised scores (Bruch, Gai, Ingber: An Analysis of Fusion
Functions for Hybrid Retrieval, 2023) and reciprocal rank fusion (Cormack, Clarke, Büttcher, 2009).
For a convex combination, each source computes the score of every candidate, even of candidates that
only the other source returned. So the score of a leaf does not depend on which other leaves are
candidates.
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

# The constant k of reciprocal rank fusion; Cormack, Clarke and Büttcher recommend this value.
_RRF_K = 60


def rank_one_source(table: LeafTable, candidates: Candidates, *, lexical: bool) -> ScoredRows:
    """Returns the candidates of a search that has only one source, in order of row numbers.

    The leaves are ranked by the scores of this source. `lexical` is True if the source is the
    lexical search, and False if it is the vector search.
    """
    order = candidates.rows.argsort()
    rows, scores = candidates.rows[order], candidates.scores[order]
    by_terms, by_vector = (scores, None) if lexical else (None, scores)
    return ScoredRows(
        table, rows, scores, by_terms, by_vector, candidates.exact, candidates.complete
    )


def fuse_scores(
    table: LeafTable,
    rows: RowNumbers,
    lexical: Scores,
    dense: Scores,
    candidates: tuple[Candidates, Candidates],
    fusion: Fusion,
) -> ScoredRows:
    """Returns the candidates of the lexical and the vector search with fused scores.

    `candidates` are the candidates of the lexical search and the candidates of the vector search,
    in this order. `rows` are all row numbers that occur in `candidates`, ascending. `lexical` has
    the lexical score of each of `rows`, and `dense` has the vector search's score of each of them.
    """
    if fusion.method is FusionMethod.CONVEX:
        scale = 1 - fusion.lowest_cosine
        similarity = np.maximum(dense - np.float32(fusion.lowest_cosine), 0) / np.float32(scale)
        scores = weighted(lexical, similarity, fusion)
    else:
        by_terms, by_vector = (
            reciprocal_ranks(rows, source.rows, source.scores) for source in candidates
        )
        scores = weighted(by_terms, by_vector, fusion)
    return ScoredRows(
        table,
        rows,
        scores,
        lexical,
        dense,
        exact=all(source.exact for source in candidates),
        # Every leaf has a vector. So if the vector search has no further leaf, every leaf that
        # passes the filter is a candidate already.
        complete=candidates[1].complete,
    )


def weighted(lexical: Scores, dense: Scores, fusion: Fusion) -> Scores:
    """Returns the convex combination of the lexical and the dense score of each leaf.

    The lexical score has the weight `fusion.lexical_weight`. The result is `float32[n]`.
    """
    weight = np.float32(fusion.lexical_weight)
    return weight * lexical + (1 - weight) * dense


def reciprocal_ranks(
    leaves: NDArray[np.unsignedinteger], matches: NDArray[np.unsignedinteger], scores: Scores
) -> Scores:
    """Returns 1 / (_RRF_K + rank) for each of `leaves`: `float32[len(leaves)]`.

    The rank of a leaf is its position in the result of one source (the lexical or the vector
    search); the best leaf of the source has rank 1. `leaves` are row numbers or labels, ascending.
    `matches` are the leaves that the source returned, and `scores` are their scores. The result is
    0 for a leaf that the source did not return.
    """
    order = np.lexsort((matches, -scores))
    reciprocal = np.zeros(len(leaves), np.float32)
    positions: NDArray[np.int64] = np.searchsorted(leaves, matches[order])
    reciprocal[positions] = 1 / (_RRF_K + 1 + np.arange(len(order), dtype=np.float32))
    return reciprocal


def with_neighbour_bonus(scored: ScoredRows, bonus: float) -> ScoredRows:
    """Returns `scored` with `bonus * max(s, s_before, s_after)` added to each score `s`.

    `s_before` and `s_after` are the scores of the previous and the next leaf of the same document,
    if these leaves are candidates too. The bonus helps because an answer is often next to the text
    that matched. Neighbours are recognised by their labels: the labels of two neighbouring leaves
    differ by 1.
    """
    if not bonus:
        return scored
    scores, labels = scored.scores, scored.table.labels[scored.rows]
    best = scores.copy()
    adjacent = np.flatnonzero(labels[1:] == labels[:-1] + np.uint64(1))
    best[adjacent] = np.maximum(best[adjacent], scores[adjacent + 1])
    best[adjacent + 1] = np.maximum(best[adjacent + 1], scores[adjacent])
    return replace(scored, scores=scores + np.float32(bonus) * best)
