"""Every storage engine keeps these promises about the passages that a search returns."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from hrag.engine.find import FindRequest
from hrag.types import PageStart, Passage, Retrieval, SearchMode, Span
from hrag.values.ids import ChunkId
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc.chunker import build_tree
from tests.support.documents.fakes import (
    ModelCollection,
    matched_leaves,
    prepared,
    query_vector,
    read_passages,
    search_passages,
    sentences,
)

# Most collections here have three levels.
TOP = 2
EVERYTHING = 1000


def test_a_passage_has_the_text_and_span_of_its_chunk(filled):
    with filled.snapshot() as snapshot:
        passages = search_passages(snapshot, query_vector(1), 30, 1, keep_overlap=True)
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


@pytest.mark.parametrize("budget", [0, 300])
@pytest.mark.parametrize("limit", [1, 4, EVERYTHING])
@pytest.mark.parametrize("level", [0, 1])
def test_joined_passages_repeat_no_text(filled, level, limit, budget):
    query = query_vector(4)
    options = {
        "candidates": EVERYTHING,
        "min_score": sorted(filled.model.scores(query).values())[-40],
    }
    joining = {"token_budget": budget, "merge_adjacent": True}
    with filled.snapshot() as snapshot:
        single = {
            passage.chunk.chunk_id: passage
            for passage in search_passages(
                snapshot, query, EVERYTHING, level, keep_overlap=True, **options
            )
        }
        joined = search_passages(snapshot, query, limit, level, **options, **joining)
    assert 0 < len(joined) <= limit
    if limit == EVERYTHING and not budget:
        assert matched_leaves(joined) == matched_leaves(single.values())
    if budget:
        assert sum(passage.chunk.token_count for passage in joined) <= budget
    for passage in joined:
        chunk_ids = passage.merged_chunk_ids or (passage.chunk.chunk_id,)
        assert passage == _joined([single[chunk_id] for chunk_id in chunk_ids], filled.model)
    for passage, other in itertools.combinations(joined, 2):
        if passage.chunk.document_id == other.chunk.document_id:
            spans = (passage.chunk.span, other.chunk.span)
            first, second = sorted(spans, key=lambda span: span.byte_start)
            assert first.byte_end < second.byte_start


def test_a_joined_passage_has_the_right_section_and_pages(catalog):
    """The passage has the section of its best chunk, and the pages of all its chunks."""
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
        best = search_passages(snapshot, query_vector(0), 1, 0)[0].chunk
        (joined,) = search_passages(snapshot, query_vector(0), 100, 0, merge_adjacent=True)
    assert joined.chunk.content == text
    assert joined.chunk.section_path == best.section_path
    assert (joined.chunk.first_page, joined.chunk.last_page) == (1, 2)
    assert joined.chunk.page_starts == (PageStart(2, half),)


def _joined(parts: list[Passage], model: ModelCollection) -> Passage:
    """Returns the passage that must result from joining `parts`.

    `parts` are passages that touch, in order of the text.
    """
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
    return replace(best, chunk=chunk, matched_children=tuple(children), merged_chunk_ids=names)


# Tests of token budgets.


def test_a_token_budget_bounds_the_returned_passages(filled):
    with filled.snapshot() as snapshot:

        def within(budget: int) -> tuple[Passage, ...]:
            return search_passages(snapshot, query_vector(2), EVERYTHING, 1, token_budget=budget)

        everything = within(0)
        budget = sum(p.chunk.token_count for p in everything) // 2
        chosen = within(budget)
        assert chosen[0] == everything[0]
        assert sum(p.chunk.token_count for p in chosen) <= budget
        assert {p.chunk.chunk_id for p in chosen} < {p.chunk.chunk_id for p in everything}
        assert within(1) == ()


@pytest.mark.parametrize("level", [0, 1, TOP])
def test_the_first_passage_that_does_not_fit_the_budget_is_cut_at_a_sentence(filled, level):
    with filled.snapshot() as snapshot:
        for seed in range(5):
            query, options = query_vector(seed), {"candidates": 60}
            whole = search_passages(snapshot, query, 4, level, **options)
            sizes = [passage.chunk.token_count for passage in whole]
            for budget in range(1, sum(sizes) + 2, 7):
                options |= {"token_budget": budget, "cut_last": True}
                passages = search_passages(snapshot, query, 4, level, **options)
                _assert_cut(passages, whole, budget, filled.model)


def _assert_cut(
    passages: tuple[Passage, ...], whole: tuple[Passage, ...], budget: int, model: ModelCollection
) -> None:
    """Fails unless `passages` are the first passages of `whole`, of which only the last is cut."""
    assert sum(passage.chunk.token_count for passage in passages) <= budget
    remaining = budget
    for passage, uncut in zip(passages, whole, strict=False):
        if uncut.chunk.token_count <= remaining:
            assert passage == uncut
            remaining -= uncut.chunk.token_count
            continue
        assert passage is passages[-1]
        chunk, best = passage.chunk, passage.matched_children[0]
        text = model.documents[chunk.document_id].parsed.text
        assert chunk.content == text[chunk.span.char_start : chunk.span.char_end]
        assert chunk.content in uncut.chunk.content
        assert chunk.content.endswith(".") or uncut.chunk.content.endswith(chunk.content)
        assert best.chunk_id == uncut.matched_children[0].chunk_id
        for child in passage.matched_children:
            assert chunk.span.char_start <= child.span.char_start < child.span.char_end
            assert child.span.char_end <= chunk.span.char_end
        return
    if len(passages) < len(whole):  # No sentence of the next passage fits.
        assert remaining < whole[len(passages)].chunk.token_count


def test_a_cut_passage_begins_near_its_best_leaf(opened):
    opened.create()
    document = prepared("d", sentences(15))
    opened.fill(document)
    text = document.parsed.text
    last = len(document.vectors) - 1
    with opened.snapshot() as snapshot:

        def best_passage(**options: Any) -> tuple[Passage, ...]:
            return search_passages(snapshot, document.vectors[last], 1, TOP, **options)

        (whole,) = best_passage()
        (cut,) = best_passage(token_budget=20, cut_last=True)
        best = whole.matched_children[0].span
        assert whole.chunk.span.char_start < cut.chunk.span.char_start <= best.char_start
        assert text[: cut.chunk.span.char_start].endswith(".")
        assert cut.chunk.span.char_end > best.char_start
        assert best_passage(token_budget=3, cut_last=True) == ()
        assert best_passage(token_budget=20) == ()


# Tests of windows of sentences.


@pytest.mark.parametrize("retrieval", list(Retrieval))
@pytest.mark.parametrize("margin", [0, 1, 20])
def test_a_window_has_the_sentence_to_cite_and_its_neighbours(opened, margin, retrieval):
    english, chinese = sentences(60), "".join(f"这是第{n}句话，它说了一点。" for n in range(60))
    mixed = f"{english}\n\n# 标题\n\n{chinese}" + "no end " * 500
    half = len(mixed) // 2
    pages = (PageSpan(7, 0, half), PageSpan(8, half, len(mixed)))
    opened.create()
    opened.fill(
        prepared("e", english), prepared("m", ParsedText(mixed, pages=pages)), prepared("s", "One.")
    )
    texts = {"e": english, "m": mixed, "s": "One."}
    request = FindRequest(
        query_vector(0), SearchMode.SENTENCE_WINDOW, 0, limit=500, candidates=500,
        text="sentence 17 这是第42句话 one", retrieval=retrieval, merge_adjacent=True,
        window_sentences=margin,
    )  # fmt: skip
    with opened.snapshot() as snapshot:
        result = read_passages(snapshot, request)
        limited = read_passages(snapshot, replace(request, limit=2))
    assert (result.exhausted, limited.exhausted) == (True, False)
    assert {passage.chunk.document_id for passage in result.passages} == {*texts}
    assert [passage.score for passage in result.passages] == sorted(
        (passage.score for passage in result.passages), reverse=True
    )
    for passage in result.passages:
        text, span = texts[passage.chunk.document_id], passage.chunk.span
        assert passage.chunk.content == text[span.char_start : span.char_end]
        cited = passage.matched_sentence.span
        assert span.char_start <= cited.char_start < cited.char_end <= span.char_end
        assert passage.matched_children[0].score == passage.score
        if passage.chunk.document_id == "m":
            assert passage.chunk.first_page == (7 if span.char_start < half else 8)
            assert passage.chunk.last_page == (7 if span.char_end <= half else 8)
    contents = [passage.chunk.content for passage in result.passages]
    for smaller in limited.passages:
        assert any(smaller.chunk.content in content for content in contents)
    spans = sorted(
        (p.chunk.document_id, p.chunk.span.char_start, p.chunk.span.char_end)
        for p in result.passages
    )
    for (name, _, end), (other, start, _) in itertools.pairwise(spans):
        assert name != other or end < start
