"""What every storage engine promises of a search, and of the chunks it leads to."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hrag.engine import PreparedDocument, Snapshot
from hrag.errors import ChunkNotFound, DocumentNotFound
from hrag.ids import ChunkId, parse_chunk_id
from hrag.sentences import sentence_ends
from hrag.tree import PageSpan, ParsedText, Section
from hrag.types import Aggregation, ChunkNode, PageStart, Passage, Span, TreeSettings
from indexer_svc.chunker import build_tree
from tests.fakes import (
    SCORE_TOLERANCE,
    ModelCollection,
    matched_leaves,
    prepared,
    query_vector,
    read_passages,
    recall,
    search_leaves,
    search_passages,
    sentences,
)

TOP = 2  # Of the three levels most collections here have.


# Search


@pytest.mark.parametrize("count", [1, 3, 10, 40, 1000])
def test_search_finds_the_nearest_leaves(filled, count):
    with filled.snapshot() as snapshot:
        assert snapshot.settings == filled.model.settings
        for seed in range(5):
            query = query_vector(seed)
            leaves = snapshot.search(query, count)
            assert leaves.complete == (count >= filled.model.leaf_count)
            assert len(leaves) == min(count, filled.model.leaf_count)
            found = search_leaves(snapshot, query, count)
            assert recall(found, filled.model, query, count) == 1.0


def test_an_empty_collection_has_nothing_to_find(opened):
    opened.create()
    opened.fill()
    with opened.snapshot() as snapshot:
        leaves = snapshot.search(query_vector(0), 10)
        assert leaves.complete
        assert len(leaves) == 0
        assert search_passages(snapshot, query_vector(0), 10, TOP) == ()
        groups = snapshot.auto_merge(leaves, TOP, 0.5, Aggregation.MAX)
        assert (len(groups), len(groups.reaching(0.0))) == (0, 0)


@pytest.mark.parametrize("aggregation", list(Aggregation))
@pytest.mark.parametrize("level", [0, 1, 2])
def test_climbing_equals_walking_up_the_tree(filled, level, aggregation):
    with filled.snapshot() as snapshot:
        for seed in range(5):
            query = query_vector(seed)
            leaves = search_leaves(snapshot, query, 20)
            passages = search_passages(snapshot, query, 20, level, aggregation)
            _assert_climbed(passages, leaves, filled.model, level, aggregation)


def _assert_climbed(
    passages: tuple[Passage, ...],
    leaves: dict[tuple[str, int], float],
    model: ModelCollection,
    level: int,
    aggregation: Aggregation,
) -> None:
    expected = model.groups(leaves, level, aggregation)
    assert {p.chunk.chunk_id for p in passages} == set(expected)
    assert len(passages) == len(expected)
    scores = [p.score for p in passages]
    assert scores == sorted(scores, reverse=True)
    for passage in passages:
        group = expected[passage.chunk.chunk_id]
        assert passage.score == pytest.approx(group.score, abs=10 * SCORE_TOLERANCE)
        assert matched_leaves([passage]) == group.leaves
        child_scores = [child.score for child in passage.matched_children]
        assert child_scores == sorted(child_scores, reverse=True)


@pytest.mark.parametrize("embedding_level", [1, 2])
def test_leaves_may_be_of_any_level(opened, embedding_level):
    opened.create(TreeSettings((32, 64, 128), 0.2, embedding_level))
    settings = opened.model.settings
    opened.fill(*(prepared(f"d{n}", sentences(40, n), settings, seed=n) for n in range(8)))
    query = query_vector(3)
    with opened.snapshot() as snapshot:
        leaves = search_leaves(snapshot, query, 5)
        assert recall(leaves, opened.model, query, 5) == 1.0
        passages = search_passages(snapshot, query, 5, TOP)
    _assert_climbed(passages, leaves, opened.model, TOP, Aggregation.MAX)


def test_passages_hold_the_text_and_place_of_their_chunk(filled):
    with filled.snapshot() as snapshot:
        passages = search_passages(snapshot, query_vector(1), 30, 1)
    for passage in passages:
        chunk = passage.chunk
        document = filled.model.documents[chunk.document_id]
        record = document.tree.record(1, chunk.index)
        assert chunk.content == document.parsed.text[record.char_start : record.char_end]
        assert (chunk.token_count, chunk.level) == (record.token_count, 1)
        assert chunk.chunk_id == str(ChunkId(chunk.document_id, 1, chunk.index))
        assert (chunk.title, chunk.source) == (document.title, document.source)
        assert chunk.metadata == document.metadata
        for child in passage.matched_children:
            assert chunk.span.byte_start <= child.span.byte_start
            assert child.span.byte_end <= chunk.span.byte_end


def test_a_limit_is_filled_with_distinct_ancestors(filled):
    with filled.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(2), 1000), TOP, Aggregation.MAX)
        everything = read_passages(snapshot, groups, 1000)
        assert len(everything) == len(groups)
        for limit in (1, 5, len(groups), len(groups) + 1):
            passages = read_passages(snapshot, groups, limit)
            assert passages == everything[:limit]
            assert len({p.chunk.chunk_id for p in passages}) == min(limit, len(groups))


def test_a_token_budget_bounds_what_is_returned(filled):
    with filled.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(2), 1000), 1, Aggregation.MAX)
        everything = read_passages(snapshot, groups, 1000)
        budget = sum(p.chunk.token_count for p in everything) // 2
        chosen = read_passages(snapshot, groups, 1000, budget)
        assert chosen[0] == everything[0]
        assert sum(p.chunk.token_count for p in chosen) <= budget
        assert read_passages(snapshot, groups, 1000, 1) == ()


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_auto_merge_returns_chunks_of_which_enough_matched(filled, ratio):
    """All of a document's leaves merge into its top chunks, few of them into none."""
    with filled.snapshot() as snapshot:
        for count in (1, 10, 40, 1000):
            leaves = snapshot.search(query_vector(3), count)
            groups = snapshot.auto_merge(leaves, TOP, ratio, Aggregation.MAX)
            passages = read_passages(snapshot, groups, 1000)
            assert matched_leaves(passages) == search_leaves(snapshot, query_vector(3), count)
            _assert_none_lies_inside_another(passages)
            for passage in passages:
                assert passage.score == max(child.score for child in passage.matched_children)
        assert {passage.chunk.level for passage in passages} == {TOP}


