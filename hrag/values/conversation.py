"""The turns of a conversation, and a question of it in a form that can be understood alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hrag.values.errors import InvalidArgument, TooLarge
from hrag.values.limits import MAX_HISTORY_BYTES, MAX_HISTORY_TURNS


class TurnRole(StrEnum):
    """Who said something in a conversation: the person who asks, or the model that answers."""

    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A statement of one side of a conversation."""

    role: TurnRole
    text: str


class StandaloneMethod(StrEnum):
    """How a question was made to stand alone.

    MODEL means that the chat model wrote it again. LAST_TURNS means that words of the last turns
    were appended to it.
    """

    MODEL = "model"
    LAST_TURNS = "last_turns"


@dataclass(frozen=True, slots=True)
class StandaloneQuestion:
    """The text that was searched for in place of a question of a conversation.

    `failure` is the reason why the text of the chat model was not used. It is empty if the text is
    the model's, or if the model was not asked.
    """

    text: str
    method: StandaloneMethod
    failure: str = ""


def check_history(history: Sequence[ConversationTurn]) -> None:
    """Raises TooLarge if the turns have too much text, and InvalidArgument if a turn is blank.

    Too many turns are refused before they are decoded.
    """
    size = sum(len(turn.text.encode()) for turn in history)
    if size > MAX_HISTORY_BYTES:
        raise TooLarge(
            f"the texts of history have {size} bytes; at most {MAX_HISTORY_BYTES} are allowed, so "
            "send the last turns",
            field="history",
        )
    for number, turn in enumerate(history):
        if not turn.text.strip():
            raise InvalidArgument(f"history.{number}.text is blank", field=f"history.{number}.text")


def latest_turns(turns: Iterable[ConversationTurn]) -> tuple[ConversationTurn, ...]:
    """Returns the last turns of a conversation, as many as a request may have.

    Blank turns are left out. The oldest turn that is returned loses the end of its text if the text
    does not fit.
    """
    latest: list[ConversationTurn] = []
    left_bytes = MAX_HISTORY_BYTES
    for turn in reversed(tuple(turns)):
        text = turn.text.encode("utf-8", "ignore")[:left_bytes].decode("utf-8", "ignore")
        if len(latest) == MAX_HISTORY_TURNS or not left_bytes:
            break
        if text.strip():
            latest.append(ConversationTurn(turn.role, text))
            left_bytes -= len(text.encode()) if text == turn.text else left_bytes
    return tuple(reversed(latest))
