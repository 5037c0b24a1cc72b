"""The search pipeline checks a query, embeds its text, and returns the engine's result.

The engine is a fake snapshot with a fixed ranking.
"""

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


def _search(ranking: Sequence[str], deadline: Deadline = NEVER, **options: Any) -> Any:
    """Returns the result of QUERY with these options, from a snapshot with this ranking."""
    return search_of(FakeSnapshot(ranking))(replace(QUERY, **options), deadline)


def test_the_result_has_the_passages_and_the_counts_of_the_engine() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(100)])
    result = search_of(snapshot)(replace(QUERY, limit=5), NEVER)
    assert result.passages == ("p0", "p1", "p2", "p3", "p4")
    assert (result.candidates_considered, result.exhausted) == (100, False)
    assert (result.plan, result.sequence) == (SearchPlan.SCAN, SEQUENCE)


def test_a_search_opens_one_snapshot_and_closes_it() -> None:
    """The first search of a collection opens two: it checks the collection before it embeds."""
    snapshot = FakeSnapshot(["a", "b"])
    reader = FakeReader(snapshot)
    search = search_of(snapshot, reader=reader)
    search(QUERY, NEVER)
    assert (reader.snapshots, len(snapshot.requests), snapshot.is_open) == (2, 1, False)
    search(QUERY, NEVER)
    assert (reader.snapshots, len(snapshot.requests), snapshot.is_open) == (3, 2, False)


def test_the_first_search_by_vector_in_a_collection_opens_one_snapshot_too() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    reader = FakeReader(snapshot)
    search_of(snapshot, reader=reader)(replace(QUERY, query=[1, 0, 0, 0], collection="o"), NEVER)
    assert reader.opened == [(QUERY.tenant_id, "o")]


def test_the_engine_encodes_passages() -> None:
    assert search_of(FakeSnapshot(["a", "b"])).encoded(QUERY, NEVER).passages == (b"a", b"b")


def test_passages_that_an_engine_returns_as_values_are_encoded() -> None:
    snapshot = _ValueSnapshot(["a", "b", "c"])
    query = replace(QUERY, limit=2, filter=Exists("title"))
    encoded = search_of(snapshot).encoded(query, NEVER)
    values = search_of(snapshot)(query, NEVER)
    assert encoded.passages == tuple(map(encoded_passage, values.passages))
    without_passages = replace(encoded, passages=(), timings=values.timings)
    assert without_passages == replace(values, passages=())


class _ValueSnapshot(PlainSnapshot):
    """A snapshot that returns passages as values. The pipeline encodes these values."""

    def passage(self, name: str) -> Passage:
        span = Span(0, 4, 0, 4)
        chunk = Chunk(f"{name}#0.0", name, 0, 0, "text", 1, span, (), 0, 0, "", "", {})
        return Passage(chunk, 0.5, ())


def test_nothing_is_searched_after_the_deadline() -> None:
    with pytest.raises(errors.DeadlineExceeded, match="embedding"):
        _search(["a"], Deadline.after(-1))


# The following tests cover the levels at which leaves match and passages are returned.


@pytest.mark.parametrize(
    ("service_level", "collection_level", "query_level", "returned_level"),
    [
        (2, None, None, 2),
        (2, 1, None, 1),
        (2, 1, 3, 3),
        (2, None, 0, 0),
        (7, None, None, 3),
        (0, 0, None, 0),
    ],
)
def test_the_query_sets_the_return_level_or_else_the_collection_or_else_the_service(
    service_level: int,
    collection_level: int | None,
    query_level: int | None,
    returned_level: int,
) -> None:
    snapshot = FakeSnapshot(["a"], replace(SETTINGS, return_level=collection_level))
    query = replace(QUERY, return_level=query_level)
    result = search_of(snapshot, service_level)(query, NEVER)
    assert [request.level for request in snapshot.requests] == [returned_level]
    assert (result.matched_at_level, result.returned_at_level) == (0, returned_level)


def test_a_return_level_of_the_service_below_the_embedded_level_is_raised_to_it() -> None:
    settings = replace(SETTINGS, tree=replace(TREE, embedding_level=2))
    result = search_of(FakeSnapshot(["a"], settings), return_level=1)(QUERY, NEVER)
    assert (result.matched_at_level, result.returned_at_level) == (2, 2)


def test_the_mode_standard_returns_the_embedded_level() -> None:
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


def test_the_mode_standard_refuses_a_return_level() -> None:
    with pytest.raises(errors.InvalidArgument, match="return_level is 0; STANDARD") as caught:
        _search(["a"], mode=SearchMode.STANDARD, return_level=0)
    assert caught.value.field == "return_level"


# The following tests cover the options that are passed to the engine.


@pytest.mark.parametrize("aggregation", Aggregation)
def test_the_aggregation_and_the_token_budget_are_passed_to_the_engine(
    aggregation: Aggregation,
) -> None:
    snapshot = FakeSnapshot(["a"])
    search_of(snapshot)(replace(QUERY, aggregation=aggregation, token_budget=99), NEVER)
    (request,) = snapshot.requests
    assert (request.level, request.aggregation, request.token_budget) == (2, aggregation, 99)


