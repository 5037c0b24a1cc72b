"""A chat model with metrics: count, duration and outcome of the requests, and token counts."""

from contextlib import closing

from hrag.models.chat import ChatEnd, ChatModel, Completion, Pieces
from hrag.observe import metrics
from hrag.values.deadline import Deadline


class InstrumentedChat:
    """Counts and times the requests to `chat`. Implements `hrag.models.chat.ChatModel`."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat
        self.name = chat.name

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """Returns the complete text. Implements `ChatModel.complete`."""
        with metrics.chat_request():
            completion = self._chat.complete(prompt, max_tokens, deadline)
        _count(completion.end)
        return completion

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """Yields the pieces of the text. Implements `ChatModel.stream`."""
        with (
            metrics.chat_request(),
            closing(self._chat.stream(prompt, max_tokens, deadline)) as pieces,
        ):
            for piece in pieces:
                if isinstance(piece, ChatEnd):
                    _count(piece)
                yield piece


def _count(end: ChatEnd) -> None:
    metrics.chat_tokens(end.prompt_tokens, end.completion_tokens)