def _assert_none_lies_inside_another(passages: tuple[Passage, ...]) -> None:
    for one, other in itertools.permutations(passages, 2):
        if one.chunk.document_id == other.chunk.document_id:
            a, b = one.chunk.span, other.chunk.span
            assert not (a.byte_start <= b.byte_start and b.byte_end <= a.byte_end)


@pytest.mark.parametrize("budget", [0, 300])
@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("level", [0, 1])
def test_joined_passages_hold_no_text_twice(filled, level, limit, budget):
    with filled.snapshot() as snapshot:
        leaves = snapshot.search(query_vector(4), 40)
        groups = snapshot.climb(leaves, level, Aggregation.MAX)
        single = {p.chunk.chunk_id: p for p in read_passages(snapshot, groups, 1000)}
        joined = read_passages(snapshot, groups, limit, budget, merge_adjacent=True)
    assert 0 < len(joined) <= limit
    if limit == 1000 and not budget:
        assert matched_leaves(joined) == matched_leaves(single.values())
    if budget:
        assert sum(passage.chunk.token_count for passage in joined) <= budget
    for passage in joined:
        parts = passage.merged_chunk_ids or (passage.chunk.chunk_id,)
        assert passage == _joined([single[part] for part in parts], filled.model)
    for one, other in itertools.combinations(joined, 2):
        if one.chunk.document_id == other.chunk.document_id:
            a, b = sorted((one.chunk.span, other.chunk.span), key=lambda span: span.byte_start)
            assert a.byte_end < b.byte_start


