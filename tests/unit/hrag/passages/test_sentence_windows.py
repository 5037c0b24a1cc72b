"""Sentence windows, which are sentences with their neighbours, are joined and chosen in rounds."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag import errors
from hrag.models.embedding import Vectors
from hrag.passages import sentence_windows
from hrag.passages.outline import Outline
from hrag.passages.sentence_context import Sentence, SentenceContext
from hrag.passages.sentence_windows import ChosenWindows, Window
from hrag.passages.surrounded_leaf import SurroundedLeaf
from hrag.text import tokens
from hrag.types import Aggregation, Chunk, PageStart, SearchMode, Span
from hrag.values.deadline import NEVER, Deadline
from hrag.values.tree import PageSpan
from tests.support.engines.rankings import (
    DIMENSION,
    QUERY,
    Embedder,
    FakeReader,
    FakeSnapshot,
    search_of,
)

TEXT = [f"Sentence {number} is about {word}. " for number, word in enumerate("abcdefghijkl")]
WHOLE = "".join(TEXT)
STARTS = [0, *accumulate(map(len, TEXT))]


def leaf_context(
    document_id: str, leaf_sentences: range, margin: int = 2, score: float = 0.5
) -> SentenceContext:
    """Returns a leaf of the sentences `leaf_sentences`, with `margin` sentences on either side.

    A page of the text begins every four sentences.
    """
    first, end = max(leaf_sentences.start - margin, 0), min(leaf_sentences.stop + margin, len(TEXT))
    sentences = tuple(
        Sentence(
            WHOLE[start:stop], Span(start, stop, start, stop), number // 4 + 1, number // 4 + 1
        )
        for number, (start, stop) in enumerate(pairwise(STARTS))
        if first <= number < end
    )
    span = Span(
        STARTS[leaf_sentences.start],
        STARTS[leaf_sentences.stop],
        STARTS[leaf_sentences.start],
        STARTS[leaf_sentences.stop],
    )
    chunk = Chunk(
        f"{document_id}#0.{leaf_sentences.start}",
        document_id,
        0,
        leaf_sentences.start,
        "",
        9,
        span,
        (),
        0,
        0,
        "",
        "",
        {},
    )
    return SentenceContext(
        chunk, score, sentences, range(leaf_sentences.start - first, leaf_sentences.stop - first)
    )


def surrounded_leaf(document_id: str, leaf_sentences: range, chars: int) -> SurroundedLeaf:
    """Returns the leaf of `leaf_context` as an engine returns it.

    `chars` is the count of characters that the engine returns before and after the leaf.
    """
    leaf = leaf_context(document_id, leaf_sentences)
    span = leaf.chunk.span
    chunk = replace(leaf.chunk, content=WHOLE[span.char_start : span.char_end])
    pages = [
        PageSpan(number // 4 + 1, STARTS[number], STARTS[min(number + 4, len(TEXT))])
        for number in range(0, len(TEXT), 4)
    ]
    return SurroundedLeaf(
        chunk,
        leaf.score,
        before=WHOLE[: span.char_start][-chars:],
        after=WHOLE[span.char_end :][:chars],
        outline=Outline.of(document_id, "", "", {}, (), pages),
    )


def window(document_id: str, best: int, score: float = 0.5, margin: int = 2) -> Window:
    """Returns a window of the sentence `best` and `margin` sentences on either side."""
    leaf = leaf_context(document_id, range(best, best + 1), margin)
    return sentence_windows.window(leaf, leaf.leaf_sentences.start, score, margin)


def test_a_passage_lists_a_page_that_begins_inside_a_sentence():
    leaf = leaf_context("d", range(5, 6))
    inside = PageStart(3, STARTS[5] + 2)
    broken = replace(leaf.sentences[leaf.leaf_sentences.start], last_page=3, page_starts=(inside,))
    sentences = (*leaf.sentences[: leaf.leaf_sentences.start], broken)
    chunk = Window(leaf.chunk, sentences, window("d", 5).matched).passage(Aggregation.MAX).chunk
    assert (chunk.first_page, chunk.last_page) == (1, 3)
    assert chunk.page_starts == (PageStart(2, STARTS[4]), inside)


def sentence_indexes(content: str) -> list[int]:
    return [number for number, sentence in enumerate(TEXT) if sentence in content]


@pytest.mark.parametrize(
    ("best", "margin", "expected"),
    [(5, 0, [5]), (5, 2, [3, 4, 5, 6, 7]), (0, 2, [0, 1, 2]), (11, 3, [8, 9, 10, 11])],
)
def test_a_window_is_a_sentence_and_the_sentences_around_it(best, margin, expected):
    result = window("d", best, margin=margin)
    assert sentence_indexes(result.content) == expected
    assert result.content == WHOLE[result.span.char_start : result.span.char_end]
    chunk = result.passage(Aggregation.MAX).chunk
    assert (chunk.first_page, chunk.last_page) == (expected[0] // 4 + 1, expected[-1] // 4 + 1)
    begun = [number for number in expected[1:] if number % 4 == 0]
    assert chunk.page_starts == tuple(PageStart(n // 4 + 1, STARTS[n]) for n in begun)
    (matched,) = result.matched
    assert WHOLE[matched.span.char_start : matched.span.char_end] == TEXT[best]


def test_sentences_without_a_word_are_not_scored():
    leaf = leaf_context("d", range(3, 6))
    silent = replace(leaf.sentences[3], content="* * *\n")
    leaf = replace(leaf, sentences=(*leaf.sentences[:3], silent, *leaf.sentences[4:]))
    assert sentence_windows.candidate_sentences(leaf) == [2, 4]
    nothing = replace(leaf, sentences=(silent,) * 7)
    assert sentence_windows.candidate_sentences(nothing) == []


def _chosen(windows: Sequence[Window], limit: int = 100, **options: Any) -> ChosenWindows:
    chosen = ChosenWindows(replace(QUERY, **options), limit)
    for new_window in windows:
        chosen.add(new_window)
    return chosen


def _joined_windows(
    bests: list[tuple[str, int, float]], *, joins_touching: bool = False
) -> list[Window]:
    windows = [window(document_id, best, score) for document_id, best, score in bests]
    return _chosen(windows, merge_adjacent=joins_touching).windows


def test_windows_that_overlap_become_one():
    (joined,) = _joined_windows([("d", 2, 0.4), ("d", 6, 0.9)])
    assert sentence_indexes(joined.content) == list(range(9))
    assert joined.chunk.chunk_id == "d#0.6"
    assert [match.score for match in joined.matched] == [0.9, 0.4]
    passage = joined.passage(Aggregation.MEAN)
    assert passage.score == pytest.approx(0.65)
    assert passage.merged_chunk_ids == ("d#0.2", "d#0.6")
    assert passage.chunk.token_count == len(tokens.encode(passage.chunk.content))
    assert (passage.chunk.first_page, passage.chunk.last_page) == (1, 3)


def test_windows_that_touch_become_one_with_merge_adjacent():
    apart = [("d", 2, 0.4), ("d", 7, 0.9)]
    assert len(_joined_windows(apart)) == 2
    (joined,) = _joined_windows(apart, joins_touching=True)
    assert sentence_indexes(joined.content) == list(range(10))


def test_a_window_that_overlaps_two_windows_joins_them():
    (joined,) = _joined_windows([("d", 2, 0.4), ("d", 9, 0.5), ("d", 5, 0.3)])
    assert sentence_indexes(joined.content) == list(range(12))


def test_windows_of_different_documents_are_not_joined():
    assert len(_joined_windows([("d", 2, 0.4), ("e", 2, 0.9)])) == 2


def test_a_document_has_at_most_max_per_document_windows():
    ranked = [("d", 1), ("d", 9), ("e", 9), ("d", 2)]
    windows = [window(document_id, best, margin=1) for document_id, best in ranked]
    chosen = _chosen(windows, max_per_document=1)
    assert [(w.chunk.document_id, sentence_indexes(w.content)) for w in chosen.windows] == [
        ("d", [0, 1, 2, 3]),
        ("e", [8, 9, 10]),
    ]
    assert (chosen.missing, chosen.left_out) == (98, False)


def test_a_joined_window_has_the_rank_of_its_first_leaf():
    windows = _joined_windows([("e", 2, 0.1), ("d", 2, 0.4), ("f", 2, 0.9), ("d", 4, 0.95)])
    assert [chosen.chunk.document_id for chosen in windows] == ["e", "d", "f"]
    assert [chosen.matched[0].score for chosen in windows] == [0.1, 0.95, 0.9]


def test_a_matched_sentence_that_is_in_two_leaves_counts_once():
    first, second = leaf_context("d", range(5)), leaf_context("d", range(4, 8))
    joined = sentence_windows.window(first, 4, 0.7, 2)
    joined = joined.joined(sentence_windows.window(second, second.leaf_sentences.start, 0.7, 2))
    assert len(joined.matched) == 1
    assert joined.score(Aggregation.COUNT) == 1.0
    assert joined.passage(Aggregation.SUM).merged_chunk_ids == ()


@given(
    st.lists(
        st.tuples(st.sampled_from("de"), st.integers(0, 11), st.floats(-1, 1, width=32)), min_size=1
    ),
    st.booleans(),
)
def test_no_text_is_repeated_and_no_matched_sentence_is_lost(bests, joins_touching):
    windows = _joined_windows(bests, joins_touching=joins_touching)
    spans = sorted(
        (joined.chunk.document_id, joined.span.char_start, joined.span.char_end)
        for joined in windows
    )
    for (document_id, _, end), (next_document_id, start, _) in pairwise(spans):
        is_apart = end < start if joins_touching else end <= start
        assert document_id != next_document_id or is_apart
    for joined in windows:
        assert joined.content == WHOLE[joined.span.char_start : joined.span.char_end]
        assert all(
            joined.span.char_start <= m.span.char_start and m.span.char_end <= joined.span.char_end
            for m in joined.matched
        )
        scores = [matched.score for matched in joined.matched]
        assert scores == sorted(scores, reverse=True)
    matched = {(w.chunk.document_id, m.span.char_start) for w in windows for m in w.matched}
    assert matched == {(document_id, STARTS[best]) for document_id, best, _ in bests}


FOUR = [window("a", 0, 0.3), window("b", 5, 0.9), window("c", 5, 0.5), window("d", 1, 0.1)]


def test_windows_that_fit_and_score_high_enough_are_chosen():
    size = len(tokens.encode(window("b", 5).content))

    def chosen_ids(**options: Any) -> tuple[str, bool]:
        chosen = _chosen(FOUR, **options)
        return "".join(passage.chunk.document_id for passage in chosen.passages()), chosen.left_out

    assert chosen_ids() == ("abcd", False)
    assert chosen_ids(min_score=0.3) == ("abc", True)
    assert chosen_ids(min_score=2.0) == ("", True)
    assert chosen_ids(token_budget=2 * size - 1) == ("ab", True)
    assert chosen_ids(min_score=0.5, token_budget=2 * size) == ("bc", True)


def test_a_window_that_scores_too_low_counts_towards_the_limit():
    chosen = _chosen(FOUR[:3], limit=3, min_score=0.5)
    assert [chosen_window.chunk.document_id for chosen_window in chosen.windows] == ["b", "c"]
    assert chosen.missing == 0


def test_a_sentence_that_scores_too_low_does_not_reduce_the_score_of_a_window():
    pair = [window("d", 2, 0.9), window("d", 4, 0.1)]
    (passage,) = _chosen(pair, min_score=0.5, aggregation=Aggregation.MEAN).passages()
    assert (passage.score, sentence_indexes(passage.chunk.content)) == (0.9, [0, 1, 2, 3, 4])
    (passage,) = _chosen(pair, min_score=1.0, aggregation=Aggregation.SUM).passages()
    assert passage.score == 1.0


def test_a_window_that_would_exceed_the_budget_is_not_joined():
    pair = [window("d", 2, 0.9), window("d", 4, 0.1), window("e", 0, 0.1)]
    size = len(tokens.encode(pair[0].content))
    chosen = _chosen(pair, token_budget=size + 1)
    assert [sentence_indexes(chosen_window.content) for chosen_window in chosen.windows] == [
        [0, 1, 2, 3, 4]
    ]
    assert chosen.missing == 98


@given(
    st.lists(st.tuples(st.sampled_from("de"), st.integers(0, 11), st.floats(-1, 1, width=32))),
    st.lists(st.integers(1, 8), min_size=2, max_size=2).map(sorted),
    st.sampled_from([0, 30, 90]),
    st.booleans(),
)
def test_a_larger_limit_only_extends_or_appends_windows(bests, limits, budget, cut_last):
    windows = [window(document_id, best, score) for document_id, best, score in bests]
    options = {"token_budget": budget, "cut_last": cut_last and budget > 0}
    less, more = (_chosen(windows, limit, **options).windows for limit in limits)
    indexes_of_containing_windows = [
        next(
            index
            for index, larger in enumerate(more)
            if larger.chunk.document_id == smaller.chunk.document_id
            and smaller.content in larger.content
        )
        for smaller in less
    ]
    distinct_indexes = list(dict.fromkeys(indexes_of_containing_windows))
    assert distinct_indexes == list(range(len(distinct_indexes)))
    assert sum(len(tokens.encode(larger.content)) for larger in more) <= (budget or 10**6)


@pytest.mark.parametrize(
    ("sentences", "expected"), [(1, [4]), (2, [4, 5]), (3, [2, 3, 4]), (4, [2, 3, 4, 5]), (5, None)]
)
def test_the_first_window_that_does_not_fit_is_cut_at_a_sentence(sentences, expected):
    windows = [window("a", 0, 0.9), window("b", 4, 0.5), window("c", 4, 0.1)]
    size = len(tokens.encode(TEXT[0]))
    chosen = _chosen(windows, token_budget=(3 + sentences) * size, cut_last=True)
    first, *further = chosen.passages()
    assert (first.chunk.document_id, chosen.left_out, chosen.missing) == ("a", True, 0)
    if expected is None:
        assert [passage.chunk.document_id for passage in further] == ["b"]
    else:
        (cut,) = further
        assert sentence_indexes(cut.chunk.content) == expected
        assert cut.chunk.content == WHOLE[slice(*_chars(cut.chunk.span))]
        assert len(cut.matched_children) == 1
    assert _chosen(windows, token_budget=size - 1, cut_last=True).windows == []


# The following tests cover the rounds of a search. Each round reads more leaves than the last.


class RankedLeaves(FakeSnapshot):
    """A fake snapshot whose leaves have three sentences each.

    The name of a leaf is the id of its document and quote marks. A leaf begins three sentences
    later for each quote mark in its name.
    """

    def leaves(self, names: Sequence[str], chars: int) -> tuple[SurroundedLeaf, ...]:
        return tuple(
            surrounded_leaf(
                name.rstrip("'"), range(3 * name.count("'"), 3 * name.count("'") + 3), chars
            )
            for name in names
        )


def _search(ranking: list[str], embedder: Any = None, **options: Any) -> Any:
    snapshot = RankedLeaves(ranking)
    query = replace(QUERY, mode=SearchMode.SENTENCE_WINDOW, **options)
    return search_of(snapshot, embedder=embedder and embedder(snapshot))(query, NEVER)


def test_the_sentence_of_a_leaf_nearest_to_the_query_is_chosen():
    query = Embedder(FakeSnapshot([])).embed([TEXT[1].strip()])[0].tolist()
    result = _search(["a"], query=query, window_sentences=0)
    (passage,) = result.passages
    assert passage.chunk.content == TEXT[1]
    assert passage.score == pytest.approx(1.0)
    assert (result.returned_at_level, result.exhausted) == (0, True)


def test_three_sentences_on_either_side_are_the_default():
    (passage,) = _search(["a'"]).passages
    (best,) = sentence_indexes(WHOLE[slice(*_chars(passage.matched_children[0].span))])
    assert sentence_indexes(passage.chunk.content) == list(range(max(best - 3, 0), best + 4))


def _chars(span: Span) -> tuple[int, int]:
    return span.char_start, span.char_end


def test_more_leaves_are_read_until_there_are_enough_windows():
    ranking = ["a", "a'", "a''", "a'''", "b", "c", "d"]
    result = _search(ranking, limit=3, window_sentences=4)
    assert [p.chunk.document_id for p in result.passages if p.chunk.document_id != "a"] == [
        "b",
        "c",
    ]
    assert len(result.passages) == 3
    assert not result.exhausted
    assert _search(ranking, limit=9, window_sentences=4).exhausted


def test_each_round_asks_a_new_snapshot_for_four_times_as_many_leaves():
    snapshot = RankedLeaves([*("a" + "'" * n for n in range(4)), "b", "c", "d", "e", "f", "g"])
    reader = FakeReader(snapshot)
    query = replace(QUERY, mode=SearchMode.SENTENCE_WINDOW, limit=2, window_sentences=20)
    search_of(snapshot, reader=reader)(query, NEVER)
    assert [request.limit for request in snapshot.requests] == [4, 16]
    # The first query of a collection opens another snapshot, to read the collection's settings.
    assert reader.snapshots == 1 + 2


def test_the_engine_does_not_receive_the_options_for_windows():
    snapshot = RankedLeaves(["a"])
    query = replace(QUERY, mode=SearchMode.SENTENCE_WINDOW, min_score=0.0, token_budget=9)
    query = replace(query, cut_last=True, merge_adjacent=True, aggregation=Aggregation.SUM)
    search_of(snapshot)(query, NEVER)
    (request,) = snapshot.requests
    assert (request.min_score, request.token_budget, request.cut_last) == (None, 0, False)
    assert (request.merge_adjacent, request.aggregation) == (False, Aggregation.MAX)


def test_a_text_and_its_sentences_are_embedded_once():
    snapshot = RankedLeaves(["a", "b"])
    embedder = Embedder(snapshot)
    search = search_of(snapshot, embedder=embedder)
    query = replace(QUERY, mode=SearchMode.SENTENCE_WINDOW)
    assert search(query, NEVER).passages == search(query, NEVER).passages
    assert embedder.texts == [QUERY.query, *(text.strip() for text in TEXT[:3])]


def test_the_only_sentence_of_a_leaf_is_scored_by_its_own_vector():
    """The score is the cosine of the sentence and the query, not the score of the leaf."""

    class OneSentenceLeaf(RankedLeaves):
        def leaves(self, names: Sequence[str], chars: int) -> tuple[SurroundedLeaf, ...]:
            return (surrounded_leaf("d", range(1, 2), chars),)

    query = Embedder(FakeSnapshot([])).embed([TEXT[1].strip()])[0].tolist()
    query_of_sentence = replace(QUERY, mode=SearchMode.SENTENCE_WINDOW, query=query)
    (passage,) = search_of(OneSentenceLeaf(["d"]))(query_of_sentence, NEVER).passages
    assert passage.score == pytest.approx(1)


def test_a_query_vector_also_requires_the_embedder_of_the_collection():
    with pytest.raises(errors.EmbedderMismatch):
        _search(
            ["a"],
            lambda snapshot: Embedder(snapshot, name="other"),
            query=np.ones(DIMENSION, np.float32),
        )


def test_a_sentence_that_the_embedder_refuses_is_not_chosen():
    def refusing_embedder(snapshot: FakeSnapshot) -> Embedder:
        embedder = Embedder(snapshot)
        embedder.refused = TEXT[1].strip()
        return embedder

    query = Embedder(FakeSnapshot([])).embed([TEXT[1].strip()])[0].tolist()
    (passage,) = _search(["a"], refusing_embedder, query=query).passages
    assert passage.score < 0.99


@pytest.mark.parametrize(
    "error",
    [
        errors.EmbedderUnavailable,
        errors.EmbedderRejected,
        errors.DeadlineExceeded,
        errors.Cancelled,
    ],
)
def test_an_error_of_embedding_all_sentences_is_raised(error):
    def failing_embedder(snapshot: FakeSnapshot) -> Embedder:
        embedder = Embedder(snapshot)
        embedder.failure = error("no")
        return embedder

    with pytest.raises(error):
        _search(["a"], failing_embedder, query=np.ones(DIMENSION, np.float32))


class FailingLater(Embedder):
    """Rejects every batch of texts except the first batch."""

    every_text = False

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        if self.batches:
            self.failure = errors.EmbedderRejected("no", every_text=self.every_text)
        return super().embed(texts, deadline)


class RevokedLater(FailingLater):
    """The endpoint's key is revoked after the first batch."""

    every_text = True


