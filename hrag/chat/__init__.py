"""Chat models: a prompt to text, in pieces as it is produced or whole.

A model raises ChatUnavailable when trying again may help (down, slow, limiting, cut off),
ChatRejected when it will not, and DeadlineExceeded when the caller's deadline passed.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from hrag.answers.values import FinishReason
from hrag.deadline import Deadline


@dataclass(frozen=True, slots=True)
class ChatEnd:
    """How a text ended, and its tokens; 0 where the endpoint does not count them."""

    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole text, and how it ended."""

    text: str
    end: ChatEnd


Pieces = Generator[str | ChatEnd, None, None]


class ChatModel(Protocol):
    """Answers prompts. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """Provider and model, for example `openai/gpt-5-mini`."""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """Pieces of the text as they come, none empty, then its end, exactly once.

        Closing the generator gives up the rest. An error ends it in place of the end.
        """

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """The whole text, or an error and nothing of it."""