def test_a_joined_passage_bears_the_section_and_pages_it_should(catalog):
    """The section of the best chunk, the pages of all."""
    catalog.create()
    text = sentences(30)
    half = len(text) // 2
    parsed = ParsedText(
        text,
        (Section("One", 1, 0), Section("Two", 1, half)),
        (PageSpan(1, 0, half), PageSpan(2, half, len(text))),
    )
    settings = catalog.model.settings
    catalog.fill(
        replace(
            prepared("d", text, settings), parsed=parsed, tree=build_tree(parsed, settings.tree)
        )
    )
    with catalog.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(0), 100), 0, Aggregation.MAX)
        best = read_passages(snapshot, groups, 1)[0].chunk
        (joined,) = read_passages(snapshot, groups, 100, 0, merge_adjacent=True)
    assert joined.chunk.content == text
    assert joined.chunk.section_path == best.section_path
    assert (joined.chunk.first_page, joined.chunk.last_page) == (1, 2)
    assert joined.chunk.page_starts == (PageStart(2, half),)


def _joined(parts: list[Passage], model: ModelCollection) -> Passage:
    """What passages that touch, in order of the text, must become together."""
    best = max(parts, key=lambda passage: passage.score)
    first, last = parts[0].chunk.span, parts[-1].chunk.span
    document = model.documents[best.chunk.document_id]
    records = [document.tree.record(part.chunk.level, part.chunk.index) for part in parts]
    chunk = replace(
        best.chunk,
        content=document.parsed.text[first.char_start : last.char_end],
        span=Span(first.byte_start, last.byte_end, first.char_start, last.char_end),
        token_count=records[-1].token_start + records[-1].token_count - records[0].token_start,
    )
    children = sorted(
        (child for part in parts for child in part.matched_children),
        key=lambda child: -child.score,
    )
    names = tuple(part.chunk.chunk_id for part in parts) if len(parts) > 1 else ()
    return Passage(chunk, best.score, tuple(children), names)


def test_what_scores_too_low_is_left_out(filled):
    with filled.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(5), 40), 1, Aggregation.MAX)
        passages = read_passages(snapshot, groups, 1000)
        for score in (-1.0, passages[3].score, passages[3].score + 1e-4, 1.0):
            reaching = groups.reaching(score)
            expected = tuple(passage for passage in passages if passage.score >= score)
            assert len(reaching) == len(expected)
            assert read_passages(snapshot, reaching, 1000) == expected


def test_tenants_with_the_same_names_and_texts_see_only_their_own(filled):
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
            assert {leaf[0] for leaf in search_leaves(snapshot, query, 1000)} == {"d1"}
            with pytest.raises(DocumentNotFound):
                snapshot.chunk(ChunkId("d2", 0, 0))
    filled.writer.delete(filled.writer.open("t2", "c"), "d1")
    with filled.snapshot() as snapshot:
        found = search_leaves(snapshot, query, 1000)
    assert recall(found, filled.model, query, 1000) == 1.0


# Chunks and hierarchies


def _node(document: PreparedDocument, level: int, index: int) -> tuple[str, tuple[str, ...]]:
    """The ids of a chunk's parent and children."""
    record = document.tree.record(level, index)
    name = document.document_id
    parent = "" if level == document.tree.top_level else f"{name}#{level + 1}.{record.parent}"
    first = record.first_child
    children = (f"{name}#{level - 1}.{n}" for n in range(first, first + record.child_count))
    return parent, tuple(children)


def test_every_chunk_is_found_by_its_id(filled):
    with filled.snapshot() as snapshot:
        for document in filled.model.documents.values():
            for level, count in enumerate(document.tree.counts):
                for index in range(count):
                    node = snapshot.chunk(ChunkId(document.document_id, level, index))
                    record = document.tree.record(level, index)
                    text = document.parsed.text[record.char_start : record.char_end]
                    assert node.chunk.content == text
                    assert (node.parent_id, node.child_ids) == _node(document, level, index)


def _ids(nodes: tuple[ChunkNode, ...]) -> list[str]:
    return [node.chunk.chunk_id for node in nodes]


def _descendants(snapshot: Snapshot, chunk_ids: list[str], depth: int) -> Iterator[str]:
    for _ in range(depth):
        nodes = [snapshot.chunk(parse_chunk_id(chunk_id)) for chunk_id in chunk_ids]
        chunk_ids = [child for node in nodes for child in node.child_ids]
        yield from chunk_ids


