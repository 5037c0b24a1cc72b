"""Every storage engine puts the chunks that a reranker has scored first, best chunk first."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hrag.engine import RankedChunk, RankedChunks, Snapshot
from hrag.engine.find import FindRequest, FindResult
from hrag.types import Passage, SearchMode
from tests.support.documents.fakes import prepared, query_vector, read_passages, sentences

CONTEXT = FindRequest(
    query_vector(3),
    SearchMode.CONTEXT,
    level=0,
    limit=1000,
    candidates=200,
    token_budget=250,
    cut_last=True,
    merge_adjacent=True,
)
LEAVES = 20


def ranked(snapshot: Snapshot, request: FindRequest) -> FindResult[RankedChunk]:
    """Returns the best LEAVES leaves of a search."""
    request = replace(
        request,
        mode=SearchMode.STANDARD,
        limit=LEAVES,
        token_budget=0,
        cut_last=False,
        merge_adjacent=False,
        keep_overlap=True,
    )
    return snapshot.find(request, RankedChunks())


def worst_first(chunks: FindResult[RankedChunk]) -> dict[str, Any]:
    """Returns the options of a request after a reranker has reversed the order of `chunks`."""
    keys = [chunk.key for chunk in reversed(chunks.passages)]
    scores = {key: 100.0 - rank for rank, key in enumerate(keys)}
    return {"rerank_scores": scores, "least_considered": chunks.considered}


def ids(passages: tuple[Any, ...]) -> list[str]:
    return [passage.chunk.chunk_id for passage in passages]


@pytest.mark.parametrize("candidates", [1, 7, 200])
def test_context_is_filled_in_the_order_of_the_reranker(filled, candidates):
    """With few candidates, only later rounds of the search find all leaves that were reranked."""
    request = replace(CONTEXT, candidates=candidates)
    with filled.snapshot() as snapshot:
        chunks = ranked(snapshot, request)
        result = read_passages(snapshot, replace(request, **worst_first(chunks)))
        plain = read_passages(snapshot, request)
    order = ids(tuple(chunk.passage for chunk in chunks.passages))[::-1]
    assert len(order) == LEAVES
    assert plain.passages[0].chunk.chunk_id == order[-1]
    assert ids(result.passages) != ids(plain.passages)
    parts = [part for passage in result.passages for part in parts_of(passage)]
    assert set(parts) == set(order[: len(parts)]), "the budget is filled with the first leaves"
    assert sum(passage.chunk.token_count for passage in result.passages) <= CONTEXT.token_budget
    for passage in result.passages:
        best = min(parts_of(passage), key=order.index)
        assert passage.chunk.chunk_id == passage.matched_children[0].chunk_id == best
        assert passage.rerank_score == 100 - order.index(best)
        assert passage.score == passage.matched_children[0].score
    ranks = [order.index(chunk_id) for chunk_id in ids(result.passages)]
    assert ranks == sorted(ranks)


def parts_of(passage: Passage) -> tuple[str, ...]:
    """Returns the chunk ids of the leaves that a passage consists of."""
    return passage.merged_chunk_ids or (passage.chunk.chunk_id,)


def test_a_larger_budget_continues_with_the_leaves_that_were_not_reranked(filled):
    """The search finds all its leaves, and those that were not reranked come last."""
    with filled.snapshot() as snapshot:
        chunks = ranked(snapshot, CONTEXT)
        options = {**worst_first(chunks), "token_budget": 100_000}
        result = read_passages(snapshot, replace(CONTEXT, **options))
    reranked = {chunk.passage.chunk.chunk_id for chunk in chunks.passages}
    assert result.exhausted
    assert len([part for item in result.passages for part in parts_of(item)]) > LEAVES
    scores = [passage.rerank_score for passage in result.passages]
    known = [score for score in scores if score is not None]
    assert known == sorted(known, reverse=True)
    assert scores[: len(known)] == known
    for passage in result.passages[len(known) :]:
        assert reranked.isdisjoint(parts_of(passage))


@pytest.mark.parametrize("budget", [0, 90, 250])
@pytest.mark.parametrize("keep_overlap", [False, True])
@pytest.mark.parametrize("mode", [SearchMode.STANDARD, SearchMode.SMALL_TO_BIG])
def test_limit_and_budget_apply_to_the_order_of_the_reranker(filled, mode, keep_overlap, budget):
    level = 0 if mode is SearchMode.STANDARD else 1
    request = replace(
        CONTEXT, mode=mode, level=level, limit=8, token_budget=0, merge_adjacent=False
    )
    with filled.snapshot() as snapshot:
        chunks = snapshot.find(replace(request, cut_last=False, keep_overlap=True), RankedChunks())
        limits = {"limit": 5, "token_budget": budget, "keep_overlap": keep_overlap}
        request = replace(request, **limits, cut_last=bool(budget), **worst_first(chunks))
        result = read_passages(snapshot, request)
    order = [chunk.passage for chunk in reversed(chunks.passages)]
    assert 0 < len(result.passages) <= 5
    ranks = [ids(tuple(order)).index(chunk_id) for chunk_id in ids(result.passages)]
    assert ranks == sorted(ranks)
    assert ranks[0] == 0
    for rank, passage in zip(ranks, result.passages, strict=True):
        assert passage.rerank_score == 100 - rank
        if keep_overlap and not budget:
            assert replace(passage, rerank_score=None) == order[rank]
    if budget:
        assert sum(passage.chunk.token_count for passage in result.passages) <= budget
    if not keep_overlap:
        spans = sorted(
            (passage.chunk.document_id, passage.chunk.span.byte_start, passage.chunk.span.byte_end)
            for passage in result.passages
        )
        for (first, _, end), (second, start, _) in pairwise(spans):
            assert first != second or end <= start


def test_the_leaves_of_a_document_that_was_replaced_or_deleted_are_ignored(filled):
    with filled.snapshot() as snapshot:
        chunks = ranked(snapshot, CONTEXT)
    options = worst_first(chunks)
    names = list(dict.fromkeys(c.passage.chunk.document_id for c in reversed(chunks.passages)))
    filled.writer.put(filled.collection, prepared(names[0], sentences(9, 77), seed=77))
    filled.writer.delete(filled.collection, names[1])
    with filled.snapshot() as snapshot:
        result = read_passages(snapshot, replace(CONTEXT, **options))
        for passage in result.passages:
            assert passage.chunk.document_id != names[1]
            assert passage.rerank_score is None or passage.chunk.document_id != names[0]
        assert result.passages[0].chunk.document_id in names[2:]
        nothing = {**options, "rerank_scores": {1 << 40: 1.0}}
        unchanged = read_passages(snapshot, replace(CONTEXT, **nothing))
        assert unchanged.passages == read_passages(snapshot, CONTEXT).passages
