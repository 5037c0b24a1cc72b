"""The complete result of `hrag eval`, and its JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hrag.evaluation.generator import GenerationResult
from hrag.evaluation.judge import JudgeFigures
from hrag.evaluation.summary import VERSION, RetrievalFigures, as_json


@dataclass(frozen=True, slots=True)
class Report:
    """The complete result of `hrag eval`.

    `about` says when, where and with which models the result was measured. `retrieval` is None if
    no question has gold. `judged` is None if no answers were judged. `generated` is None if no
    questions were generated.
    """

    about: Mapping[str, str | int]
    retrieval: RetrievalFigures | None = None
    judged: JudgeFigures | None = None
    generated: GenerationResult | None = None
    warnings: tuple[str, ...] = ()
    version: int = field(default=VERSION, init=False)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The warnings of the report itself, then those of `retrieval` and `judged`."""
        retrieval = self.retrieval.warnings if self.retrieval else ()
        judged = self.judged.warnings if self.judged else ()
        return (*self.warnings, *retrieval, *judged)

    @property
    def failed_calls(self) -> int:
        """The count of searches and comparisons of answers that failed."""
        systems = self.retrieval.systems if self.retrieval else ()
        pairs = self.judged.pairs if self.judged else ()
        searches = sum(len(system.failures) for system in systems)
        return searches + sum(len(pair.failures) for pair in pairs)


def report_json(report: Report) -> dict[str, Any]:
    """Returns the report as JSON values. Shares are from 0 to 1; times are in microseconds."""
    return as_json(report)
