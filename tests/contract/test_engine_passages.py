"""Every storage engine keeps these promises about the passages that a search returns."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from hrag.engine.find import FindRequest, SurroundedLeaves
from hrag.passages.sentence_context import sentence_context, surrounding_chars
from hrag.text.sentences import sentence_ends
from hrag.types import PageStart, Passage, SearchMode, Span
from hrag.values.ids import ChunkId
from hrag.values.tree import PageSpan, ParsedText, Section
from indexer_svc.chunker import build_tree
from tests.support.documents.fakes import (
    SCORE_TOLERANCE,
    ModelCollection,
    matched_leaves,
    prepared,
    query_vector,
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


# Tests of sentence contexts.


@pytest.mark.parametrize("margin", [0, 1, 3, 20])
def test_a_context_has_the_sentences_of_a_leaf_and_a_margin_before_and_after(opened, margin):
    english, chinese = sentences(60), "".join(f"这是第{n}句话，它说了一点。" for n in range(60))
    mixed = f"{english}\n\n# 标题\n\n{chinese}" + "no end " * 500
    half = len(mixed) // 2
    pages = (PageSpan(7, 0, half), PageSpan(8, half, len(mixed)))
    opened.create()
    opened.fill(
        prepared("e", english), prepared("m", ParsedText(mixed, pages=pages)), prepared("s", "One.")
    )
    text = {"e": english, "m": mixed, "s": "One."}
    request = FindRequest(query_vector(0), SearchMode.STANDARD, 0, limit=500, candidates=500)
    chars = surrounding_chars(margin)
    with opened.snapshot() as snapshot:
        result = snapshot.find(request, SurroundedLeaves(chars))
        limited = snapshot.find(replace(request, limit=2), SurroundedLeaves(chars))
    assert len(result.passages) == result.considered == opened.model.leaf_count
    assert limited.passages == result.passages[:2]
    assert (result.exhausted, limited.exhausted) == (True, False)
    scores = opened.model.scores(query_vector(0))
    for surrounded in result.passages:
        assert max(len(surrounded.before), len(surrounded.after)) <= chars
        context = sentence_context(surrounded, margin)
        leaf = (context.chunk.document_id, context.chunk.index)
        assert context.score == pytest.approx(scores[leaf], abs=SCORE_TOLERANCE)
        whole = text[context.chunk.document_id]
        span = context.chunk.span
        assert context.chunk.content == whole[span.char_start : span.char_end]
        ends = sentence_ends(whole)
        touched = [
            end
            for start, end in itertools.pairwise([0, *ends])
            if start < context.chunk.span.char_end and context.chunk.span.char_start < end
        ]
        leaf_sentences = [context.sentences[index] for index in context.leaf_sentences]
        # A sentence that is too long is cut, at places that depend on where the text begins.
        if "no end" not in leaf_sentences[-1].content:
            assert [sentence.span.char_end for sentence in leaf_sentences] == touched
            assert context.leaf_sentences.start == min(margin, ends.index(touched[0]))
        assert context.leaf_sentences.stop + margin >= len(context.sentences)
        for sentence in context.sentences:
            span = sentence.span
            assert sentence.content == whole[span.char_start : span.char_end]
            assert sentence.content.encode() == whole.encode()[span.byte_start : span.byte_end]
            if context.chunk.document_id == "m":
                assert sentence.first_page == (7 if span.char_start < half else 8)
                assert sentence.last_page == (7 if span.char_end <= half else 8)
                inside = span.char_start < half < span.char_end
                assert sentence.page_starts == ((PageStart(8, half),) if inside else ())
        for sentence, following in itertools.pairwise(context.sentences):
            assert (sentence.span.char_end, sentence.span.byte_end) == (
                following.span.char_start,
                following.span.byte_start,
            )
