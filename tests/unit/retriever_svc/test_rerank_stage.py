"""A search returns its best passages in the order of the reranker.

The engine is a fake snapshot with a fixed ranking.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag import errors
from hrag.types import Chunk, MatchedChild, Passage, SearchMode, SearchQuery, SearchResult, Span
from hrag.values.deadline import NEVER, Deadline
from hrag.wire.passages import encoded_passage
from retriever_svc.rerank_stage import RerankSetup
from tests.support.engines.rankings import QUERY, FakeReader, PlainSnapshot, search_of

NAMES = [f"p{number}" for number in range(20)]
TOP = 6
LEAVES = 9


def passage(name: str) -> Passage:
    """Returns a passage of ten tokens whose text is its name."""
    span = Span(0, len(name), 0, len(name))
    chunk = Chunk(f"{name}#0.0", name, 0, 0, name, 10, span, ("Part",), 0, 0, "Title", "", {})
    return Passage(chunk, 0.5, (MatchedChild(chunk.chunk_id, 0.5, span),))


class ValueSnapshot(PlainSnapshot):
    """A snapshot that returns passages as values."""

    def passage(self, name: str) -> Passage:
        return passage(name)


@dataclass
class FakeReranker:
    """A reranker whose score for a passage is the number in the passage's name.

    With `equal_scores`, all scores are 0. It raises `failure` if there is one. `calls` records the
    query and the texts of each call.
    """

    snapshot: PlainSnapshot
    failure: errors.HragError | None = None
    equal_scores: bool = False
    name: str = "fake/m"
    calls: list[tuple[str, list[str]]] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)

    def rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        assert not self.snapshot.is_open, "a read transaction must not wait for a model"
        self.calls.append((query, list(texts)))
        self.deadlines.append(deadline.remaining_s)
        if self.failure is not None:
            raise self.failure
        return [0.0 if self.equal_scores else float(text.rpartition("p")[2]) for text in texts]


def search(
    failure: errors.HragError | None = None,
    deadline: Deadline = NEVER,
    *,
    equal_scores: bool = False,
    names: Sequence[str] = NAMES,
    **options: Any,
) -> tuple[SearchResult, FakeReranker]:
    """Returns the result of QUERY with these options, and the reranker that ordered it."""
    snapshot = ValueSnapshot(names)
    reranker = FakeReranker(snapshot, failure, equal_scores)
    run = search_of(snapshot, reranking=RerankSetup(reranker, TOP, LEAVES))
    return run(replace(QUERY, **options), deadline), reranker


def names_of(result: SearchResult) -> list[str]:
    """Returns the names of the passages of a result."""
    return [passage.chunk.content for passage in result.passages]


# The following tests cover the order of reranked passages.


def test_the_best_passages_are_in_the_rerankers_order_and_the_other_passages_follow() -> None:
    result, reranker = search(limit=8)
    assert names_of(result) == ["p5", "p4", "p3", "p2", "p1", "p0", "p6", "p7"]
    rerank_scores = [passage.rerank_score for passage in result.passages]
    assert rerank_scores == [5, 4, 3, 2, 1, 0, None, None]
    scores = {passage.score for passage in result.passages}
    assert scores == {0.5}, "the reranker must not change the scores of the search"
    assert (result.reranked, result.rerank_failure) == (True, "")
    texts = [f"Title > Part\np{number}" for number in range(TOP)]
    assert reranker.calls == [(QUERY.query, texts)]


def test_the_order_does_not_depend_on_the_limit() -> None:
    whole = names_of(search(limit=20)[0])
    for limit in range(1, 20):
        result, reranker = search(limit=limit)
        assert names_of(result) == whole[:limit]
        assert len(reranker.calls[0][1]) == TOP
        assert not result.exhausted
    assert search(limit=20)[0].exhausted


def test_passages_with_equal_rerank_scores_keep_the_order_of_the_search() -> None:
    assert names_of(search(equal_scores=True, limit=TOP)[0]) == NAMES[:TOP]


def test_a_search_may_return_fewer_passages_than_the_reranker_orders() -> None:
    result, reranker = search(names=NAMES[:2], limit=5)
    assert (names_of(result), result.exhausted) == (["p1", "p0"], True)
    assert len(reranker.calls[0][1]) == 2
    assert not search(names=NAMES[:2], limit=1)[0].exhausted


def test_a_result_without_passages_is_not_reranked() -> None:
    result, reranker = search(names=[])
    assert (result.passages, result.reranked, result.rerank_failure) == ((), False, "")
    assert reranker.calls == []


@pytest.mark.parametrize("limit", [1, 9])
def test_the_first_search_finds_whole_chunks_and_the_second_has_the_options_of_the_query(
    limit: int,
) -> None:
    options = {"limit": limit, "token_budget": 25, "cut_last": True, "max_per_document": 3}
    _, reranker = search(**options)
    first, second = reranker.snapshot.requests
    assert (first.limit, first.token_budget, first.cut_last) == (TOP, 0, False)
    assert (first.keep_overlap, first.max_per_document) == (True, 3)
    assert (second.limit, second.token_budget, second.cut_last) == (limit, 25, True)
    assert (second.keep_overlap, second.max_per_document) == (False, 3)
    assert list(second.rerank_scores.items()) == [(5, 5), (4, 4), (3, 3), (2, 2), (1, 1), (0, 0)]
    assert second.least_considered == len(NAMES)
    assert (first.rerank_scores, first.least_considered) == ({}, 0)


def test_context_reranks_leaves_and_fills_its_budget_in_a_second_search() -> None:
    result, reranker = search(mode=SearchMode.CONTEXT, token_budget=90, max_per_document=3)
    first, second = reranker.snapshot.requests
    assert (first.mode, first.limit) == (SearchMode.STANDARD, LEAVES)
    assert (first.merge_adjacent, first.keep_overlap, first.max_per_document) == (False, True, 0)
    assert (first.neighbour_bonus, first.level) == (second.neighbour_bonus, second.level)
    assert (second.mode, second.merge_adjacent, second.cut_last) == (SearchMode.CONTEXT, True, True)
    assert (second.token_budget, second.max_per_document) == (90, 3)
    assert len(reranker.calls[0][1]) == LEAVES
    assert names_of(result)[:LEAVES] == NAMES[LEAVES - 1 :: -1]
    assert result.reranked


@pytest.mark.parametrize("mode", [SearchMode.SMALL_TO_BIG, SearchMode.AUTO_MERGE])
def test_chunks_are_reranked_before_they_are_joined(mode: SearchMode) -> None:
    result, reranker = search(mode=mode, merge_adjacent=True, max_per_document=3)
    first, second = reranker.snapshot.requests
    assert (first.mode, first.limit, first.merge_adjacent) == (mode, TOP, False)
    assert (first.max_per_document, second.max_per_document) == (0, 3)
    assert (second.mode, second.merge_adjacent) == (mode, True)
    assert (names_of(result), result.reranked) == (["p5", "p4", "p3", "p2", "p1"], True)


def test_both_searches_read_the_same_collection_even_if_an_alias_moves() -> None:
    snapshot = ValueSnapshot(NAMES, name="real")
    reader = FakeReader(snapshot)
    reranking = RerankSetup(FakeReranker(snapshot), TOP)
    search_of(snapshot, reader=reader, reranking=reranking)(
        replace(QUERY, collection="alias"), NEVER
    )
    assert reader.opened[-2:] == [("t", "alias"), ("t", "real")]


def test_encoded_passages_equal_the_passages_as_values() -> None:
    snapshot = ValueSnapshot(NAMES)
    run = search_of(snapshot, reranking=RerankSetup(FakeReranker(snapshot), TOP))
    values, encoded = run(QUERY, NEVER), run.encoded(QUERY, NEVER)
    assert encoded.passages == tuple(map(encoded_passage, values.passages))
    values = replace(values, passages=encoded.passages, timings=encoded.timings)
    assert encoded == values


def test_each_search_of_a_batch_is_reranked_if_its_query_does_not_forbid_it() -> None:
    snapshot = ValueSnapshot(NAMES)
    run = search_of(snapshot, reranking=RerankSetup(FakeReranker(snapshot), TOP))
    outcomes: list[Any] = run.batch([QUERY, replace(QUERY, rerank=False)], NEVER)
    assert [result.reranked for result in outcomes] == [True, False]


# The following tests cover failures of the reranker.


@pytest.mark.parametrize("error", [errors.RerankerUnavailable, errors.RerankerRejected])
def test_if_the_reranker_fails_passages_keep_the_order_of_the_search_and_the_result_says_why(
    error: type[errors.HragError],
) -> None:
    with capture_logs() as logs:
        result, reranker = search(error("the endpoint x is down"), limit=8, token_budget=500)
    assert names_of(result) == NAMES[:8]
    request = reranker.snapshot.requests[-1]
    assert (request.limit, request.token_budget, request.keep_overlap) == (8, 500, False)
    assert {passage.rerank_score for passage in result.passages} == {None}
    assert (result.reranked, result.rerank_failure) == (False, "the endpoint x is down")
    assert result.timings.rerank_us > 0
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("rerank_failed", "warning")
    assert (line["reranker"], line["problem"]) == ("fake/m", "the endpoint x is down")


def test_the_reranker_gets_a_share_of_the_time_that_the_call_has_left() -> None:
    _, reranker = search(deadline=Deadline.after(1000))
    assert 700 < reranker.deadlines[0] <= 800
    result, _ = search(errors.DeadlineExceeded("too slow"), Deadline.after(1000))
    assert names_of(result) == NAMES[:5]
    assert result.rerank_failure == (
        "the reranker fake/m did not answer within its share of the call's time"
    )


def test_the_search_ends_if_its_caller_has_left() -> None:
    with pytest.raises(errors.Cancelled):
        search(errors.Cancelled("gone"))
    snapshot = ValueSnapshot(NAMES)
    reranker = FakeReranker(snapshot, errors.DeadlineExceeded("too slow"))
    run = search_of(snapshot, reranking=RerankSetup(reranker, TOP))
    with pytest.raises(errors.Cancelled):
        run(QUERY, Deadline(is_waiting=lambda: not reranker.calls))


# The following tests cover which searches are reranked.


@pytest.mark.parametrize(
    "mode",
    [
        SearchMode.SMALL_TO_BIG,
        SearchMode.STANDARD,
        SearchMode.AUTO_MERGE,
        SearchMode.SUMMARY_FIRST,
        SearchMode.CONTEXT,
    ],
)
def test_modes_that_rank_chunks_are_reranked(mode: SearchMode) -> None:
    assert search(mode=mode)[0].reranked


@pytest.mark.parametrize("rerank", [None, False])
def test_a_search_by_vector_or_without_a_reranker_is_not_reranked(rerank: bool | None) -> None:
    result, reranker = search(query=[1, 0, 0, 0], rerank=rerank)
    assert (reranker.calls, result.reranked, result.rerank_failure) == ([], False, "")
    plain = search_of(ValueSnapshot(NAMES))(replace(QUERY, rerank=rerank), NEVER)
    assert (names_of(plain), plain.reranked) == (NAMES[:5], False)


def test_a_search_may_switch_reranking_off() -> None:
    result, reranker = search(rerank=False)
    assert (names_of(result), reranker.calls, result.reranked) == (NAMES[:5], [], False)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"query": [1, 0, 0, 0]}, "needs a text")],
)
def test_searches_that_cannot_be_reranked_are_refused_if_they_require_it(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        search(rerank=True, **options)
    assert caught.value.field == "rerank"


def test_a_search_that_requires_a_reranker_is_refused_without_one() -> None:
    snapshot = ValueSnapshot(NAMES)
    with pytest.raises(errors.RerankerNotConfigured, match="HRAG_RERANK_BASE_URL"):
        search_of(snapshot)(replace(QUERY, rerank=True), NEVER)
    assert snapshot.requests == []
    assert search(rerank=True)[0].reranked


def test_the_reranker_gets_the_beginning_of_a_long_heading() -> None:
    snapshot = ValueSnapshot(["p1"])
    reranker = FakeReranker(snapshot)

    def with_long_title(name: str) -> Passage:
        short = passage(name)
        return replace(short, chunk=replace(short.chunk, title="x" * 1000, section_path=()))

    snapshot.passage = with_long_title  # type: ignore[method-assign]
    search_of(snapshot, reranking=RerankSetup(reranker))(SearchQuery("t", "what?"), NEVER)
    assert reranker.calls == [("what?", ["x" * 256 + "\np1"])]
