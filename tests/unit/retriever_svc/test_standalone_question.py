"""The model, or words of the last turns, make the question of a conversation stand alone."""

from typing import Any

import pytest

from hrag.errors import Cancelled, ChatUnavailable, DeadlineExceeded, InvalidArgument
from hrag.models.chat import ChatEnd, Pieces
from hrag.types import ConversationTurn, FinishReason, StandaloneMethod, TurnRole
from hrag.values.deadline import NEVER, Deadline
from retriever_svc.standalone_question import StandaloneQuestions

HISTORY = (
    ConversationTurn(TurnRole.USER, "What is leukaemia?"),
    ConversationTurn(TurnRole.ASSISTANT, "A cancer of the blood [1].\n[2] Policy"),
)
QUESTION = "And how is it treated?"
WORDS = "And how is it treated? leukaemia"
WRITTEN = "How is leukaemia treated?"


class ScriptedChat:
    """A chat model that writes the pieces. It records its prompt, and whether it was read fully."""

    name = "fake"

    def __init__(self, *pieces: str, finish: FinishReason = FinishReason.STOP) -> None:
        self.prompts: list[str] = []
        self.finished = False
        self._pieces = pieces
        self._finish = finish

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        self.prompts.append(prompt)
        yield from self._pieces
        self.finished = True
        yield ChatEnd(self._finish)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Any:
        raise AssertionError("only the first line is read")


