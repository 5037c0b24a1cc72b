"""The whole result of `hrag eval`, and its form as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag.evaluation.generator import Generated
from hrag.evaluation.judge import JudgeFigures
from hrag.evaluation.summary import VERSION, RetrievalFigures, as_json


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured. `about` says when, where and with which models.

    `retrieval` is None if no question has gold, `judged` without a judge, `generated` if the
    questions were given.
    """

    about: Mapping[str, str | int]
    retrieval: RetrievalFigures | None = None
    judged: JudgeFigures | None = None
    generated: Generated | None = None
    warnings: tuple[str, ...] = ()
    version: int = field(default=VERSION, init=False)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The report's own warnings, then those of its parts."""
        retrieval = self.retrieval.warnings if self.retrieval else ()
        judged = self.judged.warnings if self.judged else ()
        return (*self.warnings, *retrieval, *judged)

    @property
    def failed_calls(self) -> int:
        """Searches and comparisons that failed."""
        systems = self.retrieval.systems if self.retrieval else ()
        pairs = self.judged.pairs if self.judged else ()
        searches = sum(len(each.failures) for each in systems)
        return searches + sum(len(each.failures) for each in pairs)


def report_json(report: Report) -> dict[str, Any]:
    """Returns the report as JSON values; shares are from 0 to 1, times in microseconds."""
    return as_json(report)
