"""Fusion: combines the candidates of one or two sources into one ranking.

Implements a convex combination of normalised scores (Bruch, Gai, Ingber: An Analysis of Fusion
Functions for Hybrid Retrieval, 2023) and reciprocal rank fusion (Cormack, Clarke, Büttcher, 2009).
For a convex combination, each source scores every candidate, so a row's score does not depend on
the other candidates.
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

_RRF_K = 60  # The value that Cormack, Clarke and Büttcher recommend.


def rank_one_source(table: LeafTable, candidates: Candidates, *, lexical: bool) -> ScoredRows:
    """Returns the candidates of a single source, ranked by that source's scores."""
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
    """Returns the candidates of both sources with fused scores.

    `candidates` are those of the lexical source, then those of the dense source. `rows` are the
    rows of both, ascending. `lexical` and `dense` have a score for each of `rows`.
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
        # If the dense source is complete, every eligible row is a candidate.
        complete=candidates[1].complete,
    )


def weighted(lexical: Scores, dense: Scores, fusion: Fusion) -> Scores:
    """Returns the convex combination of the two scores of each leaf: `float32[n]`."""
    weight = np.float32(fusion.lexical_weight)
    return weight * lexical + (1 - weight) * dense


def reciprocal_ranks(
    leaves: NDArray[np.unsignedinteger], matches: NDArray[np.unsignedinteger], scores: Scores
) -> Scores:
    """Returns 1 / (k + rank) for each of `leaves`, where rank 1 is a source's best leaf.

    `leaves` are rows or labels, ascending. `matches` are the leaves that the source returned, with
    their `scores`. Leaves that the source did not return get 0. The result is
    `float32[len(leaves)]`.
    """
    order = np.lexsort((matches, -scores))
    reciprocal = np.zeros(len(leaves), np.float32)
    positions: NDArray[np.int64] = np.searchsorted(leaves, matches[order])
    reciprocal[positions] = 1 / (_RRF_K + 1 + np.arange(len(order), dtype=np.float32))
    return reciprocal


def with_neighbour_bonus(scored: ScoredRows, bonus: float) -> ScoredRows:
    """Returns the rows, each with `bonus * max(s, s_before, s_after)` added to its score `s`.

    `s_before` and `s_after` are the scores of the previous and the next leaf of the same document,
    if these are candidates too. Answers often stand next to the text that matched. Labels number a
    document's leaves without gaps, so neighbours have adjacent labels.
    """
    if not bonus:
        return scored
    scores, labels = scored.scores, scored.table.labels[scored.rows]
    best = scores.copy()
    adjacent = np.flatnonzero(labels[1:] == labels[:-1] + np.uint64(1))
    best[adjacent] = np.maximum(best[adjacent], scores[adjacent + 1])
    best[adjacent + 1] = np.maximum(best[adjacent + 1], scores[adjacent])
    return replace(scored, scores=scores + np.float32(bonus) * best)
