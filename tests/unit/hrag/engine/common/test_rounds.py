"""A search looks at more leaves until enough passages come out; what came out stays as it is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag import errors
from hrag.engine.common.ancestor_groups import AncestorGroups
from hrag.engine.common.fetch import Fetch
from hrag.engine.common.labels import labels_of, split_label
from hrag.engine.common.rounds import Round, Selection
from hrag.engine.embedded.search.document_reader import CitationCache
from hrag.engine.embedded.search.selected_rows import SelectionCache
from hrag.engine.embedded.search.snapshot import EmbeddedSnapshot, SnapshotCaches
from hrag.engine.embedded.search.view import Tail, View
from hrag.engine.find import FindRequest, Found
from hrag.types import Aggregation, CollectionSettings, Retrieval, SearchMode, TreeSettings
from hrag.values.deadline import NEVER, Deadline

SETTINGS = CollectionSettings(TreeSettings((32, 64), 0.0), "fake", 1)
REQUEST = FindRequest(np.ones(1, np.float32), SearchMode.SMALL_TO_BIG, 1, limit=5, candidates=50)
NOTHING: Any = None
CACHES = SnapshotCaches(CitationCache(), SelectionCache())


def view_of(ancestors: Sequence[str]) -> View:
    """A document whose leaf n is in the ancestor number n, and has the score 1 - n / 10,000."""
    count, names = len(ancestors), list(dict.fromkeys(ancestors))
    own = np.arange(count, dtype=np.uint32)
    parents = np.array([names.index(name) for name in ancestors], np.uint32)
    vectors = (1 - own / np.float32(10_000)).astype(np.float32).reshape(-1, 1)
    none = np.zeros(count, np.uint32)
    return View(
        collection=1,
        settings=SETTINGS,
        sequence=1,
        metadata_sequence=1,
        segments=(),
        bases=(),
        labels=labels_of(1, count),
        ancestors=np.stack([own, parents]),
        alive=np.ones(count, np.uint8),
        lengths=none,
        tail=Tail(vectors, np.zeros(count + 1, np.int64), np.empty(0, np.uint64)),
        tail_base=0,
        count=count,
        living=count,
        living_terms=0,
    )


class Ranked:
    """A search of leaves given as the names of the ancestors they lie in, best leaf first."""

    def __init__(self, ancestors: Sequence[str], deadline: Deadline = NEVER) -> None:
        self._names = list(dict.fromkeys(ancestors))
        view = view_of(ancestors)
        self._snapshot = EmbeddedSnapshot(NOTHING, NOTHING, "t", CACHES, deadline, view)

    def ask(self, **asked: Any) -> Found[str]:
        return self._snapshot._find(replace(REQUEST, **asked), self._read)

    def _read(self, fetch: Fetch, groups: AncestorGroups) -> tuple[tuple[str, ...], Selection]:
        """If joined, neighbours are those with the same first letter."""
        request = fetch.request
        names = [self._names[split_label(key)[1]] for key in groups.keys]
        if not request.merge_adjacent:
            selection = Selection.of_groups(len(groups), request.limit)
            return tuple(names[: request.limit]), selection
        joined = list(dict.fromkeys(name[0] for name in names))
        is_full = len(joined) >= request.limit or bool(request.token_budget)
        selection = Selection(is_full, len(joined) <= request.limit and not request.token_budget)
        return tuple(joined[: request.limit]), selection


def ask(ranking: Sequence[str], **asked: Any) -> Found[str]:
    return Ranked(ranking).ask(**asked)


# Enough passages


def test_the_first_candidates_do_when_they_lie_in_enough_ancestors():
    found = ask([f"p{leaf}" for leaf in range(100)])
    assert found.passages == ("p0", "p1", "p2", "p3", "p4")
    assert (found.considered, found.eligible_leaves, found.exhausted) == (50, 100, False)


@pytest.mark.parametrize("candidates", [1, 10, 10_000])
def test_it_looks_deeper_while_candidates_collapse_into_one_ancestor(candidates):
    ranking = ["long"] * 500 + [f"p{leaf}" for leaf in range(9)] + ["rest"] * 5000
    found = ask(ranking, limit=10, candidates=candidates)
    assert found.passages == ("long", *(f"p{leaf}" for leaf in range(9)))
    assert found.considered >= 509


def test_each_round_looks_at_four_times_as_many_leaves():
    ranking = ["long"] * 1000
    found = ask(ranking, limit=2, candidates=10)
    assert (found.passages, found.considered, found.exhausted) == (("long",), 1000, True)
    assert [stage for stage, *_ in found.stages].count("climb") == 5
    ranking[639] = "other"
    found = ask(ranking, limit=2, candidates=10)
    assert (found.passages, found.considered) == (("long", "other"), 640)


def test_a_larger_limit_takes_more_rounds_and_changes_nothing_of_the_first():
    ranking = [f"p{leaf % 7}" for leaf in range(100)] + [f"q{leaf}" for leaf in range(100)]
    assert ask(ranking, limit=7, candidates=20).considered == 20
    found = ask(ranking, limit=30, candidates=20)
    assert found.considered == 200
    assert found.passages[:7] == ask(ranking, limit=7, candidates=20).passages


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=300),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_as_many_passages_come_out_as_there_are_up_to_the_limit(ranking, limit, candidates):
    found = ask(ranking, limit=limit, candidates=candidates)
    distinct = list(dict.fromkeys(ranking))
    assert list(found.passages) == distinct[:limit]
    if found.exhausted:
        assert len(found.passages) == len(distinct)
    if len(found.passages) < limit:
        assert found.exhausted


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=100),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 60),
    st.sampled_from(Aggregation),
)
def test_the_first_passages_are_the_same_whatever_the_limit(
    ranking, one, other, candidates, aggregation
):
    less, more = (
        ask(ranking, limit=limit, candidates=candidates, aggregation=aggregation).passages
        for limit in sorted((one, other))
    )
    assert more[: len(less)] == less


def test_more_passages_than_the_limit_are_not_exhausted():
    assert not ask(["a", "b", "c"], limit=2).exhausted
    assert ask(["a", "b", "c"], limit=3).exhausted


def test_an_empty_collection_has_nothing_and_is_exhausted():
    found = ask([])
    assert (found.passages, found.exhausted, found.considered) == ((), True, 0)


def test_it_stops_looking_deeper_at_the_deadline():
    waits = iter([True, True, False])
    ranked = Ranked(["long"] * 1000, Deadline(is_waiting=lambda: next(waits)))
    with pytest.raises(errors.Cancelled, match="searching"):
        ranked.ask(limit=2, candidates=1)
    assert next(waits, None) is None


def test_nothing_is_searched_past_the_deadline():
    with pytest.raises(errors.DeadlineExceeded, match="searching"):
        Ranked(["a"], Deadline.after(-1)).ask()


# What scores too low


def test_passages_below_the_score_are_left_out_and_nothing_deeper_is_asked():
    ranking = [f"p{leaf}" for leaf in range(1000)]
    found = ask(ranking, min_score=1 - 1.5 / 10_000)
    assert (found.passages, found.exhausted, found.considered) == (("p0", "p1"), True, 50)


def test_more_may_reach_a_sum_than_was_looked_at():
    ranking, asked = [f"p{leaf}" for leaf in range(1000)], {"min_score": 1 - 1.5 / 10_000}
    assert not ask(ranking, **asked, aggregation=Aggregation.SUM).exhausted
    assert ask(ranking[:9], **asked, aggregation=Aggregation.SUM).exhausted


@pytest.mark.parametrize(
    ("asked", "exhausted"),
    [
        ({}, True),
        ({"aggregation": Aggregation.MEAN}, True),
        ({"aggregation": Aggregation.SUM}, False),
        ({"aggregation": Aggregation.COUNT}, False),
        ({"retrieval": Retrieval.HYBRID}, False),
        ({"neighbour_bonus": 0.5}, False),
    ],
)
def test_a_score_ends_a_search_only_if_no_deeper_leaf_could_raise_one(asked, exhausted):
    request = replace(REQUEST, min_score=0.5, **{"retrieval": Retrieval.DENSE} | asked)
    cut = Round(request, groups=5, reaching=4, complete=False)
    assert cut.is_exhausted(Selection(is_full=False, took_all=True)) == exhausted
    assert not cut.is_exhausted(Selection(is_full=True, took_all=False))


def test_a_score_that_more_passages_reach_than_the_limit_changes_nothing():
    found = ask([f"p{leaf}" for leaf in range(1000)], min_score=0.9951)
    assert (found.passages, found.exhausted) == (("p0", "p1", "p2", "p3", "p4"), False)


# Joined passages


def test_it_looks_deeper_while_passages_are_joined_into_too_few():
    ranking = [*(f"a{leaf}" for leaf in range(300)), "b", "c", "d"]
    found = ask(ranking, limit=3, merge_adjacent=True)
    assert (found.passages, found.considered) == (("a", "b", "c"), 303)
    assert not found.exhausted
    assert ask(ranking, limit=9, merge_adjacent=True).exhausted


def test_a_budget_may_be_why_there_are_few_joined_passages():
    found = ask([f"a{leaf}" for leaf in range(300)], limit=3, merge_adjacent=True, token_budget=9)
    assert (found.considered, found.exhausted) == (50, False)
