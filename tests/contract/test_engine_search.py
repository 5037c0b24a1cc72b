"""Every storage engine keeps these promises about searches."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hrag.engine.find import FindRequest, FindResult
from hrag.errors import Cancelled, DeadlineExceeded, DocumentNotFound
from hrag.filters import AllOf, AnyOf, Exists, Match, NoneOf, Range
from hrag.passages.auto_merge import MERGED_LEAVES, representatives
from hrag.types import Aggregation, Passage, SearchMode, TreeSettings
from hrag.values.deadline import Deadline
from hrag.values.ids import ChunkId, parse_chunk_id
from tests.support.documents.fakes import (
    SCORE_TOLERANCE,
    Leaf,
    ModelCollection,
    ModelGroup,
    find,
    matched_leaves,
    prepared,
    query_vector,
    read_passages,
    recall,
    search_leaves,
    search_passages,
    sentences,
)

# Most collections here have three levels.
TOP = 2
EVERYTHING = 1000


# Tests of leaves.


@pytest.mark.parametrize("count", [1, 3, 10, 40, EVERYTHING])
def test_search_finds_the_nearest_leaves(filled, count):
    with filled.snapshot() as snapshot:
        assert snapshot.settings == filled.model.settings
        for seed in range(5):
            query = query_vector(seed)
            result = find(snapshot, query, count)
            assert result.eligible_leaves == filled.model.leaf_count
            assert result.considered == min(count, filled.model.leaf_count)
            assert result.exhausted == (count >= filled.model.leaf_count)
            leaves = matched_leaves(result.passages)
            assert recall(leaves, filled.model, query, count) == 1.0


def test_a_search_reports_its_stages(filled):
    with filled.snapshot() as snapshot:
        whole = find(snapshot, query_vector(1), EVERYTHING)
        filtered = find(snapshot, query_vector(1), 3, filter=Match("document_id", ("d4", "d7")))
    assert whole.exact
    assert {name for name, _, _ in whole.stages} == {"search", "climb", "fetch"}
    assert {name for name, _, _ in filtered.stages} == {"filter", "search", "climb", "fetch"}
    for result in (whole, filtered):
        assert all(began <= ended for _, began, ended in result.stages)
        assert result.sections == ()
    leaf_counts = [len(filled.model.documents[name].vectors) for name in ("d4", "d7")]
    assert filtered.eligible_leaves == sum(leaf_counts)


def test_more_leaves_are_considered_until_there_are_enough_passages(filled):
    """A candidate is one leaf, and the limit counts passages. One candidate gives one passage."""
    with filled.snapshot() as snapshot:
        for seed in range(5):
            limited = find(snapshot, query_vector(seed), 10, TOP, candidates=1)
            assert len(limited.passages) == 10
            assert not limited.exhausted
            assert 10 <= limited.considered <= limited.eligible_leaves
            whole = find(snapshot, query_vector(seed), EVERYTHING, TOP, candidates=1)
            assert whole.considered == whole.eligible_leaves == filled.model.leaf_count
            assert whole.exhausted
            ids = [[p.chunk.chunk_id for p in result.passages[:3]] for result in (limited, whole)]
            assert ids[0] == ids[1]


def test_a_search_of_an_empty_collection_finds_nothing(opened):
    opened.create()
    opened.fill()
    with opened.snapshot() as snapshot:
        for mode in SearchMode:
            if mode is not SearchMode.SUMMARY_FIRST:
                level = TOP if mode is SearchMode.AUTO_MERGE else 0
                result = find(snapshot, query_vector(0), 10, level, mode, min_score=0.0)
                empty = FindResult((), 0, 0, exact=True, exhausted=True, stages=())
                assert replace(result, stages=()) == empty


def test_passages_with_equal_scores_are_in_order_of_commits_and_then_of_the_text(opened):
    opened.create()
    axis = np.eye(16, dtype=np.float32)[0]
    names = ["m", "z", "a"]
    opened.fill(*(prepared(name, sentences(30), vectors=np.tile(axis, (12, 1))) for name in names))
    with opened.snapshot() as snapshot:
        for level in range(TOP + 1):
            passages = find(snapshot, axis, EVERYTHING, level).passages
            order = [(names.index(p.chunk.document_id), p.chunk.index) for p in passages]
            assert order == sorted(order)
            for passage in passages:
                starts = [child.span.char_start for child in passage.matched_children]
                assert starts == sorted(starts)


# Tests of climbing from leaves to their ancestors.


@pytest.mark.parametrize("aggregation", list(Aggregation))
@pytest.mark.parametrize("level", [0, 1, 2])
def test_climbing_finds_the_best_ancestors_of_the_nearest_leaves(filled, level, aggregation):
    with filled.snapshot() as snapshot:
        for seed in range(5):
            query = query_vector(seed)
            result = find(snapshot, query, 4, level, aggregation=aggregation, candidates=20)
            leaves = _nearest(filled.model, query, result.considered)
            _assert_best(result.passages, filled.model.groups(leaves, level, aggregation))


def _nearest(model: ModelCollection, query: Any, count: int) -> dict[Leaf, float]:
    """Returns the `count` nearest leaves of a model, with their scores."""
    scores = model.scores(query)
    return dict(sorted(scores.items(), key=lambda leaf: -leaf[1])[:count])


def _assert_best(passages: tuple[Passage, ...], expected: Mapping[str, ModelGroup]) -> None:
    """Fails unless the passages are the best groups of `expected`, whose keys are chunk ids."""
    best = sorted((group.score for group in expected.values()), reverse=True)
    scores = [passage.score for passage in passages]
    assert scores == pytest.approx(best[: len(passages)], abs=10 * SCORE_TOLERANCE)
    assert scores == sorted(scores, reverse=True)
    assert len({passage.chunk.chunk_id for passage in passages}) == len(passages)
    for passage in passages:
        group = expected[passage.chunk.chunk_id]
        assert passage.score == pytest.approx(group.score, abs=10 * SCORE_TOLERANCE)
        assert matched_leaves([passage]) == pytest.approx(group.leaves, abs=SCORE_TOLERANCE)
        child_scores = [child.score for child in passage.matched_children]
        assert child_scores == sorted(child_scores, reverse=True)


@pytest.mark.parametrize("embedding_level", [1, 2])
def test_chunks_of_any_level_may_have_the_vectors(opened, embedding_level):
    opened.create(TreeSettings((32, 64, 128), 0.2, embedding_level))
    settings = opened.model.settings
    opened.fill(*(prepared(f"d{n}", sentences(40, n), settings, seed=n) for n in range(8)))
    query = query_vector(3)
    with opened.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query, 5)
        assert recall(leaves, opened.model, query, 5) == 1.0
        result = find(snapshot, query, 3, TOP, candidates=5)
    leaves = _nearest(opened.model, query, result.considered)
    _assert_best(result.passages, opened.model.groups(leaves, TOP, Aggregation.MAX))


def test_passages_up_to_the_limit_are_distinct(filled):
    with filled.snapshot() as snapshot:
        everything = search_passages(snapshot, query_vector(2), EVERYTHING, TOP)
        count = len(everything)
        for limit in (1, 5, count, count + 1):
            result = find(snapshot, query_vector(2), limit, TOP, candidates=EVERYTHING)
            assert result.passages == everything[:limit]
            assert len({p.chunk.chunk_id for p in result.passages}) == min(limit, count)
            assert result.exhausted == (limit >= count)


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_auto_merge_returns_chunks_with_enough_of_the_best_leaves(filled, ratio):
    """After these chunks, all other leaves follow, each as a separate passage."""
    query, options = query_vector(3), {"mode": SearchMode.AUTO_MERGE, "merge_ratio": ratio}
    with filled.snapshot() as snapshot:
        for limit, candidates in ((1, 1), (2, 10), (4, 40), (20, 40), (EVERYTHING, EVERYTHING)):
            result = find(snapshot, query, limit, TOP, candidates=candidates, **options)
            passages = result.passages
            leaves = _nearest(filled.model, query, result.considered)
            best = dict(list(leaves.items())[: min(candidates, MERGED_LEAVES)])
            merged = _merged(filled.model, best, ratio)
            _assert_best(passages[: len(merged)], merged)
            others = {
                leaf: score
                for leaf, score in leaves.items()
                if not _is_in(leaf, merged, filled.model)
            }
            single = filled.model.groups(others, 0, Aggregation.MAX)
            _assert_best(passages[len(merged) :], single)
            _assert_none_lies_inside_another(passages)
    assert len(passages) == len(merged) + len(others)


def _merged(
    model: ModelCollection, leaves: Mapping[Leaf, float], ratio: float
) -> dict[str, ModelGroup]:
    """Returns the groups of leaves that AUTO_MERGE must form, by the ids of their chunks."""
    groups: dict[str, ModelGroup] = {}
    for name, document in model.documents.items():
        indexes = [leaf for document_id, leaf in leaves if document_id == name]
        for leaf, position in representatives(document.tree, indexes, 0, TOP, ratio).items():
            group = groups.setdefault(str(ChunkId(name, *position)), ModelGroup(-1.0, {}))
            group.leaves[name, leaf] = leaves[name, leaf]
            group.score = max(group.leaves.values())
    return groups


def _is_in(leaf: Leaf, chunks: Mapping[str, ModelGroup], model: ModelCollection) -> bool:
    """Returns True if a leaf lies inside one of the chunks."""
    document_id, index = leaf
    tree = model.documents[document_id].tree
    inner = tree.record(0, index)
    ids = (
        chunk_id for chunk_id in map(parse_chunk_id, chunks) if chunk_id.document_id == document_id
    )
    spans = (tree.record(chunk_id.level, chunk_id.index) for chunk_id in ids)
    return any(s.byte_start <= inner.byte_start and inner.byte_end <= s.byte_end for s in spans)


def _assert_none_lies_inside_another(passages: tuple[Passage, ...]) -> None:
    for passage, other in itertools.permutations(passages, 2):
        if passage.chunk.document_id == other.chunk.document_id:
            outer, inner = passage.chunk.span, other.chunk.span
            assert not (outer.byte_start <= inner.byte_start and inner.byte_end <= outer.byte_end)


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_passages_below_the_minimum_score_are_not_returned(filled, aggregation):
    with filled.snapshot() as snapshot:

        def reaching(score: float | None, limit: int) -> FindResult[Passage]:
            options = {"min_score": score, "candidates": EVERYTHING, "aggregation": aggregation}
            return find(snapshot, query_vector(5), limit, 1, **options)

        passages = reaching(None, EVERYTHING).passages
        for score in (-1.0, passages[3].score, passages[3].score + 1e-4, 1.0):
            expected = tuple(passage for passage in passages if passage.score >= score)
            result = reaching(score, EVERYTHING)
            assert result.passages == expected
            assert result.exhausted
            assert reaching(score, 2).passages == expected[:2]
            assert reaching(score, 2).exhausted == (len(expected) <= 2)


def test_a_tenant_sees_only_its_documents_although_names_and_texts_are_the_same(filled):
    for tenant_id, name in (("t2", "c"), ("t", "c2")):
        filled.writer.create_collection(tenant_id, name, filled.model.settings)
        filled.writer.put(
            filled.writer.open(tenant_id, name), prepared("d1", sentences(8, 1), seed=1)
        )
        if filled.state == "sealed":
            filled.index(tenant_id, name)
    query = filled.model.documents["d1"].vectors[0]
    for tenant_id, name in (("t2", "c"), ("t", "c2")):
        with filled.snapshot(tenant_id, name) as snapshot:
            assert {leaf[0] for leaf in search_leaves(snapshot, query, EVERYTHING)} == {"d1"}
            with pytest.raises(DocumentNotFound):
                snapshot.chunk(ChunkId("d2", 0, 0))
    filled.writer.delete(filled.writer.open("t2", "c"), "d1")
    with filled.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query, EVERYTHING)
    assert recall(leaves, filled.model, query, EVERYTHING) == 1.0


def test_chunks_of_two_tenants_may_have_the_same_id(catalog):
    """Each tenant is searched twice, because the second time the reader uses cached look-ups."""
    for tenant_id in ("t", "t2"):
        catalog.writer.create_collection(tenant_id, "c", catalog.model.settings)
        document = prepared("d", f"The secret of {tenant_id}.")
        catalog.writer.put(catalog.writer.open(tenant_id, "c"), document)
    for tenant_id in ("t", "t2") * 2:
        with catalog.snapshot(tenant_id) as snapshot:
            chunk = snapshot.chunk(ChunkId("d", 0, 0)).chunk
        assert chunk.content == f"The secret of {tenant_id}."


def test_only_documents_that_pass_a_filter_are_found(filled):
    """This test has a filter of each kind; `tests/property/test_filters.py` draws many more."""
    filled.writer.put(filled.collection, extra := prepared("x", sentences(9), metadata={"n": 3.5}))
    filled.model.put(extra)
    for filter in (
        Match("document_id", ("d1", "d8", "nobody")),
        Match("metadata.seed", (2.0,)),
        Match("metadata.tags", ("ü",)),
        Range("metadata.n", at_least=3.5),
        Exists("metadata.seed"),
        AllOf((Exists("metadata.tags"), NoneOf((Match("title", ("Title of d1",)),)))),
        AnyOf((Match("source", ("https://example.org/d2",)), Match("metadata.seed", (5.0,)))),
    ):
        passing = filled.model.filtered(filter)
        with filled.snapshot() as snapshot:
            for count in (1, 10, EVERYTHING):
                result = find(snapshot, query_vector(6), count, filter=filter)
                assert result.eligible_leaves == passing.leaf_count
                leaves = matched_leaves(result.passages)
                assert recall(leaves, passing, query_vector(6), count) == 1.0
                assert result.exhausted == (count >= passing.leaf_count)


# Tests of deadlines and of encoding.


def test_a_search_ends_at_its_deadline_or_when_its_caller_has_left(filled):
    expired, abandoned = Deadline(at_s=0.0), Deadline(is_waiting=lambda: False)
    for deadline, error in ((expired, DeadlineExceeded), (abandoned, Cancelled)):
        for mode in (SearchMode.SMALL_TO_BIG, SearchMode.AUTO_MERGE, SearchMode.SENTENCE_WINDOW):
            level = TOP if mode is SearchMode.AUTO_MERGE else 0
            with pytest.raises(error), filled.snapshot(deadline=deadline) as snapshot:
                read_passages(snapshot, FindRequest(query_vector(0), mode, level, EVERYTHING, 1))
    with filled.snapshot(deadline=Deadline.after(60.0)) as snapshot:
        assert find(snapshot, query_vector(0), 3).passages
