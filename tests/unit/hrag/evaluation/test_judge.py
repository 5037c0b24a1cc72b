"""A judge compares the answers of two systems. Its preference for a position cancels out."""

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from hrag.client import Client
from hrag.errors import ChatRejected, ChatUnavailable, HragError
from hrag.evaluation.chat_calls import ChatCalls
from hrag.evaluation.journal import Journal
from hrag.evaluation.judge import (
    CRITERIA,
    NO_PASSAGES,
    Comparison,
    Judge,
    JudgeFigures,
    JudgeResult,
    JudgeSettings,
    PairFigures,
    parse_reason,
    parse_verdict,
)
from hrag.evaluation.questions import Question
from hrag.evaluation.searches import SearchTarget
from hrag.evaluation.systems import parse_systems
from hrag.types import SearchMode, SearchResult
from hrag.values.ids import quoted
from tests.support.documents.evaluation_fakes import ScriptedChat, ScriptedClient, passage, result

SYSTEMS = parse_systems("context,standard")
QUESTIONS = tuple(Question(f"q{n}", f"question {n}?") for n in range(8))
PAIR = re.compile(r"Answer A:\n<<<\n(.*)\n>>>\n\nAnswer B:\n<<<\n(.*)\n>>>")


def search(query: str, mode: SearchMode, **_: Any) -> SearchResult:
    """Returns a passage that names the mode, so that the systems differ."""
    return result(passage("a", 0, f"{mode} says {query}"))


def verdict(better: str) -> str:
    """Returns the reply of a judge that prefers the same answer by every criterion."""
    return json.dumps(dict.fromkeys(CRITERIA, better))


def judging(prefer: Callable[[str, str], str]) -> Callable[[str], str]:
    """Returns a function that replies to a prompt in place of a chat model.

    If the prompt contains two answers, the reply is the verdict that `prefer` returns for them.
    Otherwise the prompt asks for an answer, and the reply is the first line of the passage
    in the prompt.
    """

    def reply(prompt: str) -> str:
        pair = PAIR.search(prompt)
        if pair is None:
            return prompt.partition("[About a]\n")[2].splitlines()[0]
        return prefer(pair[1], pair[2])

    return reply


def judged(
    chat: ScriptedChat,
    find: Callable[..., SearchResult] = search,
    questions: tuple[Question, ...] = QUESTIONS,
    journal: Journal | None = None,
) -> JudgeFigures:
    return judge_result(chat, find, questions, journal).figures


def judge_result(
    chat: ScriptedChat,
    find: Callable[..., SearchResult] = search,
    questions: tuple[Question, ...] = QUESTIONS,
    journal: Journal | None = None,
) -> JudgeResult:
    calls = ChatCalls(chat, Journal() if journal is None else journal)
    client = cast("Client", ScriptedClient(find))
    judge = Judge(client, calls, SearchTarget("acme"), JudgeSettings(concurrency=2, resamples=100))
    shown: list[tuple[int, int, int]] = []
    result = judge.judge(questions, SYSTEMS, SYSTEMS[1], lambda *counts: shown.append(counts))
    assert shown[-1][:2] == (4 * len(questions), 4 * len(questions))
    return result


def only(figures: JudgeFigures) -> PairFigures:
    """Returns the figures of the only pair of systems."""
    (pair,) = figures.pairs
    assert (pair.system, pair.baseline) == ("context", "standard")
    return pair


def counts(pair: PairFigures, criterion: str = "better") -> tuple[int, int, int]:
    """Returns how often the system wins, ties and loses by a criterion."""
    balance = pair.criteria[criterion]
    return balance.wins, balance.ties, balance.losses


def test_a_better_system_wins_and_the_cost_is_counted() -> None:
    chat = ScriptedChat(judging(lambda first, _: verdict("A" if "context" in first else "B")))
    figures = judged(chat)
    pair = only(figures)
    assert {counts(pair, criterion) for criterion in CRITERIA} == {(8, 0, 0)}
    assert (pair.consistent, pair.first_preferred, pair.identical) == (1, 0.5, 0)
    assert pair.criteria["better"].net.low == 1
    usage = figures.usage
    assert (usage.calls, usage.failed, usage.model) == (32, 0, "scripted")
    assert (usage.prompt_tokens, usage.completion_tokens) == (3200, 320)


