"""How does a prompt become text? By chat models, which return a text as a whole or in pieces.

What a model writes before it answers, its reasoning, is no part of the text. A stream returns it as
pieces of their own.

A chat model raises ChatUnavailable for a retryable failure (the endpoint is down, slow or
rate-limiting, or its reply is truncated) and ChatRejected for a permanent failure. It raises
DeadlineExceeded if the deadline passes, and Cancelled if the caller cancels the call.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from hrag.values.answers import FinishReason, Reasoning
from hrag.values.deadline import Deadline


@dataclass(frozen=True, slots=True)
class ChatEnd:
    """Why a text has ended (the finish reason), and the token counts of the prompt and the text.

    A token count is 0 if the endpoint does not report it.
    """

    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete text, and a ChatEnd with its finish reason and token counts."""

    text: str
    end: ChatEnd


Pieces = Generator[str | Reasoning | ChatEnd, None, None]
"""The pieces of a text and of the model's reasoning, in order, and then one ChatEnd."""


class ChatModel(Protocol):
    """Writes a text for a prompt. Thread-safe."""

    @property
    def name(self) -> str:
        """The provider and the model, for example `openai/gpt-5-mini`."""

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """Yields nonempty pieces of text and reasoning as they arrive, then exactly one ChatEnd.

        If the caller closes the generator, the rest of the text is not read. After a failure, an
        error is raised, and no ChatEnd is yielded.
        """

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """Returns the complete text; raises an error if a part of the text did not arrive."""
