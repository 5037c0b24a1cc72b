"""Running services refuse invalid questions before any event of an answer."""

import grpc
import pytest

from hrag import errors
from hrag.types import Document, SearchQuery
from hrag.v1 import retriever_pb2 as pb
from hrag.wire.status_codes import error_from
from tests.e2e.conftest import AT_A_TIME, DOGS, MAX_TOKENS
from tests.support.servers.openai_server import (
    OpenAIServer,
)
from tests.support.servers.processes import Running


def test_the_server_reports_its_model_and_its_limits(services: Running, answering: Running) -> None:
    info = answering.client.server_info()
    assert info.chat_model == "openai/test-model"
    assert (info.limits.answer_tokens, info.limits.concurrent_answers) == (MAX_TOKENS, AT_A_TIME)
    assert services.client.server_info().chat_model == ""


def test_a_service_without_a_model_names_the_variable_to_set(
    services: Running, tenant: str
) -> None:
    services.client.ingest(tenant, Document(DOGS))
    with pytest.raises(errors.ChatNotConfigured, match="set HRAG_CHAT_MODEL"):
        list(services.client.answer(SearchQuery(tenant, "dogs?")))
    request = pb.AnswerRequest(search=pb.SearchRequest(tenant_id=tenant, text="dogs?"))
    with pytest.raises(grpc.RpcError) as caught:
        list(services.raw_retriever.Answer(request, timeout=10))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


_SEARCH = pb.SearchRequest(tenant_id="TENANT", text="dogs?")
_VECTOR = pb.SearchRequest(tenant_id="TENANT", vector=pb.Vector(values=[1.0] * 64))
_LONG = "字" * (32 * 1024 // 3 + 1)


@pytest.mark.parametrize(
    ("request_", "field", "words"),
    [
        pytest.param(pb.AnswerRequest(), "search", "search is missing", id="empty"),
        pytest.param(pb.AnswerRequest(question="q"), "search", "is missing", id="no search"),
        pytest.param(
            pb.AnswerRequest(search=pb.SearchRequest(tenant_id="TENANT")), "text", "", id="no text"
        ),
        pytest.param(
            pb.AnswerRequest(search=pb.SearchRequest(text="dogs?")), "tenant_id", "", id="no tenant"
        ),
        pytest.param(
            pb.AnswerRequest(search=pb.SearchRequest(tenant_id="TENANT", text=" \n")),
            "text",
            "blank",
            id="blank text",
        ),
        pytest.param(
            pb.AnswerRequest(
                search=pb.SearchRequest(
                    tenant_id="TENANT", text="dogs?", mode=pb.SEARCH_MODE_STANDARD, cut_last=True
                )
            ),
            "cut_last",
            "token_budget",
            id="cut_last alone",
        ),
        pytest.param(pb.AnswerRequest(search=_VECTOR), "question", "empty", id="vector alone"),
        pytest.param(
            pb.AnswerRequest(search=_SEARCH, question=" \t"), "question", "blank", id="blank"
        ),
        pytest.param(
            pb.AnswerRequest(search=_SEARCH, question=_LONG), "question", "at most 32768", id="long"
        ),
        pytest.param(
            pb.AnswerRequest(search=_SEARCH, max_tokens=0),
            "max_tokens",
            f"is 0; it must be from 1 to {MAX_TOKENS}",
            id="no tokens",
        ),
        pytest.param(
            pb.AnswerRequest(search=_SEARCH, max_tokens=MAX_TOKENS + 1),
            "max_tokens",
            f"is {MAX_TOKENS + 1}",
            id="too many tokens",
        ),
        pytest.param(
            pb.AnswerRequest(
                search=pb.SearchRequest(tenant_id="TENANT", text="dogs?", min_score=float("nan"))
            ),
            "min_score",
            "nan",
            id="NaN",
        ),
    ],
)
def test_bad_input_is_refused_with_its_field_before_any_event(
    answering: Running,
    chat_endpoint: OpenAIServer,
    stored: str,
    request_: pb.AnswerRequest,
    field: str,
    words: str,
) -> None:
    calls = chat_endpoint.calls
    request = pb.AnswerRequest()
    request.CopyFrom(request_)
    if request.search.tenant_id:
        request.search.tenant_id = stored
    with pytest.raises(grpc.RpcError) as caught:
        next(answering.raw_retriever.Answer(request, timeout=10))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = error_from(caught.value)
    assert error.field == field
    assert words in error.message
    assert chat_endpoint.calls == calls


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\xff\xff\xff", id="no message"),
        pytest.param(b"\x12\x02\xff\xfe", id="question not UTF-8"),
        pytest.param(b"\x18\x80", id="half a number"),
    ],
)
def test_bytes_that_are_no_message_are_refused(answering: Running, message: bytes) -> None:
    with grpc.insecure_channel(answering.retriever.address) as channel:
        call = channel.unary_stream("/hrag.v1.RetrieverService/Answer")
        with pytest.raises(grpc.RpcError) as caught:
            list(call(message, timeout=10))
    assert error_from(caught.value).field == "request"


def test_the_sdk_refuses_values_that_cannot_be_sent(answering: Running, tenant: str) -> None:
    query = SearchQuery(tenant, "dogs?")
    for wrong in ({"question": "\ud800"}, {"max_tokens": -1}, {"max_tokens": 1 << 32}):
        with pytest.raises(errors.InvalidArgument) as refused:
            list(answering.client.answer(query, **wrong))  # type: ignore[arg-type]
        assert refused.value.field == next(iter(wrong))