def test_a_preference_for_a_position_cancels_out() -> None:
    """The judge prefers the first answer in six of eight questions, otherwise the better one."""

    def prefer(first: str, _: str) -> str:
        biased = int(first.partition("question ")[2][0]) < 6
        return verdict("A" if biased or "context" in first else "B")

    pair = only(judged(ScriptedChat(judging(prefer))))
    assert counts(pair) == (2, 6, 0)
    assert pair.consistent == 2 / 8
    assert pair.first_preferred == (6 * 2 + 2) / 16


def test_a_preference_counts_for_a_criterion_only_if_it_holds_in_both_orders() -> None:
    def values(better: int, logic: int) -> dict[str, int]:
        return {"better": better, "accuracy": 0, "completeness": -1, "logic": logic}

    both = Comparison(values(1, 1), values(-1, 0))
    assert [both.outcome(name) for name in CRITERIA] == [1, 0, 0, 0]
    assert Comparison(values(-1, 1), values(1, 1)).outcome("better") == -1


def test_equal_answers_are_ties_without_a_call() -> None:
    def same(query: str, **_: Any) -> SearchResult:
        return result(passage("a", 0, query))

    chat = ScriptedChat(judging(lambda *_: verdict("A")))
    pair = only(judged(chat, same))
    assert (counts(pair), pair.identical) == ((0, 8, 0), 8)
    assert pair.consistent is None
    assert len(chat.prompts) == 8


def test_equal_passages_are_answered_once() -> None:
    """Otherwise two different replies to the same prompt would be compared with each other."""

    def same(query: str, **_: Any) -> SearchResult:
        return result(passage("a", 0, query))

    answers = map(str, count())
    figures = judged(ScriptedChat(lambda _: next(answers)), same)
    assert (only(figures).identical, only(figures).failures) == (8, ())
    assert (figures.usage.calls, figures.usage.prompt_tokens) == (8, 800)


def test_equal_answers_do_not_count_for_the_consistency_of_the_judge() -> None:
    """Six of eight answers are equal. Of the other two, one is judged by its position."""

    def find(query: str, mode: SearchMode, **_: Any) -> SearchResult:
        if int(query.split()[1][0]) < 6:
            return result(passage("a", 0, query))
        return search(query, mode)

    def prefer(first: str, _: str) -> str:
        return verdict("A" if "question 6" in first or "context" in first else "B")

    pair = only(judged(ScriptedChat(judging(prefer)), find))
    assert (counts(pair), pair.identical) == ((1, 7, 0), 6)
    assert pair.consistent == 1 / 2
    assert pair.first_preferred == 3 / 4


def test_few_comparisons_give_a_warning() -> None:
    """Failed comparisons are not counted."""

    def fail_once(prompt: str) -> str:
        if "question 3?" in prompt:
            raise ChatUnavailable("slow")
        return judging(lambda *_: verdict("A"))(prompt)

    chat = ScriptedChat(judging(lambda *_: verdict("A")))
    twenty = tuple(Question(f"q{n}", f"question {n}?") for n in range(20))
    assert judged(chat, questions=twenty).warnings == ()
    (warning,) = judged(ScriptedChat(fail_once), questions=twenty).warnings
    assert warning.startswith("only 19 comparisons of context with standard: ")


def test_without_passages_the_model_is_not_called_for_an_answer() -> None:
    def nothing_in_standard(query: str, mode: SearchMode, **_: Any) -> SearchResult:
        return search(query, mode) if mode is SearchMode.CONTEXT else result()

    chat = ScriptedChat(judging(lambda first, _: verdict("B" if first == NO_PASSAGES else "A")))
    assert counts(only(judged(chat, nothing_in_standard))) == (8, 0, 0)
    assert len(chat.prompts) == 24


def test_reference_answers_are_shown_only_to_the_judge() -> None:
    chat = ScriptedChat(judging(lambda *_: verdict("tie")))
    questions = (Question("q", "question?", answer="$forty"), Question("r", "question 2?"))
    figures = judged(chat, questions=questions)
    assert figures.with_reference == 1
    with_reference = [prompt for prompt in chat.prompts if "which is right: $forty" in prompt]
    assert len(with_reference) == 2
    assert all(PAIR.search(prompt) for prompt in with_reference)


def test_failed_calls_are_counted_and_the_other_questions_are_judged() -> None:
    def reply(prompt: str) -> str:
        if "question 3?" in prompt:
            raise ChatUnavailable("slow")
        if "question 4?" in prompt and PAIR.search(prompt):
            return "I cannot decide."
        return judging(lambda first, _: verdict("A" if "context" in first else "B"))(prompt)

    figures = judged(ScriptedChat(reply))
    pair = only(figures)
    assert counts(pair) == (6, 0, 0)
    assert [(failure.subject, failure.error) for failure in pair.failures] == [
        ("q3", "ChatUnavailable"),
        ("q4", "ChatRejected"),
    ]
    assert figures.usage.failed == 2


