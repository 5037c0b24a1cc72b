"""Questions, and where their answers are: the gold.

Offsets are code points of the document's stored text, half-open.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hrag.values.errors import InvalidArgument


class TextSpan(NamedTuple):
    """A part of a document's text."""

    document_id: str
    char_start: int
    char_end: int


@dataclass(frozen=True, slots=True)
class GoldSpan:
    """The answer is this part of a document."""

    span: TextSpan


@dataclass(frozen=True, slots=True)
class GoldQuote:
    """The answer is this text, in this document or in any, however its lines are broken."""

    text: str
    document_id: str = ""


@dataclass(frozen=True, slots=True)
class GoldDocument:
    """The answer is in this document. `relevance` is graded: 1 or more."""

    document_id: str
    relevance: int = 1


Gold: TypeAlias = GoldSpan | GoldQuote | GoldDocument


@dataclass(frozen=True, slots=True)
class Question:
    """A question. Without `gold` it can only be judged; `answer` is a reference for the judge.

    All of its gold is text (spans and quotes) or all of it is documents.
    """

    question_id: str
    text: str
    gold: tuple[Gold, ...] = ()
    answer: str = ""

    def __post_init__(self) -> None:
        kinds = {isinstance(each, GoldDocument) for each in self.gold}
        if len(kinds) > 1:
            raise InvalidArgument(
                f"gold of question {self.question_id!r} has whole documents beside texts; "
                "it must have one kind alone",
                field="gold",
            )

    @property
    def expects_documents(self) -> bool:
        """True if the gold is whole documents."""
        return any(isinstance(each, GoldDocument) for each in self.gold)

    @property
    def document_ids(self) -> tuple[str, ...]:
        """The documents that the gold names, each once."""
        named = (
            each.span.document_id if isinstance(each, GoldSpan) else each.document_id
            for each in self.gold
        )
        return tuple(dict.fromkeys(filter(None, named)))


def check_unique(questions: Sequence[Question], source: str) -> None:
    """Raises InvalidArgument if there are no questions, or two have the same id."""
    if not questions:
        raise InvalidArgument(f"{source} has no questions", field="questions")
    repeated = first_repeated(each.question_id for each in questions)
    if repeated is not None:
        raise InvalidArgument(f"{source} has the question id {repeated!r} twice", field="qid")


def first_repeated(values: Iterable[str]) -> str | None:
    """Returns the first value that has come before; None if there is none."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
