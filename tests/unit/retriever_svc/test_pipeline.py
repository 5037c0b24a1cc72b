"""The pipeline of a search, over a snapshot that is a plain ranking."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, repeat
from typing import Any

import numpy as np
import pytest

from hrag import errors
from hrag.filters import Exists, Match
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.server.admission.suspension import Suspended
from hrag.types import (
    Aggregation,
    Chunk,
    Passage,
    SearchMode,
    SearchPlan,
    Span,
    SummaryScope,
)
from hrag.values.deadline import NEVER, Deadline
from hrag.wire.passages import encoded_passage
from retriever_svc.search_pipeline import Search
from retriever_svc.search_timings import stage_seconds
from tests.support.engines.rankings import (
    DIMENSION,
    QUERY,
    SEQUENCE,
    SETTINGS,
    TREE,
    Embedder,
    FakeReader,
    FakeSnapshot,
    PlainSnapshot,
    search_of,
)


def _ask(ranking: Sequence[str], deadline: Deadline = NEVER, **asked: Any) -> Any:
    return search_of(FakeSnapshot(ranking))(replace(QUERY, **asked), deadline)


def test_what_the_engine_finds_is_the_result() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(100)])
    result = search_of(snapshot)(replace(QUERY, limit=5), NEVER)
    assert result.passages == ("p0", "p1", "p2", "p3", "p4")
    assert (result.candidates_considered, result.exhausted) == (100, False)
    assert (result.plan, result.sequence) == (SearchPlan.SCAN, SEQUENCE)


def test_a_search_opens_one_snapshot_and_closes_it() -> None:
    """Except the first one of a collection, which looks at it before it embeds."""
    snapshot = FakeSnapshot(["a", "b"])
    reader = FakeReader(snapshot)
    search = search_of(snapshot, reader=reader)
    search(QUERY, NEVER)
    assert (reader.snapshots, len(snapshot.requests), snapshot.is_open) == (2, 1, False)
    search(QUERY, NEVER)
    assert (reader.snapshots, len(snapshot.requests), snapshot.is_open) == (3, 2, False)


def test_a_search_by_vector_opens_one_snapshot_from_the_first() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    reader = FakeReader(snapshot)
    search_of(snapshot, reader=reader)(replace(QUERY, query=[1, 0, 0, 0], collection="o"), NEVER)
    assert reader.opened == [(QUERY.tenant_id, "o")]


def test_the_engine_encodes_passages() -> None:
    assert search_of(FakeSnapshot(["a", "b"])).encoded(QUERY, NEVER).passages == (b"a", b"b")


def test_an_engine_may_encode_passages_from_values() -> None:
    snapshot = _Values(["a", "b", "c"])
    query = replace(QUERY, limit=2, filter=Exists("title"))
    encoded = search_of(snapshot).encoded(query, NEVER)
    values = search_of(snapshot)(query, NEVER)
    assert encoded.passages == tuple(map(encoded_passage, values.passages))
    without_passages = replace(encoded, passages=(), timings=values.timings)
    assert without_passages == replace(values, passages=())


class _Values(PlainSnapshot):
    """Finds whole passages and encodes them from values."""

    def passage(self, name: str) -> Passage:
        span = Span(0, 4, 0, 4)
        chunk = Chunk(f"{name}#0.0", name, 0, 0, "text", 1, span, (), 0, 0, "", "", {})
        return Passage(chunk, 0.5, ())


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
    assert [request.level for request in snapshot.requests] == [returned]
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
    (request,) = snapshot.requests
    assert (request.level, request.aggregation, request.token_budget) == (2, aggregation, 99)


def test_all_that_the_engine_needs_is_passed_on() -> None:
    snapshot = FakeSnapshot(["a"])
    asked = {
        "limit": 7,
        "candidates": 70,
        "min_score": 0.25,
        "token_budget": 99,
        "cut_last": True,
        "merge_adjacent": True,
        "filter": Exists("title"),
    }
    search_of(snapshot)(replace(QUERY, **asked), NEVER)
    (request,) = snapshot.requests
    assert {name: getattr(request, name) for name in asked} == asked


@pytest.mark.parametrize(("asked", "ratio"), [({}, 0.5), ({"merge_ratio": 0.75}, 0.75)])
def test_auto_merge_goes_up_to_the_return_level(asked: dict[str, Any], ratio: float) -> None:
    snapshot = FakeSnapshot(["a"])
    query = replace(QUERY, mode=SearchMode.AUTO_MERGE, return_level=3, **asked)
    result = search_of(snapshot)(query, NEVER)
    (request,) = snapshot.requests
    assert (request.mode, request.level, request.merge_ratio) == (query.mode, 3, ratio)
    assert (result.mode, result.returned_at_level) == (SearchMode.AUTO_MERGE, 3)


@pytest.mark.parametrize("ratio", [-0.5, 0.0, 1.01, math.nan, math.inf])
def test_a_ratio_that_cannot_be_reached_is_refused(ratio: float) -> None:
    with pytest.raises(errors.InvalidArgument, match="greater than 0 and at most 1") as caught:
        _ask(["a"], mode=SearchMode.AUTO_MERGE, merge_ratio=ratio)
    assert caught.value.field == "merge_ratio"


@pytest.mark.parametrize("mode", [SearchMode.STANDARD, SearchMode.SMALL_TO_BIG])
def test_other_modes_have_no_ratio(mode: SearchMode) -> None:
    with pytest.raises(errors.InvalidArgument, match=mode.name):
        _ask(["a"], mode=mode, merge_ratio=0.5)


# Filters


def test_a_filter_narrows_the_snapshot_and_says_what_was_eligible() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(9)])
    given = Match("metadata.lang", ("en",))
    result = search_of(snapshot)(replace(QUERY, filter=given, limit=9), NEVER)
    assert [request.filter for request in snapshot.requests] == [given]
    assert result.passages == ("p0", "p2", "p4", "p6", "p8")
    assert (result.eligible_leaves, result.exhausted, result.plan) == (5, True, SearchPlan.SCAN)
    everything = search_of(snapshot)(QUERY, NEVER)
    assert (everything.eligible_leaves, everything.timings.filter_us) == (9, 0)


def test_a_filter_that_makes_no_sense_is_refused_before_anything_is_embedded() -> None:
    embedder = Embedder(snapshot := FakeSnapshot(["a"]))
    with pytest.raises(errors.InvalidArgument, match="metadata"):
        search_of(snapshot, embedder=embedder)(replace(QUERY, filter=Exists("lang")), NEVER)
    assert (embedder.texts, snapshot.requests) == ([], [])


# Timings


def test_stages_are_timed_in_microseconds() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    ticks = count(step=0.001)
    embedder = Embedder(snapshot)
    cache = CachedQueries(embedder, 1)
    search = Search(FakeReader(snapshot), embedder, cache, cache, 2, clock=lambda: next(ticks))
    timings = search(QUERY, NEVER).timings
    stages = (timings.embed_us, timings.search_us, timings.climb_us, timings.fetch_us)
    assert stages == (1000, 2000, 3000, 4000)
    assert (timings.filter_us, timings.total_us) == (0, 2000)
    timings = search(replace(QUERY, filter=Exists("title")), NEVER).timings
    assert timings.filter_us == 5000


def test_a_stage_that_comes_again_is_added_up() -> None:
    stages = [("search", 0.0, 1.0), ("climb", 1.0, 1.5), ("search", 2.0, 2.25)]
    assert stage_seconds(stages) == {"search": 1.25, "climb": 0.5}


# Queries


def test_a_text_is_embedded_once() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    search(QUERY, NEVER)
    search(QUERY, NEVER)
    assert embedder.texts == [QUERY.query]
    assert np.array_equal(
        snapshot.requests[0].vector, HashEmbedder(DIMENSION).embed(embedder.texts)[0]
    )


@pytest.mark.parametrize("scale", [1, 1e-30, 1e30, -2])
def test_a_vector_is_used_at_unit_length(scale: float) -> None:
    snapshot = FakeSnapshot(["a"])
    search_of(snapshot)(replace(QUERY, query=[3 * scale, 0, 4 * scale, 0]), NEVER)
    (vector,) = [request.vector for request in snapshot.requests]
    assert vector.dtype == np.float32
    assert np.allclose(vector * math.copysign(1, scale), [0.6, 0, 0.8, 0])


def test_a_vector_needs_no_embedder() -> None:
    snapshot = FakeSnapshot(["a"], replace(SETTINGS, embedder="other/model"))
    assert search_of(snapshot)(replace(QUERY, query=[1, 0, 0, 0]), NEVER).passages == ("a",)


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ([1, 2, 3], "3 numbers; the vectors of the collection have 4"),
        ([1] * 5, "5 numbers; the vectors of the collection have 4"),
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


def test_nothing_is_embedded_or_searched_for_a_collection_of_another_embedder() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot, name="other/model")
    with pytest.raises(errors.EmbedderMismatch):
        search_of(snapshot, embedder=embedder)(QUERY, NEVER)
    assert (embedder.texts, snapshot.requests) == ([], [])


def test_a_collection_that_was_made_again_with_another_embedder_is_found_out() -> None:
    """Its name is known, so the first query is embedded in vain, and no further one."""
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    search(QUERY, NEVER)
    snapshot.settings = replace(SETTINGS, embedder="other/model")
    for text in ("one", "two", "three"):
        with pytest.raises(errors.EmbedderMismatch):
            search(replace(QUERY, query=text), NEVER)
    assert embedder.texts == [QUERY.query, "one"]
    assert len(snapshot.requests) == 1


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
    (request,) = snapshot.requests
    assert (request.top_sections, request.summary_scope) == (asked.get("top_sections", 3), scope)
    assert result.passages == result.sections == tuple(sections)
    assert result.exhausted
    assert result.eligible_leaves == 5 * count
    assert (request.level, request.aggregation) == (2, Aggregation.MAX)


def test_sections_are_chosen_among_what_the_filter_lets_through() -> None:
    snapshot = FakeSnapshot("abcdefgh")
    query = replace(QUERY, mode=SearchMode.SUMMARY_FIRST, filter=Exists("title"))
    assert search_of(snapshot)(query, NEVER).sections == ("a", "c", "e")


# Waiting for a change


def test_a_search_finds_its_change_there() -> None:
    snapshot = FakeSnapshot(["a"])
    reader = FakeReader(snapshot, iter([9]))
    search = search_of(snapshot, reader=reader)
    assert search(replace(QUERY, min_sequence=8), Deadline.after(5)).passages == ("a",)
    assert set(reader.tenants) == {QUERY.tenant_id}


def test_a_search_without_a_change_to_wait_for_does_not_look() -> None:
    snapshot, looks = FakeSnapshot(["a"]), iter([1])
    search_of(snapshot, reader=FakeReader(snapshot, looks))(QUERY, NEVER)
    assert list(looks) == [1]


def test_a_search_is_suspended_until_its_change_has_come() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, iter([3, 3, 8])))
    with pytest.raises(Suspended) as caught:
        search(replace(QUERY, min_sequence=8), NEVER)
    assert not caught.value.is_ready()
    assert caught.value.is_ready()


def test_a_suspended_search_runs_again_when_its_caller_goes() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, repeat(3)))
    waits = [True]
    with pytest.raises(Suspended) as caught:
        search(replace(QUERY, min_sequence=8), Deadline(is_waiting=lambda: waits[0]))
    assert not caught.value.is_past
    waits[0] = False
    assert caught.value.is_past
    with pytest.raises(errors.Cancelled, match="waiting for min_sequence"):
        search(replace(QUERY, min_sequence=8), Deadline(is_waiting=lambda: waits[0]))


def test_a_change_that_does_not_come_in_time_is_refused_with_how_far_the_tenant_is() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, repeat(3)))
    with pytest.raises(
        errors.SequenceNotReached, match="is 8; the tenant's last sequence number is 3"
    ) as caught:
        search(replace(QUERY, min_sequence=8), Deadline.after(0.005))
    assert caught.value.field == "min_sequence"


def test_nothing_is_embedded_or_searched_for_a_caller_that_is_gone() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    with pytest.raises(errors.Cancelled, match="embedding"):
        search(QUERY, Deadline(is_waiting=lambda: False))
    assert snapshot.requests == []
