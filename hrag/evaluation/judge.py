"""Lets a chat model judge which of two systems has passages that lead to better answers.

The model first answers each question from the passages of each system, at an equal token budget.
Then the same model compares two answers to a question twice, once in each order. Two comparisons
are needed because a model may prefer the answer that is shown first, or the answer that is shown
second, regardless of the content (Zheng et al., Judging LLM-as-a-Judge, NeurIPS 2023). An answer
wins if it is preferred in both orders. If the preference changes with the order, the result is a
tie.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock

import numpy as np

from hrag.client import Client
from hrag.client.context import Heading, by_section, context
from hrag.evaluation.answer_citations import cited_passages, without_citations
from hrag.evaluation.bootstrap import DEFAULT_RESAMPLES, Estimate, estimates, few_questions
from hrag.evaluation.chat_calls import (
    DEFAULT_CONCURRENCY,
    ChatCalls,
    ChatText,
    ChatUsage,
    in_threads,
    prompt_template,
)
from hrag.evaluation.questions import Question
from hrag.evaluation.retrieved import KeptPassage, kept_passages
from hrag.evaluation.searches import MAX_BUDGET, SearchTarget, Show, best_passages, document_texts
from hrag.evaluation.summary import FailedCall, failed_call
from hrag.evaluation.systems import System
from hrag.values.errors import ChatRejected, HragError
from hrag.values.ids import quoted
from hrag.values.search import Passage

DEFAULT_ANSWER_TOKENS = 4000

CRITERIA = ("better", "accuracy", "completeness", "logic")
NO_PASSAGES = "No passage answers the question."

_MAX_ANSWER_TOKENS = 400
# The maximum number of tokens of a reply with a verdict. This is enough for models that write their
# reasons before the verdict.
_MAX_VERDICT_TOKENS = 512
_ORDERS = 2
_PREFERENCES = {"a": 1, "b": -1, "tie": 0}

# A reason is cut off after this many characters. Models that ignore the prompt write essays.
_MAX_REASON_CHARS = 1000
# The error about a reply without a verdict quotes this many characters of it.
_REPLY_CHARS_SHOWN = 80

# A verdict contains for each criterion 1 if the first answer is preferred, -1 if the second
# answer is preferred, and 0 for a tie.
Verdict = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Settings of the judge.

    The passages for an answer have at most `passage_tokens` tokens together. `concurrency` is the
    count of questions that are processed at the same time. `seed` and `resamples` are parameters of
    the bootstrap, which estimates the intervals (`bootstrap.estimates`).
    """

    passage_tokens: int = DEFAULT_ANSWER_TOKENS
    concurrency: int = DEFAULT_CONCURRENCY
    seed: int = 0
    resamples: int = DEFAULT_RESAMPLES


@dataclass(frozen=True, slots=True)
class Balance:
    """The counts of questions that a system wins, ties or loses by one criterion.

    `net` is the estimate of (wins - losses) / questions.
    """

    wins: int
    ties: int
    losses: int
    net: Estimate


