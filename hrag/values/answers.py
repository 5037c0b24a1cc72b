"""The request for an answer of the chat model, and the events of which an answer consists."""

from dataclasses import dataclass
from enum import StrEnum

from hrag.values.chunks import Span
from hrag.values.conversation import ConversationTurn
from hrag.values.errors import HragError
from hrag.values.read_report import PageUnit
from hrag.values.search import SearchQuery, SearchResult


class FinishReason(StrEnum):
    """The reason why the text of a chat model ended.

    NO_PASSAGES and FAILED occur only in answers, not in summaries. NO_PASSAGES means that the
    search found nothing, so no request was sent to the model. FAILED means that the model failed.
    """

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    NO_PASSAGES = "no_passages"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class AnswerQuery:
    """A question to a chat model about the passages of a search.

    If `question` is empty, the text of `search` is the question. `max_tokens` limits the length
    of the answer; None means the server's default. `history` has the turns of the conversation
    before the question, oldest first. If `reasoning` is True, the events of the answer include the
    reasoning of the model.
    """

    search: SearchQuery
    question: str = ""
    max_tokens: int | None = None
    history: tuple[ConversationTurn, ...] = ()
    reasoning: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A part of what a model writes before it answers. It is no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Citation:
    """A statement of an answer, the passage that it cites, and the sentence that supports it.

    `marker` is the passage's rank in the search result, from 1. `statement_start` and
    `statement_end` are the range of the statement in the answer's text, in characters. `span` is
    the sentence of the passage that is most similar to the statement, and `score` is the cosine
    similarity of the sentence and the statement. If sentences could not be compared with the
    statement, `span` is the whole passage and `score` is None. The fields on pages are about
    `span`; they have the meaning of the fields of `Chunk`.
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
    page_unit: PageUnit = PageUnit.PAGE
    recognised_pages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The last event of an answer.

    If `finish_reason` is FAILED, `error` is the cause; text that was sent before the failure is
    still valid. Token counts are 0 if the endpoint does not report them. `first_text_us` is the
    time from the start of the call to the first text, and `total_us` is the time to the end of the
    answer, both in microseconds. `first_text_us` is 0 if there is no text. `removed_citations` is
    the count of citations that were removed from the text because a statement, or the whole answer,
    had too many.
    """

    finish_reason: FinishReason
    error: HragError | None
    citations: tuple[Citation, ...]
    model: str
    prompt_tokens: int
    completion_tokens: int
    first_text_us: int
    total_us: int
    removed_citations: int = 0


# The events of an answer in their order: one SearchResult, then pieces of text and, if the query
# asks for it, of reasoning, then one AnswerEnd.
AnswerEvent = SearchResult | str | Reasoning | AnswerEnd
