"""Questions and answer events are converted to protobuf messages and back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hrag.errors import ChatUnavailable, InvalidArgument, TooLarge
from hrag.v1 import retriever_pb2 as pb
from hrag.values.answers import AnswerEnd, AnswerQuery, Citation, FinishReason, Reasoning
from hrag.values.conversation import ConversationTurn, TurnRole
from hrag.values.limits import MAX_HISTORY_TURNS
from hrag.wire import answers
from tests.support.documents.values import (
    F32,
    NAME,
    TEXT,
    U32,
    U32S,
    UNITS,
    queries,
    search_results,
    spans,
    with_possible_unit,
)

_citation_fields = (U32, NAME, NAME, U32, U32, spans, U32, U32, st.none() | F32, UNITS, U32S)
citations = st.builds(Citation, *_citation_fields).map(with_possible_unit)
ends = st.builds(
    AnswerEnd,
    st.sampled_from(FinishReason),
    st.none(),
    st.lists(citations, max_size=3).map(tuple),
    TEXT,
    *[U32] * 4,
)


turns = st.builds(ConversationTurn, st.sampled_from(TurnRole), TEXT)
histories = st.lists(turns, max_size=3).map(tuple)


@given(st.builds(AnswerQuery, queries, TEXT, st.none() | U32, histories, st.booleans()))
def test_a_question_is_unchanged_after_encoding_and_parsing(query: AnswerQuery) -> None:
    encoded = answers.answer_request(query).SerializeToString()
    assert answers.answer_query_from(pb.AnswerRequest.FromString(encoded)) == query


@given(st.one_of(search_results, TEXT, st.builds(Reasoning, TEXT), ends))
def test_an_answer_event_is_unchanged_after_encoding_and_parsing(event: Any) -> None:
    message = answers.answer_response(event)
    parsed = pb.AnswerResponse.FromString(message.SerializeToString())
    assert answers.answer_event_from(parsed) == event


def test_the_error_of_a_failed_answer_keeps_its_class_and_message() -> None:
    end = AnswerEnd(FinishReason.FAILED, ChatUnavailable("it is down"), (), "m", 0, 0, 0, 1)
    decoded = answers.answer_event_from(answers.answer_response(end))
    assert isinstance(decoded, AnswerEnd)
    assert type(decoded.error) is ChatUnavailable
    assert decoded.error.message == "it is down"


def test_an_answer_request_without_a_search_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="search is missing") as refused:
        answers.answer_query_from(pb.AnswerRequest(question="why?"))
    assert refused.value.field == "search"


def test_a_turn_without_a_known_role_is_refused() -> None:
    search = pb.SearchRequest(tenant_id="t", text="q")
    turns = [pb.ConversationTurn(role=pb.TURN_ROLE_USER, text="a"), pb.ConversationTurn(text="b")]
    with pytest.raises(InvalidArgument, match=r"history\.1\.role is 0") as refused:
        answers.answer_query_from(pb.AnswerRequest(search=search, history=turns))
    assert refused.value.field == "history.1.role"


def test_too_many_turns_are_refused_before_they_are_decoded() -> None:
    """The turns have no role, so decoding one of them would raise another error."""
    turns = [pb.ConversationTurn()] * (MAX_HISTORY_TURNS + 1)
    request = pb.AnswerRequest(search=pb.SearchRequest(text="q"), history=turns)
    with pytest.raises(TooLarge, match="history has 33 entries; at most 32"):
        answers.answer_query_from(request)


def test_a_limit_of_zero_tokens_differs_from_an_unset_limit() -> None:
    search = pb.SearchRequest(tenant_id="t", text="q")
    assert answers.answer_query_from(pb.AnswerRequest(search=search)).max_tokens is None
    zero = pb.AnswerRequest(search=search, max_tokens=0)
    assert answers.answer_query_from(zero).max_tokens == 0
