"""Reranking in a search, over a snapshot that is a plain ranking of passages."""

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
from tests.support.engines.rankings import QUERY, PlainSnapshot, search_of

NAMES = [f"p{number}" for number in range(20)]
TOP = 6


def passage(name: str) -> Passage:
    """A passage of ten tokens whose text is its name."""
    span = Span(0, len(name), 0, len(name))
    chunk = Chunk(f"{name}#0.0", name, 0, 0, name, 10, span, ("Part",), 0, 0, "Title", "", {})
    return Passage(chunk, 0.5, (MatchedChild(chunk.chunk_id, 0.5, span),))


class Snapshot(PlainSnapshot):
    """Finds whole passages."""

    def passage(self, name: str) -> Passage:
        return passage(name)


@dataclass
class FakeReranker:
    """Prefers passages of high numbers; fails if told to."""

    snapshot: PlainSnapshot
    failure: errors.HragError | None = None
    same: bool = False
    name: str = "fake/m"
    asked: list[tuple[str, list[str]]] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)

    def rerank(self, query: str, texts: Sequence[str], deadline: Deadline) -> list[float]:
        assert not self.snapshot.is_open, "a read transaction must not wait for a model"
        self.asked.append((query, list(texts)))
        self.deadlines.append(deadline.remaining_s)
        if self.failure is not None:
            raise self.failure
        return [0.0 if self.same else float(text.rpartition("p")[2]) for text in texts]


def search(
    failure: errors.HragError | None = None,
    deadline: Deadline = NEVER,
    *,
    same: bool = False,
    names: Sequence[str] = NAMES,
    **asked: Any,
) -> tuple[SearchResult, FakeReranker]:
    snapshot = Snapshot(names)
    reranker = FakeReranker(snapshot, failure, same)
    run = search_of(snapshot, reranking=RerankSetup(reranker, TOP))
    return run(replace(QUERY, **asked), deadline), reranker


def found(result: SearchResult) -> list[str]:
    return [each.chunk.content for each in result.passages]


# Order


def test_the_best_passages_come_in_the_rerankers_order_and_the_rest_below() -> None:
    result, reranker = search(limit=8)
    assert found(result) == ["p5", "p4", "p3", "p2", "p1", "p0", "p6", "p7"]
    assert [each.rerank_score for each in result.passages] == [5, 4, 3, 2, 1, 0, None, None]
    assert {each.score for each in result.passages} == {0.5}, "scores stay the search's"
    assert (result.reranked, result.rerank_failure) == (True, "")
    texts = [f"Title > Part\np{number}" for number in range(TOP)]
    assert reranker.asked == [(QUERY.query, texts)]


def test_the_order_does_not_depend_on_the_limit() -> None:
    whole = found(search(limit=20)[0])
    for limit in range(1, 20):
        result, reranker = search(limit=limit)
        assert found(result) == whole[:limit]
        assert len(reranker.asked[0][1]) == TOP
        assert not result.exhausted
    assert search(limit=20)[0].exhausted


def test_equal_scores_keep_the_searchs_order() -> None:
    assert found(search(same=True, limit=TOP)[0]) == NAMES[:TOP]


def test_fewer_passages_than_the_reranker_takes() -> None:
    result, reranker = search(names=NAMES[:2], limit=5)
    assert (found(result), result.exhausted) == (["p1", "p0"], True)
    assert len(reranker.asked[0][1]) == 2
    assert not search(names=NAMES[:2], limit=1)[0].exhausted


def test_nothing_found_is_not_reranked() -> None:
    result, reranker = search(names=[])
    assert (result.passages, result.reranked, result.rerank_failure) == ((), False, "")
    assert reranker.asked == []


def test_budgets_are_filled_in_the_new_order() -> None:
    result, _ = search(limit=10, token_budget=25)
    assert (found(result), result.exhausted) == (["p5", "p4"], False)


def test_a_passage_that_does_not_fit_takes_no_place() -> None:
    """`p5` has thirty tokens and is tried first."""
    snapshot = Snapshot(NAMES[:6])

    def long(name: str) -> Passage:
        chunk = replace(passage(name).chunk, token_count=30 if name == "p5" else 10)
        return replace(passage(name), chunk=chunk)

    snapshot.passage = long  # type: ignore[method-assign]
    run = search_of(snapshot, reranking=RerankSetup(FakeReranker(snapshot), TOP))
    for limit, expected in (2, ["p4", "p3"]), (9, ["p4", "p3"]):
        result = run(replace(QUERY, limit=limit, token_budget=25), NEVER)
        assert (found(result), result.exhausted) == (expected, False)
    result = run(replace(QUERY, limit=6, token_budget=80), NEVER)
    assert (len(result.passages), result.exhausted) == (6, True)


@pytest.mark.parametrize(("keep_overlap", "expected"), [(False, ["p5"]), (True, NAMES[5:2:-1])])
def test_passages_that_repeat_text_are_returned_only_if_asked_for(
    keep_overlap: bool, expected: list[str]
) -> None:
    """Here all are the same span of one document."""
    snapshot = Snapshot(NAMES[:6])

    def of_one(name: str) -> Passage:
        return replace(passage(name), chunk=replace(passage(name).chunk, document_id="d"))

    snapshot.passage = of_one  # type: ignore[method-assign]
    run = search_of(snapshot, reranking=RerankSetup(FakeReranker(snapshot), TOP))
    assert found(run(replace(QUERY, limit=3, keep_overlap=keep_overlap), NEVER)) == expected


