"""Chat and answers work with llama.cpp's server, which implements OpenAI's protocol."""

import subprocess
import sys
import time
from os import environ
from pathlib import Path

import pytest

from hrag.errors import ChatRejected, ChatUnavailable, EmbedderRejected
from hrag.models.chat import ChatEnd
from hrag.models.chat.openai_chat import OpenAIChat
from hrag.models.chat.reasoning_tags import TagUse
from hrag.models.embedding.openai_embedder import OpenAIEmbedder
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.types import Document, SearchQuery, SearchResult
from hrag.values.answers import AnswerEnd, FinishReason
from hrag.values.deadline import NEVER
from retriever_svc.markers import MarkerFilter
from tests.models.conftest import Llama
from tests.support.servers.processes import FAST, running

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

HRAG = [sys.executable, "-c", "from hrag.cli import main; main()"]
TEXT = "Dogs bark at night. They dig holes in gardens."


@pytest.fixture
def model(llama: Llama) -> OpenAIChat:
    access = EndpointAccess(llama.base_url, "none")
    return OpenAIChat(model="smollm2", access=access, tag_use=TagUse.UNTAGGED)


def test_a_text_is_streamed_in_pieces_up_to_its_token_limit(model: OpenAIChat) -> None:
    *pieces, end = model.stream("Count from one to one hundred.", 8, NEVER)
    assert isinstance(end, ChatEnd)
    assert end.finish_reason is FinishReason.LENGTH
    assert end.completion_tokens == 8
    assert end.prompt_tokens > 8
    assert 2 <= len(pieces) <= 8
    assert "".join(map(str, pieces)).strip()


def test_text_is_held_back_only_until_the_model_is_known(llama: Llama) -> None:
    model = OpenAIChat(model="smollm2", access=EndpointAccess(llama.base_url, "none"))
    counts = [len(list(model.stream("Say hello.", 100, NEVER))) for _ in range(2)]
    assert counts[0] == 2
    assert counts[1] > 2


def test_texts_are_embedded_and_a_text_that_is_too_long_is_named(
    embedding_llama: Llama,
) -> None:
    access = EndpointAccess(embedding_llama.base_url, "none")
    embedder = OpenAIEmbedder(model="smollm2", access=access)
    texts = ["Dogs bark.", "Cats sleep.", "Dogs bark."] * 4
    vectors = embedder.embed(texts)
    assert vectors.shape == (12, embedder.dimension)
    assert vectors[0] @ vectors[2] > 0.999 > vectors[0] @ vectors[1]
    with pytest.raises(EmbedderRejected, match=r"500: a text is too long for it.* text 2 of 3"):
        embedder.embed(["Dogs bark.", "word " * 600, "Cats sleep."])


def test_a_complete_text_has_the_finish_reason_stop(model: OpenAIChat) -> None:
    completion = model.complete("Say hello.", 100, NEVER)
    assert completion.end.finish_reason is FinishReason.STOP
    assert completion.text.strip()


def test_a_prompt_longer_than_the_context_is_refused(model: OpenAIChat) -> None:
    with pytest.raises(ChatRejected, match="answered 400: check the limits"):
        model.complete("word " * 3000, 8, NEVER)


def test_an_abandoned_text_does_not_block_the_next_one(model: OpenAIChat) -> None:
    """The server writes one text at a time, so it must stop the first when nobody reads it."""
    writing = model.stream("Count from one to one thousand.", 900, NEVER)
    assert next(writing)
    writing.close()
    began = time.monotonic()
    assert model.complete("Say hello.", 2, NEVER).text
    assert time.monotonic() - began < 20


def test_a_killed_server_ends_the_text_with_an_error(model: OpenAIChat, llama: Llama) -> None:
    writing = model.stream("Count from one to one thousand.", 900, NEVER)
    assert next(writing)
    llama.kill()
    with pytest.raises(ChatUnavailable, match="ended the reply early"):
        list(writing)
    with pytest.raises(ChatUnavailable, match="cannot be reached"):
        model.complete("Say hello.", 2, NEVER)


def test_a_real_model_answers_with_citations(llama: Llama, tmp_path: Path) -> None:
    settings = {
        **FAST,
        "HRAG_CHAT_MODEL": "smollm2",
        "HRAG_CHAT_BASE_URL": llama.base_url,
        "HRAG_ANSWER_MAX_TOKENS": "48",
    }
    with running(tmp_path / "store", settings) as services:
        services.client.ingest("t", Document(TEXT, "dogs", title="Dogs"))
        result, *texts, end = services.client.answer(SearchQuery("t", "When do dogs bark?"))
        assert isinstance(result, SearchResult)
        assert isinstance(end, AnswerEnd)
        assert end.finish_reason in (FinishReason.STOP, FinishReason.LENGTH), end.error
        text = "".join(map(str, texts))
        assert "night" in text.lower()
        again = MarkerFilter(len(result.passages))
        assert again.feed(text) + again.finish() == text
        assert {citation.marker for citation in end.citations} <= {1}
        assert end.prompt_tokens > 100
        assert 0 < end.completion_tokens <= 48
        assert 0 < end.first_text_us < end.total_us
        shown = subprocess.run(
            [*HRAG, "answer", "When do dogs bark?", "--tenant", "t"],
            env={**environ, "HRAG_RETRIEVER_ADDRESS": services.retriever.address},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert "night" in shown.lower()
        assert "[1] Dogs" in shown
