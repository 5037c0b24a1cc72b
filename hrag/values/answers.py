"""The values of an answer: its query and its events."""

from dataclasses import dataclass
from enum import StrEnum

from hrag.values.chunks import Span
from hrag.values.errors import HragError
from hrag.values.search import SearchQuery, SearchResult


class FinishReason(StrEnum):
    """The reason why a text ended.

    NO_PASSAGES and FAILED occur only in answers. NO_PASSAGES means that the search found nothing,
    so no request was sent to the model. FAILED means that the model failed.
    """

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    NO_PASSAGES = "no_passages"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """A question to a chat model about the passages of a search.

    If `question` is empty, the search's text is the question. `max_tokens` bounds the answer;
    None means the server's default.
    """

    search: SearchQuery
    question: str = ""
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    """The passage that a statement of an answer cites, and the supporting sentence in it.

    `marker` is the passage's rank, from 1. The statement is a range of characters of the
    answer's text. `span` is the passage's sentence most similar to the statement and `score`
    their cosine similarity; if they could not be compared, `span` is the whole passage and
    `score` is None. The pages are those of the span.
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
    """The end of an answer. With FAILED, `error` is the cause; the text before it is valid.

    Token counts are 0 if the endpoint does not report them. `first_text_us` and `total_us` are
    microseconds from the start of the call; `first_text_us` is 0 if there is no text.
    """

    finish_reason: FinishReason
    error: HragError | None
    citations: tuple[Citation, ...]
    model: str
    prompt_tokens: int
    completion_tokens: int
    first_text_us: int
    total_us: int


# An answer has one SearchResult, then pieces of text, then one AnswerEnd.
AnswerEvent = SearchResult | str | AnswerEnd