class FailingChat(ScriptedChat):
    """A chat model that raises an error, or waits until its deadline has passed."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.seconds = 0.0
        self._error = error

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        self.seconds = deadline.remaining_s
        raise self._error or DeadlineExceeded("the deadline passed")
        yield ""


def made(chat: Any, question: str = QUESTION, timeout_s: float = 5.0) -> tuple[str, str, str]:
    standalone = StandaloneQuestions(chat, timeout_s)(question, HISTORY, NEVER)
    return standalone.text, standalone.method, standalone.failure


@pytest.mark.parametrize(
    "pieces",
    [
        (WRITTEN,),
        ("How is leu", "kaemia treated?"),
        (f"\n\n {WRITTEN}\n",),
        (f'"{WRITTEN}"',),
        (f"“{WRITTEN}”\n\nThis question asks for therapies.",),
        (f"**{WRITTEN}**",),
        (f"> {WRITTEN}",),
    ],
)
def test_the_first_line_of_the_model_is_searched_for(pieces: tuple[str, ...]) -> None:
    assert made(ScriptedChat(*pieces)) == (WRITTEN, StandaloneMethod.MODEL, "")


def test_no_more_than_the_first_line_is_read() -> None:
    chat = ScriptedChat("How is leukaemia treated?\n", *["more "] * 100)
    assert made(chat)[0] == WRITTEN
    assert not chat.finished


@pytest.mark.parametrize("piece", [" \n", "leukaemia treated "])
def test_a_text_without_a_line_is_not_read_to_its_end(piece: str) -> None:
    chat = ScriptedChat(*[piece] * 1000)
    assert made(chat)[1] == StandaloneMethod.LAST_TURNS
    assert not chat.finished


def test_the_prompt_has_the_turns_and_the_question_as_quotations() -> None:
    chat = ScriptedChat(WRITTEN)
    made(chat, "And\n[1] how?")
    (prompt,) = chat.prompts
    assert "User:\n> What is leukaemia?\n\nAssistant:\n> A cancer of the blood ［1］.\n" in prompt
    assert "> ［2］ Policy\n\nThe last question:\n\n> And\n> ［1］ how?\n\n" in prompt


def test_the_prompt_is_short_however_long_the_conversation_is() -> None:
    chat = ScriptedChat(WRITTEN)
    history = [ConversationTurn(TurnRole.USER, f"turn{number} " * 500) for number in range(30)]
    StandaloneQuestions(chat, 5.0)(QUESTION, history, NEVER)
    (prompt,) = chat.prompts
    assert len(prompt) < 4000
    assert "turn29" in prompt
    assert "turn23 " not in prompt


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (" \n ",),
        ("?!",),
        ("Sure, here is the rewritten version of your sentence:\nHow is leukaemia treated?",),
        ("Chemotherapy, radiation, transplants and targeted drugs.",),
        ("What is the capital of France?",),
        ("What is cancer of the blood?",),
        ("leukaemia treated " * 100,),
        ("What is leukaemia?",),
        (QUESTION,),
        ("How is it treated?",),
    ],
)
def test_words_of_the_last_turns_are_added_if_the_model_writes_something_else(
    pieces: tuple[str, ...],
) -> None:
    text, method, failure = made(ScriptedChat(*pieces))
    assert (text, method) == (WORDS, StandaloneMethod.LAST_TURNS)
    assert failure == "the chat model fake wrote no question about the conversation"


def test_a_cut_text_is_not_used() -> None:
    chat = ScriptedChat("How is leukaemia", finish=FinishReason.LENGTH)
    assert made(chat)[1] == StandaloneMethod.LAST_TURNS


def test_a_question_of_stop_words_may_become_any_question_about_the_conversation() -> None:
    assert made(ScriptedChat("Why does leukaemia occur?"), "And why?")[0] == (
        "Why does leukaemia occur?"
    )


def test_a_chinese_question_is_checked_by_its_characters() -> None:
    history = [ConversationTurn(TurnRole.USER, "什么是白血病？")]
    chinese = StandaloneQuestions(ScriptedChat("白血病怎么治疗？"), 5.0)
    assert chinese("怎么治疗？", history, NEVER).method is StandaloneMethod.MODEL
    nonsense = StandaloneQuestions(ScriptedChat("法国的首都是哪里？"), 5.0)
    assert nonsense("怎么治疗？", history, NEVER).text == "怎么治疗？ 什么是白血病"


def test_words_are_added_if_the_model_fails() -> None:
    chat = FailingChat(ChatUnavailable("it is down"))
    assert made(chat) == (WORDS, StandaloneMethod.LAST_TURNS, "it is down")


def test_words_are_added_if_the_model_is_too_slow() -> None:
    chat = FailingChat()
    assert made(chat, timeout_s=3.0) == (
        *(WORDS, StandaloneMethod.LAST_TURNS),
        "the chat model fake wrote no question within 3.0 s",
    )
    assert 2 < chat.seconds <= 3


def test_the_model_may_take_a_quarter_of_the_time_of_the_call() -> None:
    chat = FailingChat()
    StandaloneQuestions(chat, 60.0)(QUESTION, HISTORY, Deadline.after(40))
    assert 9 < chat.seconds <= 10


def test_the_end_of_the_call_is_not_a_failure_of_the_model() -> None:
    standalone = StandaloneQuestions(FailingChat(), 5.0)
    with pytest.raises(DeadlineExceeded):
        standalone(QUESTION, HISTORY, Deadline.after(-1))
    with pytest.raises(Cancelled):
        standalone(QUESTION, HISTORY, Deadline(is_waiting=lambda: False))


def test_the_model_is_not_asked_if_its_time_is_zero_or_the_question_is_long() -> None:
    chat = ScriptedChat(WRITTEN)
    assert made(chat, timeout_s=0) == (WORDS, StandaloneMethod.LAST_TURNS, "")
    long = "treated " * 200
    assert made(chat, long) == (f"{long} leukaemia", StandaloneMethod.LAST_TURNS, "")
    assert not chat.prompts


def test_only_the_asked_question_decides_what_is_required() -> None:
    text, *_ = made(
        ScriptedChat('How is +leukaemia "treated" by ++X?'), 'And +"how is it" +X "treated"?'
    )
    assert text == """How is leukaemia 'treated' by X? +"how is it" +"X\""""
    text, *_ = made(ScriptedChat(""), '"how treated"')
    assert text == """'how treated' leukaemia +"how treated\""""
    with pytest.raises(InvalidArgument, match="at most 16"):
        made(ScriptedChat(WRITTEN), " ".join(f"+w{number}" for number in range(17)))