def test_an_unavailable_model_ends_the_run() -> None:
    def fail(prompt: str) -> str:
        raise ChatUnavailable("down")

    chat, questions = ScriptedChat(fail), QUESTIONS * 100
    with pytest.raises(ChatUnavailable):
        judged(chat, questions=questions)
    # Other threads may notice the failure late.
    assert len(chat.prompts) < len(questions) / 2


def test_finished_calls_are_not_repeated_in_the_next_run(tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        return judging(lambda *_: verdict("A"))(prompt)

    first = ScriptedChat(reply)
    with Journal(tmp_path / "run") as journal:
        figures = judged(first, journal=journal)
    again = ScriptedChat(reply)
    with Journal(tmp_path / "run") as journal:
        assert judged(again, journal=journal) == figures
    assert (len(first.prompts), again.prompts) == (32, [])


@pytest.mark.parametrize(
    "reply",
    [
        verdict("A"),
        verdict(" a "),
        f"Let me see. {{}} So:\n```json\n{verdict('A')}\n```",
        '{"better": "A", "accuracy": "A", "completeness": "A", "logic": "A", "why": "it is"}',
    ],
)
def test_a_verdict_is_read_at_any_position_of_a_reply(reply: str) -> None:
    assert parse_verdict(reply) == dict.fromkeys(CRITERIA, 1)


@pytest.mark.parametrize(
    "reply", ["", "A", '{"better": "A"}', verdict("C"), verdict("A")[:-1], "{...}"]
)
def test_a_reply_without_a_verdict_is_refused(reply: str) -> None:
    with pytest.raises(ChatRejected, match="no verdict") as caught:
        parse_verdict(reply)
    assert caught.value.message.endswith(f"it begins {quoted(reply[:80])}")


def test_the_reason_of_a_verdict_is_kept() -> None:
    fields = dict.fromkeys(CRITERIA, "A")
    reply = "So: " + json.dumps({"reason": "A says {more}\n than B.", **fields})
    assert parse_verdict(reply) == dict.fromkeys(CRITERIA, 1)
    assert parse_reason(reply) == "A says {more} than B."
    assert parse_reason(json.dumps(fields)) == ""
    assert len(parse_reason(json.dumps({"reason": "x" * 9999, **fields}))) == 1000


def test_answers_citations_and_reasons_are_kept_for_each_question() -> None:
    """The model cites a passage; the judge sees the answers without the citation."""

    def reply(prompt: str) -> str:
        pair = PAIR.search(prompt)
        if pair is None:
            return prompt.partition("[1] [About a]\n> ")[2].splitlines()[0] + " [1]"
        assert "[1]" not in pair[0]
        better = "A" if "context" in pair[1] else "B"
        return json.dumps({"reason": f"{better} is right.", **dict.fromkeys(CRITERIA, better)})

    first, *_ = judge_result(ScriptedChat(reply)).questions
    answer = first.answers["context"]
    assert (answer.text, answer.citations) == ("context says question 0? [1]", (1,))
    assert [passage.text for passage in answer.passages] == ["context says question 0?"]
    assert (answer.prompt_tokens, answer.completion_tokens) == (100, 10)
    verdict_on_context = first.verdicts["context"]
    assert verdict_on_context.outcomes == dict.fromkeys(CRITERIA, 1)
    assert verdict_on_context.reasons == ("A is right.", "B is right.")


def test_a_failed_call_keeps_its_message_with_the_question() -> None:
    def reply(prompt: str) -> str:
        if "question 3?" in prompt and not PAIR.search(prompt):
            raise ChatUnavailable("slow")
        return "no JSON" if PAIR.search(prompt) else "x" * prompt.count("context")

    questions = judge_result(ScriptedChat(reply)).questions
    assert questions[3].answers["context"].error == "slow"
    assert questions[3].verdicts["context"].error == "slow"
    assert "it begins 'no JSON'" in questions[4].verdicts["context"].error
    assert questions[4].answers["context"].text


def test_a_search_that_fails_is_a_failed_comparison() -> None:
    def fail(query: str, mode: SearchMode, **_: Any) -> SearchResult:
        if query == "question 5?":
            raise HragError("broken")
        return search(query, mode)

    pair = only(judged(ScriptedChat(judging(lambda *_: verdict("tie"))), fail))
    assert [failure.subject for failure in pair.failures] == ["q5"]
    assert counts(pair) == (0, 7, 0)