@pytest.mark.parametrize("depth", [0, 1, 2, 8])
def test_a_hierarchy_holds_the_chunks_relatives(filled, depth):
    document = filled.model.documents["d9"]
    with filled.snapshot() as snapshot:
        for level, count in enumerate(document.tree.counts):
            for index in range(count):
                chunk_id = ChunkId("d9", level, index)
                found = snapshot.hierarchy(chunk_id, depth, content=True)
                assert found.node == snapshot.chunk(chunk_id)
                above = [found.node, *found.ancestors]
                assert [n.parent_id for n in above] == [*_ids(found.ancestors), ""]
                below = list(_descendants(snapshot, [str(chunk_id)], depth))
                assert _ids(found.descendants) == below
                family = [
                    f"d9#{level}.{n}"
                    for n in range(count)
                    if n != index and _node(document, level, n)[0] == found.node.parent_id
                ]
                assert _ids(found.siblings) == family


def test_a_hierarchy_can_come_without_its_relatives_texts(filled):
    with filled.snapshot() as snapshot:
        full = snapshot.hierarchy(ChunkId("d9", 1, 0), 1, content=True)
        bare = snapshot.hierarchy(ChunkId("d9", 1, 0), 1, content=False)
    assert bare.node == full.node
    for name in ("ancestors", "siblings", "descendants"):
        with_text, without = getattr(full, name), getattr(bare, name)
        assert len(with_text) == len(without) > 0
        for one, other in zip(with_text, without, strict=True):
            assert one.chunk.content
            assert other == replace(one, chunk=replace(one.chunk, content=""))


@pytest.mark.parametrize("chunk_id", [ChunkId("d1", 3, 0), ChunkId("d1", 0, 999)])
def test_a_chunk_that_does_not_exist_is_not_found(filled, chunk_id):
    with filled.snapshot() as snapshot:
        with pytest.raises(ChunkNotFound, match=f"no chunk '{chunk_id}'"):
            snapshot.chunk(chunk_id)
        with pytest.raises(ChunkNotFound, match=f"no chunk '{chunk_id}'"):
            snapshot.hierarchy(chunk_id, 1, content=True)
        with pytest.raises(DocumentNotFound, match="no document 'nobody'"):
            snapshot.chunk(ChunkId("nobody", 0, 0))


def test_citations_name_section_path_and_pages(catalog):
    parts = [f"{sentences(12, n)}\n\n" for n in range(4)]
    starts = [sum(map(len, parts[:n])) for n in range(5)]
    parsed = ParsedText(
        "".join(parts),
        (Section("Guide", 1, 0), Section("Setup", 2, starts[1]), Section("Use", 1, starts[2])),
        tuple(PageSpan(10 + n, starts[n], starts[n + 1]) for n in range(4)),
    )
    catalog.create(TreeSettings((128, 4096), 0.0))
    catalog.writer.put(catalog.collection, prepared("d", parsed, catalog.model.settings))
    with catalog.snapshot() as snapshot:
        chunks = [snapshot.chunk(ChunkId("d", 0, index)).chunk for index in range(4)]
        whole = snapshot.chunk(ChunkId("d", 1, 0)).chunk
    assert [chunk.section_path for chunk in chunks] == [
        ("Guide",),
        ("Guide", "Setup"),
        ("Use",),
        ("Use",),
    ]
    assert [(c.first_page, c.last_page) for c in chunks] == [(n, n) for n in (10, 11, 12, 13)]
    assert (whole.section_path, whole.first_page, whole.last_page) == ((), 10, 13)
    assert [chunk.page_starts for chunk in chunks] == [()] * 4
    assert whole.page_starts == tuple(PageStart(10 + n, starts[n]) for n in (1, 2, 3))


# Stretches