def test_encoded_passages_are_the_same() -> None:
    snapshot = Snapshot(NAMES)
    run = search_of(snapshot, reranking=RerankSetup(FakeReranker(snapshot), TOP))
    values, encoded = run(QUERY, NEVER), run.encoded(QUERY, NEVER)
    assert encoded.passages == tuple(map(encoded_passage, values.passages))
    values = replace(values, passages=encoded.passages, timings=encoded.timings)
    assert encoded == values


def test_each_search_of_a_batch_is_reranked() -> None:
    snapshot = Snapshot(NAMES)
    run = search_of(snapshot, reranking=RerankSetup(FakeReranker(snapshot), TOP))
    outcomes: list[Any] = run.batch([QUERY, replace(QUERY, rerank=False)], NEVER)
    assert [each.reranked for each in outcomes] == [True, False]


# Failures


@pytest.mark.parametrize("error", [errors.RerankerUnavailable, errors.RerankerRejected])
def test_a_failing_reranker_leaves_the_searchs_order_and_says_why(
    error: type[errors.HragError],
) -> None:
    with capture_logs() as logs:
        result, reranker = search(error("the endpoint x is down"), limit=8, token_budget=500)
    assert found(result) == NAMES[:8]
    asked = reranker.snapshot.requests[-1]
    assert (asked.limit, asked.token_budget, asked.keep_overlap) == (8, 500, False)
    assert {each.rerank_score for each in result.passages} == {None}
    assert (result.reranked, result.rerank_failure) == (False, "the endpoint x is down")
    assert result.timings.rerank_us > 0
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("rerank_failed", "warning")
    assert (line["reranker"], line["problem"]) == ("fake/m", "the endpoint x is down")


def test_a_reranker_gets_a_part_of_the_time_that_the_call_has_left() -> None:
    _, reranker = search(deadline=Deadline.after(1000))
    assert 700 < reranker.deadlines[0] <= 800
    result, _ = search(errors.DeadlineExceeded("too slow"), Deadline.after(1000))
    assert found(result) == NAMES[:5]
    assert result.rerank_failure == (
        "the reranker fake/m did not answer within its share of the call's time"
    )


def test_a_caller_who_has_left_ends_the_search() -> None:
    with pytest.raises(errors.Cancelled):
        search(errors.Cancelled("gone"))
    snapshot = Snapshot(NAMES)
    reranker = FakeReranker(snapshot, errors.DeadlineExceeded("too slow"))
    run = search_of(snapshot, reranking=RerankSetup(reranker, TOP))
    with pytest.raises(errors.Cancelled):
        run(QUERY, Deadline(is_waiting=lambda: not reranker.asked))


# When


@pytest.mark.parametrize(
    "mode",
    [
        SearchMode.SMALL_TO_BIG,
        SearchMode.STANDARD,
        SearchMode.AUTO_MERGE,
        SearchMode.SUMMARY_FIRST,
    ],
)
def test_modes_whose_passages_are_chunks_are_reranked(mode: SearchMode) -> None:
    assert search(mode=mode)[0].reranked


@pytest.mark.parametrize("rerank", [None, False])
def test_a_search_by_vector_or_without_a_reranker_is_not_reranked(rerank: bool | None) -> None:
    result, reranker = search(query=[1, 0, 0, 0], rerank=rerank)
    assert (reranker.asked, result.reranked, result.rerank_failure) == ([], False, "")
    plain = search_of(Snapshot(NAMES))(replace(QUERY, rerank=rerank), NEVER)
    assert (found(plain), plain.reranked) == (NAMES[:5], False)


def test_joined_passages_are_not_reranked() -> None:
    result, reranker = search(merge_adjacent=True)
    assert (found(result), reranker.asked, result.reranked) == (NAMES[:5], [], False)
    assert reranker.snapshot.requests[-1].merge_adjacent


def test_a_search_may_do_without() -> None:
    result, reranker = search(rerank=False)
    assert (found(result), reranker.asked, result.reranked) == (NAMES[:5], [], False)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"mode": SearchMode.SENTENCE_WINDOW}, "SENTENCE_WINDOW is not reranked"),
        ({"query": [1, 0, 0, 0]}, "needs a text"),
        ({"merge_adjacent": True}, "joined passages cannot be reranked"),
    ],
)
def test_what_cannot_be_reranked_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=words) as caught:
        search(rerank=True, **asked)
    assert caught.value.field == "rerank"


def test_a_search_that_requires_a_reranker_is_refused_without_one() -> None:
    snapshot = Snapshot(NAMES)
    with pytest.raises(errors.RerankerNotConfigured, match="HRAG_RERANK_BASE_URL"):
        search_of(snapshot)(replace(QUERY, rerank=True), NEVER)
    assert snapshot.requests == []
    assert search(rerank=True)[0].reranked


def test_long_headings_are_cut() -> None:
    snapshot = Snapshot(["p1"])
    reranker = FakeReranker(snapshot)

    def named(name: str) -> Passage:
        short = passage(name)
        return replace(short, chunk=replace(short.chunk, title="x" * 1000, section_path=()))

    snapshot.passage = named  # type: ignore[method-assign]
    search_of(snapshot, reranking=RerankSetup(reranker))(SearchQuery("t", "what?"), NEVER)
    assert reranker.asked == [("what?", ["x" * 256 + "\np1"])]
