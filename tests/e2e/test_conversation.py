"""In a conversation, a question is searched for in a form that stands alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hrag import errors
from hrag.client import AsyncClient, Client
from hrag.types import (
    MAX_HISTORY_BYTES,
    MAX_HISTORY_TURNS,
    ConversationTurn,
    Document,
    SearchQuery,
    SearchResult,
    StandaloneMethod,
    StandaloneQuestion,
    TurnRole,
)
from tests.support.servers.gateways import ANSWER, gateway_to
from tests.support.servers.openai_server import OpenAIServer, events, refuse, says
from tests.support.servers.processes import Running

# The questions of a conversation, and the form in which the scripted model writes each again.
QUESTIONS = {
    "Who was Ada Lovelace?": "",
    "And when was she born?": "When was Ada Lovelace born?",
    "Where?": "Where was Ada Lovelace born?",
    "Which machine did she write a program for?": "Which machine did Ada Lovelace program?",
    "Who built it?": "Who built the machine that Ada Lovelace wrote a program for?",
}
TEXT = "Ada Lovelace was born in London in 1815. She wrote a program for Babbage's machine."
LAST = "The last question:\n\n> "


def scripted(prompt: str) -> str:
    """Returns the standalone form of the last question, or an answer that names the question."""
    if LAST in prompt:
        return QUESTIONS[prompt.partition(LAST)[2].partition("\n")[0]]
    return f"The answer to {prompt.strip().rpartition('Question: ')[2]} [1]"


@pytest.fixture
def conversing(chat_endpoint: OpenAIServer) -> Iterator[OpenAIServer]:
    script = chat_endpoint.script
    chat_endpoint.script = scripted
    yield chat_endpoint
    chat_endpoint.script = script


@pytest.fixture
def ada(answering: Running, tenant: str) -> str:
    """A tenant of `answering` with one document."""
    answering.client.ingest(tenant, Document(TEXT, "ada"))
    return tenant


def _turns(*texts: str) -> list[ConversationTurn]:
    roles = (TurnRole.USER, TurnRole.ASSISTANT)
    return [ConversationTurn(roles[index % 2], text) for index, text in enumerate(texts)]


def searched(client: Client, tenant: str, text: str, *said: str) -> StandaloneQuestion | None:
    result, *_ = client.answer(SearchQuery(tenant, text), history=_turns(*said))
    assert isinstance(result, SearchResult)
    assert result.passages
    return result.standalone_question


def test_five_questions_of_a_conversation_are_searched_for_and_answered(
    answering: Running, conversing: OpenAIServer, ada: str
) -> None:
    said: list[str] = []
    for question, written in QUESTIONS.items():
        events = answering.client.answer(SearchQuery(ada, question), history=_turns(*said))
        result, *texts, _ = events
        assert isinstance(result, SearchResult)
        standalone = StandaloneQuestion(written, StandaloneMethod.MODEL) if said else None
        assert result.standalone_question == standalone
        prompt = conversing.requests[-1]["messages"][0]["content"]
        assert prompt.rstrip().endswith(f"Question: {question}")
        for text in said:
            assert f"\n> {text.replace('[1]', '［1］')}\n" in prompt
        said += [question, "".join(map(str, texts))]
    assert said[-1] == "The answer to Who built it? [1]"


def test_if_the_model_fails_words_of_the_last_turns_are_searched_for(
    answering: Running, impatient: Client, conversing: OpenAIServer, ada: str
) -> None:
    said = ("Who was Ada Lovelace?", "A mathematician.")
    words = "And when was she born? Ada Lovelace"
    faults = (
        (answering.client, refuse(401), "check HRAG_CHAT_API_KEY"),
        (impatient, events(300.0), "within 0.5 s"),
        (answering.client, says("I cannot help with this."), "wrote no question"),
    )
    for client, fault, reason in faults:
        conversing.inject(fault)
        standalone = searched(client, ada, "And when was she born?", *said)
        assert standalone is not None
        assert (standalone.text, standalone.method) == (words, StandaloneMethod.LAST_TURNS)
        assert reason in standalone.failure


def test_a_history_beyond_its_limits_is_refused(answering: Running, ada: str) -> None:
    limits = answering.client.server_info().limits
    assert (limits.history_turns, limits.history_bytes) == (MAX_HISTORY_TURNS, MAX_HISTORY_BYTES)
    for said, words in (
        (["x"] * (MAX_HISTORY_TURNS + 1), "history has 33 entries; at most 32"),
        (["x" * MAX_HISTORY_BYTES, "y"], "history have 16385 bytes; at most 16384"),
        (["x", " "], r"history\.1\.text is blank"),
    ):
        with pytest.raises(errors.InvalidArgument, match=words):
            searched(answering.client, ada, "why?", *said)


def test_a_history_is_sent_over_http(
    answering: Running, conversing: OpenAIServer, ada: str
) -> None:
    request: dict[str, Any] = {
        "search": {"tenantId": ada, "text": "Where?"},
        "history": [{"role": "TURN_ROLE_USER", "text": "Who was Ada Lovelace?"}],
    }
    with gateway_to(answering.indexer.address, answering.retriever.address) as gateway:
        reply = gateway.post(ANSWER, request)
        event = reply.body.decode().partition("\n\n")[0]
        passages = json.loads(event.removeprefix("event: passages\ndata: "))
        request["history"] = [{"text": "Who?"}]
        refused = gateway.post(ANSWER, request)
    assert passages["standaloneQuestion"] == {
        "text": "Where was Ada Lovelace born?",
        "method": "STANDALONE_METHOD_MODEL",
    }
    assert refused.field == "history.0.role"


async def test_the_asyncio_client_sends_a_history(
    answering: Running, conversing: OpenAIServer, ada: str
) -> None:
    async with AsyncClient(answering.indexer.address, answering.retriever.address) as client:
        history = _turns("Who was Ada Lovelace?", "A mathematician.")
        events = client.answer(SearchQuery(ada, "Where?"), history=history)
        result, *_ = [event async for event in events]
        assert isinstance(result, SearchResult)
        assert result.standalone_question is not None
        assert result.standalone_question.text == "Where was Ada Lovelace born?"