@pytest.mark.parametrize("margin", [0, 1, 3, 20])
def test_a_stretch_is_a_leafs_sentences_and_some_on_either_side(opened, margin):
    english, chinese = sentences(60), "".join(f"这是第{n}句话，它说了一点。" for n in range(60))
    mixed = f"{english}\n\n# 标题\n\n{chinese}" + "no end " * 500
    half = len(mixed) // 2
    pages = (PageSpan(7, 0, half), PageSpan(8, half, len(mixed)))
    opened.create()
    opened.fill(
        prepared("e", english), prepared("m", ParsedText(mixed, pages=pages)), prepared("s", "One.")
    )
    text = {"e": english, "m": mixed, "s": "One."}
    with opened.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(query_vector(0), 500), 0, Aggregation.MAX)
        stretches = snapshot.stretches(groups, 500, margin)
        assert len(stretches) == len(groups) == opened.model.leaf_count
        assert len(snapshot.stretches(groups, 2, margin)) == 2
    for each in stretches:
        whole = text[each.chunk.document_id]
        ends = sentence_ends(whole)
        touched = [
            end
            for start, end in itertools.pairwise([0, *ends])
            if start < each.chunk.span.char_end and each.chunk.span.char_start < end
        ]
        own = [each.sentences[number] for number in each.own]
        if "no end" not in own[-1].content:  # Where that is cut depends on where one begins.
            assert [sentence.span.char_end for sentence in own] == touched
            assert each.own.start == min(margin, ends.index(touched[0]))
        assert each.own.stop + margin >= len(each.sentences)
        for sentence in each.sentences:
            span = sentence.span
            assert sentence.content == whole[span.char_start : span.char_end]
            assert sentence.content.encode() == whole.encode()[span.byte_start : span.byte_end]
            if each.chunk.document_id == "m":
                assert sentence.first_page == (7 if span.char_start < half else 8)
                assert sentence.last_page == (7 if span.char_end <= half else 8)
                inside = span.char_start < half < span.char_end
                assert sentence.page_starts == ((PageStart(8, half),) if inside else ())
        for one, other in itertools.pairwise(each.sentences):
            assert (one.span.char_end, one.span.byte_end) == (
                other.span.char_start,
                other.span.byte_start,
            )


# Budgets


@pytest.mark.parametrize("level", [0, 1, TOP])
def test_the_first_passage_that_does_not_fit_is_cut_at_a_sentence(filled, level):
    with filled.snapshot() as snapshot:
        for seed in range(5):
            groups = snapshot.climb(snapshot.search(query_vector(seed), 60), level, Aggregation.MAX)
            whole = read_passages(snapshot, groups, 4)
            sizes = [passage.chunk.token_count for passage in whole]
            for budget in range(1, sum(sizes) + 2, 7):
                _assert_cut(
                    read_passages(snapshot, groups, 4, budget, cut_last=True),
                    whole,
                    budget,
                    filled.model,
                )


def _assert_cut(
    found: tuple[Passage, ...], whole: tuple[Passage, ...], budget: int, model: ModelCollection
) -> None:
    assert sum(passage.chunk.token_count for passage in found) <= budget
    left = budget
    for passage, uncut in zip(found, whole, strict=False):
        if uncut.chunk.token_count <= left:
            assert passage == uncut
            left -= uncut.chunk.token_count
            continue
        assert passage is found[-1]
        chunk, best = passage.chunk, passage.matched_children[0]
        text = model.documents[chunk.document_id].parsed.text
        assert chunk.content == text[chunk.span.char_start : chunk.span.char_end]
        assert chunk.content in uncut.chunk.content
        assert chunk.content.endswith(". ") or uncut.chunk.content.endswith(chunk.content)
        assert best.chunk_id == uncut.matched_children[0].chunk_id
        for child in passage.matched_children:
            assert chunk.span.char_start <= child.span.char_start < child.span.char_end
            assert child.span.char_end <= chunk.span.char_end
        return
    if len(found) < len(whole):  # Not one sentence fitted.
        assert left < whole[len(found)].chunk.token_count


def test_a_passage_is_cut_to_where_its_best_leaf_begins(opened):
    opened.create()
    document = prepared("d", sentences(15))
    opened.fill(document)
    text = document.parsed.text
    last = len(document.vectors) - 1
    with opened.snapshot() as snapshot:
        groups = snapshot.climb(snapshot.search(document.vectors[last], 1), TOP, Aggregation.MAX)
        (whole,) = read_passages(snapshot, groups, 1)
        (cut,) = read_passages(snapshot, groups, 1, 20, cut_last=True)
        best = whole.matched_children[0].span
        assert whole.chunk.span.char_start < cut.chunk.span.char_start <= best.char_start
        assert text[: cut.chunk.span.char_start].endswith(". ")
        assert cut.chunk.span.char_end > best.char_start
        assert read_passages(snapshot, groups, 1, 3, cut_last=True) == ()
        assert read_passages(snapshot, groups, 1, 20) == ()
