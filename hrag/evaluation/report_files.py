"""The complete result of `hrag eval`, and its JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag.evaluation.findings import ComparisonFindings, findings
from hrag.evaluation.generator import GenerationResult
from hrag.evaluation.judge import JudgeFigures
from hrag.evaluation.question_kinds import KindFigures
from hrag.evaluation.question_records import QuestionRecord
from hrag.evaluation.searches import SearchTarget
from hrag.evaluation.summary import VERSION, RetrievalFigures, as_json, listed
from hrag.evaluation.systems import System
from hrag.text.noun_counts import counted


@dataclass(frozen=True, slots=True)
class Report:
    """The complete result of `hrag eval`.

    `about` says when, where and with which models the result was measured. `retrieval` is None if
    no question has gold. `judged` is None if no answers were judged. `generated` is None if no
    questions were generated. `questions` has one record for each question, and `kinds` the figures
    of each kind of question. `systems` are the compared systems. `where` is what they searched,
    None if it was removed. `explorer` is the address of the explorer for links; without it, there
    are no links in the HTML report. `judge_error` is the error that ended the judge's work; then
    `judged` is None. `unstored` names the documents that could not be stored before the questions
    were asked.
    """

    about: Mapping[str, str | int]
    retrieval: RetrievalFigures | None = None
    judged: JudgeFigures | None = None
    generated: GenerationResult | None = None
    warnings: tuple[str, ...] = ()
    questions: tuple[QuestionRecord, ...] = ()
    kinds: tuple[KindFigures, ...] = ()
    systems: tuple[System, ...] = ()
    where: SearchTarget | None = None
    explorer: str = ""
    judge_error: str = ""
    unstored: tuple[str, ...] = ()
    version: int = field(default=VERSION, init=False)

    @property
    def findings(self) -> ComparisonFindings:
        """The findings of the comparison, in sentences."""
        return findings(self.retrieval, self.judged, self.kinds)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The warnings of the report itself, then those of `retrieval` and `judged`."""
        retrieval = self.retrieval.warnings if self.retrieval else ()
        judged = self.judged.warnings if self.judged else ()
        if self.judge_error:
            judged = (f"no answers were compared, because the judge failed: {self.judge_error}",)
        warnings = [*self.warnings, *retrieval, *judged]
        if self.unstored:
            about = "it" if len(self.unstored) == 1 else "them"
            unstored = (
                f"{counted(len(self.unstored), 'document')} could not be stored, so questions "
                f"about {about} count as missed: {listed(self.unstored)}"
            )
            warnings.insert(0, unstored)
        return tuple(warnings)

    @property
    def failed_calls(self) -> int:
        """The count of searches and comparisons of answers that failed."""
        systems = self.retrieval.systems if self.retrieval else ()
        pairs = self.judged.pairs if self.judged else ()
        searches = sum(len(system.failures) for system in systems)
        return searches + sum(len(pair.failures) for pair in pairs) + bool(self.judge_error)


def report_json(report: Report) -> dict[str, Any]:
    """Returns the report as JSON values. Shares are from 0 to 1; times are in microseconds."""
    return {"findings": as_json(report.findings), **as_json(report)}
