"""Puts the figures of an evaluation into one value, with its questions, failures and warnings.

`as_json` converts this value to JSON for programs. The tables on the terminal and the HTML report
show the same value.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hrag.evaluation.bootstrap import DEFAULT_RESAMPLES, Estimate, estimates, few_questions
from hrag.evaluation.gold import ResolvedGold, resolve
from hrag.evaluation.questions import GoldQuote, Question, TextSpan
from hrag.evaluation.retrieval_metrics import Scores, metric_names, scores
from hrag.evaluation.retrieved import RetrievalResult
from hrag.evaluation.searches import Outcome, SearchTarget
from hrag.evaluation.systems import System
from hrag.text.noun_counts import counted
from hrag.values.errors import HragError

# The version of the JSON form of reports.
VERSION = 1
P50, P95 = 0.5, 0.95
# A warning names at most this many questions. The table of all questions marks the others.
_NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A failed call: its subject, for example a question id, and the error's class and message."""

    subject: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class SystemFigures:
    """The figures of one system.

    `estimates` contains the mean of each metric over the questions, by metric. `differences`
    contains, by metric, the mean of the system's score minus the baseline's score for the same
    question; it is empty for the baseline itself. All scores of a failed search are 0. Latencies
    are of successful searches for the largest budget, in microseconds, without the time for
    embedding the question; they are 0 if the system is another tool, whose `mode` is None. `tokens`
    is the mean count of returned tokens, by budget. `fallbacks` counts, by reason, the searches
    that could not use words, vectors or the reranker as requested.
    """

    name: str
    mode: str | None
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
    """A question with its scores. `scores` contains the scores by system, then by metric."""

    question_id: str
    text: str
    scores: Mapping[str, Scores]


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """The figures of all systems on the questions that have gold."""

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
    where: SearchTarget,
    *,
    baseline: str,
    seed: int,
    resamples: int = DEFAULT_RESAMPLES,
    located: Mapping[GoldQuote, tuple[TextSpan, ...]] | None = None,
) -> RetrievalFigures:
    """Computes the results of each system from the outcomes of its searches.

    The results are mean scores, differences from the baseline, latencies, token counts and
    failures. `outcomes` is the value that `search_all` returned. `located` contains the places in
    the collection of quotes that no system found; it is None if they were not looked up.
    """
    golds = [
        resolve(question, results, located)
        for question, results in zip(questions, results_by_question(systems, outcomes), strict=True)
    ]
    scored = {
        system.name: [
            scores(gold, _result_of(outcome), where.budgets)
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
        expects_documents=any(question.expects_documents for question in questions),
        systems=figures,
        questions=tuple(
            ScoredQuestion(
                question.question_id,
                question.text,
                {system.name: scored[system.name][number] for system in systems},
            )
            for number, question in enumerate(questions)
        ),
        warnings=_warnings(questions, golds, outcomes, is_located=located is not None),
    )


def results_by_question(
    systems: Sequence[System], outcomes: Mapping[str, Sequence[Outcome]]
) -> list[list[RetrievalResult]]:
    """Returns for each question the results of the systems whose searches succeeded."""
    rows = zip(*(outcomes[system.name] for system in systems), strict=True)
    return [[outcome for outcome in row if isinstance(outcome, RetrievalResult)] for row in rows]


def _result_of(outcome: Outcome) -> RetrievalResult | None:
    return outcome if isinstance(outcome, RetrievalResult) else None


def _figures(
    system: System,
    questions: Sequence[Question],
    outcomes: Sequence[Outcome],
    scored: Mapping[str, Sequence[Scores]],
    baseline: str,
    where: SearchTarget,
    seed: int,
    resamples: int,
) -> SystemFigures:
    names = metric_names(where.budgets)
    values = _matrix(scored[system.name], names)
    results = [outcome for outcome in outcomes if isinstance(outcome, RetrievalResult)]
    latencies = [result.latency_us for result in results] or [0]
    differences: dict[str, Estimate] = {}
    if system.name != baseline:
        over_baseline = estimates(values - _matrix(scored[baseline], names), seed, resamples)
        differences = dict(zip(names, over_baseline, strict=True))
    return SystemFigures(
        name=system.name,
        mode=system.mode,
        options=dict(system.options),
        searches=len(outcomes),
        estimates=dict(zip(names, estimates(values, seed, resamples), strict=True)),
        differences=differences,
        latency_p50_us=float(np.quantile(latencies, P50)),
        latency_p95_us=float(np.quantile(latencies, P95)),
        tokens={budget: _mean_tokens(results, budget) for budget in where.budgets},
        fallbacks=_fallbacks(results),
        failures=tuple(
            failed_call(question.question_id, outcome)
            for question, outcome in zip(questions, outcomes, strict=True)
            if isinstance(outcome, HragError)
        ),
    )


def _matrix(scored: Sequence[Scores], names: Sequence[str]) -> NDArray[np.float64]:
    """Returns the scores as `float64[metrics, questions]`; `names` are the names of the metrics."""
    rows = [[by_metric[name] for by_metric in scored] for name in names]
    return np.array(rows, np.float64).reshape(len(names), len(scored))


def _mean_tokens(results: Sequence[RetrievalResult], budget: int) -> float:
    return sum(result.texts[budget].tokens for result in results) / max(1, len(results))


def failed_call(subject: str, error: HragError) -> FailedCall:
    """Returns the FailedCall for an error. `subject` says what failed, for example a question."""
    return FailedCall(subject, type(error).__name__, error.message)


def _warnings(
    questions: Sequence[Question],
    golds: Sequence[ResolvedGold],
    outcomes: Mapping[str, Sequence[Outcome]],
    *,
    is_located: bool,
) -> tuple[str, ...]:
    """Returns warnings about problems that a reader of the figures must know."""
    warnings = []
    unlocated = sum(gold.unlocated for gold in golds)
    if unlocated and not is_located:
        warnings.append(
            f"no passage of any system has {counted(unlocated, 'expected quote')}; a quote that is "
            "not found counts as missed"
        )
    elif unlocated:
        names = [
            question.question_id
            for question, gold in zip(questions, golds, strict=True)
            if gold.unlocated
        ]
        warnings.append(
            f"the collection does not have {counted(unlocated, 'expected quote')} of "
            f"{counted(len(names), 'question')}, so no system can find this; a quote that is "
            f"nowhere counts as missed by every system: {listed(names)}"
        )
    results = [
        outcome
        for row in outcomes.values()
        for outcome in row
        if isinstance(outcome, RetrievalResult)
    ]
    sequences = {result.sequence for result in results if result.sequence}
    if len(sequences) > 1:
        warnings.append(
            f"the tenant's data changed between searches (sequence numbers {min(sequences)} to "
            f"{max(sequences)}); the systems may have searched different documents"
        )
    for name, row in outcomes.items():
        for reason, count in _fallbacks(row).items():
            searches = counted(count, "search", "searches")
            warnings.append(f"{searches} of {name} could not be complete: {reason}")
    if warning := few_questions(len(golds), "questions with gold"):
        warnings.append(warning)
    return tuple(warnings)


def listed(names: Sequence[str]) -> str:
    """Returns the first `_NAMES_SHOWN` names, and how many more there are."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _fallbacks(outcomes: Iterable[Outcome]) -> Counter[str]:
    reasons = (outcome.fallback for outcome in outcomes if isinstance(outcome, RetrievalResult))
    return Counter(filter(None, reasons))


def as_json(value: Any) -> dict[str, Any]:
    """Converts a dataclass to JSON values; rounds floats to six digits after the point."""
    json_value: dict[str, Any] = _json_value(value)
    return json_value


def _json_value(value: Any) -> Any:
    # `dataclasses.asdict` is not used, because it converts a Counter wrongly: it would return a
    # Counter that counts the pairs of key and count.
    if is_dataclass(value):
        return {field.name: _json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    return value