@dataclass(frozen=True, slots=True)
class PairFigures:
    """One system's answers compared with the baseline's answers, by criterion.

    For each question there is a pair of answers. The model judges a pair twice: once with the
    system's answer shown first, and once with the baseline's answer shown first. `identical` counts
    the pairs of equal answers, which are ties and are not shown to the model.

    `consistent` is the share of the judged pairs for which both replies of the model agree: they
    name the same answer as better, or both say that the pair is a tie. It is None if no pair was
    judged. `first_preferred` is the share of replies that prefer the answer shown first, among the
    replies that are not ties. It is about 0.5 if the model is not biased, and exactly 0.5 if all
    replies are ties. If a call for a question failed, the question is only in `failures`.
    """

    system: str
    baseline: str
    criteria: Mapping[str, Balance]
    consistent: float | None
    first_preferred: float
    identical: int
    failures: tuple[FailedCall, ...]


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """A system's answer to one question, as the model wrote it, and what the answer cost.

    `citations` are the numbers of the cited passages; the first passage has the number 1. The model
    received `passage_count` passages; `passages` are the first of them (`kept_passages`). The
    tokens are of the call that wrote the answer, 0 if the endpoint does not report them, and
    `took_us` is its time in microseconds. `error` is empty if the call succeeded.
    """

    text: str = ""
    citations: tuple[int, ...] = ()
    passages: tuple[KeptPassage, ...] = ()
    passage_count: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    took_us: int = 0
    error: str = ""

    @property
    def statements(self) -> str:
        """The text without its citations. The judge compares these texts."""
        return without_citations(self.text, self.passage_count)


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """The judge's verdict on one system's answer and the baseline's answer to the same question.

    `outcomes` contains, by criterion, 1 if the system wins, -1 if the baseline wins, 0 for a tie.
    `reasons` are the two reasons that the judge gave. In the first, A is the system's answer and B
    the baseline's; in the second, A is the baseline's answer. They are empty for identical answers.
    If a call failed, `error` is its message and `outcomes` is empty.
    """

    outcomes: Mapping[str, int]
    reasons: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """The answers to one question by system, and the verdicts by system, without the baseline."""

    question_id: str
    answers: Mapping[str, JudgedAnswer]
    verdicts: Mapping[str, JudgedPair]


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """The cost of an answer from one system's passages: mean token counts and the median time.

    Only answers that were written are counted. The time is in microseconds.
    """

    system: str
    answers: int
    prompt_tokens: float
    completion_tokens: float
    took_p50_us: float


