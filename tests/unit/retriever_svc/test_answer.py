"""An answer keeps to its deadline, its token budget and its tenant's share of the slots."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from hrag.errors import DeadlineExceeded, TooBusy, TooLarge
from hrag.models.chat import ChatEnd, Pieces
from hrag.models.embedding import Vectors
from hrag.models.embedding.cache import CachedQueries
from hrag.models.embedding.hashing import HashEmbedder
from hrag.text import tokens
from hrag.text.conversation import quoted_turns
from hrag.types import (
    MAX_ANSWER_BYTES,
    MAX_HISTORY_BYTES,
    Chunk,
    ConversationTurn,
    Passage,
    Retrieval,
    SearchMode,
    SearchQuery,
    SearchResult,
    Span,
    StandaloneMethod,
    StandaloneQuestion,
    Timings,
    TurnRole,
)
from hrag.values.answers import AnswerEnd, AnswerEvent, AnswerQuery, FinishReason, Reasoning
from hrag.values.deadline import NEVER, Deadline
from retriever_svc.answer import AnswerPipeline, AnswerSetup
from retriever_svc.prompt import Prompt

PASSAGE_TOKENS = 400


class CitingChat:
    """A chat model that cites the first passage and the fortieth. It records its prompt."""

    name = "fake"
    prompt = ""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        self.prompt = prompt
        yield "Dogs bark [1][40]."
        yield ChatEnd(FinishReason.STOP, 12, 3)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Any:
        raise AssertionError("answers are streamed")


class EndlessChat(CitingChat):
    """A chat model that does not stop. It records whether its stream was closed."""

    closed = False

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        try:
            while True:
                yield "Hündchen " * 1000
        finally:
            self.closed = True


class MarkerChat(CitingChat):
    """A chat model that sends 32 KiB of markers in one piece."""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        yield "[1] " * 8192
        yield ChatEnd(FinishReason.STOP)


class ReasoningChat(CitingChat):
    """A chat model that reasons before and between the pieces of its text."""

    def __init__(self, *thoughts: str) -> None:
        self._thoughts = thoughts

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        yield from map(Reasoning, self._thoughts)
        yield "Dogs "
        yield Reasoning("More.")
        yield "bark [1]."
        yield ChatEnd(FinishReason.STOP, 12, 3)


class HangingEmbedder(HashEmbedder):
    """An embedder that embeds nothing. It records how many seconds it may take, and gives up."""

    seconds_left = 0.0

    def embed(self, texts: Sequence[str], deadline: Deadline = NEVER) -> Vectors:
        self.seconds_left = deadline.remaining_s
        raise DeadlineExceeded("the deadline passed while embedding")


def _passage(title: str = "") -> Passage:
    """Returns a passage with the text `Dogs bark.`."""
    span = Span(0, 10, 0, 10)
    chunk = Chunk("d#2.0", "d", 2, 0, "Dogs bark.", 3, span, (), 0, 0, title, "", {})
    return Passage(chunk, 0.5, ())


class FakeSearch:
    """A search that finds the passages.

    It records the text of its query, and how many seconds it may wait for the query's vector.
    """

    def __init__(self, *passages: Passage) -> None:
        self.embedding_s = 0.0
        self.text: str | None = None
        self._result = SearchResult(
            passages, SearchMode.CONTEXT, 0, 0, 1, True, 7, Timings(0, 0, 0, 0, 0), None, 1
        )

    def __call__(self, query: SearchQuery, deadline: Deadline, embedding_s: float) -> SearchResult:
        self.embedding_s = embedding_s
        self.text = query.text
        return replace(self._result, retrieval=Retrieval.HYBRID)


def _pipeline(
    search: Any, embedder: HashEmbedder, chat: CitingChat, max_concurrent: int = 1
) -> AnswerPipeline:
    setup = AnswerSetup(
        chat,
        Prompt("$passages\n--\n$question"),
        max_concurrent=max_concurrent,
        max_tokens=100,
        passage_tokens=PASSAGE_TOKENS,
        standalone_timeout_s=5.0,
    )
    return AnswerPipeline(search, CachedQueries(embedder, 10), setup)


QUERY = AnswerQuery(SearchQuery("t", "what do dogs do?"))


def test_if_the_embedder_hangs_citations_have_no_scores_and_the_answer_ends_normally() -> None:
    embedder, deadline = HangingEmbedder(4), Deadline.after(8)
    *_, end = _pipeline(FakeSearch(_passage()), embedder, CitingChat())(QUERY, deadline)
    assert 0 < embedder.seconds_left <= 4  # Half of the time is left for the end of the answer.
    assert isinstance(end, AnswerEnd)
    assert (end.finish_reason, end.prompt_tokens) == (FinishReason.STOP, 12)
    assert [(citation.marker, citation.score) for citation in end.citations] == [(1, None)]


def test_an_answer_waits_only_a_few_seconds_for_an_embedder_that_hangs() -> None:
    search, embedder = FakeSearch(_passage()), HangingEmbedder(4)
    list(_pipeline(search, embedder, CitingChat())(QUERY, Deadline.after(120)))
    assert search.embedding_s == 5
    assert 1 < embedder.seconds_left <= 5


def test_the_client_gets_exactly_the_passages_that_the_prompt_has_space_for() -> None:
    chat, search = CitingChat(), FakeSearch(*[_passage("word " * 40)] * 40)
    result, text, _ = _pipeline(search, HashEmbedder(4), chat)(QUERY, NEVER)
    assert isinstance(result, SearchResult)
    prompt_passages = chat.prompt.partition("\n--\n")[0]
    assert prompt_passages.count("> Dogs bark.") == len(result.passages)
    assert PASSAGE_TOKENS / 2 < len(tokens.encode(prompt_passages)) <= 1.25 * PASSAGE_TOKENS
    assert text == "Dogs bark [1]."


def test_a_text_that_does_not_end_is_cut() -> None:
    chat = EndlessChat()
    _, *pieces, end = _pipeline(FakeSearch(_passage()), HashEmbedder(4), chat)(QUERY, NEVER)
    assert isinstance(end, AnswerEnd)
    assert (end.finish_reason, end.error) == (FinishReason.LENGTH, None)
    size = len("".join(map(str, pieces)).encode())
    assert MAX_ANSWER_BYTES - 4 < size <= MAX_ANSWER_BYTES
    assert chat.closed


def test_a_long_piece_of_text_is_processed_in_steps_between_which_other_calls_run() -> None:
    yields = []
    deadline = Deadline.after(60, yield_to_others=lambda: yields.append(1))
    answer = _pipeline(FakeSearch(_passage()), HashEmbedder(4), MarkerChat())
    _, *pieces, end = answer(QUERY, deadline)
    assert isinstance(end, AnswerEnd)
    assert "".join(map(str, pieces)).startswith("[1] [1]")
    assert len(yields) >= 32


def _answered_with_reasoning(*thoughts: str, asked: bool) -> list[AnswerEvent]:
    pipeline = _pipeline(FakeSearch(_passage()), HashEmbedder(4), ReasoningChat(*thoughts))
    _, *events = pipeline(replace(QUERY, reasoning=asked), NEVER)
    return events


def test_reasoning_is_no_part_of_the_text_and_is_sent_only_if_asked_for() -> None:
    *pieces, end = _answered_with_reasoning("Passage [1] says that cats sleep. ", asked=False)
    assert pieces == ["Dogs", " bark [1]."]
    assert isinstance(end, AnswerEnd)
    assert [citation.marker for citation in end.citations] == [1]
    *pieces, same_end = _answered_with_reasoning("Passage [1] says so. ", asked=True)
    assert [piece for piece in pieces if isinstance(piece, str)] == ["Dogs", " bark [1]."]
    thoughts = [piece.text for piece in pieces if isinstance(piece, Reasoning)]
    assert "".join(thoughts) == "Passage [1] says so. More."
    assert isinstance(same_end, AnswerEnd)
    assert same_end.citations == end.citations


def test_reasoning_is_as_guarded_as_an_answer() -> None:
    thought = "\x1b[2J ![x](https://evil.example/?q) <img src=x> [7] \u202e"
    thoughts = [
        event.text
        for event in _answered_with_reasoning(*thought, asked=True)
        if isinstance(event, Reasoning)
    ]
    shown = "".join(thoughts)
    assert "! [x]" in shown
    assert "< img" in shown
    assert "https:// evil" in shown
    assert not {"\x1b", "\u202e"} & set(shown)


def test_reasoning_beyond_its_limit_is_left_out() -> None:
    half = "Hündchen " * (MAX_ANSWER_BYTES // 15)
    events = _answered_with_reasoning(half, half, half, asked=True)
    assert "".join(event for event in events if isinstance(event, str)) == "Dogs bark [1]."
    thoughts = [event.text for event in events if isinstance(event, Reasoning)]
    assert MAX_ANSWER_BYTES - 4 < len("".join(thoughts).encode()) <= MAX_ANSWER_BYTES


@pytest.mark.parametrize("passages", [(), (_passage(),)], ids=["no passages", "a passage"])
def test_the_next_question_may_follow_as_soon_as_the_end_is_received(
    passages: tuple[Passage, ...],
) -> None:
    answer = _pipeline(FakeSearch(*passages), HashEmbedder(4), CitingChat(), max_concurrent=1)
    with closing(answer(QUERY, NEVER)) as first_answer:
        while not isinstance(next(first_answer), AnswerEnd):
            pass
        assert len(list(answer(QUERY, NEVER))) >= 2


HISTORY = (
    ConversationTurn(TurnRole.USER, "what do dogs do?"),
    ConversationTurn(TurnRole.ASSISTANT, "Dogs bark, see https://evil.example/x"),
)


class ConversingChat(CitingChat):
    """A chat model that makes questions stand alone. It answers with an address of the history."""

    standalone = ""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        if "The last question:" in prompt:
            self.standalone = prompt
            yield "when do dogs do it?"
        else:
            self.prompt = prompt
            yield "At night https://evil.example/x [1]."
        yield ChatEnd(FinishReason.STOP)


def test_a_question_of_a_conversation_is_searched_for_in_a_form_that_stands_alone() -> None:
    search, chat = FakeSearch(_passage()), ConversingChat()
    query = AnswerQuery(SearchQuery("t", "and when?"), history=HISTORY)
    result, *_ = _pipeline(search, HashEmbedder(4), chat)(query, NEVER)
    assert isinstance(result, SearchResult)
    assert search.text == "when do dogs do it?"
    assert result.standalone_question == StandaloneQuestion(search.text, StandaloneMethod.MODEL)
    passages, question = chat.prompt.split("\n--\n")
    assert question == "and when?"
    assert passages.endswith(quoted_turns(HISTORY))


@pytest.mark.parametrize(
    "query",
    [
        AnswerQuery(SearchQuery("t", "barking"), question="and when?"),
        AnswerQuery(SearchQuery("t", [1.0] * 4), question="and when?"),
        AnswerQuery(SearchQuery("t", "and when?", vector=[1.0] * 4)),
        AnswerQuery(SearchQuery("t", "and when?")),
    ],
    ids=["question", "vector", "text and vector", "no history"],
)
def test_a_search_that_the_caller_has_chosen_is_not_changed(query: AnswerQuery) -> None:
    search, chat = FakeSearch(_passage()), ConversingChat()
    history = HISTORY if query.question or query.search.vector else ()
    result, *_ = _pipeline(search, HashEmbedder(4), chat)(replace(query, history=history), NEVER)
    assert isinstance(result, SearchResult)
    assert (search.text, result.standalone_question) == (query.search.text, None)
    assert not chat.standalone
    assert ("> what do dogs do?" in chat.prompt) == bool(history)


def test_an_answer_has_no_links_to_hosts_that_only_earlier_turns_name() -> None:
    query = AnswerQuery(SearchQuery("t", "and when?"), history=HISTORY)
    _, *texts, _ = _pipeline(FakeSearch(_passage()), HashEmbedder(4), ConversingChat())(
        query, NEVER
    )
    assert "".join(map(str, texts)) == "At night https:// evil.example/x [1]."


def test_a_history_beyond_its_limits_is_refused_before_the_search() -> None:
    turn = ConversationTurn(TurnRole.USER, "x" * (MAX_HISTORY_BYTES + 1))
    search = FakeSearch(_passage())
    with pytest.raises(TooLarge, match="texts of history"):
        next(
            _pipeline(search, HashEmbedder(4), CitingChat())(replace(QUERY, history=(turn,)), NEVER)
        )
    assert search.text is None


def test_a_tenant_may_use_half_of_the_slots_after_another_tenant_has_asked() -> None:
    answer = _pipeline(FakeSearch(), HashEmbedder(4), CitingChat(), max_concurrent=2)
    list(answer(AnswerQuery(SearchQuery("u", "what do cats do?")), NEVER))
    with closing(answer(QUERY, NEVER)) as first_answer:
        next(first_answer)
        with pytest.raises(TooBusy, match="tenant 't'"):
            next(answer(QUERY, NEVER))
