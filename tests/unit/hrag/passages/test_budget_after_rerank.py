"""After reranking, whole passages fill a token budget, and the last passage may be cut."""

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from hrag.passages.budget_after_rerank import cut_passage, within_limits, without_repeats
from hrag.text import tokens
from hrag.text.sentences import sentence_ends
from hrag.types import Chunk, MatchedChild, MatchedSentence, PageStart, Passage, Span, TermSpan

SENTENCES = ["Dogs bark. ", "Cats sleep all day. ", "猫睡觉。", "它们喜欢鱼。", "Fish swim."]
TEXT = "".join(SENTENCES)
ENDS = list(accumulate(map(len, SENTENCES)))
SIZES = [len(tokens.encode(sentence)) for sentence in SENTENCES]
# The passage begins at this character and at this byte of its document.
OFFSET = 100


def _span(start: int, end: int) -> Span:
    first, last = len(TEXT[:start].encode()), len(TEXT[:end].encode())
    return Span(OFFSET + first, OFFSET + last, OFFSET + start, OFFSET + end)


def _passage(*leaves: int, name: str = "d") -> Passage:
    """Returns a passage of all sentences.

    For each index in `leaves`, a matched leaf has the two sentences from that index on.
    """
    starts = [0, *ENDS]
    whole = _span(0, len(TEXT))
    count = len(tokens.encode(TEXT))
    pages = (PageStart(5, OFFSET + ENDS[1]), PageStart(6, OFFSET + ENDS[3]))
    chunk = Chunk(f"{name}#2.0", name, 2, 0, TEXT, count, whole, ("S",), 4, 6, "", "", {}, pages)
    children = tuple(
        MatchedChild(f"{name}#0.{leaf}", 0.9, _span(starts[leaf], starts[min(leaf + 2, 5)]))
        for leaf in leaves
    )
    return Passage(chunk, 0.9, children, rerank_score=2.0)


def test_the_text_is_split_into_the_sentences_of_this_test() -> None:
    assert sentence_ends(TEXT) == ENDS


def test_passages_that_fit_are_returned_whole() -> None:
    first, second = _passage(0, name="a"), _passage(0, name="b")
    size = first.chunk.token_count
    assert within_limits([first, second], 9, 0, cut_last=False) == (first, second)
    assert within_limits([first, second], 9, 2 * size, cut_last=True) == (first, second)
    assert within_limits([first, second], 9, 2 * size - 1, cut_last=False) == (first,)
    small = cut_passage(second, SIZES[0])
    assert small is not None
    left = size + SIZES[0]
    assert within_limits([first, second, small], 9, left, cut_last=False) == (first, small)
    assert within_limits([first, second, small], 9, left, cut_last=True) == (first, small)
    assert within_limits([first, second], 9, size, cut_last=True) == (first,)


@pytest.mark.parametrize("leaf", range(5))
def test_a_cut_passage_has_whole_sentences_and_the_start_of_the_best_leaf(leaf: int) -> None:
    passage = _passage(leaf)
    for budget in range(passage.chunk.token_count):
        part = cut_passage(passage, budget)
        if part is None:
            assert budget < SIZES[leaf]
            continue
        span = part.chunk.span
        start, end = span.char_start - OFFSET, span.char_end - OFFSET
        assert start in (0, [0, *ENDS][leaf])
        assert end in ENDS[leaf:]
        assert part.chunk.content == TEXT[start:end]
        assert span == _span(start, end)
        assert part.chunk.token_count <= budget
        assert part.matched_children[0].span.char_start >= span.char_start
        assert part.matched_children[0].span.char_end <= span.char_end
        assert (part.score, part.rerank_score) == (0.9, 2.0)


