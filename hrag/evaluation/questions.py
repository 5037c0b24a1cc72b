"""Questions with their gold, which says what a search is expected to return.

The gold of a question is the expected texts (spans or quotes that answer the question), or the
expected documents (which contain the answer). Spans are half-open ranges of code points in the
stored text of a document.
"""

from collections.abc import Iterable
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
    """An expected span: the answer to the question is this part of a document."""

    span: TextSpan


@dataclass(frozen=True, slots=True)
class GoldQuote:
    """An expected quote: the answer to the question is this text.

    In a document, the words of the text may be separated by any white space. If `document_id` is
    empty, the text may be in any document.
    """

    text: str
    document_id: str = ""


@dataclass(frozen=True, slots=True)
class GoldDocument:
    """An expected document: the answer to the question is somewhere in this document.

    `relevance` is a grade of 1 or more; a higher grade means a better document.
    """

    document_id: str
    relevance: int = 1


Gold: TypeAlias = GoldSpan | GoldQuote | GoldDocument


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold and a reference answer. Both may be empty.

    `gold` contains either only texts (spans and quotes) or only documents. Without gold, the
    metrics of retrieval cannot be computed for the question; only a judge can compare the systems'
    answers to the question. `answer` is the reference answer, which the judge reads. `kind` and
    `language` are the user's words; reports compare the systems for each of them.
    """

    question_id: str
    text: str
    gold: tuple[Gold, ...] = ()
    answer: str = ""
    kind: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        kinds = {isinstance(gold, GoldDocument) for gold in self.gold}
        if len(kinds) > 1:
            raise InvalidArgument(
                f"gold of question {self.question_id!r} has both whole documents and texts; "
                "it must have only one of these kinds",
                field="gold",
            )

    @property
    def expects_documents(self) -> bool:
        """True if the gold consists of whole documents."""
        return any(isinstance(gold, GoldDocument) for gold in self.gold)

    @property
    def document_ids(self) -> tuple[str, ...]:
        """The ids of the documents that the gold names, without duplicates."""
        named = (
            gold.span.document_id if isinstance(gold, GoldSpan) else gold.document_id
            for gold in self.gold
        )
        return tuple(dict.fromkeys(filter(None, named)))


def first_repeated(values: Iterable[str]) -> str | None:
    """Returns the first value that equals an earlier value; None if all values are different."""
    earlier: set[str] = set()
    for value in values:
        if value in earlier:
            return value
        earlier.add(value)
    return None
