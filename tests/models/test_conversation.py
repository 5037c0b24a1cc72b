"""A conversation of five questions with a real small model, over real services."""

from pathlib import Path

import pytest

from hrag.types import (
    AnswerEnd,
    ConversationTurn,
    Document,
    FinishReason,
    SearchQuery,
    SearchResult,
    StandaloneMethod,
    TurnRole,
)
from tests.models.conftest import Llama
from tests.support.servers.processes import FAST, running

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

DOCUMENTS = (
    "Ada Lovelace was born in London in 1815. She was a mathematician.",
    "Ada Lovelace wrote a program for the machine of Charles Babbage.",
    "Ada Lovelace died in 1852. She was buried in Hucknall.",
)
QUESTIONS = (
    "Who was Ada Lovelace?",
    "When was she born?",
    "And where?",
    "Which program did she write?",
    "When did she die?",
)


def test_each_question_is_searched_for_with_its_subject(llama: Llama, tmp_path: Path) -> None:
    """The small model often writes something else, and then the words of the last turns follow."""
    settings = {
        **FAST,
        "HRAG_CHAT_MODEL": "smollm2",
        "HRAG_CHAT_BASE_URL": llama.base_url,
        "HRAG_ANSWER_MAX_TOKENS": "24",
        "HRAG_STANDALONE_TIMEOUT_S": "30",
    }
    turns: list[ConversationTurn] = []
    with running(tmp_path / "store", settings) as services:
        for number, text in enumerate(DOCUMENTS):
            services.client.ingest("t", Document(text, f"ada-{number}"))
        for question in QUESTIONS:
            events = services.client.answer(SearchQuery("t", question), history=turns)
            result, *texts, end = events
            assert isinstance(result, SearchResult)
            assert isinstance(end, AnswerEnd)
            assert end.finish_reason in (FinishReason.STOP, FinishReason.LENGTH), end.error
            standalone = result.standalone_question
            assert (standalone is None) == (not turns)
            if standalone is not None and standalone.method is StandaloneMethod.LAST_TURNS:
                assert standalone.text == f"{question} Ada Lovelace"
                assert "wrote no question" in standalone.failure
            elif standalone is not None:
                assert not standalone.failure
            answer = "".join(map(str, texts))
            turns += [
                ConversationTurn(TurnRole.USER, question),
                ConversationTurn(TurnRole.ASSISTANT, answer or "none"),
            ]
