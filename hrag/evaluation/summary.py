"""The result of an evaluation as one value: figures, failures, what they were measured on.

`as_json` is the form for programs; the table and the HTML report show the same value.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.evaluation.bootstrap import DEFAULT_RESAMPLES, Estimate, estimates, few_questions
from hrag.evaluation.gold import ResolvedGold, resolve
from hrag.evaluation.questions import Question
from hrag.evaluation.retrieval_metrics import Scores, metric_names, scores
from hrag.evaluation.retrieved import Retrieved
from hrag.evaluation.searches import Outcome, Searched
from hrag.evaluation.systems import System
from hrag.values.errors import HragError

VERSION = 1  # Of the JSON form.
P50, P95 = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed: what it was for, the class of its error and the message."""

    subject: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """What was measured of one system.

    `estimates` are the means of its metrics, `differences` those of its scores minus the
    baseline's, question by question; empty for the baseline itself. Failed searches score 0.
    Latencies are of successful searches for the largest budget, in microseconds, without
    embedding the question; `tokens` the mean number returned by budget. `fallbacks` counts
    searches that left out a source or the reranker, by the reason.
    """

    name: str
    mode: str
    options: Mapping[str, Any]
    searches: int
    estimates: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]
    latency_p50_us: float
    latency_p95_us: float
    tokens: Mapping[int, float]
    fallbacks: Mapping[str, int]
    failures: tuple[FailedCall, ...]


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """One question with its scores by system and metric."""

    question_id: str
    text: str
    scores: Mapping[str, Scores]


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """All systems compared on the questions that have gold."""

    budgets: tuple[int, ...]
    baseline: str
    seed: int
    resamples: int
    expects_documents: bool
    systems: tuple[SystemFigures, ...]
    questions: tuple[ScoredQuestion, ...]
    warnings: tuple[str, ...]


def summarise(
    questions: Sequence[Question],
    systems: Sequence[System],
    outcomes: Mapping[str, Sequence[Outcome]],
    where: Searched,
    *,
    baseline: str,
    seed: int,
    resamples: int = DEFAULT_RESAMPLES,
) -> RetrievalFigures:
    """Returns the figures of all systems; `outcomes` are those of `search_all`."""
    golds = [
        resolve(question, [each for each in row if isinstance(each, Retrieved)])
        for question, row in zip(questions, _rows(systems, outcomes), strict=True)
    ]
    scored = {
        system.name: [
            scores(gold, _found(outcome), where.budgets)
            for gold, outcome in zip(golds, outcomes[system.name], strict=True)
        ]
        for system in systems
    }
    figures = tuple(
        _figures(system, questions, outcomes[system.name], scored, baseline, where, seed, resamples)
        for system in systems
    )
    return RetrievalFigures(
        budgets=where.budgets,
        baseline=baseline,
        seed=seed,
        resamples=resamples,
        expects_documents=any(each.expects_documents for each in questions),
        systems=figures,
        questions=tuple(
            ScoredQuestion(
                question.question_id,
                question.text,
                {system.name: scored[system.name][number] for system in systems},
            )
            for number, question in enumerate(questions)
        ),
        warnings=_warnings(golds, outcomes),
    )


def _rows(
    systems: Sequence[System], outcomes: Mapping[str, Sequence[Outcome]]
) -> list[tuple[Outcome, ...]]:
    """The outcomes of each question."""
    return list(zip(*(outcomes[system.name] for system in systems), strict=True))


def _found(outcome: Outcome) -> Retrieved | None:
    return outcome if isinstance(outcome, Retrieved) else None


def _figures(
    system: System,
    questions: Sequence[Question],
    outcomes: Sequence[Outcome],
    scored: Mapping[str, Sequence[Scores]],
    baseline: str,
    where: Searched,
    seed: int,
    resamples: int,
) -> SystemFigures:
    names = metric_names(where.budgets)
    own = _matrix(scored[system.name], names)
    found = [each for each in outcomes if isinstance(each, Retrieved)]
    latencies = [each.latency_us for each in found] or [0]
    differences: dict[str, Estimate] = {}
    if system.name != baseline:
        over = estimates(own - _matrix(scored[baseline], names), seed, resamples)
        differences = dict(zip(names, over, strict=True))
    return SystemFigures(
        name=system.name,
        mode=system.mode,
        options=dict(system.options),
        searches=len(outcomes),
        estimates=dict(zip(names, estimates(own, seed, resamples), strict=True)),
        differences=differences,
        latency_p50_us=float(np.quantile(latencies, P50)),
        latency_p95_us=float(np.quantile(latencies, P95)),
        tokens={budget: _mean_tokens(found, budget) for budget in where.budgets},
        fallbacks=_fallbacks(found),
        failures=tuple(
            failed_call(question.question_id, outcome)
            for question, outcome in zip(questions, outcomes, strict=True)
            if isinstance(outcome, HragError)
        ),
    )


def _matrix(scored: Sequence[Scores], names: Sequence[str]) -> NDArray[np.float64]:
    """`float64[metrics, questions]`."""
    rows = [[each[name] for each in scored] for name in names]
    return np.array(rows, np.float64).reshape(len(names), len(scored))


def _mean_tokens(found: Sequence[Retrieved], budget: int) -> float:
    return sum(each.texts[budget].tokens for each in found) / max(1, len(found))


def failed_call(subject: str, error: HragError) -> FailedCall:
    """Returns the error as it is reported."""
    return FailedCall(subject, type(error).__name__, error.message)


def _warnings(
    golds: Sequence[ResolvedGold], outcomes: Mapping[str, Sequence[Outcome]]
) -> tuple[str, ...]:
    """What a reader of the figures must know."""
    warnings = []
    unlocated = sum(each.unlocated for each in golds)
    if unlocated:
        warnings.append(
            f"{unlocated} expected quotes are in no passage of any system; they count as missed"
        )
    found = [each for row in outcomes.values() for each in row if isinstance(each, Retrieved)]
    sequences = {each.sequence for each in found}
    if len(sequences) > 1:
        warnings.append(
            f"the tenant's data changed between searches (sequences {min(sequences)} to "
            f"{max(sequences)}); the systems may have searched different documents"
        )
    for name, row in outcomes.items():
        for reason, count in _fallbacks(row).items():
            warnings.append(f"{count} searches of {name} did less than was asked: {reason}")
    if few := few_questions(len(golds), "questions with gold"):
        warnings.append(few)
    return tuple(warnings)


def _fallbacks(outcomes: Iterable[Outcome]) -> Counter[str]:
    found = (each.fallback for each in outcomes if isinstance(each, Retrieved))
    return Counter(filter(None, found))


def as_json(value: Any) -> dict[str, Any]:
    """Returns a dataclass of results as JSON values, numbers with six digits."""
    rounded: dict[str, Any] = _rounded(value)
    return rounded


def _rounded(value: Any) -> Any:
    if is_dataclass(value):  # `asdict` would count the pairs of a Counter.
        return {each.name: _rounded(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
