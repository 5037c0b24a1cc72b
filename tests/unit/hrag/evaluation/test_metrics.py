"""Every measure is compared with values that were computed by hand or by trec_eval."""

import math
from typing import Any

import pytest

from hrag.evaluation.context_budget import BudgetedText, cut_passages, cut_to_budgets
from hrag.evaluation.gold import Coverage, coverage, finds, found_gains, ideal_gains, resolve
from hrag.evaluation.questions import GoldDocument, GoldQuote, GoldSpan, Question, TextSpan
from hrag.evaluation.retrieval_metrics import (
    intersection_over_union,
    metric_names,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
    scores,
)
from hrag.evaluation.retrieved import RetrievalResult, find_quote
from hrag.text.tokens import encode
from tests.support.documents.evaluation_fakes import passage


def spans(*triples: tuple[str, int, int]) -> tuple[TextSpan, ...]:
    return tuple(TextSpan(*triple) for triple in triples)


def question_with(*gold: Any) -> Question:
    """Returns a question with these expected places of its answer (gold)."""
    return Question("q", "?", gold)


def retrieved(*ranking: TextSpan, quotes: Any = ((),), budget: int = 10) -> RetrievalResult:
    """Returns the result of a search with these texts, best first."""
    texts = {budget: BudgetedText(ranking, 5)}
    return RetrievalResult(ranking, texts, quotes, 1, 1, 1)


TWO_GOLD_SPANS = question_with(*map(GoldSpan, spans(("a", 10, 20), ("b", 0, 30))))


def test_characters_of_gold_are_counted_once_and_characters_of_text_as_often_as_they_occur() -> (
    None
):
    """The gold has 10 + 30 characters, the text has 5 + 10 + 20 + 20 characters.

    Of the gold, the text contains the characters 10 to 18 of `a` and 10 to 30 of `b`.
    """
    text = spans(("a", 5, 10), ("a", 8, 18), ("b", 10, 30), ("b", 20, 40), ("c", 0, 0))
    covered = coverage(resolve(TWO_GOLD_SPANS, ()), text)
    assert covered == Coverage(gold=40, found=28, text=55, relevant=28, union=67)
    assert recall(covered) == 28 / 40
    assert precision(covered) == 28 / 55
    assert intersection_over_union(covered) == 28 / 67


def test_an_empty_text_scores_zero() -> None:
    covered = coverage(resolve(TWO_GOLD_SPANS, ()), ())
    assert (recall(covered), precision(covered), intersection_over_union(covered)) == (0, 0, 0)


def test_overlapping_and_adjacent_gold_spans_are_joined_into_one() -> None:
    gold = resolve(
        question_with(*map(GoldSpan, spans(("a", 0, 10), ("a", 5, 20), ("a", 20, 25)))), ()
    )
    assert ideal_gains(gold) == [1]
    assert recall(coverage(gold, spans(("a", 0, 5)))) == 5 / 25


def test_whole_documents_are_scored_by_document() -> None:
    gold = resolve(question_with(GoldDocument("a", 2), GoldDocument("b")), ())
    covered = coverage(gold, spans(("a", 0, 30), ("c", 0, 60), ("a", 40, 50)))
    figures = (recall(covered), precision(covered), intersection_over_union(covered))
    assert figures == (0.5, 0.4, 0.4)
    assert ideal_gains(gold) == [2, 1]
    assert found_gains(gold, spans(("c", 0, 1), ("b", 0, 1), ("b", 1, 2), ("a", 0, 1))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        (("a", 0, 10), ("a", 5, 15), True),  # The overlap is half of each of them.
        (("a", 0, 10), ("a", 6, 16), False),
        (("a", 0, 100), ("a", 98, 102), True),  # The overlap is half of the gold.
        (("a", 0, 10), ("a", 5, 500), True),  # The overlap is half of the text.
        (("a", 0, 10), ("b", 0, 10), False),
        (("a", 5, 5), ("a", 0, 10), False),
    ],
)
def test_a_text_finds_gold_if_they_share_half_of_the_shorter_one(
    text: tuple[str, int, int], gold: tuple[str, int, int], expected: bool
) -> None:
    assert finds(TextSpan(*text), TextSpan(*gold)) is expected


def test_a_passage_has_a_rank_for_each_gold_span_that_it_is_the_first_to_find() -> None:
    gold = resolve(
        question_with(*map(GoldSpan, spans(("a", 0, 9), ("a", 20, 29), ("b", 0, 9)))), ()
    )
    ranking = spans(("c", 0, 9), ("a", 0, 40), ("a", 0, 9), ("b", 0, 9))
    assert found_gains(gold, ranking) == [0, 1, 1, 0, 1]