def test_the_options_of_a_query_are_passed_to_the_engine() -> None:
    snapshot = FakeSnapshot(["a"])
    options = {
        "limit": 7,
        "candidates": 70,
        "min_score": 0.25,
        "token_budget": 99,
        "cut_last": True,
        "merge_adjacent": True,
        "filter": Exists("title"),
    }
    search_of(snapshot)(replace(QUERY, **options), NEVER)
    (request,) = snapshot.requests
    assert {name: getattr(request, name) for name in options} == options


@pytest.mark.parametrize(("options", "ratio"), [({}, 0.5), ({"merge_ratio": 0.75}, 0.75)])
def test_auto_merge_merges_up_to_the_return_level(options: dict[str, Any], ratio: float) -> None:
    snapshot = FakeSnapshot(["a"])
    query = replace(QUERY, mode=SearchMode.AUTO_MERGE, return_level=3, **options)
    result = search_of(snapshot)(query, NEVER)
    (request,) = snapshot.requests
    assert (request.mode, request.level, request.merge_ratio) == (query.mode, 3, ratio)
    assert (result.mode, result.returned_at_level) == (SearchMode.AUTO_MERGE, 3)


@pytest.mark.parametrize("ratio", [-0.5, 0.0, 1.01, math.nan, math.inf])
def test_a_merge_ratio_outside_its_range_is_refused(ratio: float) -> None:
    with pytest.raises(errors.InvalidArgument, match="greater than 0 and at most 1") as caught:
        _search(["a"], mode=SearchMode.AUTO_MERGE, merge_ratio=ratio)
    assert caught.value.field == "merge_ratio"


@pytest.mark.parametrize("mode", [SearchMode.STANDARD, SearchMode.SMALL_TO_BIG])
def test_modes_other_than_auto_merge_refuse_a_merge_ratio(mode: SearchMode) -> None:
    with pytest.raises(errors.InvalidArgument, match=mode.name):
        _search(["a"], mode=mode, merge_ratio=0.5)


# The following tests cover filters.


def test_a_filter_limits_the_passages_and_the_result_counts_the_eligible_leaves() -> None:
    snapshot = FakeSnapshot([f"p{leaf}" for leaf in range(9)])
    condition = Match("metadata.lang", ("en",))
    result = search_of(snapshot)(replace(QUERY, filter=condition, limit=9), NEVER)
    assert [request.filter for request in snapshot.requests] == [condition]
    assert result.passages == ("p0", "p2", "p4", "p6", "p8")
    assert (result.eligible_leaves, result.exhausted, result.plan) == (5, True, SearchPlan.SCAN)
    everything = search_of(snapshot)(QUERY, NEVER)
    assert (everything.eligible_leaves, everything.timings.filter_us) == (9, 0)


def test_an_invalid_filter_is_refused_before_anything_is_embedded() -> None:
    embedder = Embedder(snapshot := FakeSnapshot(["a"]))
    with pytest.raises(errors.InvalidArgument, match="metadata"):
        search_of(snapshot, embedder=embedder)(replace(QUERY, filter=Exists("lang")), NEVER)
    assert (embedder.texts, snapshot.requests) == ([], [])


# The following tests cover the time of each stage.


def test_stages_are_timed_in_microseconds() -> None:
    snapshot = FakeSnapshot(["a", "b"])
    ticks = count(step=0.001)
    embedder = Embedder(snapshot)
    cache = CachedQueries(embedder, 1)
    search = Search(FakeReader(snapshot), embedder, cache, 2, clock=lambda: next(ticks))
    timings = search(QUERY, NEVER).timings
    stages = (timings.embed_us, timings.search_us, timings.climb_us, timings.fetch_us)
    assert stages == (1000, 2000, 3000, 4000)
    assert (timings.filter_us, timings.total_us) == (0, 2000)
    timings = search(replace(QUERY, filter=Exists("title")), NEVER).timings
    assert timings.filter_us == 5000


def test_the_times_of_a_repeated_stage_are_added() -> None:
    stages = [("search", 0.0, 1.0), ("climb", 1.0, 1.5), ("search", 2.0, 2.25)]
    assert stage_seconds(stages) == {"search": 1.25, "climb": 0.5}


# The following tests cover the text and the vector of a query.


def test_the_text_of_a_repeated_query_is_embedded_once() -> None:
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
def test_the_vector_of_a_query_is_scaled_to_unit_length(scale: float) -> None:
    snapshot = FakeSnapshot(["a"])
    search_of(snapshot)(replace(QUERY, query=[3 * scale, 0, 4 * scale, 0]), NEVER)
    (vector,) = [request.vector for request in snapshot.requests]
    assert vector.dtype == np.float32
    assert np.allclose(vector * math.copysign(1, scale), [0.6, 0, 0.8, 0])


