"""Answers a question: searches, sends the passages, prompts a chat model, and sends its text.

The citations are sent last. If the question or a setting is invalid, an error is raised before
anything is sent. If the model fails, the passages have been sent already, so the last event
contains the error.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

import structlog

from hrag.models.chat import ChatEnd, ChatModel, Pieces
from hrag.models.embedding.cache import CachedQueries
from hrag.observe import metrics
from hrag.values.answers import (
    AnswerEnd,
    AnswerEvent,
    AnswerQuery,
    Citation,
    FinishReason,
    Reasoning,
)
from hrag.values.conversation import ConversationTurn, check_history
from hrag.values.deadline import Deadline
from hrag.values.errors import (
    Cancelled,
    ChatNotConfigured,
    DeadlineExceeded,
    HragError,
    InvalidArgument,
    TooLarge,
)
from hrag.values.limits import MAX_ANSWER_BYTES, MAX_QUERY_BYTES
from hrag.values.reply_limit import UNLIMITED, ReplyLimit
from hrag.values.search import Passage, SearchMode, SearchQuery
from retriever_svc.answer_slots import AnswerSlots
from retriever_svc.attribution import citations, fitting
from retriever_svc.markers import MarkerFilter, cited_statements
from retriever_svc.markup_guard import hosts_in
from retriever_svc.prompt import Prompt, fitting_prompt
from retriever_svc.query_options import check_query
from retriever_svc.search_pipeline import Search
from retriever_svc.shown_reasoning import ShownReasoning
from retriever_svc.standalone_question import StandaloneQuestions

_log = structlog.get_logger()

# The text of the model is processed in steps of at most this many characters. Between two steps,
# shorter calls of other tenants run. A step takes about a millisecond.
_STEP_CHARS = 1024
# The maximum time for embedding the query, and later for embedding the text of the citations.
# Without this maximum, an embedder that does not answer would use up the time until the call's
# deadline, which may be minutes.
_EMBEDDING_S = 5.0


@dataclass(frozen=True, slots=True)
class AnswerSetup:
    """The chat model, the prompt and the limits of answers.

    At most `max_concurrent` answers are written at the same time. `max_tokens` is the maximum
    length of an answer, in tokens. `passage_tokens` is the maximum number of tokens of all passages
    together, for a query that has no token budget. `standalone_timeout_s` limits the time in which
    the chat model makes the question of a conversation stand alone.
    """

    chat: ChatModel
    prompt: Prompt
    max_concurrent: int
    max_tokens: int
    passage_tokens: int
    standalone_timeout_s: float


@dataclass(frozen=True, slots=True)
class _ModelRequest:
    """A question for the model, and the passages from which the model answers it.

    `history` has the turns before the question.
    If `reasoning` is True, the model's reasoning is sent to the client.
    """

    tenant_id: str
    question: str
    max_tokens: int
    passages: Sequence[Passage]
    history: Sequence[ConversationTurn]
    reasoning: bool

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts to which the answer may link: those in URLs of the question and passages."""
        chunks = (passage.chunk for passage in self.passages)
        texts = (text for chunk in chunks for text in (chunk.content, chunk.source))
        return hosts_in((self.question, *texts))


