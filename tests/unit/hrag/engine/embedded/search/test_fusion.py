"""Fusion of several sources' candidates, and what a source is to the search."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.engine.embedded.search.candidates import Candidates, best_of
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.fusion import fuse
from hrag.engine.embedded.search.sources import CandidateSource


class TermSource:
    """A source whose queries are terms: a row scores the share of the terms that it holds."""

    def __init__(self, terms: Mapping[int, set[str]]) -> None:
        self._terms = terms

    def candidates(self, query: set[str], eligible: EligibleRows, count: int) -> Candidates:
        scores = {
            row: len(query & terms) / len(query)
            for row, terms in self._terms.items()
            if query & terms and row in eligible.rows
        }
        best = sorted(scores, key=lambda row: -scores[row])[:count]
        return candidates({row: scores[row] for row in best}, complete=len(best) == len(scores))


def candidates(
    scores: Mapping[int, float], *, exact: bool = True, complete: bool = True
) -> Candidates:
    rows = np.array(list(scores), np.uint32)
    return Candidates(rows, np.array(list(scores.values()), np.float32), exact, complete)


def scores_of(found: Candidates) -> dict[int, float]:
    return dict(zip(found.rows.tolist(), found.scores.tolist(), strict=True))


NOTHING: Any = None


def test_sources_of_different_queries_are_fused_by_row():
    eligible = EligibleRows(NOTHING, np.array([1, 2, 3, 5], np.uint32))
    words: CandidateSource[set[str]] = TermSource({1: {"a", "b"}, 2: {"a"}, 4: {"a"}, 5: {"b"}})
    names: CandidateSource[set[str]] = TermSource({2: {"x"}, 3: {"x"}})
    found = fuse([words.candidates({"a", "b"}, eligible, 9), names.candidates({"x"}, eligible, 9)])
    assert scores_of(found) == {1: 0.5, 2: 0.75, 3: 0.5, 5: 0.25}
    assert (found.complete, found.exact) == (True, True)
    assert (found.rows.dtype, found.scores.dtype) == (np.uint32, np.float32)


def test_the_candidates_of_one_source_stay_as_they_are():
    found = candidates({7: 0.5, 3: 0.9}, exact=False, complete=False)
    assert fuse([found]) is found


def test_without_a_source_there_is_nothing_to_fuse():
    with pytest.raises(ValueError, match="no source"):
        fuse([])


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("complete", [False, True])
def test_a_fusion_is_exact_only_if_every_source_is_and_has_given_all(exact, complete):
    found = fuse([candidates({1: 0.5}), candidates({2: 0.5}, exact=exact, complete=complete)])
    assert found.complete == complete
    assert found.exact == (exact and complete)


SCORES = st.dictionaries(st.integers(0, 50), st.floats(0, 1, width=32), max_size=20)


@given(st.lists(SCORES, min_size=1, max_size=4))
def test_a_fused_score_is_the_mean_over_the_sources(sources):
    found = fuse([candidates(scores) for scores in sources])
    rows = set().union(*sources)
    assert set(found.rows.tolist()) == rows
    assert len(found) == len(rows)
    for row, score in scores_of(found).items():
        expected = sum(scores.get(row, 0.0) for scores in sources) / len(sources)
        assert score == pytest.approx(expected, abs=1e-6)


@given(st.lists(SCORES, max_size=3), st.integers(1, 30))
def test_the_best_of_parts_are_the_highest_scores(parts, count):
    apart = [{51 * number + row: s for row, s in part.items()} for number, part in enumerate(parts)]
    found = best_of([candidates(part) for part in apart], count)
    everything = sorted((score for part in apart for score in part.values()), reverse=True)
    assert sorted(found.scores.tolist(), reverse=True) == everything[:count]
    assert found.complete == (len(everything) <= count)
