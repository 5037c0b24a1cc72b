"""Fusion combines the candidates of two sources into one ranking and adds a neighbour bonus."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.common.candidates import Candidates, ScoredRows, best_of
from hrag.engine.common.fusion import fuse_scores, rank_one_source, with_neighbour_bonus
from hrag.engine.find import Fusion
from hrag.types import FusionMethod

Scores = Mapping[int, float]


def floats(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def candidates(scores: Scores, *, exact: bool = True, complete: bool = True) -> Candidates:
    return Candidates(
        np.array(list(scores), np.uint32), floats(list(scores.values())), exact, complete
    )


def scored(rows: ScoredRows) -> dict[int, float]:
    return dict(zip(rows.rows.tolist(), rows.scores.tolist(), strict=True))


def table(labels: list[int]) -> Any:
    return SimpleNamespace(labels=np.array(labels, np.uint64))


EMPTY = table([])


def fuse(
    lexical: Scores, dense: Scores, by_terms: Scores, by_vector: Scores, fusion: Fusion
) -> ScoredRows:
    """Fuses the candidates of the lexical source (`by_terms`) and the dense source (`by_vector`).

    `lexical` and `dense` contain the scores that each source computes for the rows of both.
    """
    rows = sorted(by_terms.keys() | by_vector.keys())
    return fuse_scores(
        EMPTY,
        np.array(rows, np.uint32),
        floats([lexical.get(row, 0.0) for row in rows]),
        floats([dense[row] for row in rows]),
        (candidates(by_terms), candidates(by_vector)),
        fusion,
    )


def test_rows_of_a_single_source_are_ranked_by_its_scores():
    source = candidates({7: 0.5, 3: 0.9}, exact=False, complete=False)
    dense, lexical = (rank_one_source(EMPTY, source, lexical=lexical) for lexical in (False, True))
    assert dense.rows.tolist() == [3, 7]
    assert scored(dense) == pytest.approx({3: 0.9, 7: 0.5})
    assert (dense.exact, dense.complete, dense.lexical) == (False, False, None)
    assert dense.dense is dense.scores
    assert (lexical.lexical is lexical.scores, lexical.dense) == (True, None)


def test_a_convex_combination_scores_every_row_by_both_sources():
    lexical, dense = {1: 0.8, 2: 0.1}, {1: 0.0, 2: 0.6, 5: -0.4}
    result = fuse(lexical, dense, {1: 0.8}, {2: 0.6, 5: -0.4}, Fusion(lexical_weight=0.25))
    expected = {1: 0.2 + 0.75 * 0.5, 2: 0.025 + 0.75 * 0.8, 5: 0.75 * 0.3}
    assert scored(result) == pytest.approx(expected)
    assert result.lexical.tolist() == pytest.approx([0.8, 0.1, 0.0])
    assert result.dense.tolist() == pytest.approx([0.0, 0.6, -0.4])


def test_the_lowest_cosine_of_the_model_scores_zero():
    result = fuse({}, {1: 1.0, 2: 0.6}, {}, {1: 1.0, 2: 0.6}, Fusion(lowest_cosine=0.2))
    assert scored(result) == pytest.approx({1: 0.5, 2: 0.25})


def test_reciprocal_ranks_use_only_the_candidates_of_each_source():
    fusion = Fusion(FusionMethod.RECIPROCAL_RANK, lexical_weight=0.5)
    dense = {1: 0.1, 2: 0.9, 3: 0.5}
    result = fuse({1: 0.9, 2: 0.2}, dense, {1: 0.9, 2: 0.2}, {2: 0.9, 3: 0.5}, fusion)
    expected = {1: 0.5 / 61, 2: 0.5 / 62 + 0.5 / 61, 3: 0.5 / 62}
    assert scored(result) == pytest.approx(expected)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("complete", [False, True])
def test_a_fusion_is_complete_and_exact_if_the_dense_source_is(exact, complete):
    """The dense source decides alone: the lexical source never returns rows without a term."""
    sources = (
        candidates({1: 0.5}, complete=not complete),
        candidates({1: 0.5}, exact=exact, complete=complete),
    )
    score = floats([0.5])
    both = fuse_scores(EMPTY, np.array([1], np.uint32), score, score, sources, Fusion())
    assert (both.complete, both.exact) == (complete, exact)


SCORES = st.dictionaries(st.integers(0, 50), st.floats(0, 1, width=32), max_size=20)


@given(SCORES, SCORES, st.floats(0, 1))
def test_the_score_of_a_row_does_not_depend_on_the_other_candidates(lexical, dense, weight):
    dense = {row: dense.get(row, -0.5) for row in lexical.keys() | dense.keys()}
    fusion = Fusion(lexical_weight=weight)
    alone = {}
    for row in dense:
        lexical_row = {row: lexical[row]} if row in lexical else {}
        alone |= scored(fuse(lexical, dense, lexical_row, {row: dense[row]}, fusion))
    assert scored(fuse(lexical, dense, lexical, dense, fusion)) == alone


# Tests of the neighbour bonus.


def bonus(labels: list[int], rows: list[int], scores: list[float]) -> list[float]:
    """Returns the scores of rows after a neighbour bonus of 0.5 was added."""
    row_numbers = np.array(rows, np.uint32)
    rows_with_scores = ScoredRows(
        table(labels), row_numbers, floats(scores), None, None, exact=True, complete=True
    )
    return with_neighbour_bonus(rows_with_scores, 0.5).scores.tolist()


def test_a_higher_score_of_a_neighbour_raises_the_score_of_a_leaf():
    assert bonus([1, 2, 3, 5], [0, 1, 2, 3], [0.2, 0.8, 0.4, 0.6]) == pytest.approx(
        [0.6, 1.2, 0.8, 0.9]
    )


def test_only_leaves_of_the_same_document_are_neighbours():
    """The last leaf of a document and the first leaf of the next one are not neighbours."""
    documents = [(1 << 20) | 7, (2 << 20) | 0]
    assert bonus(documents, [0, 1], [0.2, 0.8]) == pytest.approx([0.3, 1.2])
    assert bonus([], [], []) == []


# Tests of `best_of`.


@given(st.lists(SCORES, max_size=3), st.integers(1, 30))
def test_the_best_rows_of_several_parts_have_the_highest_scores(parts, count):
    disjoint_parts = [
        {51 * number + row: s for row, s in part.items()} for number, part in enumerate(parts)
    ]
    best = best_of([candidates(part) for part in disjoint_parts], count)
    ranked = sorted((-score, row) for part in disjoint_parts for row, score in part.items())
    assert sorted(best.rows.tolist()) == sorted(row for _, row in ranked[:count])
    scores = {row: score for part in disjoint_parts for row, score in part.items()}
    assert best.scores.tolist() == [scores[row] for row in best.rows.tolist()]
    assert best.complete == (len(ranked) <= count)