def test_a_cut_passage_fits_if_its_text_has_more_tokens_than_its_sentences() -> None:
    content = "Go! \t猫睡觉。Dogs bark."
    ends = sentence_ends(content)
    sizes = [len(tokens.encode(content[start:end])) for start, end in pairwise([0, *ends])]
    budget = sum(sizes[:2])
    assert len(tokens.encode(content[: ends[1]])) == budget + 1
    passage = _passage()
    chunk = replace(passage.chunk, content=content, token_count=budget + 9)
    part = cut_passage(replace(passage, chunk=chunk), budget)
    assert part is not None
    assert part.chunk.content == content[: ends[0]]


def test_pages_and_matched_leaves_are_cut_with_the_text() -> None:
    part = cut_passage(_passage(1, 0, 3), SIZES[0] + SIZES[1])
    assert part is not None
    assert (part.chunk.first_page, part.chunk.last_page, part.chunk.page_starts) == (4, 4, ())
    spans = [child.span for child in part.matched_children]
    assert spans == [_span(ENDS[0], ENDS[1]), _span(0, ENDS[1])]
    part = cut_passage(_passage(2), sum(SIZES[2:4]))
    assert part is not None
    assert (part.chunk.first_page, part.chunk.last_page) == (5, 5)


def test_terms_after_the_cut_are_omitted() -> None:
    terms = tuple(TermSpan(OFFSET + end - 4, OFFSET + end - 1) for end in ENDS)
    part = cut_passage(replace(_passage(0), term_spans=terms), SIZES[0] + SIZES[1])
    assert part is not None
    assert part.term_spans == terms[:2]


def test_a_passage_without_matched_leaves_is_cut_from_its_start() -> None:
    part = cut_passage(_passage(), SIZES[0])
    assert part is not None
    assert part.chunk.content == SENTENCES[0]


def _passage_of(first: int, last: int, *leaves: int, name: str = "d") -> Passage:
    """Returns a passage of the sentences from `first` to `last`, both included."""
    starts = [0, *ENDS]
    text = TEXT[starts[first] : starts[last + 1]]
    passage = _passage(*leaves, name=name)
    span = _span(starts[first], starts[last + 1])
    chunk = replace(passage.chunk, content=text, span=span, token_count=len(tokens.encode(text)))
    return replace(passage, chunk=chunk)


def test_text_of_an_earlier_passage_is_omitted() -> None:
    kept = without_repeats([_passage_of(1, 3, 2), _passage_of(0, 2, 0), _passage_of(3, 4, 3)])
    assert [passage.chunk.content for passage in kept] == [
        "".join(SENTENCES[1:4]),
        SENTENCES[0],
        SENTENCES[4],
    ]
    assert [passage.chunk.span for passage in kept[1:]] == [
        _span(0, ENDS[0]),
        _span(ENDS[3], ENDS[4]),
    ]
    assert kept[1].chunk.token_count == SIZES[0]
    assert kept[1].matched_children[0].span == _span(0, ENDS[0])


def test_passages_that_do_not_overlap_stay_whole() -> None:
    passages = [_passage_of(1, 2, 1), _passage_of(1, 2, 1, name="e"), _passage_of(4, 4, 4)]
    assert without_repeats(passages) == passages


def test_a_passage_whose_leaves_are_in_an_earlier_passage_is_skipped() -> None:
    assert without_repeats([_passage_of(0, 2, 0), _passage_of(2, 4, 1)]) == [_passage_of(0, 2, 0)]


@pytest.mark.parametrize(("sentence", "is_cited"), [(1, True), (4, False)])
def test_a_cut_passage_cites_no_sentence_outside_its_text(sentence: int, *, is_cited: bool) -> None:
    span = _span([0, *ENDS][sentence], ENDS[sentence])
    passage = replace(_passage(1), matched_sentence=MatchedSentence(span, (), 0, 0))
    later = _passage(2, name="d")
    rest = replace(later, chunk=replace(later.chunk, span=_span(ENDS[2], len(TEXT))))
    _, part = without_repeats([rest, passage])
    assert part.chunk.content == "".join(SENTENCES[:3])
    assert (part.matched_sentence is not None) == is_cited
