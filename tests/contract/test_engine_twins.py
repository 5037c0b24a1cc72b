"""The embedded engine finds the same passages as the memory engine, with the same scores.

The order of the passages is also the same. The memory engine scores every leaf, so it is exact.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from hrag.engine.find import FindRequest, FindResult, Fusion, RankedChunks
from hrag.filters import Match, NoneOf
from hrag.types import (
    Aggregation,
    FusionMethod,
    MatchedChild,
    Passage,
    Retrieval,
    SearchMode,
    SummaryScope,
    SummaryUnit,
)
from tests.contract.conftest import ENGINES, Case, embedded_at, in_memory
from tests.support.documents.fakes import (
    SCORE_TOLERANCE,
    collection_settings,
    query_vector,
    read_passages,
)
from tests.support.documents.vocabulary import PHRASES, WORDS, question, wordy
from tests.support.engines.summary_model import ModelSummaries, summarise

SETTINGS = collection_settings(summaries=SummaryUnit.CHUNK)
TOP = SETTINGS.tree.top_level
REQUESTS = 12
OF_LEAVES = (SearchMode.STANDARD, SearchMode.SENTENCE_WINDOW, SearchMode.CONTEXT)


def grown(case: Case) -> Case:
    """Creates a collection of twelve documents with summaries; two are replaced, two are deleted.

    Returns `case`.
    """
    case.model.settings = SETTINGS
    case.create()
    documents = [wordy(f"d{n}", n, SETTINGS, 4 + 2 * n, metadata={"n": n % 3}) for n in range(12)]
    case.fill(*documents)
    for name in ("d4", "d9"):
        case.delete(name)
    for name, seed in (("d2", 40), ("d10", 41)):
        case.writer.put(case.collection, wordy(name, seed, SETTINGS, metadata={"n": 1}))
    summarise(case.writer, ModelSummaries(case.model), empty=frozenset({"d3"}))
    if case.state == "sealed":
        case.index("t", "c")
    return case


@pytest.fixture(scope="module", params=ENGINES["embedded"][1], ids="embedded-{}".format)
def twins(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any]]:
    """Snapshots of the embedded engine and of the memory engine, with the same documents.

    The tests run once for each state of the embedded engine's index.
    """
    embedded = embedded_at(tmp_path_factory.mktemp("twin") / "store", request, request.param)
    cases = [grown(embedded), grown(in_memory(request, "plain"))]
    with ExitStack() as snapshots:
        yield tuple(snapshots.enter_context(case.snapshot(summaries=True)) for case in cases)


def drawn(draw: random.Random, mode: SearchMode, retrieval: Retrieval) -> FindRequest:
    """Returns a random request, in which every option may differ from its default."""
    level = TOP if mode is SearchMode.AUTO_MERGE else draw.randint(0, TOP)
    joins = draw.random() < 0.4
    budget = draw.choice([0, 0, 20, 100, 400])
    if mode is SearchMode.CONTEXT:
        budget = budget or 250
    required = draw.choice([(), (), (), (draw.choice(WORDS[:6]),), (draw.choice(PHRASES),)])
    return FindRequest(
        vector=None if retrieval is Retrieval.LEXICAL else query_vector(draw.randrange(1000)),
        mode=mode,
        level=0 if mode in OF_LEAVES else level,
        limit=draw.choice([1, 3, 5, 40]),
        candidates=draw.choice([1, 4, 20, 200]),
        text=question(draw),
        required=required,
        retrieval=retrieval,
        fusion=Fusion(draw.choice(list(FusionMethod)), draw.choice([0.0, 0.3, 0.5, 1.0]), -0.5),
        neighbour_bonus=draw.choice([0.0, 0.5]),
        max_per_document=draw.choice([0, 0, 1, 3]),
        aggregation=draw.choice(list(Aggregation)),
        min_score=draw.choice([None, None, 0.3]),
        token_budget=budget,
        cut_last=draw.random() < 0.5,
        merge_adjacent=joins or mode is SearchMode.CONTEXT,
        window_sentences=draw.choice([0, 1, 3]),
        merge_ratio=draw.choice([0.3, 0.5, 1.0]),
        filter=draw.choice(
            [None, None, Match("metadata.n", (1.0,)), NoneOf((Match("metadata.n", (2.0,)),))]
        ),
        top_sections=draw.choice([0, 1, 3, 10]),
        summary_scope=draw.choice(list(SummaryScope)),
    )


@pytest.mark.parametrize("retrieval", list(Retrieval))
@pytest.mark.parametrize("mode", list(SearchMode))
def test_both_engines_find_the_same(twins, mode, retrieval):
    draw = random.Random(f"{mode} {retrieval}")
    for _ in range(REQUESTS):
        request = drawn(draw, mode, retrieval)
        result, expected = (read_passages(snapshot, request) for snapshot in twins)
        assert _without_scores(result) == _without_scores(expected), request
        _assert_scores(result, expected)


@pytest.mark.parametrize("mode", list(SearchMode))
def test_both_engines_put_the_same_reranked_chunks_first(twins, mode):
    draw = random.Random(f"reranked {mode}")
    for _ in range(REQUESTS):
        request = drawn(draw, mode, draw.choice(list(Retrieval)))
        ranks_leaves = mode in (SearchMode.CONTEXT, SearchMode.SENTENCE_WINDOW)
        options = {
            "mode": SearchMode.STANDARD if ranks_leaves else mode,
            "limit": draw.choice([1, 8]),
            "token_budget": 0,
            "cut_last": False,
            "merge_adjacent": False,
            "keep_overlap": True,
        }
        found = [snapshot.find(replace(request, **options), RankedChunks()) for snapshot in twins]
        scores = [draw.random() for _ in found[0].passages]
        results = []
        for snapshot, chunks in zip(twins, found, strict=True):
            keys = [chunk.key for chunk in chunks.passages]
            ordered = sorted(zip(keys, scores, strict=True), key=lambda pair: -pair[1])
            options = {"rerank_scores": dict(ordered), "least_considered": chunks.considered}
            results.append(read_passages(snapshot, replace(request, **options)))
        assert _without_scores(results[0]) == _without_scores(results[1]), request
        _assert_scores(*results)


def _without_scores(result: FindResult[Passage]) -> tuple[object, ...]:
    return (
        [_unscored(passage) for passage in result.passages],
        [replace(section, score=0.0) for section in result.sections],
        (result.considered, result.eligible_leaves, result.exhausted),
    )


def _unscored(passage: Passage) -> Passage:
    children = tuple(
        MatchedChild(child.chunk_id, 0.0, child.span) for child in passage.matched_children
    )
    return replace(
        passage, score=0.0, lexical_score=None, dense_score=None, matched_children=children
    )


def _assert_scores(result: FindResult[Passage], expected: FindResult[Passage]) -> None:
    for scores, expected_scores in zip(_scores(result), _scores(expected), strict=True):
        assert scores == pytest.approx(expected_scores, abs=SCORE_TOLERANCE)


def _scores(result: FindResult[Passage]) -> list[Any]:
    children = [child for passage in result.passages for child in passage.matched_children]
    return [
        *(
            (item.score, item.lexical_score, item.dense_score)
            for item in (*result.passages, *children)
        ),
        *((item.score,) for item in (*result.passages, *result.sections)),
    ]
