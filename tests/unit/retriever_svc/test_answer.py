"""The time and the space of an answer: what a hanging embedder and long headings cost."""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from hrag.errors import DeadlineExceeded, TooBusy
from hrag.models.chat import ChatEnd, Pieces
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.text import tokens
from hrag.types import (
    Chunk,
    Passage,
    Retrieval,
    SearchMode,
    SearchQuery,
    SearchResult,
    Span,
    Timings,
)
from hrag.values.answers import AnswerEnd, AnswerQuery, FinishReason
from hrag.values.deadline import NEVER, Deadline
from retriever_svc.answer import AnswerPipeline, AnswerSetup
from retriever_svc.prompt import Prompt

PASSAGE_TOKENS = 400


class Chat:
    """Cites the first passage and the fortieth; remembers the prompt."""

    name = "fake"
    prompt = ""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        self.prompt = prompt
        yield "Dogs bark [1][40]."
        yield ChatEnd(FinishReason.STOP, 12, 3)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Any:
        raise AssertionError("answers are streamed")


class HangingEmbedder(HashEmbedder):
    """Remembers how many seconds it had, and uses all of them if these are few."""

    seconds = 0.0

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.seconds = deadline.remaining_s
        if self.seconds < 1:
            time.sleep(max(self.seconds, 0))
        raise DeadlineExceeded("the deadline passed while embedding")


def _passage(title: str = "") -> Passage:
    span = Span(0, 10, 0, 10)
    chunk = Chunk("d#2.0", "d", 2, 0, "Dogs bark.", 3, span, (), 0, 0, title, "", {})
    return Passage(chunk, 0.5, ())


class Found:
    """Finds the passages; remembers how long it might wait for the vector of its query."""

    def __init__(self, *passages: Passage) -> None:
        self.embedding_s = 0.0
        self._result = SearchResult(
            passages, SearchMode.CONTEXT, 0, 0, 1, True, 7, Timings(0, 0, 0, 0, 0), None, 1
        )

    def __call__(self, query: SearchQuery, deadline: Deadline, embedding_s: float) -> SearchResult:
        self.embedding_s = embedding_s
        return replace(self._result, retrieval=Retrieval.HYBRID)


def _answer(
    search: Any, embedder: HashEmbedder, chat: Chat, max_concurrent: int = 1
) -> AnswerPipeline:
    setup = AnswerSetup(
        chat,
        Prompt("$passages\n--\n$question"),
        max_concurrent=max_concurrent,
        max_tokens=100,
        passage_tokens=PASSAGE_TOKENS,
    )
    return AnswerPipeline(search, CachedQueries(embedder, 10), setup)


QUERY = AnswerQuery(SearchQuery("t", "what do dogs do?"))


def test_an_embedder_that_hangs_costs_the_scores_of_citations_alone() -> None:
    deadline = Deadline.after(0.4)
    *_, end = _answer(Found(_passage()), HangingEmbedder(4), Chat())(QUERY, deadline)
    assert deadline.remaining_s > 0
    assert isinstance(end, AnswerEnd)
    assert (end.finish_reason, end.prompt_tokens) == (FinishReason.STOP, 12)
    assert [(each.marker, each.score) for each in end.citations] == [(1, None)]


def test_an_embedder_that_hangs_takes_seconds_of_an_answers_minutes() -> None:
    search, embedder = Found(_passage()), HangingEmbedder(4)
    list(_answer(search, embedder, Chat())(QUERY, Deadline.after(120)))
    assert search.embedding_s == 5
    assert 1 < embedder.seconds <= 5


def test_the_client_gets_the_passages_that_the_prompt_has_space_for() -> None:
    chat, search = Chat(), Found(*[_passage("word " * 40)] * 40)
    found, text, _ = _answer(search, HashEmbedder(4), chat)(QUERY, NEVER)
    assert isinstance(found, SearchResult)
    told = chat.prompt.partition("\n--\n")[0]
    assert told.count("> Dogs bark.") == len(found.passages)
    assert PASSAGE_TOKENS / 2 < len(tokens.encode(told)) <= 1.25 * PASSAGE_TOKENS
    assert text == "Dogs bark [1]."


def test_a_tenant_has_half_of_the_slots_once_another_has_asked() -> None:
    answer = _answer(Found(), HashEmbedder(4), Chat(), max_concurrent=2)
    list(answer(AnswerQuery(SearchQuery("u", "what do cats do?")), NEVER))
    with closing(answer(QUERY, NEVER)) as under_way:
        next(under_way)
        with pytest.raises(TooBusy, match="tenant 't'"):
            next(answer(QUERY, NEVER))
