"""A retriever streams answers of a chat endpoint, whose replies the tests determine."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest

from hrag import errors
from hrag.client import AsyncClient, Client
from hrag.filters import Match
from hrag.text.plain_text import quoted_lines
from hrag.types import Document, SearchMode, SearchQuery, SearchResult
from hrag.values.answers import AnswerEnd, AnswerEvent, FinishReason, Reasoning
from tests.e2e.conftest import AT_A_TIME, CHAT_KEY, DOGS
from tests.support.servers.openai_server import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    SAID,
    Fault,
    OpenAIServer,
    before_event,
    events,
    page,
    piece,
    refuse,
    says,
    slow,
)
from tests.support.servers.processes import Running
from tests.support.servers.stores import COSINE_TOLERANCE
from tests.support.until import GROWING_S, PATIENCE_S, until

# This Retry-After, in seconds, keeps the tests fast.
AT_ONCE = "0.001"
# The text of this answer grows until the client leaves.
ENDLESS = events(*(piece("dogs "), 0.1) * 1000)


@dataclass(frozen=True)
class CollectedAnswer:
    """A whole answer. Its events arrived in the right order."""

    passages: SearchResult
    text: str
    end: AnswerEnd

    @property
    def cited(self) -> list[tuple[int, str]]:
        return [
            (citation.marker, self.text[citation.statement_start : citation.statement_end])
            for citation in self.end.citations
        ]


def collected(answer: Iterator[AnswerEvent]) -> CollectedAnswer:
    """Reads an answer to its end. Fails unless its events arrive in the right order."""
    passages, *texts, end = answer
    assert isinstance(passages, SearchResult)
    assert isinstance(end, AnswerEnd)
    assert all(isinstance(text, str) and text for text in texts)
    assert end.total_us >= end.first_text_us
    assert bool(texts) == (end.first_text_us > 0)
    return CollectedAnswer(passages, "".join(map(str, texts)), end)


def ask(
    services: Running, tenant: str, text: str = "what do dogs do?", **more: Any
) -> CollectedAnswer:
    return collected(services.client.answer(SearchQuery(tenant, text), **more))


# These tests check the events of an answer.


def test_passages_come_first_then_text_then_citations(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    answer = ask(answering, stored)
    assert {passage.chunk.document_id for passage in answer.passages.passages} == {"dogs", "cats"}
    assert answer.text == "".join(SAID)
    assert answer.end.finish_reason is FinishReason.STOP
    assert answer.end.error is None
    assert answer.end.model == "openai/test-model"
    assert (answer.end.prompt_tokens, answer.end.completion_tokens) == (
        PROMPT_TOKENS,
        COMPLETION_TOKENS,
    )
    assert answer.cited == [(1, "Dogs bark")]
    (citation,) = answer.end.citations
    first = answer.passages.passages[0].chunk
    assert (citation.document_id, citation.chunk_id) == (first.document_id, first.chunk_id)
    assert -1 <= (citation.score or -2) <= 1
    assert chat_endpoint.authorizations[-1] == f"Bearer {CHAT_KEY}"


def test_the_prompt_has_the_numbered_passages_and_the_question(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    answer = ask(answering, stored, "what do dogs do, $question?", max_tokens=17)
    request = chat_endpoint.requests[-1]
    assert request["max_completion_tokens"] == 17
    (message,) = request["messages"]
    prompt = message["content"]
    assert prompt.rstrip().endswith("Question: what do dogs do, $question?")
    for number, passage in enumerate(answer.passages.passages, 1):
        chunk = passage.chunk
        heading = f"[{number}] {chunk.title}" + (", pages 1-2" if chunk.first_page else "")
        assert f"{heading}\n{quoted_lines(chunk.content.strip())}" in prompt


@pytest.mark.parametrize("asked", [False, True])
def test_reasoning_is_sent_apart_only_if_asked_for(
    asked: bool, answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    chat_endpoint.inject(says("<thi", "nk>Cats [1]</think>\n\n", *SAID))
    query = SearchQuery(stored, "what do dogs do?")
    events = list(answering.client.answer(query, reasoning=asked))
    answer = collected(iter(event for event in events if not isinstance(event, Reasoning)))
    assert (answer.text, answer.cited) == ("".join(SAID), [(1, "Dogs bark")])
    thoughts = [event.text for event in events if isinstance(event, Reasoning)]
    assert "".join(thoughts) == ("Cats [1]" if asked else "")


def test_passages_and_text_arrive_while_the_model_still_writes(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    begins, ends = Event(), Event()
    chat_endpoint.inject(events(begins, piece("Dogs "), ends, piece("bark [1].", "stop")))
    question = SearchQuery(stored, "what do dogs do?")
    with closing(answering.client.answer(question)) as answer:
        assert isinstance(next(answer), SearchResult)
        begins.set()
        assert next(answer) == "Dogs"
        ends.set()
        text, end = answer
    assert text == " bark [1]."
    assert isinstance(end, AnswerEnd)


def test_unknown_markers_are_dropped(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    chat_endpoint.inject(
        says("Dogs bark [", "7]. They dig [2", ", 9][3] and `a[9]` stays [1-", "100].")
    )
    answer = ask(answering, stored)
    assert answer.text == "Dogs bark. They dig [2] and `a[9]` stays [1, 2]."
    assert answer.cited == [(2, "They dig"), (1, "and `a[9]` stays"), (2, "and `a[9]` stays")]


def test_the_sentence_that_supports_a_statement_is_found(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    """The answer repeats a sentence exactly, because pseudo-embeddings match only equal texts."""
    search = SearchQuery(stored, DOGS, limit=1)
    chat_endpoint.inject(says("They dig holes in gardens. [1] Otherwise [1]."))
    answer = collected(answering.client.answer(search))
    sure, unsure = answer.end.citations
    assert sure.score == pytest.approx(1, abs=COSINE_TOLERANCE)
    text = answering.client.get_text(stored, sure.document_id)
    assert text[sure.span.char_start : sure.span.char_end] == "They dig holes in gardens."
    assert unsure.score is not None
    assert unsure.score < 0.9


@pytest.mark.parametrize("mode", [SearchMode.SMALL_TO_BIG, SearchMode.SENTENCE_WINDOW])
def test_a_citation_is_on_the_page_of_its_sentence(
    answering: Running, chat_endpoint: OpenAIServer, stored: str, mode: SearchMode
) -> None:
    chat_endpoint.inject(says("Fish swim. [1] 猫睡觉。[1]"))
    search = SearchQuery(stored, "pets", mode=mode, filter=Match("document_id", ("cats",)))
    answer = collected(answering.client.answer(search))
    (passage,) = answer.passages.passages
    assert (passage.chunk.first_page, passage.chunk.last_page) == (1, 2)
    pages = [(citation.first_page, citation.last_page) for citation in answer.end.citations]
    assert pages == [(1, 1), (2, 2)]


def test_chinese_answers_have_markers_and_citations(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    chat_endpoint.inject(says("它们喜", "欢鱼。【", "2】", "【9】"))
    search = SearchQuery(stored, "猫喜欢什么？", limit=2)
    answer = collected(answering.client.answer(search))
    assert answer.text == "它们喜欢鱼。【2】"
    assert answer.cited == [(2, "它们喜欢鱼。")]
    (citation,) = answer.end.citations
    text = answering.client.get_text(stored, citation.document_id)
    quoted = text[citation.span.char_start : citation.span.char_end]
    assert text.encode()[citation.span.byte_start : citation.span.byte_end].decode() == quoted
    if citation.document_id == "cats":
        assert quoted == "它们喜欢鱼。"


def test_an_answer_to_a_search_by_vector_uses_the_separate_question(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    search = SearchQuery(stored, [1.0] * 64)
    assert collected(answering.client.answer(search, question="why?")).text == "".join(SAID)
    assert chat_endpoint.requests[-1]["messages"][0]["content"].rstrip().endswith("Question: why?")


def test_without_passages_no_model_is_asked(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    calls = chat_endpoint.calls
    answer = collected(answering.client.answer(SearchQuery(stored, "dogs?", min_score=2)))
    assert (answer.passages.passages, answer.text) == ((), "")
    assert answer.end.finish_reason is FinishReason.NO_PASSAGES
    assert chat_endpoint.calls == calls


def test_passages_are_bounded_unless_the_search_bounds_them(
    answering: Running, chat_endpoint: OpenAIServer, tenant: str
) -> None:
    text = "".join(f"Sentence {number} tells a story. " for number in range(4000))
    answering.client.ingest(tenant, Document(text))
    search = SearchQuery(tenant, "a story", limit=40)
    passages = collected(answering.client.answer(search)).passages.passages
    assert 8000 < sum(passage.chunk.token_count for passage in passages) <= 8192
    bounded = SearchQuery(tenant, "a story", limit=40, token_budget=1500)
    passages = collected(answering.client.answer(bounded)).passages.passages
    assert 0 < sum(passage.chunk.token_count for passage in passages) <= 1500


def test_prompts_contain_no_documents_of_another_tenant(
    answering: Running, chat_endpoint: OpenAIServer, stored: str, tenant: str
) -> None:
    with pytest.raises(errors.CollectionNotFound):
        list(answering.client.answer(SearchQuery(f"{stored}-other", "what do dogs do?")))
    other = f"{tenant}-other"
    answering.client.ingest(other, Document("Birds fly.", "birds"))
    ask(answering, other)
    prompt = chat_endpoint.requests[-1]["messages"][0]["content"]
    assert "Birds fly." in prompt
    assert "Dogs bark" not in prompt


async def test_the_asyncio_client_returns_the_same_answer(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    addresses = (answering.indexer.address, answering.retriever.address)
    async with AsyncClient(*addresses) as client:
        answer = client.answer(SearchQuery(stored, "what do dogs do?"))
        collected_answer = collected(iter([event async for event in answer]))
        assert collected_answer.text == "".join(SAID)
        with pytest.raises(errors.InvalidArgument, match="limit is 0"):
            _ = [event async for event in client.answer(SearchQuery(stored, "dogs?", limit=0))]


# In these tests the model fails or stops early.


@pytest.mark.parametrize(
    ("fault", "error", "words", "text"),
    [
        pytest.param(
            refuse(429, retry_after=AT_ONCE), errors.ChatUnavailable, "answered 429", "", id="limit"
        ),
        pytest.param(
            refuse(503, retry_after=AT_ONCE), errors.ChatUnavailable, "answered 503", "", id="503"
        ),
        pytest.param(page(502, "undefined"), errors.ChatUnavailable, "answered 502", "", id="page"),
        pytest.param(refuse(401), errors.ChatRejected, "check HRAG_CHAT_API_KEY", "", id="key"),
        pytest.param(refuse(404), errors.ChatRejected, "check HRAG_CHAT_MODEL", "", id="model"),
        pytest.param(
            before_event(3, None),
            errors.ChatUnavailable,
            "ended the reply early",
            "".join(SAID),
            id="cut off",
        ),
        pytest.param(
            says("Dogs [", finish=None),
            errors.ChatUnavailable,
            "ended the reply early",
            "Dogs [",
            id="no end",
        ),
        pytest.param(
            before_event(1, b"data: nonsense\n\n"),
            errors.ChatRejected,
            "not a chat.completion.chunk",
            "Dogs ",
            id="nonsense",
        ),
    ],
)
def test_passages_and_text_are_returned_although_the_model_fails(
    answering: Running,
    chat_endpoint: OpenAIServer,
    stored: str,
    fault: Fault,
    error: type[errors.HragError],
    words: str,
    text: str,
) -> None:
    chat_endpoint.inject(fault, times=3 if "answered" in words else 1)
    answer = ask(answering, stored)
    assert answer.text == text
    assert_failed(answer, error, words)
    assert ask(answering, stored).end.finish_reason is FinishReason.STOP


def assert_failed(answer: CollectedAnswer, error: type[errors.HragError], words: str) -> None:
    """Fails unless the model has failed, and the answer has passages, text and the error."""
    assert len(answer.passages.passages) == 2
    assert answer.end.finish_reason is FinishReason.FAILED
    assert type(answer.end.error) is error
    with pytest.raises(error, match=words):
        raise answer.end.error
    assert CHAT_KEY not in answer.end.error.message
    assert len(answer.end.citations) == answer.text.count("[1]")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param(slow(300), "", id="slow"),
        pytest.param(before_event(2, 300.0), "Dogs bark", id="stuck"),
    ],
)
def test_passages_and_text_are_returned_although_the_model_is_too_slow(
    impatient: Client, chat_endpoint: OpenAIServer, stored: str, fault: Fault, text: str
) -> None:
    """A pause of the machine may exceed the short limit, also while the text is being sent."""
    query = SearchQuery(stored, "what do dogs do?")
    answers: list[CollectedAnswer] = []

    def is_answered() -> bool:
        chat_endpoint.forget_faults()
        chat_endpoint.inject(fault)
        answers.append(collected(impatient.answer(query)))
        return answers[-1].text == text

    until(is_answered)
    assert_failed(answers[-1], errors.ChatUnavailable, r"within 0\.5 s")
    finished = FinishReason.STOP
    until(lambda: collected(impatient.answer(query)).end.finish_reason is finished)


def test_the_finish_reason_says_if_a_text_was_cut(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    chat_endpoint.inject(says("Dogs", finish="length"))
    assert ask(answering, stored).end.finish_reason is FinishReason.LENGTH
    chat_endpoint.inject(says("Dogs", finish="content_filter"))
    assert ask(answering, stored).end.finish_reason is FinishReason.CONTENT_FILTER
    chat_endpoint.inject(says(*["dogs " * 50] * 1000))
    endless = ask(answering, stored, max_tokens=1)
    assert endless.end.finish_reason is FinishReason.LENGTH
    assert len(endless.text) < 100


def events_before_deadline(answering: Running, tenant: str) -> list[AnswerEvent]:
    """Asks for an answer that has no end; returns its events before the deadline ends the call.

    The text has begun then.
    """
    for timeout_s in GROWING_S:
        arrived: list[AnswerEvent] = []
        with pytest.raises(errors.DeadlineExceeded):
            arrived.extend(
                answering.client.answer(SearchQuery(tenant, "dogs?"), timeout_s=timeout_s)
            )
        if len(arrived) > 1:
            return arrived
    raise AssertionError("no text has arrived before the deadlines")


def test_a_deadline_ends_the_call(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    chat_endpoint.inject(ENDLESS, times=len(GROWING_S))
    passages, *texts = events_before_deadline(answering, stored)
    assert isinstance(passages, SearchResult)
    assert "".join(map(str, texts)).startswith("dogs ")


# In these tests callers leave, or several callers ask at the same time.


@pytest.mark.parametrize("way", ["close", "deadline"])
def test_a_client_that_leaves_ends_the_stream_of_the_model(
    answering: Running, chat_endpoint: OpenAIServer, stored: str, way: str
) -> None:
    streams_left = chat_endpoint.streams_left
    chat_endpoint.inject(ENDLESS, times=len(GROWING_S))
    if way == "close":
        answer = answering.client.answer(SearchQuery(stored, "dogs?"))
        next(answer)
        next(answer)
        answer.close()
    else:
        events_before_deadline(answering, stored)
    until(lambda: chat_endpoint.streams_left > streams_left)


async def test_a_cancelled_task_ends_the_stream_of_the_model(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    streams_left = chat_endpoint.streams_left
    chat_endpoint.inject(ENDLESS)
    addresses = (answering.indexer.address, answering.retriever.address)
    has_begun = asyncio.Event()

    async def listen() -> None:
        async for event in client.answer(SearchQuery(stored, "dogs?")):
            if isinstance(event, str):
                has_begun.set()

    async with AsyncClient(*addresses) as client:
        listening = asyncio.create_task(listen())
        await asyncio.wait_for(has_begun.wait(), PATIENCE_S)
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
    await asyncio.to_thread(until, lambda: chat_endpoint.streams_left > streams_left)


def ask_when_free(answering: Running, tenant: str) -> CollectedAnswer:
    """Repeats the question until the service does not refuse it as too busy.

    An abandoned answer of an earlier test may still count as running.
    """
    answers: list[CollectedAnswer] = []

    def is_answered() -> bool:
        with suppress(errors.TooBusy):
            answers.append(ask(answering, tenant))
        return bool(answers)

    until(is_answered)
    return answers[0]


def test_answers_never_take_the_last_thread_from_searches(
    answering: Running, chat_endpoint: OpenAIServer, stored: str
) -> None:
    may_end = Event()
    chat_endpoint.inject(events(piece("dogs "), may_end, piece(".", "stop")), times=AT_A_TIME)
    calls = chat_endpoint.calls
    # While several tenants ask, each may have at most half of the concurrent answers.
    other = f"{stored}-other"
    answering.client.ingest(other, Document(DOGS, "dogs"))
    with ThreadPoolExecutor(AT_A_TIME) as callers:
        writing = [callers.submit(ask_when_free, answering, tenant) for tenant in (stored, other)]
        try:
            until(lambda: chat_endpoint.calls == calls + AT_A_TIME)
            with pytest.raises(errors.TooBusy, match="HRAG_MAX_CONCURRENT_ANSWERS"):
                ask(answering, stored)
            for number in range(20):
                assert answering.client.search(stored, f"dogs {number}").passages
            assert not any(caller.done() for caller in writing)
        finally:
            may_end.set()
        ends = [caller.result().end for caller in writing]
    assert [end.finish_reason for end in ends] == [FinishReason.STOP] * AT_A_TIME
    assert ask(answering, stored).end.finish_reason is FinishReason.STOP