def test_refusals_of_later_sentences_are_ignored_but_not_of_the_key():
    vector = np.ones(DIMENSION, np.float32)
    options = {"query": vector, "limit": 2, "window_sentences": 4}
    # The windows of the first two leaves are joined, so a later batch embeds the third leaf.
    ranking = ["a", "a'", "b''"]
    first, last = _search(ranking, FailingLater, **options).passages
    assert first.score > last.score == -1
    with pytest.raises(errors.EmbedderRejected):
        _search(ranking, RevokedLater, **options)


def test_an_empty_collection_has_no_window():
    result = _search([])
    assert (result.passages, result.exhausted) == ((), True)


def test_windows_that_score_too_low_are_left_out_and_the_result_is_not_exhausted():
    result = _search(["a", "b"], limit=9, min_score=2.0)
    assert (result.passages, result.exhausted) == ((), False)


@pytest.mark.parametrize("mode", [mode for mode in SearchMode if mode != "sentence_window"])
def test_other_modes_refuse_window_sentences(mode):
    with pytest.raises(errors.InvalidArgument, match=mode.name):
        search_of(FakeSnapshot(["a"]))(replace(QUERY, mode=mode, window_sentences=3), NEVER)


@pytest.mark.parametrize("sentences", [-1, 21])
def test_window_sentences_outside_0_to_20_are_refused(sentences):
    with pytest.raises(errors.InvalidArgument, match="from 0 to 20"):
        _search(["a"], window_sentences=sentences)