def test_ranks_are_scored_as_trec_eval_does() -> None:
    """The values are those of trec_eval 9.0 (recip_rank and ndcg_cut)."""
    ideal = [3, 3, 3, 2, 2, 2, 1]
    assert ndcg([3, 2, 3, 0, 1, 2], ideal, 6) == pytest.approx(0.785002371969948)
    assert ndcg([3, 2, 3, 0, 1, 2], ideal, 10) == pytest.approx(0.7561640298168337)
    assert ndcg([0, 1, 0, 1], [1, 1], 10) == pytest.approx(0.6509209298071326)
    assert ndcg([0, 0, 0, 2], [2, 1, 1], 10) == pytest.approx(0.27511096828801057)
    assert ndcg([0] * 10 + [1], [1], 10) == 0
    assert ndcg([], [], 10) == 0
    assert reciprocal_rank([0, 0, 0, 2]) == 1 / 4
    assert reciprocal_rank([0] * 10 + [1]) == 1 / 11
    assert reciprocal_rank([0, 0]) == 0


def test_a_question_has_every_score() -> None:
    """The first passage contains no gold, the second contains 8 of the 10 characters of gold."""
    result = retrieved(*spans(("c", 0, 20), ("a", 12, 24)))
    gold = resolve(question_with(GoldSpan(TextSpan("a", 10, 20))), [result])
    expected = {
        "recall@10": 0.8,
        "precision@10": 8 / 32,
        "iou@10": 8 / 34,
        "hit@10": 1,
        "mrr": 0.5,
        "ndcg@10": 1 / math.log2(3),
    }
    assert scores(gold, result, [10]) == pytest.approx(expected)
    assert tuple(expected) == metric_names([10])
    assert set(scores(gold, None, [10]).values()) == {0}


def test_quotes_are_found_with_any_white_space() -> None:
    text = "The quick\n  brown (fox) jumps. The quick brown (fox) sleeps."
    quote = GoldQuote(" quick brown\t(fox) ")
    places = find_quote(quote, [passage("a", 100, text), passage("b", 0, "quick"),
                               passage("a", 104, text[4:])])  # fmt: skip
    assert places == spans(("a", 104, 123), ("a", 135, 152))
    assert find_quote(GoldQuote("quick", "b"), [passage("a", 0, text)]) == ()


def test_a_quote_counts_at_the_place_where_any_system_found_it() -> None:
    """One system finds the quote in ten characters of `a`, the other in twelve of `b`.

    The text contains six of the twelve characters.
    """
    question = question_with(GoldQuote("0123456789"))
    places = spans(("a", 0, 10), ("b", 0, 12))
    results = [retrieved(quotes=(places[:1],)), retrieved(quotes=(places[1:],))]
    gold = resolve(question, results)
    assert recall(coverage(gold, spans(("b", 6, 20), ("a", 7, 8)))) == 6 / 12
    assert gold.unlocated == 0
    nowhere = resolve(question, [retrieved()])
    assert (nowhere.unlocated, recall(coverage(nowhere, spans(("a", 0, 10))))) == (1, 0)
    assert found_gains(nowhere, spans(("a", 0, 10))) == [0]


@pytest.mark.parametrize("text", ["one two three four five six", "北京是中国的首都，上海更大🦊。"])
def test_passages_are_cut_to_tokens_and_whole_characters(text: str) -> None:
    tokens = len(encode(text))
    passages = [passage("a", 5, text), passage("b", 0, text), passage("c", 0, text)]
    budgets = (2, tokens, tokens + 3, 10 * tokens)
    cut = cut_to_budgets(passages, budgets)
    assert [text.tokens for text in cut.values()] == [2, tokens, tokens + 3, 3 * tokens]
    assert cut[tokens].spans == spans(("a", 5, 5 + len(text)))
    assert [len(text.spans) for text in cut.values()] == [1, 1, 2, 3]
    for budget in budgets:
        texts = [passage.chunk.content for passage in cut_passages(passages, budget)]
        assert [len(cut_text) for cut_text in texts] == [
            end - start for _, start, end in cut[budget].spans
        ]  # fmt: skip
        assert all(text.startswith(cut_text) for cut_text in texts)
        assert sum(len(encode(cut_text)) for cut_text in texts) <= budget
