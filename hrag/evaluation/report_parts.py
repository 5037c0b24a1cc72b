"""Builds the report of an evaluation from the outcomes of searches and the verdicts of a judge."""

from collections.abc import Mapping, Sequence

from hrag.evaluation.bootstrap import DEFAULT_RESAMPLES
from hrag.evaluation.gold import ResolvedGold, resolve
from hrag.evaluation.judge import CRITERIA, JudgeResult
from hrag.evaluation.question_kinds import compare_kinds, question_kinds
from hrag.evaluation.question_records import QuestionRecord, question_record
from hrag.evaluation.questions import GoldQuote, Question, TextSpan
from hrag.evaluation.report_files import Report
from hrag.evaluation.searches import Outcome, SearchTarget
from hrag.evaluation.summary import results_by_question, summarise
from hrag.evaluation.systems import System


def build_report(
    questions: Sequence[Question],
    systems: Sequence[System],
    baseline: str,
    where: SearchTarget,
    outcomes: Mapping[str, Sequence[Outcome]] | None,
    judged: JudgeResult | None,
    *,
    located: Mapping[GoldQuote, tuple[TextSpan, ...]] | None,
    span_texts: Mapping[TextSpan, str],
    seed: int,
    explorer: str = "",
    resamples: int = DEFAULT_RESAMPLES,
) -> Report:
    """Returns the report on `questions`, without `about`.

    `outcomes` are those of the questions that have gold, in their order; it is None if none has.
    `judged` is None if no answers were compared. `located` contains the places in the collection of
    quotes that no system found, and `span_texts` the texts of the expected spans; `located` is None
    if the collection could not be asked.
    """
    with_gold = [question for question in questions if question.gold] if outcomes else []
    outcomes = outcomes or {}
    golds = _golds(with_gold, systems, outcomes, located)
    kinds = question_kinds(questions, golds)
    by_question = {
        question.question_id: {name: row[at] for name, row in outcomes.items()}
        for at, question in enumerate(with_gold)
    }
    judged_by_id = {one.question_id: one for one in judged.questions} if judged else {}
    records = tuple(
        question_record(
            question,
            golds.get(question.question_id),
            kinds[question.question_id],
            by_question.get(question.question_id, {}),
            judged_by_id.get(question.question_id),
            where.main_budget,
            span_texts,
            is_located=located is not None,
        )
        for question in questions
    )
    return Report(
        about={},
        retrieval=summarise(
            with_gold,
            systems,
            outcomes,
            where,
            baseline=baseline,
            seed=seed,
            resamples=resamples,
            located=located,
        )
        if with_gold
        else None,
        judged=judged.figures if judged else None,
        questions=records,
        kinds=compare_kinds(
            kinds,
            _recalls(records),
            _verdicts(records),
            baseline,
            seed=seed,
            resamples=resamples,
        ),
        systems=tuple(systems),
        where=where,
        explorer=explorer,
    )


def _golds(
    questions: Sequence[Question],
    systems: Sequence[System],
    outcomes: Mapping[str, Sequence[Outcome]],
    located: Mapping[GoldQuote, tuple[TextSpan, ...]] | None,
) -> dict[str, ResolvedGold]:
    """Returns the gold of the questions, by question id."""
    if not questions:
        return {}
    rows = zip(questions, results_by_question(systems, outcomes), strict=True)
    return {question.question_id: resolve(question, row, located) for question, row in rows}


def _recalls(records: Sequence[QuestionRecord]) -> dict[str, dict[str, float]]:
    """Returns the recall by question id and system, of the questions that have gold."""
    return {
        record.question_id: {
            name: system.recall
            for name, system in record.systems.items()
            if system.recall is not None
        }
        for record in records
        if record.gold
    }


def _verdicts(records: Sequence[QuestionRecord]) -> dict[str, dict[str, int]]:
    """Returns the verdicts as a whole by question id and system, where the judge succeeded."""
    return {
        record.question_id: {
            name: pair.outcomes[CRITERIA[0]]
            for name, pair in record.verdicts.items()
            if pair.outcomes
        }
        for record in records
    }
