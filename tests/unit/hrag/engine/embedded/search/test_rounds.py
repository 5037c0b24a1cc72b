"""A search looks at more leaves until enough passages come out, over plain rankings."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag import errors
from hrag.deadline import NEVER, Deadline
from hrag.engine.embedded.search.snapshot import EmbeddedSnapshot
from hrag.engine.find import FindRequest, Found
from hrag.types import Aggregation, SearchMode

REQUEST = FindRequest(np.ones(4, np.float32), SearchMode.SMALL_TO_BIG, 2, limit=5, candidates=50)


@dataclass(frozen=True)
class Leaves:
    """Leaves as the names of the ancestors they lie in."""

    ancestors: Sequence[str]
    complete: bool
    exact: bool = True

    def __len__(self) -> int:
        return len(self.ancestors)


class Groups(list[str]):
    """Names of ancestors, best first; the score of one is minus its place."""

    def reaching(self, score: float) -> "Groups":
        return Groups(name for place, name in enumerate(self) if -place >= score)


@dataclass
class RankedSnapshot(EmbeddedSnapshot):
    """Its ranking names, best leaf first, the ancestor of every leaf."""

    ranking: Sequence[str]
    _deadline: Deadline = NEVER
    counts: list[int] = field(default_factory=list)

    def ask(self, **asked: Any) -> Found[str]:
        return self._find(replace(REQUEST, **asked), self._read)

    def _eligible(self, request: FindRequest, stages: list[Any]) -> Any:
        return SimpleNamespace(count=len(self.ranking)), ()

    def _look(self, request: FindRequest, eligible: Any, count: int, stages: list[Any]) -> Any:
        self.counts.append(count)
        leaves = Leaves(self.ranking[:count], count >= len(self.ranking))
        return leaves, Groups(dict.fromkeys(leaves.ancestors))

    def _read(self, groups: Any, request: FindRequest) -> tuple[str, ...]:
        """Neighbours are those with the same first letter."""
        if request.merge_adjacent:
            return tuple(dict.fromkeys(name[0] for name in groups))[: request.limit]
        return tuple(groups[: request.limit])


def ask(ranking: Sequence[str], **asked: Any) -> Found[str]:
    return RankedSnapshot(ranking).ask(**asked)


# Enough passages


def test_the_first_candidates_do_when_they_lie_in_enough_ancestors():
    snapshot = RankedSnapshot([f"p{leaf}" for leaf in range(100)])
    found = snapshot.ask()
    assert found.passages == ("p0", "p1", "p2", "p3", "p4")
    assert snapshot.counts == [50]
    assert (found.considered, found.eligible_leaves, found.exhausted) == (50, 100, False)


@pytest.mark.parametrize("candidates", [1, 2, 10, 49, 50, 10_000])
def test_it_looks_deeper_while_candidates_collapse_into_one_ancestor(candidates):
    ranking = ["long"] * 500 + [f"p{leaf}" for leaf in range(9)] + ["rest"] * 5000
    found = ask(ranking, limit=10, candidates=candidates)
    assert found.passages == ("long", *(f"p{leaf}" for leaf in range(9)))
    assert found.considered >= 509


def test_each_round_looks_at_four_times_as_many_leaves():
    snapshot = RankedSnapshot(["long"] * 1000)
    found = snapshot.ask(limit=2, candidates=10)
    assert snapshot.counts == [10, 40, 160, 640, 2560]
    assert (found.passages, found.exhausted) == (("long",), True)


def test_it_looks_at_as_many_leaves_as_passages_are_wanted():
    snapshot = RankedSnapshot([f"p{leaf}" for leaf in range(1000)])
    snapshot.ask(limit=100, candidates=1)
    assert snapshot.counts == [100]


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


def test_more_passages_than_the_limit_are_not_exhausted():
    assert not ask(["a", "b", "c"], limit=2).exhausted
    assert ask(["a", "b", "c"], limit=3).exhausted


def test_an_empty_collection_has_nothing_and_is_exhausted():
    found = ask([])
    assert (found.passages, found.exhausted, found.considered) == ((), True, 0)


def test_it_stops_looking_deeper_at_the_deadline():
    waits = iter([True, True, False])
    snapshot = RankedSnapshot(["long"] * 1000, Deadline(is_waiting=lambda: next(waits)))
    with pytest.raises(errors.Cancelled, match="searching"):
        snapshot.ask(limit=2, candidates=1)
    assert snapshot.counts == [2, 8]


def test_nothing_is_searched_past_the_deadline():
    snapshot = RankedSnapshot(["a"], Deadline.after(-1))
    with pytest.raises(errors.DeadlineExceeded, match="searching"):
        snapshot.ask()
    assert snapshot.counts == []


# What scores too low


def test_passages_below_the_score_are_left_out_and_nothing_deeper_is_asked():
    snapshot = RankedSnapshot([f"p{leaf}" for leaf in range(1000)])
    found = snapshot.ask(min_score=-1.0)
    assert (found.passages, found.exhausted) == (("p0", "p1"), True)
    assert snapshot.counts == [50]


def test_more_may_reach_a_sum_than_was_looked_at():
    ranking = [f"p{leaf}" for leaf in range(1000)]
    assert not ask(ranking, min_score=-1.0, aggregation=Aggregation.SUM).exhausted
    assert ask(ranking[:9], min_score=-1.0, aggregation=Aggregation.SUM).exhausted


def test_a_score_that_more_passages_reach_than_the_limit_changes_nothing():
    found = ask([f"p{leaf}" for leaf in range(1000)], min_score=-49.0)
    assert (found.passages, found.exhausted) == (("p0", "p1", "p2", "p3", "p4"), False)


# Joined passages


def test_it_looks_deeper_while_passages_are_joined_into_too_few():
    snapshot = RankedSnapshot([*(f"a{leaf}" for leaf in range(300)), "b", "c", "d"])
    found = snapshot.ask(limit=3, merge_adjacent=True)
    assert found.passages == ("a", "b", "c")
    assert (snapshot.counts, found.exhausted) == ([50, 200, 800], False)
    assert snapshot.ask(limit=9, merge_adjacent=True).exhausted


def test_a_budget_may_be_why_there_are_few_joined_passages():
    snapshot = RankedSnapshot([f"a{leaf}" for leaf in range(300)])
    assert not snapshot.ask(limit=3, merge_adjacent=True, token_budget=9).exhausted
    assert snapshot.counts == [50]
