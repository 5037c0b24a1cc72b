"""How does a prompt become text? Chat models, streamed or complete.

A model raises ChatUnavailable for a retryable failure (down, slow, rate-limiting, truncated
reply), ChatRejected for a permanent one, and DeadlineExceeded or Cancelled.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from hrag.values.answers import FinishReason
from hrag.values.deadline import Deadline


@dataclass(frozen=True, slots=True)
class ChatEnd:
    """How a text ended, and its token counts; 0 if the endpoint does not report them."""

    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete text, and how it ended."""

    text: str
    end: ChatEnd


Pieces = Generator[str | ChatEnd, None, None]


class ChatModel(Protocol):
    """Answers prompts. Thread-safe."""

    @property
    def name(self) -> str:
        """Provider and model, for example `openai/gpt-5-mini`."""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """Yields nonempty pieces of the text as they arrive, then exactly one ChatEnd.

        Closing the generator abandons the rest. An error is raised in place of the ChatEnd.
        """

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """Returns the complete text; raises an error if any of it is missing."""
