"""Which answers are better? A chat model compares those that two systems' passages give.

The same model first answers each question from each system's passages, at an equal token
budget. Then it is shown both answers twice, each of them first once, because models prefer
what comes first or second (Zheng et al., Judging LLM-as-a-Judge, NeurIPS 2023). An answer wins
if it is preferred both times; a preference that turns with the order is a tie.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from hrag.client import Client
from hrag.client.context import context
from hrag.evaluation.bootstrap import DEFAULT_RESAMPLES, Estimate, estimates, few_questions
from hrag.evaluation.chat_calls import (
    DEFAULT_CONCURRENCY,
    ChatCalls,
    ChatUsage,
    in_threads,
    prompt_template,
)
from hrag.evaluation.questions import Question
from hrag.evaluation.searches import Searched, Show, best_passages
from hrag.evaluation.summary import FailedCall, failed_call
from hrag.evaluation.systems import System
from hrag.values.errors import ChatRejected, HragError

DEFAULT_ANSWER_TOKENS = 4000

CRITERIA = ("better", "accuracy", "completeness", "logic")
NO_PASSAGES = "No passage answers the question."

_MAX_ANSWER_TOKENS = 400
_MAX_VERDICT_TOKENS = 512  # Some models think aloud before they reply.
_ORDERS = 2
_OBJECT = re.compile(r"\{[^{}]*\}")
_PREFERENCES = {"a": 1, "b": -1, "tie": 0}

# For each criterion: 1 if the first answer is preferred, -1 if the second is, 0 for a tie.
Verdict = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """How answers are made and compared. `passage_tokens` is the budget of their passages."""

    passage_tokens: int = DEFAULT_ANSWER_TOKENS
    concurrency: int = DEFAULT_CONCURRENCY
    seed: int = 0
    resamples: int = DEFAULT_RESAMPLES


@dataclass(frozen=True, slots=True)
class Balance:
    """Wins, ties and losses by one criterion; `net` is (wins - losses) / questions."""

    wins: int
    ties: int
    losses: int
    net: Estimate


@dataclass(frozen=True, slots=True)
class PairFigures:
    """One system's answers compared with the baseline's, by criterion.

    `identical` answers are ties without a call. `consistent` is the share of the other
    comparisons, which were judged, where both orders agree as a whole; None if there is none.
    `first_preferred` is the share of replies that prefer the answer shown first, among those
    that prefer one: 0.5 without a bias, and if none does. A question with a failed call is in
    `failures` and in no other number.
    """

    system: str
    baseline: str
    criteria: Mapping[str, Balance]
    consistent: float | None
    first_preferred: float
    identical: int
    failures: tuple[FailedCall, ...]


@dataclass(frozen=True, slots=True)
class JudgeFigures:
    """All comparisons, and what they cost together with the answers."""

    usage: ChatUsage
    passage_tokens: int
    questions: int
    with_reference: int
    pairs: tuple[PairFigures, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both orders' verdicts about a system and the baseline; the system is first in `first`."""

    first: Verdict
    second: Verdict
    identical: bool = False

    def outcome(self, criterion: str) -> int:
        """Returns 1 if the system wins, -1 if the baseline does, 0 for a tie."""
        one, other = self.first[criterion], -self.second[criterion]
        return one if one == other else 0


_SAME = Comparison(dict.fromkeys(CRITERIA, 0), dict.fromkeys(CRITERIA, 0), identical=True)

Answered = str | HragError
Compared = Comparison | HragError


