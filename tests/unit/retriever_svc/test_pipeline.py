"""The one pipeline of a search, over a snapshot that is a plain ranking."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag import errors
from hrag.deadline import NEVER, Deadline
from hrag.embedding.cache import CachedQueries
from hrag.embedding.hashing import HashEmbedder
from hrag.filters import Exists, Match
from hrag.types import Aggregation, SearchMode, SearchPlan, SummaryScope
from retriever_svc import pipeline as module
from retriever_svc.pipeline import Search
from tests.rankings import (
    DIMENSION,
    QUERY,
    SEQUENCE,
    SETTINGS,
    TREE,
    Embedder,
    FakeReader,
    FakeSnapshot,
    search_of,
)


def _ask(ranking: Sequence[str], deadline: Deadline = NEVER, **asked: Any) -> Any:
    return search_of(FakeSnapshot(ranking))(replace(QUERY, **asked), deadline)


# Enough passages


def test_the_first_candidates_do_when_they_lie_in_enough_ancestors() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(100)])
    result = search_of(snapshot)(replace(QUERY, limit=5, candidates=50), NEVER)
    assert result.passages == ("p0", "p1", "p2", "p3", "p4")
    assert snapshot.counts == [50]
    assert (result.candidates_considered, result.exhausted) == (50, False)


@pytest.mark.parametrize("candidates", [1, 2, 10, 49, 50, 10_000])
def test_it_looks_deeper_while_candidates_collapse_into_one_ancestor(candidates: int) -> None:
    ranking = ["long"] * 500 + [f"p{leaf}" for leaf in range(9)] + ["rest"] * 5000
    result = _ask(ranking, limit=10, candidates=candidates)
    assert result.passages == ("long", *(f"p{leaf}" for leaf in range(9)))
    assert result.candidates_considered >= 509


def test_each_round_looks_at_four_times_as_many_leaves() -> None:
    snapshot = FakeSnapshot(["long"] * 1000)
    result = search_of(snapshot)(replace(QUERY, limit=2, candidates=10), NEVER)
    assert snapshot.counts == [10, 40, 160, 640, 2560]
    assert result.passages == ("long",)
    assert result.exhausted


def test_it_looks_at_as_many_leaves_as_passages_are_wanted() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(1000)])
    search_of(snapshot)(replace(QUERY, limit=100, candidates=1), NEVER)
    assert snapshot.counts == [100]


@given(
    st.lists(st.sampled_from("abcdefgh"), max_size=300),
    st.integers(1, 10),
    st.integers(1, 60),
)
def test_as_many_passages_come_out_as_there_are_up_to_the_limit(
    ranking: list[str], limit: int, candidates: int
) -> None:
    result = _ask(ranking, limit=limit, candidates=candidates)
    distinct = list(dict.fromkeys(ranking))
    assert list(result.passages) == distinct[:limit]
    if result.exhausted:
        assert len(result.passages) == len(distinct)
    if len(result.passages) < limit:
        assert result.exhausted


def test_more_passages_than_the_limit_are_not_exhausted() -> None:
    assert not _ask(["a", "b", "c"], limit=2).exhausted
    assert _ask(["a", "b", "c"], limit=3).exhausted


def test_an_empty_collection_answers_nothing_and_is_exhausted() -> None:
    result = _ask([])
    assert (result.passages, result.exhausted, result.candidates_considered) == ((), True, 0)


def test_it_stops_looking_deeper_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    class EndsWhileSearching:
        at_s = math.inf
        remaining_s = 1.0

        def within(self, seconds: float) -> "EndsWhileSearching":
            return self

        def check(self, stage: str) -> None:
            if stage == "searching":
                raise errors.DeadlineExceeded(f"the deadline passed while {stage}")

    with pytest.raises(errors.DeadlineExceeded, match="searching"):
        _ask(["long"] * 1000, EndsWhileSearching(), limit=2, candidates=1)  # type: ignore[arg-type]


def test_nothing_is_searched_for_a_caller_who_has_gone() -> None:
    with pytest.raises(errors.DeadlineExceeded, match="embedding"):
        _ask(["a"], Deadline.after(-1))


# Levels


@pytest.mark.parametrize(
    ("service", "collection", "asked", "returned"),
    [
        (2, None, None, 2),
        (2, 1, None, 1),
        (2, 1, 3, 3),
        (2, None, 0, 0),
        (7, None, None, 3),
        (0, 0, None, 0),
    ],
)
def test_the_level_is_the_querys_else_the_collections_else_the_services(
    service: int, collection: int | None, asked: int | None, returned: int
) -> None:
    snapshot = FakeSnapshot(["a"], replace(SETTINGS, return_level=collection))
    result = search_of(snapshot, service)(replace(QUERY, return_level=asked), NEVER)
    assert snapshot.climbs == [(returned, Aggregation.MAX)]
    assert (result.matched_at_level, result.returned_at_level) == (0, returned)


def test_what_the_service_returns_is_never_below_the_embedded_level() -> None:
    settings = replace(SETTINGS, tree=replace(TREE, embedding_level=2))
    result = search_of(FakeSnapshot(["a"], settings), return_level=1)(QUERY, NEVER)
    assert (result.matched_at_level, result.returned_at_level) == (2, 2)


def test_standard_returns_the_embedded_level() -> None:
    settings = replace(SETTINGS, tree=replace(TREE, embedding_level=1), return_level=3)
    query = replace(QUERY, mode=SearchMode.STANDARD)
    result = search_of(FakeSnapshot(["a"], settings))(query, NEVER)
    assert (result.mode, result.returned_at_level) == (SearchMode.STANDARD, 1)


@pytest.mark.parametrize("level", [0, 4, 9])
def test_a_level_that_cannot_be_returned_is_refused(level: int) -> None:
    settings = replace(SETTINGS, tree=replace(TREE, embedding_level=1))
    with pytest.raises(errors.InvalidArgument, match=f"return_level is {level}.*1.*3") as caught:
        search_of(FakeSnapshot(["a"], settings))(replace(QUERY, return_level=level), NEVER)
    assert caught.value.field == "return_level"


def test_standard_has_no_level_to_choose() -> None:
    with pytest.raises(errors.InvalidArgument, match="return_level is 0; STANDARD") as caught:
        _ask(["a"], mode=SearchMode.STANDARD, return_level=0)
    assert caught.value.field == "return_level"


# What is passed on


@pytest.mark.parametrize("aggregation", Aggregation)
def test_aggregation_and_budget_reach_the_engine(aggregation: Aggregation) -> None:
    snapshot = FakeSnapshot(["a"])
    search_of(snapshot)(replace(QUERY, aggregation=aggregation, token_budget=99), NEVER)
    assert snapshot.climbs == [(2, aggregation)]
    assert snapshot.budgets == [99]


@pytest.mark.parametrize(("asked", "ratio"), [({}, 0.5), ({"merge_ratio": 0.75}, 0.75)])
def test_auto_merge_goes_up_to_the_return_level(asked: dict[str, Any], ratio: float) -> None:
    snapshot = FakeSnapshot(["a"])
    query = replace(QUERY, mode=SearchMode.AUTO_MERGE, return_level=3, **asked)
    result = search_of(snapshot)(query, NEVER)
    assert snapshot.merges == [(3, ratio, Aggregation.MAX)]
    assert snapshot.climbs == []
    assert (result.mode, result.returned_at_level) == (SearchMode.AUTO_MERGE, 3)


@pytest.mark.parametrize("ratio", [-0.5, 0.0, 1.01, math.nan, math.inf])
def test_a_ratio_that_cannot_be_reached_is_refused(ratio: float) -> None:
    with pytest.raises(errors.InvalidArgument, match="over 0 and up to 1") as caught:
        _ask(["a"], mode=SearchMode.AUTO_MERGE, merge_ratio=ratio)
    assert caught.value.field == "merge_ratio"


@pytest.mark.parametrize("mode", [SearchMode.STANDARD, SearchMode.SMALL_TO_BIG])
def test_other_modes_have_no_ratio(mode: SearchMode) -> None:
    with pytest.raises(errors.InvalidArgument, match=mode.name):
        _ask(["a"], mode=mode, merge_ratio=0.5)


# What scores too low


def test_passages_below_the_score_are_left_out_and_nothing_deeper_is_asked() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(1000)])
    result = search_of(snapshot)(replace(QUERY, limit=5, min_score=-1.0), NEVER)
    assert result.passages == ("p0", "p1")
    assert result.exhausted
    assert snapshot.counts == [50]


def test_more_may_reach_a_sum_than_was_looked_at() -> None:
    ranking = [f"p{leaf}" for leaf in range(1000)]
    assert not _ask(ranking, min_score=-1.0, aggregation=Aggregation.SUM).exhausted
    assert _ask(ranking[:9], min_score=-1.0, aggregation=Aggregation.SUM).exhausted


def test_a_score_that_more_passages_reach_than_the_limit_changes_nothing() -> None:
    ranking = [f"p{leaf}" for leaf in range(1000)]
    result = _ask(ranking, min_score=-49.0)
    assert (result.passages, result.exhausted) == (("p0", "p1", "p2", "p3", "p4"), False)


# Filters


def test_a_filter_narrows_the_snapshot_and_says_what_was_eligible() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(9)])
    given = Match("metadata.lang", ("en",))
    result = search_of(snapshot)(replace(QUERY, filter=given, limit=9), NEVER)
    assert snapshot.filters == [given]
    assert result.passages == ("p0", "p2", "p4", "p6", "p8")
    assert (result.eligible_leaves, result.exhausted, result.plan) == (5, True, SearchPlan.SCAN)
    everything = search_of(snapshot)(QUERY, NEVER)
    assert (everything.eligible_leaves, everything.timings.filter_us) == (9, 0)
    assert snapshot.filters == [given]


def test_a_filter_that_makes_no_sense_is_refused_before_anything_is_embedded() -> None:
    embedder = Embedder(snapshot := FakeSnapshot(["a"]))
    with pytest.raises(errors.InvalidArgument, match="metadata"):
        search_of(snapshot, embedder=embedder)(replace(QUERY, filter=Exists("lang")), NEVER)
    assert (embedder.texts, snapshot.filters) == ([], [])


# Joined passages


def test_it_looks_deeper_while_passages_are_joined_into_too_few() -> None:
    snapshot = FakeSnapshot([*(f"a{leaf}" for leaf in range(300)), "b", "c", "d"])
    query = replace(QUERY, limit=3, merge_adjacent=True)
    result = search_of(snapshot)(query, NEVER)
    assert result.passages == ("a", "b", "c")
    assert (snapshot.counts, result.exhausted) == ([50, 200, 800], False)
    assert search_of(snapshot)(replace(query, limit=9), NEVER).exhausted


def test_a_budget_may_be_why_there_are_few_joined_passages() -> None:
    snapshot = FakeSnapshot([f"a{leaf}" for leaf in range(300)])
    query = replace(QUERY, limit=3, merge_adjacent=True, token_budget=9)
    assert not search_of(snapshot)(query, NEVER).exhausted
    assert snapshot.counts == [50]


def test_all_of_a_search_reads_one_snapshot() -> None:
    snapshot = FakeSnapshot(["long"] * 1000)
    reader = FakeReader(snapshot)
    result = search_of(snapshot, reader=reader)(replace(QUERY, limit=2), NEVER)
    assert len(snapshot.counts) > 1
    assert reader.snapshots == 1
    assert result.sequence == SEQUENCE
    assert not snapshot.is_open


def test_stages_are_timed_in_microseconds() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    ticks = count(step=0.001)
    embedder = Embedder(snapshot)
    cache = CachedQueries(embedder, 1)
    search = Search(FakeReader(snapshot), embedder, cache, cache, 2, lambda: next(ticks))
    timings = search(QUERY, NEVER).timings
    stages = (timings.embed_us, timings.search_us, timings.climb_us, timings.fetch_us)
    assert stages == (1000, 1000, 1000, 1000)
    assert (timings.filter_us, timings.total_us) == (0, 7000)
    timings = search(replace(QUERY, filter=Exists("title")), NEVER).timings
    assert timings.filter_us == 1000


# Queries


def test_a_text_is_embedded_once() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    search(QUERY, NEVER)
    search(QUERY, NEVER)
    assert embedder.texts == [QUERY.query]
    assert np.array_equal(snapshot.vectors[0], HashEmbedder(DIMENSION).embed(embedder.texts)[0])


@pytest.mark.parametrize("scale", [1, 1e-30, 1e30, -2])
def test_a_vector_is_used_at_unit_length(scale: float) -> None:
    snapshot = FakeSnapshot(["a"])
    search_of(snapshot)(replace(QUERY, query=[3 * scale, 0, 4 * scale, 0]), NEVER)
    (vector,) = snapshot.vectors
    assert vector.dtype == np.float32
    assert np.allclose(vector * math.copysign(1, scale), [0.6, 0, 0.8, 0])


def test_a_vector_needs_no_embedder() -> None:
    snapshot = FakeSnapshot(["a"], replace(SETTINGS, embedder="other/model"))
    assert search_of(snapshot)(replace(QUERY, query=[1, 0, 0, 0]), NEVER).passages == ("a",)


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ([1, 2, 3], "3 numbers; the collection's have 4"),
        ([1] * 5, "5 numbers; the collection's have 4"),
        ([0] * 4, "its 4 numbers are all zero"),
        ([], "its 0 numbers are all zero"),
        ([1, math.nan, 0, 0], "NaN or infinity"),
        ([1, math.inf, 0, 0], "NaN or infinity"),
    ],
)
def test_a_vector_without_direction_or_of_another_size_is_refused(
    vector: list[float], words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        _ask(["a"], query=vector)
    assert caught.value.field == "vector"


@pytest.mark.parametrize(
    ("name", "dimension", "words"),
    [
        ("other/model", DIMENSION, r"hash/4 \(4 dimensions\); this service runs other/model"),
        ("hash/4", 9, r"hash/4 \(4 dimensions\); this service runs hash/4 \(9 dimensions\)"),
    ],
)
def test_a_text_needs_the_embedder_the_collection_was_made_with(
    name: str, dimension: int, words: str
) -> None:
    snapshot = FakeSnapshot(["a"])
    with pytest.raises(errors.EmbedderMismatch, match=words):
        search_of(snapshot, embedder=Embedder(snapshot, dimension, name))(QUERY, NEVER)


def test_nothing_is_embedded_for_a_collection_of_another_embedder() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot, name="other/model")
    with pytest.raises(errors.EmbedderMismatch):
        search_of(snapshot, embedder=embedder)(QUERY, NEVER)
    assert embedder.texts == []


# Limits


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"limit": 0}, "limit", "limit is 0; it must be from 1 to 100"),
        ({"limit": 101}, "limit", "limit is 101; it must be from 1 to 100"),
        ({"candidates": 0}, "candidates", "candidates is 0; it must be from 1 to 10000"),
        ({"candidates": 10_001}, "candidates", "10001; it must be from 1 to 10000"),
        ({"query": ""}, "text", "text is blank"),
        ({"query": " \n\u3000"}, "text", "text is blank"),
        ({"query": "ü" * 16_385}, "text", "32770 bytes; at most 32768"),
        ({"min_score": math.nan}, "min_score", "min_score is nan; it must be a finite number"),
        ({"min_score": -math.inf}, "min_score", "min_score is -inf"),
        ({"tenant_id": "t\0c"}, "tenant_id", "tenant_id is"),
        ({"collection": "c/d"}, "collection", "collection is"),
    ],
)
def test_what_is_past_its_limit_is_refused_by_field_and_value(
    asked: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        _ask(["a"], **asked)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "asked", [{"limit": 1}, {"limit": 100}, {"candidates": 10_000}, {"query": "x" * 32_768}]
)
def test_the_limits_themselves_are_allowed(asked: dict[str, Any]) -> None:
    assert _ask(["a"], **asked).passages == ("a",)


# Summaries first


@pytest.mark.parametrize(
    ("asked", "count", "scope"),
    [
        ({}, 3, SummaryScope.SECTIONS),
        ({"top_sections": 1, "summary_scope": SummaryScope.DOCUMENTS}, 1, SummaryScope.DOCUMENTS),
        ({"top_sections": 1000, "summary_scope": SummaryScope.SECTIONS}, 9, SummaryScope.SECTIONS),
    ],
)
def test_only_the_best_sections_are_searched(
    asked: dict[str, Any], count: int, scope: SummaryScope
) -> None:
    sections = "abcdefghi"[:count]
    snapshot = FakeSnapshot("abcdefghi" * 5)
    query = replace(QUERY, mode=SearchMode.SUMMARY_FIRST, limit=20, **asked)
    result = search_of(snapshot)(query, NEVER)
    assert snapshot.summaries == [(asked.get("top_sections", 3), scope)]
    assert result.passages == result.sections == tuple(sections)
    assert result.exhausted
    assert result.eligible_leaves == 5 * count
    assert snapshot.climbs == [(2, Aggregation.MAX)]


def test_sections_are_chosen_among_what_the_filter_lets_through() -> None:
    snapshot = FakeSnapshot("abcdefgh")
    query = replace(QUERY, mode=SearchMode.SUMMARY_FIRST, filter=Exists("title"))
    assert search_of(snapshot)(query, NEVER).sections == ("a", "c", "e")


# Waiting for a change


def test_a_search_waits_until_its_change_is_there() -> None:
    snapshot = FakeSnapshot(["a"])
    looks = iter([1, 2, 9])
    search = search_of(snapshot, reader=FakeReader(snapshot, looks))
    assert search(replace(QUERY, min_sequence=8), Deadline.after(5)).passages == ("a",)
    assert list(looks) == []


def test_a_search_without_a_change_to_wait_for_does_not_look() -> None:
    snapshot = FakeSnapshot(["a"])
    looks = iter([1])
    search_of(snapshot, reader=FakeReader(snapshot, looks))(QUERY, NEVER)
    assert list(looks) == [1]


def test_a_change_that_does_not_come_in_time_is_told_with_how_far_the_store_is() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, iter([3] * 1000)))
    with pytest.raises(
        errors.SequenceNotReached, match="is 8; the tenant's last change is 3"
    ) as caught:
        search(replace(QUERY, min_sequence=8), Deadline.after(0.02))
    assert caught.value.field == "min_sequence"


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_WAIT_S", 0.02)
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, iter([3] * 1000)))
    with pytest.raises(errors.SequenceNotReached):
        search(replace(QUERY, min_sequence=8), NEVER)


def test_a_caller_that_goes_ends_the_wait() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, iter([3] * 1000)))
    leaves = iter([True, True, False])
    with pytest.raises(errors.Cancelled, match="waiting for min_sequence"):
        search(replace(QUERY, min_sequence=8), Deadline(is_waiting=lambda: next(leaves)))


def test_nothing_is_embedded_or_searched_for_a_caller_that_is_gone() -> None:
    snapshot = FakeSnapshot(["a"])
    reader, embedder = FakeReader(snapshot), Embedder(snapshot)
    search = search_of(snapshot, reader=reader, embedder=embedder)
    with pytest.raises(errors.Cancelled, match="embedding"):
        search(QUERY, Deadline(is_waiting=lambda: False))
    assert reader.snapshots == 0
