"""Converts values to and from the messages of the call Answer."""

from hrag.v1 import retriever_pb2 as pb
from hrag.values.answers import (
    AnswerEnd,
    AnswerEvent,
    AnswerQuery,
    Citation,
    FinishReason,
    Reasoning,
)
from hrag.values.conversation import ConversationTurn, TurnRole
from hrag.values.errors import InvalidArgument
from hrag.values.limits import MAX_HISTORY_TURNS
from hrag.values.search import SearchResult
from hrag.wire.common import (
    bounded,
    built,
    checked_text,
    error_from,
    error_message,
    page_unit_from,
    page_unit_number,
    span_from,
    span_message,
)
from hrag.wire.fields import enum_number, enum_value
from hrag.wire.retriever import (
    search_query_from,
    search_request,
    search_response,
    search_result_from,
)

_REASON_NUMBER = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.CONTENT_FILTER: pb.FINISH_REASON_CONTENT_FILTER,
    FinishReason.NO_PASSAGES: pb.FINISH_REASON_NO_PASSAGES,
    FinishReason.FAILED: pb.FINISH_REASON_FAILED,
}
_REASON = {number: reason for reason, number in _REASON_NUMBER.items()}
_ROLE_NUMBER = {
    TurnRole.USER: pb.TURN_ROLE_USER,
    TurnRole.ASSISTANT: pb.TURN_ROLE_ASSISTANT,
}
_ROLE = {number: role for role, number in _ROLE_NUMBER.items()}


def answer_query_from(message: pb.AnswerRequest) -> AnswerQuery:
    if not message.HasField("search"):
        raise InvalidArgument("search is missing; an answer needs a search", field="search")
    bounded(message.history, MAX_HISTORY_TURNS, "history")
    return AnswerQuery(
        search_query_from(message.search),
        message.question,
        message.max_tokens if message.HasField("max_tokens") else None,
        tuple(
            ConversationTurn(enum_value(_ROLE, turn.role, f"history.{number}.role"), turn.text)
            for number, turn in enumerate(message.history)
        ),
        reasoning=message.reasoning,
    )


def answer_request(query: AnswerQuery) -> pb.AnswerRequest:
    return built(
        pb.AnswerRequest,
        search=search_request(query.search),
        question=checked_text(query.question, "question"),
        max_tokens=query.max_tokens,
        history=[
            pb.ConversationTurn(
                role=enum_number(_ROLE_NUMBER, turn.role, f"history.{number}.role"),
                text=checked_text(turn.text, f"history.{number}.text"),
            )
            for number, turn in enumerate(query.history)
        ],
        reasoning=query.reasoning,
    )


def answer_response(event: AnswerEvent) -> pb.AnswerResponse:
    if isinstance(event, SearchResult):
        return pb.AnswerResponse(passages=search_response(event))
    if isinstance(event, AnswerEnd):
        return pb.AnswerResponse(end=_end_message(event))
    if isinstance(event, Reasoning):
        return pb.AnswerResponse(reasoning=event.text)
    return pb.AnswerResponse(text=event)


def answer_event_from(message: pb.AnswerResponse) -> AnswerEvent:
    match message.WhichOneof("event"):
        case "passages":
            return search_result_from(message.passages)
        case "end":
            return _end_from(message.end)
        case "reasoning":
            return Reasoning(message.reasoning)
        case _:
            return str(message.text)


def _end_message(end: AnswerEnd) -> pb.AnswerEnd:
    return pb.AnswerEnd(
        finish_reason=_REASON_NUMBER[end.finish_reason],
        error=None if end.error is None else error_message(end.error),
        citations=map(_citation_message, end.citations),
        model=end.model,
        prompt_tokens=end.prompt_tokens,
        completion_tokens=end.completion_tokens,
        first_text_us=end.first_text_us,
        total_us=end.total_us,
        removed_citations=end.removed_citations,
    )


def _end_from(message: pb.AnswerEnd) -> AnswerEnd:
    return AnswerEnd(
        finish_reason=_REASON[message.finish_reason],
        error=error_from(message.error) if message.HasField("error") else None,
        citations=tuple(map(_citation_from, message.citations)),
        model=message.model,
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        first_text_us=message.first_text_us,
        total_us=message.total_us,
        removed_citations=message.removed_citations,
    )


def _citation_message(citation: Citation) -> pb.Citation:
    return pb.Citation(
        marker=citation.marker,
        document_id=citation.document_id,
        chunk_id=citation.chunk_id,
        statement_start=citation.statement_start,
        statement_end=citation.statement_end,
        span=span_message(citation.span),
        first_page=citation.first_page,
        last_page=citation.last_page,
        page_unit=page_unit_number(citation.page_unit if citation.first_page else None),
        recognised_pages=citation.recognised_pages,
        score=citation.score,
    )


def _citation_from(message: pb.Citation) -> Citation:
    return Citation(
        marker=message.marker,
        document_id=message.document_id,
        chunk_id=message.chunk_id,
        statement_start=message.statement_start,
        statement_end=message.statement_end,
        span=span_from(message.span),
        first_page=message.first_page,
        last_page=message.last_page,
        page_unit=page_unit_from(message.page_unit),
        recognised_pages=tuple(message.recognised_pages),
        score=message.score if message.HasField("score") else None,
    )