@dataclass(frozen=True, slots=True)
class JudgeFigures:
    """The figures of all comparisons with the baseline.

    `usage` counts the calls of the model and their tokens. `with_reference` counts the questions
    that have a reference answer. `costs` has one entry for each system.
    """

    usage: ChatUsage
    passage_tokens: int
    questions: int
    with_reference: int
    pairs: tuple[PairFigures, ...]
    warnings: tuple[str, ...]
    costs: tuple[AnswerCost, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """The figures of a judge, and the answers and verdicts of each question."""

    figures: JudgeFigures
    questions: tuple[JudgedQuestion, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The two verdicts on a pair of answers: the system's answer and the baseline's answer.

    For the verdict `first`, the system's answer was shown first; for the verdict `second`, the
    baseline's answer was shown first. `identical` is True if both answers are equal. `reasons` has
    the judge's reason for each of the two verdicts.
    """

    first: Verdict
    second: Verdict
    identical: bool = False
    reasons: tuple[str, ...] = ()

    def outcome(self, criterion: str) -> int:
        """Returns 1 if the system wins by the criterion, -1 if the baseline wins, 0 for a tie.

        The result is a tie if the two verdicts differ.
        """
        in_first, in_second = self.first[criterion], -self.second[criterion]
        return in_first if in_first == in_second else 0


_IDENTICAL = Comparison(dict.fromkeys(CRITERIA, 0), dict.fromkeys(CRITERIA, 0), identical=True)

AnswerOutcome = JudgedAnswer | HragError
ComparisonOutcome = Comparison | HragError


class Judge:
    """Lets a chat model answer questions and compare the answers. Thread-safe."""

    def __init__(
        self,
        client: Client,
        calls: ChatCalls,
        where: SearchTarget,
        settings: JudgeSettings,
    ) -> None:
        self._client = client
        self._calls = calls
        self._where = where
        self._texts = document_texts(client, where)
        self._settings = settings
        self._answer_prompt = prompt_template("answer_prompt.txt")
        self._judge_prompt = prompt_template("judge_prompt.txt")

    def judge(
        self,
        questions: Sequence[Question],
        systems: Sequence[System],
        baseline: System,
        show: Show,
    ) -> JudgeResult:
        """Compares the answers of each system with the baseline's answers.

        `show` is called with three counts: finished calls, all calls, and failed calls. Raises the
        chat model's error if the first calls all fail.
        """
        others = [system for system in systems if system.name != baseline.name]
        calls_per_question = len(systems) + _ORDERS * len(others)
        progress = _Progress(show, calls_per_question * len(questions), self._calls)

        def work(question: Question) -> _QuestionOutcome:
            outcome = self._compare_all(question, others, baseline)
            progress.add(calls_per_question)
            return outcome

        rows = list(in_threads(work, questions, self._settings.concurrency))
        pairs = tuple(
            self._figures(
                other.name, baseline.name, questions, [row.compared[other.name] for row in rows]
            )
            for other in others
        )
        figures = JudgeFigures(
            usage=self._calls.usage,
            passage_tokens=self._settings.passage_tokens,
            questions=len(questions),
            with_reference=sum(bool(question.answer) for question in questions),
            pairs=pairs,
            warnings=tuple(filter(None, map(_few_comparisons, pairs))),
            costs=tuple(
                _answer_cost(system.name, [row.answers[system.name] for row in rows])
                for system in systems
            ),
        )
        judged = zip(questions, rows, strict=True)
        return JudgeResult(figures, tuple(_judged_question(*pair) for pair in judged))

    def _compare_all(
        self, question: Question, others: Sequence[System], baseline: System
    ) -> "_QuestionOutcome":
        """Compares the answer of each system in `others` with the baseline's answer."""
        expected = self._answer(question, baseline)
        answers = {baseline.name: expected}
        compared: dict[str, ComparisonOutcome] = {}
        for other in others:
            answers[other.name] = self._answer(question, other)
            compared[other.name] = self._compare(question, answers[other.name], expected)
        return _QuestionOutcome(answers, compared)

    def _answer(self, question: Question, system: System) -> AnswerOutcome:
        budget = self._settings.passage_tokens
        try:
            passages = best_passages(
                self._client, question, system, self._where, budget, self._texts
            )
            if not passages:
                return JudgedAnswer(NO_PASSAGES)
            prompt = self._answer_prompt.substitute(
                question=question.text, passages=context(passages, _numbered())
            )
            return _judged_answer(self._calls.ask(prompt, _MAX_ANSWER_TOKENS), passages)
        except HragError as error:
            self._calls.check_reachable(error)
            return error

    def _compare(
        self, question: Question, answer: AnswerOutcome, expected: AnswerOutcome
    ) -> ComparisonOutcome:
        if isinstance(answer, HragError):
            return answer
        if isinstance(expected, HragError):
            return expected
        ours, theirs = answer.statements, expected.statements
        if ours == theirs:
            return _IDENTICAL
        try:
            first, first_reason = self._verdict(question, ours, theirs)
            second, second_reason = self._verdict(question, theirs, ours)
            return Comparison(first, second, reasons=(first_reason, second_reason))
        except HragError as error:
            self._calls.check_reachable(error)
            return error

    def _verdict(self, question: Question, first: str, second: str) -> tuple[Verdict, str]:
        """Returns the verdict on two answers, and the judge's reason."""
        reference = f"\nReference answer, which is right: {question.answer}\n"
        prompt = self._judge_prompt.substitute(
            question=question.text,
            reference=reference if question.answer else "",
            first=first,
            second=second,
        )
        reply = self._calls.ask(prompt, _MAX_VERDICT_TOKENS).text
        return parse_verdict(reply), parse_reason(reply)

    def _figures(
        self,
        system: str,
        baseline: str,
        questions: Sequence[Question],
        compared: Sequence[ComparisonOutcome],
    ) -> PairFigures:
        judged = [comparison for comparison in compared if isinstance(comparison, Comparison)]
        outcomes = [[pair.outcome(criterion) for pair in judged] for criterion in CRITERIA]
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
            identical=sum(pair.identical for pair in judged),
            failures=tuple(
                failed_call(question.question_id, error)
                for question, error in zip(questions, compared, strict=True)
                if isinstance(error, HragError)
            ),
        )


@dataclass(frozen=True, slots=True)
class _QuestionOutcome:
    """The answers to one question, and their comparisons with the baseline's, by system."""

    answers: Mapping[str, AnswerOutcome]
    compared: Mapping[str, ComparisonOutcome]


def _numbered() -> Heading:
    """Returns a function that returns the headings of passages, numbered from 1."""
    numbers = count(1)
    return lambda passage: f"[{next(numbers)}] {by_section(passage)}"


def _judged_answer(reply: ChatText, passages: Sequence[Passage]) -> JudgedAnswer:
    text = reply.text.strip()
    return JudgedAnswer(
        text=text,
        citations=cited_passages(text, len(passages)),
        passages=kept_passages(passages, MAX_BUDGET),
        passage_count=len(passages),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        took_us=reply.took_us,
    )


def _judged_question(question: Question, outcome: _QuestionOutcome) -> JudgedQuestion:
    return JudgedQuestion(
        question.question_id,
        {
            name: JudgedAnswer(error=answer.message) if isinstance(answer, HragError) else answer
            for name, answer in outcome.answers.items()
        },
        {name: _judged_pair(compared) for name, compared in outcome.compared.items()},
    )


def _judged_pair(compared: ComparisonOutcome) -> JudgedPair:
    if isinstance(compared, HragError):
        return JudgedPair({}, error=compared.message)
    outcomes = {criterion: compared.outcome(criterion) for criterion in CRITERIA}
    return JudgedPair(outcomes, compared.reasons)


def _answer_cost(system: str, answers: Sequence[AnswerOutcome]) -> AnswerCost:
    written = [answer for answer in answers if isinstance(answer, JudgedAnswer) and answer.passages]
    divisor = max(1, len(written))
    return AnswerCost(
        system=system,
        answers=len(written),
        prompt_tokens=sum(answer.prompt_tokens for answer in written) / divisor,
        completion_tokens=sum(answer.completion_tokens for answer in written) / divisor,
        took_p50_us=float(np.median([answer.took_us for answer in written] or [0])),
    )


def parse_verdict(reply: str) -> Verdict:
    """Returns the last verdict in a reply; raises ChatRejected if the reply contains no verdict."""
    named = _verdict_fields(reply)
    return {name: _PREFERENCES[_preference(named[name])] for name in CRITERIA}


def parse_reason(reply: str) -> str:
    """Returns the reason of the last verdict in a reply; an empty text if it has no reason."""
    reason = _verdict_fields(reply).get("reason", "")
    return " ".join(str(reason).split())[:_MAX_REASON_CHARS]


def _verdict_fields(reply: str) -> Mapping[str, object]:
    """Returns the fields of the last JSON object in a reply that is a verdict."""
    verdicts = [
        fields
        for fields in _json_objects(reply)
        if all(_preference(fields.get(name, "")) in _PREFERENCES for name in CRITERIA)
    ]
    if not verdicts:
        raise ChatRejected(
            "the chat model's reply contains no verdict: it must be JSON with "
            f'{", ".join(CRITERIA)}, each "A", "B" or "tie"; it begins '
            f"{quoted(' '.join(reply[:_REPLY_CHARS_SHOWN].split()))}"
        )
    return verdicts[-1]


def _preference(value: object) -> str:
    return str(value).strip().lower()


def _json_objects(text: str) -> Iterator[dict[str, object]]:
    """Yields the JSON objects in a text that are not inside another one, in order."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict):
                yield value
        start = text.find("{", end)


def consistent(compared: Sequence[Comparison]) -> float | None:
    """Returns the share of comparisons whose two verdicts agree on the better answer.

    The answers of a comparison are judged twice, once in each order. Comparisons of equal answers
    are not counted, because equal answers are not judged. Returns None if no comparison remains.
    """
    return _share(
        pair.first["better"] == -pair.second["better"] for pair in compared if not pair.identical
    )


def first_preferred(compared: Sequence[Comparison]) -> float:
    """Returns the share of the model's replies that prefer the answer shown first.

    Replies that say that the answers tie are not counted. Returns 0.5 if all replies are ties.
    """
    replies = [verdict["better"] for pair in compared for verdict in (pair.first, pair.second)]
    share = _share(reply > 0 for reply in replies if reply)
    return 0.5 if share is None else share


def _share(values: Iterable[bool]) -> float | None:
    """Returns the share of the values that are True, or None if there are no values."""
    all_values = list(values)
    return sum(all_values) / len(all_values) if all_values else None


def _few_comparisons(pair: PairFigures) -> str | None:
    net = pair.criteria[CRITERIA[0]].net
    return few_questions(net.questions, f"comparisons of {pair.system} with {pair.baseline}")


class _Progress:
    """Counts finished calls, and shows the counts after each question. Thread-safe."""

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
