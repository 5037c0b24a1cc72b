"""A search reads more leaves in rounds until there are enough passages.

A further round does not change the passages of the earlier rounds.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag import errors
from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.labels import labels_of, split_label
from hrag.engine.common.rounds import Round, RoundOutcome
from hrag.engine.common.search import search
from hrag.engine.embedded.search.eligible_rows import EligibleRows
from hrag.engine.embedded.search.ranker import Ranker
from hrag.engine.embedded.search.view import Tail, View
from hrag.engine.find import FindRequest, FindResult
from hrag.types import Aggregation, CollectionSettings, Retrieval, SearchMode, TreeSettings
from hrag.values.deadline import NEVER, Deadline

SETTINGS = CollectionSettings(TreeSettings((32, 64), 0.0), "fake", 1)
REQUEST = FindRequest(np.ones(1, np.float32), SearchMode.SMALL_TO_BIG, 1, limit=5, candidates=50)
NOTHING: Any = None


def view_of(ancestors: Sequence[str]) -> View:
    """Returns a view of one document.

    Its leaf n is below the ancestor with the name `ancestors[n]` and scores 1 - n / 10,000.
    """
    count, names = len(ancestors), list(dict.fromkeys(ancestors))
    leaves = np.arange(count, dtype=np.uint32)
    parents = np.array([names.index(name) for name in ancestors], np.uint32)
    vectors = (1 - leaves / np.float32(10_000)).astype(np.float32).reshape(-1, 1)
    zeros = np.zeros(count, np.uint32)
    return View(
        collection=1,
        settings=SETTINGS,
        sequence=1,
        metadata_sequence=1,
        segments=(),
        bases=(),
        labels=labels_of(1, count),
        ancestors=np.stack([leaves, parents]),
        alive=np.ones(count, np.uint8),
        lengths=zeros,
        tail=Tail(vectors, np.zeros(count + 1, np.int64), np.empty(0, np.uint64)),
        tail_base=0,
        count=count,
        living=count,
        living_terms=0,
    )


class Ranked:
    """Searches one document, whose leaves have the ancestors with these names, best leaf first."""

    def __init__(self, ancestors: Sequence[str], deadline: Deadline = NEVER) -> None:
        self._names = list(dict.fromkeys(ancestors))
        self._view = view_of(ancestors)
        self._deadline = deadline

    def ask(self, **options: Any) -> FindResult[str]:
        """Runs a search, whose passages are the names of ancestors."""
        request = replace(REQUEST, **options)
        eligible = EligibleRows(self._view)
        best = partial(Ranker(self._view, request).best, eligible)
        read = partial(self._read, request)
        return search(request, best, read, NOTHING, eligible.count, self._deadline)

    def _read(
        self, request: FindRequest, groups: AncestorGroups
    ) -> tuple[tuple[str, ...], RoundOutcome]:
        """Returns the names of groups, in place of their passages, and the outcome of the round.

        With `merge_adjacent`, names with the same first letter are joined into this letter.
        """
        names = [self._names[split_label(key)[1]] for key in groups.keys]
        if not request.merge_adjacent:
            outcome = RoundOutcome.of_groups(len(groups), request.limit)
            return tuple(names[: request.limit]), outcome
        joined = list(dict.fromkeys(name[0] for name in names))
        is_full = len(joined) >= request.limit or bool(request.token_budget)
        outcome = RoundOutcome(is_full, len(joined) <= request.limit and not request.token_budget)
        return tuple(joined[: request.limit]), outcome


def ask(ranking: Sequence[str], **options: Any) -> FindResult[str]:
    return Ranked(ranking).ask(**options)


# Tests of how many leaves a search reads for the requested passages.


def test_the_first_candidates_are_enough_if_they_have_enough_ancestors():
    result = ask([f"p{leaf}" for leaf in range(100)])
    assert result.passages == ("p0", "p1", "p2", "p3", "p4")
    assert (result.considered, result.eligible_leaves, result.exhausted) == (50, 100, False)


@pytest.mark.parametrize("candidates", [1, 10, 10_000])
def test_a_search_reads_more_leaves_while_candidates_have_the_same_ancestor(candidates):
    ranking = ["long"] * 500 + [f"p{leaf}" for leaf in range(9)] + ["rest"] * 5000
    result = ask(ranking, limit=10, candidates=candidates)
    assert result.passages == ("long", *(f"p{leaf}" for leaf in range(9)))
    assert result.considered >= 509


def test_each_round_reads_four_times_as_many_leaves_as_the_previous_one():
    ranking = ["long"] * 1000
    result = ask(ranking, limit=2, candidates=10)
    assert (result.passages, result.considered, result.exhausted) == (("long",), 1000, True)
    assert [stage for stage, *_ in result.stages].count("climb") == 5
    ranking[639] = "other"
    result = ask(ranking, limit=2, candidates=10)
    assert (result.passages, result.considered) == (("long", "other"), 640)


def test_a_larger_limit_needs_more_rounds_and_does_not_change_the_first_passages():
    ranking = [f"p{leaf % 7}" for leaf in range(100)] + [f"q{leaf}" for leaf in range(100)]
    assert ask(ranking, limit=7, candidates=20).considered == 20
    result = ask(ranking, limit=30, candidates=20)
    assert result.considered == 200
    assert result.passages[:7] == ask(ranking, limit=7, candidates=20).passages


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=300),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_a_search_returns_all_passages_up_to_the_limit(ranking, limit, candidates):
    result = ask(ranking, limit=limit, candidates=candidates)
    distinct = list(dict.fromkeys(ranking))
    assert list(result.passages) == distinct[:limit]
    if result.exhausted:
        assert len(result.passages) == len(distinct)
    if len(result.passages) < limit:
        assert result.exhausted


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=100),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 60),
    st.sampled_from(Aggregation),
)
def test_the_first_passages_are_the_same_for_each_limit(
    ranking, first_limit, second_limit, candidates, aggregation
):
    less, more = (
        ask(ranking, limit=limit, candidates=candidates, aggregation=aggregation).passages
        for limit in sorted((first_limit, second_limit))
    )
    assert more[: len(less)] == less


def test_a_search_is_not_exhausted_if_there_are_more_passages_than_the_limit():
    assert not ask(["a", "b", "c"], limit=2).exhausted
    assert ask(["a", "b", "c"], limit=3).exhausted


def test_a_search_of_an_empty_collection_returns_nothing_and_is_exhausted():
    result = ask([])
    assert (result.passages, result.exhausted, result.considered) == ((), True, 0)


def test_no_further_round_begins_when_the_caller_has_left():
    waits = iter([True, True, False])
    ranked = Ranked(["long"] * 1000, Deadline(is_waiting=lambda: next(waits)))
    with pytest.raises(errors.Cancelled, match="searching"):
        ranked.ask(limit=2, candidates=1)
    assert next(waits, None) is None


def test_no_round_begins_after_the_deadline():
    with pytest.raises(errors.DeadlineExceeded, match="searching"):
        Ranked(["a"], Deadline.after(-1)).ask()


# Tests with a minimum score.


def test_passages_below_the_minimum_score_are_left_out_and_no_further_leaf_is_read():
    ranking = [f"p{leaf}" for leaf in range(1000)]
    result = ask(ranking, min_score=1 - 1.5 / 10_000)
    assert (result.passages, result.exhausted, result.considered) == (("p0", "p1"), True, 50)


def test_a_search_by_sums_with_a_minimum_score_is_not_exhausted_while_leaves_remain():
    ranking, options = [f"p{leaf}" for leaf in range(1000)], {"min_score": 1 - 1.5 / 10_000}
    assert not ask(ranking, **options, aggregation=Aggregation.SUM).exhausted
    assert ask(ranking[:9], **options, aggregation=Aggregation.SUM).exhausted


@pytest.mark.parametrize(
    ("options", "exhausted"),
    [
        ({}, True),
        ({"aggregation": Aggregation.MEAN}, True),
        ({"aggregation": Aggregation.SUM}, False),
        ({"aggregation": Aggregation.COUNT}, False),
        ({"retrieval": Retrieval.HYBRID}, False),
        ({"neighbour_bonus": 0.5}, False),
    ],
)
def test_a_minimum_score_ends_a_search_only_if_no_further_leaf_could_raise_a_score(
    options, exhausted
):
    request = replace(REQUEST, min_score=0.5, **{"retrieval": Retrieval.DENSE} | options)
    cut = Round(request, considered=9, groups=5, reaching=4, complete=False)
    assert cut.is_exhausted(RoundOutcome(is_full=False, took_all=True)) == exhausted
    assert not cut.is_exhausted(RoundOutcome(is_full=True, took_all=False))


def test_a_minimum_score_that_more_passages_reach_than_the_limit_changes_nothing():
    result = ask([f"p{leaf}" for leaf in range(1000)], min_score=0.9951)
    assert (result.passages, result.exhausted) == (("p0", "p1", "p2", "p3", "p4"), False)


# Tests with joined passages.


def test_a_search_reads_more_leaves_while_passages_are_joined_into_too_few():
    ranking = [*(f"a{leaf}" for leaf in range(300)), "b", "c", "d"]
    result = ask(ranking, limit=3, merge_adjacent=True)
    assert (result.passages, result.considered) == (("a", "b", "c"), 303)
    assert not result.exhausted
    assert ask(ranking, limit=9, merge_adjacent=True).exhausted


def test_a_search_that_fills_its_token_budget_reads_no_more_leaves():
    result = ask([f"a{leaf}" for leaf in range(300)], limit=3, merge_adjacent=True, token_budget=9)
    assert (result.considered, result.exhausted) == (50, False)