class AnswerPipeline:
    """Answers questions. Safe to call from several threads."""

    def __init__(
        self,
        search: Search,
        sentence_embedder: CachedQueries,
        setup: AnswerSetup,
        reply: ReplyLimit = UNLIMITED,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Creates the pipeline.

        `reply` limits the size of each event. `sentence_embedder` embeds the statements of an
        answer and the sentences of its passages; the vectors of both are compared to find the
        citations. `clock` returns the time in seconds.
        """
        self._reply = reply
        self._search = search
        self._sentence_embedder = sentence_embedder
        self._setup = setup
        self._clock = clock
        self._slots = AnswerSlots(setup.max_concurrent)
        # Python runs one thread at a time, so texts that are filtered concurrently would not be
        # filtered sooner, but other calls would wait for several threads instead of one.
        self._filtering = threading.Lock()
        self._standalone = StandaloneQuestions(setup.chat, setup.standalone_timeout_s)

    def __call__(self, query: AnswerQuery, deadline: Deadline) -> Iterator[AnswerEvent]:
        """Yields one SearchResult, then the answer's text in pieces, then one AnswerEnd.

        If the query asks for it, the model's reasoning is yielded too, in pieces of its own.

        Closing the iterator cancels the request to the model. Raises the errors of `Search`. Raises
        InvalidArgument or TooLarge if the question, `max_tokens` or `history` is not allowed.
        Raises TooBusy if too many answers are being written.
        """
        began = self._clock()
        if query.search.mode is None:
            query = replace(query, search=replace(query.search, mode=SearchMode.CONTEXT))
        check_query(query.search)
        check_history(query.history)
        question = _question(query)
        max_tokens = self._max_tokens(query)
        with self._slots.slot(query.search.tenant_id):
            search = self._with_token_budget(query.search)
            standalone = None
            if _is_question_of_conversation(query):
                standalone = self._standalone(question, query.history, deadline)
                search = replace(search, query=standalone.text)
            result = self._search(search, deadline, embedding_s=_EMBEDDING_S)
            # The model cites passages by number, and the client numbers the passages that it
            # receives. So the client must receive exactly the passages of the prompt.
            fitting_passages = fitting_prompt(result.passages, search.token_budget)
            result = replace(result, passages=fitting_passages, standalone_question=standalone)
            yield result
            if result.passages:
                request = _ModelRequest(
                    query.search.tenant_id,
                    question,
                    max_tokens,
                    result.passages,
                    query.history,
                    query.reasoning,
                )
                end = yield from self._stream(request, began, deadline)
            else:
                end = self._end(ChatEnd(FinishReason.NO_PASSAGES), began)
        # The slot is free before the caller knows the end, so the caller's next question, which may
        # follow at once, is not refused because of this one.
        yield end

    def _max_tokens(self, query: AnswerQuery) -> int:
        limit = self._setup.max_tokens
        if query.max_tokens is None:
            return limit
        if not 1 <= query.max_tokens <= limit:
            raise InvalidArgument(
                f"max_tokens is {query.max_tokens}; it must be from 1 to {limit}",
                field="max_tokens",
            )
        return query.max_tokens

    def _with_token_budget(self, search: SearchQuery) -> SearchQuery:
        if search.token_budget:
            return search
        return replace(search, token_budget=self._setup.passage_tokens, cut_last=True)

    def _stream(
        self, request: _ModelRequest, began: float, deadline: Deadline
    ) -> Generator[AnswerEvent, None, AnswerEnd]:
        """Yields the text of the model in pieces; returns the last event."""
        passages = request.passages
        prompt = self._setup.prompt(request.question, passages, request.history)
        marker_filter = MarkerFilter(len(passages), request.hosts)
        reasoning = ShownReasoning(len(passages), request.hosts, is_wanted=request.reasoning)
        first_text_us = 0
        end, error = ChatEnd(FinishReason.FAILED), None
        with closing(self._setup.chat.stream(prompt, request.max_tokens, deadline)) as pieces:
            try:
                for piece in _limited(pieces):
                    deadline.check("writing the answer")
                    if isinstance(piece, ChatEnd):
                        end = piece
                        continue
                    if isinstance(piece, Reasoning):
                        with self._filtering:
                            shown = reasoning.feed(piece)
                        yield from shown
                        continue
                    with self._filtering:
                        output = marker_filter.feed(piece)
                    if output:
                        first_text_us = first_text_us or self._us_since(began)
                        yield output
            except (Cancelled, DeadlineExceeded):
                # The call was cancelled or its deadline has passed, so nobody reads an AnswerEnd.
                raise
            except HragError as failure:
                _log.warning("chat_failed", model=self._setup.chat.name, problem=failure.message)
                error = failure
        yield from reasoning.finish()
        if remaining_text := marker_filter.finish():
            first_text_us = first_text_us or self._us_since(began)
            yield remaining_text
        if marker_filter.removed:
            metrics.citations_removed(marker_filter.removed)
            _log.warning("answer_citations_removed", count=marker_filter.removed)
        statements = cited_statements(marker_filter.text, marker_filter.markers)
        # Embedding for the citations may use at most half of the call's remaining time. So the last
        # event is sent before the call's deadline even if the embedder does not answer.
        share = deadline.within(min(_EMBEDDING_S, deadline.remaining_s / 2))
        embed = partial(self._sentence_embedder.embed_each, request.tenant_id, deadline=share)
        supported = fitting(citations(marker_filter.text, statements, passages, embed), self._reply)
        answer_end = self._end(end, began, error, supported, self._setup.chat.name, first_text_us)
        return replace(answer_end, removed_citations=marker_filter.removed)

    def _end(
        self,
        end: ChatEnd,
        began: float,
        error: HragError | None = None,
        citations: tuple[Citation, ...] = (),
        model: str = "",
        first_text_us: int = 0,
    ) -> AnswerEnd:
        return AnswerEnd(
            finish_reason=end.finish_reason,
            error=error,
            citations=citations,
            model=model,
            prompt_tokens=end.prompt_tokens,
            completion_tokens=end.completion_tokens,
            first_text_us=first_text_us,
            total_us=self._us_since(began),
        )

    def _us_since(self, began: float) -> int:
        return round((self._clock() - began) * 1e6)


def _limited(pieces: Pieces) -> Iterator[str | Reasoning | ChatEnd]:
    """Yields the pieces of a model's text and reasoning, and then its ChatEnd.

    The pieces are cut to `_STEP_CHARS` characters. If the text has more than MAX_ANSWER_BYTES
    bytes, it is cut, and its finish reason is LENGTH.
    """
    left_bytes = MAX_ANSWER_BYTES
    for piece in _cut(pieces):
        encoded = piece.encode() if isinstance(piece, str) else b""
        if len(encoded) > left_bytes:
            yield encoded[:left_bytes].decode("utf-8", "ignore")
            yield ChatEnd(FinishReason.LENGTH)
            return
        left_bytes -= len(encoded)
        yield piece


def _cut(pieces: Pieces) -> Iterator[str | Reasoning | ChatEnd]:
    for piece in pieces:
        if isinstance(piece, ChatEnd):
            yield piece
            continue
        text = piece.text if isinstance(piece, Reasoning) else piece
        for start in range(0, len(text), _STEP_CHARS):
            step = text[start : start + _STEP_CHARS]
            yield Reasoning(step) if isinstance(piece, Reasoning) else step


def unconfigured(*_: object) -> NoReturn:
    """Raises ChatNotConfigured. Used instead of an AnswerPipeline if there is no chat model."""
    raise ChatNotConfigured(
        "this retriever has no chat model; set HRAG_CHAT_MODEL, and HRAG_CHAT_BASE_URL if the "
        "model is not OpenAI's"
    )


def _is_question_of_conversation(query: AnswerQuery) -> bool:
    """Returns True if the search's text may depend on earlier turns of a conversation.

    A caller that sets a separate question or a vector has chosen what to search for.
    """
    is_chosen = query.question or query.search.vector is not None
    return bool(query.history and query.search.text and not is_chosen)


def _question(query: AnswerQuery) -> str:
    """Returns the question for the model: the query's question or, if empty, its search text.

    Raises InvalidArgument if the question and the search text are both empty, or if the question
    has only white space. Raises TooLarge if the question has more than MAX_QUERY_BYTES bytes.
    """
    if not query.question:
        if isinstance(query.search.query, str):
            return query.search.query
        raise InvalidArgument(
            "question is empty; it is required, because the search has a vector and no text",
            field="question",
        )
    size = len(query.question.encode())
    if size > MAX_QUERY_BYTES:
        raise TooLarge(
            f"question has {size} bytes; at most {MAX_QUERY_BYTES} are allowed", field="question"
        )
    if not query.question.strip():
        raise InvalidArgument("question is blank; it must contain text", field="question")
    return query.question
