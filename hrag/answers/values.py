"""The values of an answer: what is asked, and what comes, event by event."""

from dataclasses import dataclass
from enum import StrEnum

from hrag.errors import HragError
from hrag.types import SearchQuery, SearchResult, Span


class FinishReason(StrEnum):
    """Why a model's text ends where it does.

    NO_PASSAGES and FAILED are an answer's alone: nothing was found, so that no model was
    asked; the model failed.
    """

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    NO_PASSAGES = "no_passages"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """A question to a model about what a search finds.

    Without a `question`, the search's text is the question.
    """

    search: SearchQuery
    question: str = ""
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    """Which passage a statement of an answer's text was said to come from, and where in it.

    `marker` is the passage's place, from 1; the statement is a range of characters of the
    text. `span` is the passage's sentence nearest to the statement and `score` their cosine;
    where they could not be compared it is the whole passage, and `score` is None. Pages are
    the span's.
    """

    marker: int
    document_id: str
    chunk_id: str
    statement_start: int
    statement_end: int
    span: Span
    first_page: int
    last_page: int
    score: float | None


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """How an answer ended. With FAILED, `error` says why; the text up to there stands.

    Tokens are 0 where the endpoint does not count them, `first_text_us` where there is none.
    """

    finish_reason: FinishReason
    error: HragError | None
    citations: tuple[Citation, ...]
    model: str
    prompt_tokens: int
    completion_tokens: int
    first_text_us: int
    total_us: int


AnswerEvent = SearchResult | str | AnswerEnd  # Passages once, text in pieces, its end once.