class Judge:
    """Answers and compares, question by question. Thread-safe."""

    def __init__(
        self,
        client: Client,
        calls: ChatCalls,
        where: Searched,
        settings: JudgeSettings,
    ) -> None:
        self._client = client
        self._calls = calls
        self._where = where
        self._settings = settings
        self._answer_prompt = prompt_template("answer_prompt.txt")
        self._judge_prompt = prompt_template("judge_prompt.txt")

    def judge(
        self,
        questions: Sequence[Question],
        systems: Sequence[System],
        baseline: System,
        show: Show,
    ) -> JudgeFigures:
        """Returns every other system compared with the baseline.

        `show` is told the calls that are done. Raises the chat model's error if the first calls
        all fail.
        """
        others = [each for each in systems if each.name != baseline.name]
        each_total = len(systems) + _ORDERS * len(others)
        progress = _Progress(show, each_total * len(questions), self._calls)

        def work(question: Question) -> dict[str, Compared]:
            compared = self._compared(question, others, baseline)
            progress.add(each_total)
            return compared

        rows = list(in_threads(work, questions, self._settings.concurrency))
        pairs = tuple(
            self._figures(each.name, baseline.name, questions, [row[each.name] for row in rows])
            for each in others
        )
        return JudgeFigures(
            usage=self._calls.usage,
            passage_tokens=self._settings.passage_tokens,
            questions=len(questions),
            with_reference=sum(bool(each.answer) for each in questions),
            pairs=pairs,
            warnings=tuple(filter(None, map(_few_comparisons, pairs))),
        )

    def _compared(
        self, question: Question, others: Sequence[System], baseline: System
    ) -> dict[str, Compared]:
        """The comparison of each system, by its name."""
        expected = self._answer(question, baseline)
        return {each.name: self._compare(question, each, expected) for each in others}

    def _answer(self, question: Question, system: System) -> Answered:
        budget = self._settings.passage_tokens
        try:
            passages = best_passages(self._client, question.text, system, self._where, budget)
            if not passages:
                return NO_PASSAGES
            prompt = self._answer_prompt.substitute(
                question=question.text, passages=context(passages)
            )
            return self._calls.ask(prompt, _MAX_ANSWER_TOKENS).strip()
        except HragError as error:
            self._calls.check_reachable(error)
            return error

    def _compare(self, question: Question, system: System, expected: Answered) -> Compared:
        answer = self._answer(question, system)
        for each in (answer, expected):
            if isinstance(each, HragError):
                return each
        assert isinstance(answer, str)
        assert isinstance(expected, str)
        if answer == expected:
            return _SAME
        try:
            return Comparison(
                self._verdict(question, answer, expected), self._verdict(question, expected, answer)
            )
        except HragError as error:
            self._calls.check_reachable(error)
            return error

    def _verdict(self, question: Question, first: str, second: str) -> Verdict:
        reference = f"\nReference answer, which is right: {question.answer}\n"
        prompt = self._judge_prompt.substitute(
            question=question.text,
            reference=reference if question.answer else "",
            first=first,
            second=second,
        )
        return parse_verdict(self._calls.ask(prompt, _MAX_VERDICT_TOKENS))

    def _figures(
        self,
        system: str,
        baseline: str,
        questions: Sequence[Question],
        compared: Sequence[Compared],
    ) -> PairFigures:
        judged = [each for each in compared if isinstance(each, Comparison)]
        outcomes = [[each.outcome(criterion) for each in judged] for criterion in CRITERIA]
        settings = self._settings
        values = np.array(outcomes, np.float64).reshape(len(CRITERIA), len(judged))
        net = estimates(values, settings.seed, settings.resamples)
        return PairFigures(
            system=system,
            baseline=baseline,
            criteria={
                criterion: Balance(row.count(1), row.count(0), row.count(-1), estimate)
                for criterion, row, estimate in zip(CRITERIA, outcomes, net, strict=True)
            },
            consistent=consistent(judged),
            first_preferred=first_preferred(judged),
            identical=sum(each.identical for each in judged),
            failures=tuple(
                failed_call(question.question_id, each)
                for question, each in zip(questions, compared, strict=True)
                if isinstance(each, HragError)
            ),
        )


def parse_verdict(reply: str) -> Verdict:
    """Returns the preferences of a reply. Raises ChatRejected if it has no verdict."""
    for found in reversed(_OBJECT.findall(reply)):
        try:
            values = json.loads(found)
        except ValueError:
            continue
        named = {name: str(values.get(name, "")).strip().lower() for name in CRITERIA}
        if set(named.values()) <= _PREFERENCES.keys():
            return {name: _PREFERENCES[value] for name, value in named.items()}
    raise ChatRejected(
        "the chat model's reply has no verdict: it must be JSON with "
        f'{", ".join(CRITERIA)}, each "A", "B" or "tie"'
    )


def consistent(compared: Sequence[Comparison]) -> float | None:
    """Returns the share of judged comparisons whose orders agree; None if none was judged."""
    return _share(
        each.first["better"] == -each.second["better"] for each in compared if not each.identical
    )


def first_preferred(compared: Sequence[Comparison]) -> float:
    """Returns the share of replies that prefer the first answer, of those that prefer one."""
    replies = [verdict["better"] for each in compared for verdict in (each.first, each.second)]
    share = _share(each > 0 for each in replies if each)
    return 0.5 if share is None else share


def _share(values: Iterable[bool]) -> float | None:
    """The share of true values; None if there are no values."""
    kept = list(values)
    return sum(kept) / len(kept) if kept else None


def _few_comparisons(pair: PairFigures) -> str | None:
    net = pair.criteria[CRITERIA[0]].net
    return few_questions(net.questions, f"comparisons of {pair.system} with {pair.baseline}")


class _Progress:
    """Counts calls that are done, from several threads."""

    def __init__(self, show: Show, total: int, calls: ChatCalls) -> None:
        self._show = show
        self._total = total
        self._calls = calls
        self._done = 0
        self._lock = Lock()

    def add(self, calls: int) -> None:
        with self._lock:
            self._done += calls
            self._show(self._done, self._total, self._calls.usage.failed)