def test_a_search_by_vector_does_not_need_the_embedder_of_the_collection() -> None:
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
def test_a_vector_without_direction_or_of_another_dimension_is_refused(
    vector: list[float], words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        _search(["a"], query=vector)
    assert caught.value.field == "vector"


@pytest.mark.parametrize(
    ("name", "dimension", "words"),
    [
        ("other/model", DIMENSION, r"hash/4 \(4 dimensions\); this service runs other/model"),
        ("hash/4", 9, r"hash/4 \(4 dimensions\); this service runs hash/4 \(9 dimensions\)"),
    ],
)
def test_a_search_by_text_needs_the_embedder_of_the_collection(
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


def test_a_collection_that_was_created_again_with_another_embedder_is_noticed() -> None:
    """The pipeline has cached the collection, so it embeds one more query in vain.

    It does not embed the queries after that.
    """
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


# The following tests cover the limits of options.


@pytest.mark.parametrize(
    ("options", "field", "words"),
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
def test_the_error_for_an_invalid_option_names_its_field_and_its_value(
    options: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        _search(["a"], **options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "options", [{"limit": 1}, {"limit": 100}, {"candidates": 10_000}, {"query": "x" * 32_768}]
)
def test_values_equal_to_their_limits_are_allowed(options: dict[str, Any]) -> None:
    assert _search(["a"], **options).passages == ("a",)


# The following tests cover the mode SUMMARY_FIRST.


@pytest.mark.parametrize(
    ("options", "count", "scope"),
    [
        ({}, 3, SummaryScope.SECTIONS),
        ({"top_sections": 1, "summary_scope": SummaryScope.DOCUMENTS}, 1, SummaryScope.DOCUMENTS),
        ({"top_sections": 1000, "summary_scope": SummaryScope.SECTIONS}, 9, SummaryScope.SECTIONS),
    ],
)
def test_summary_first_searches_only_the_best_sections(
    options: dict[str, Any], count: int, scope: SummaryScope
) -> None:
    sections = "abcdefghi"[:count]
    snapshot = FakeSnapshot("abcdefghi" * 5)
    query = replace(QUERY, mode=SearchMode.SUMMARY_FIRST, limit=20, **options)
    result = search_of(snapshot)(query, NEVER)
    (request,) = snapshot.requests
    assert (request.top_sections, request.summary_scope) == (options.get("top_sections", 0), scope)
    assert result.passages == result.sections == tuple(sections)
    assert result.exhausted
    assert result.eligible_leaves == 5 * count
    assert (request.level, request.aggregation) == (2, Aggregation.MAX)


def test_summary_first_chooses_only_among_sections_that_the_filter_allows() -> None:
    snapshot = FakeSnapshot("abcdefgh")
    query = replace(QUERY, mode=SearchMode.SUMMARY_FIRST, filter=Exists("title"))
    assert search_of(snapshot)(query, NEVER).sections == ("a", "c", "e")


# The following tests cover searches that wait for a sequence number.


def test_a_search_runs_at_once_if_the_tenant_has_reached_min_sequence() -> None:
    snapshot = FakeSnapshot(["a"])
    reader = FakeReader(snapshot, iter([9]))
    search = search_of(snapshot, reader=reader)
    assert search(replace(QUERY, min_sequence=8), Deadline.after(60)).passages == ("a",)
    assert set(reader.tenants) == {QUERY.tenant_id}


def test_a_search_without_min_sequence_does_not_read_the_sequence() -> None:
    snapshot, sequences = FakeSnapshot(["a"]), iter([1])
    search_of(snapshot, reader=FakeReader(snapshot, sequences))(QUERY, NEVER)
    assert list(sequences) == [1]


def test_a_search_is_suspended_until_the_tenant_reaches_min_sequence() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, iter([3, 3, 8])))
    with pytest.raises(Suspended) as caught:
        search(replace(QUERY, min_sequence=8), NEVER)
    assert not caught.value.is_ready()
    assert caught.value.is_ready()


def test_a_suspended_search_runs_again_when_its_caller_leaves() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, repeat(3)))
    is_waiting = [True]
    with pytest.raises(Suspended) as caught:
        search(replace(QUERY, min_sequence=8), Deadline(is_waiting=lambda: is_waiting[0]))
    assert not caught.value.is_past
    is_waiting[0] = False
    assert caught.value.is_past
    with pytest.raises(errors.Cancelled, match="waiting for min_sequence"):
        search(replace(QUERY, min_sequence=8), Deadline(is_waiting=lambda: is_waiting[0]))


def test_the_error_after_the_deadline_names_min_sequence_and_the_last_sequence() -> None:
    snapshot = FakeSnapshot(["a"])
    search = search_of(snapshot, reader=FakeReader(snapshot, repeat(3)))
    with pytest.raises(
        errors.SequenceNotReached, match="is 8; the tenant's last sequence number is 3"
    ) as caught:
        search(replace(QUERY, min_sequence=8), Deadline.after(0.005))
    assert caught.value.field == "min_sequence"


def test_nothing_is_searched_for_a_caller_that_has_left() -> None:
    snapshot = FakeSnapshot(["a"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    with pytest.raises(errors.Cancelled, match="embedding"):
        search(QUERY, Deadline(is_waiting=lambda: False))
    assert snapshot.requests == []
