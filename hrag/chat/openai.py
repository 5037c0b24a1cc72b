"""Text from any endpoint that speaks OpenAI's `POST /chat/completions`.

Always asked for a stream: then a wait is one for the next piece, however long the whole
takes, and a text that was cut off is known for one. Requests are tried again as long as the
endpoint has not begun to answer; a slow one is not asked twice. Nothing in a reply is
believed before it is checked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

from httpx2 import Response
from openai import Timeout
from pydantic import BaseModel, Field, ValidationError

from hrag.answers.values import FinishReason
from hrag.chat import ChatEnd, Completion, Pieces
from hrag.deadline import Deadline
from hrag.endpoint.access import Access
from hrag.endpoint.openai import Endpoint, Retries, Verdicts
from hrag.errors import ChatRejected, ChatUnavailable

MAX_RETRIES = 2
MAX_TOKEN_CHARS = 32  # Few tokens are as long, so only who ignores the bound passes it.
MAX_LINE_BYTES = 1 << 20  # Of a reply; a line holds a piece.
LONGEST_REPLY_S = 600.0  # A caller without a deadline must not keep its thread for ever.

_LONGEST_DELAY_S = 10.0  # Whom the endpoint asks to wait longer had better know at once.
_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_DATA = b"data:"
_DONE = b"[DONE]"
_VERDICTS = Verdicts(
    ChatUnavailable,
    ChatRejected,
    {
        400: "check that the model in HRAG_CHAT_MODEL takes a prompt and an answer this long",
        401: "check HRAG_CHAT_API_KEY, or OPENAI_API_KEY where that stands for it",
        403: "the key in HRAG_CHAT_API_KEY, or OPENAI_API_KEY, may not use this model",
        404: "check HRAG_CHAT_MODEL, and HRAG_CHAT_BASE_URL or OPENAI_BASE_URL",
    },
)


class _Delta(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(default=0, ge=0, lt=1 << 32)
    completion_tokens: int = Field(default=0, ge=0, lt=1 << 32)


class _Event(BaseModel):
    """As much of `chat.completion.chunk` as is of use here."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class OpenAIChat:
    """An OpenAI-compatible endpoint's chat model. Safe to call from several threads."""

    def __init__(
        self,
        *,
        model: str,
        access: Access,
        timeout_s: float = 60.0,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """Does not contact the endpoint.

        `timeout_s` bounds its silence, not its answer; there are at most
        `1 + max_retries` attempts, and at most five.
        """
        self.name = f"openai/{model}"
        self._model = model
        retries = Retries(max_retries, _LONGEST_DELAY_S, if_slow=False)
        self._endpoint = Endpoint("chat", access, _VERDICTS, retries, timeout_s)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """See `ChatModel`."""
        *pieces, end = self.stream(prompt, max_tokens, deadline)
        assert isinstance(end, ChatEnd)
        return Completion("".join(map(str, pieces)), end)

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """See `ChatModel`. A text past `max_tokens * MAX_TOKEN_CHARS` ends with LENGTH."""
        deadline.check("asking the chat model")
        reading = _Reading(self._endpoint, max_tokens * MAX_TOKEN_CHARS)
        try:
            with self._opened(prompt, max_tokens, deadline) as response:
                for data in self._data(response, deadline):
                    if data == _DONE:
                        break
                    if piece := reading.piece(data):
                        yield piece
                    if reading.is_full:
                        break
        except ChatUnavailable:
            deadline.check("waiting for the chat model")  # Then that is what went wrong.
            if not reading.is_finished:
                raise
        yield reading.end()

    @contextmanager
    def _opened(self, prompt: str, max_tokens: int, deadline: Deadline) -> Iterator[Response]:
        """A reply that has begun; closed at the end, whether or not it was read whole."""
        response = self._endpoint.send(partial(self._request, prompt, max_tokens), deadline)
        try:
            with self._endpoint.explained():
                yield response
        finally:
            response.close()

    def _request(self, prompt: str, max_tokens: int, timeout: Timeout) -> Response:
        # Raw, because the SDK's own parser bounds nothing and checks no type.
        raw = self._endpoint.client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=[{"role": "user", "content": prompt}],
            max_completion_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            timeout=timeout,
        )
        return raw.http_response

    def _data(self, response: Response, deadline: Deadline) -> Iterator[bytes]:
        """What the events of a reply hold, one line each."""
        longest = Deadline.after(LONGEST_REPLY_S)
        rest = b""
        for received in chain(response.iter_bytes(), (b"\n",)):
            deadline.check("the chat model answered")
            if longest.remaining_s <= 0:
                self._endpoint.unavailable(f"was still answering after {LONGEST_REPLY_S:g} s")
            *lines, rest = (rest + received).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                self._endpoint.rejected(f"answered a line of over {MAX_LINE_BYTES} bytes")
            yield from (line[len(_DATA) :].strip() for line in lines if line.startswith(_DATA))


class _Reading:
    """What the events of one reply have said so far."""

    def __init__(self, endpoint: Endpoint, max_chars: int) -> None:
        self._endpoint = endpoint
        self._left_chars = max_chars
        self._finish: FinishReason | None = None
        self._usage = _Usage()
        self._events = 0

    @property
    def is_full(self) -> bool:
        """Whether the text is as long as it may be."""
        return self._left_chars <= 0

    @property
    def is_finished(self) -> bool:
        """Whether the endpoint has said why its text ends where it does."""
        return self._finish is not None

    def piece(self, data: bytes) -> str:
        """What an event adds to the text; may be empty."""
        self._events += 1
        try:
            event = _Event.model_validate_json(data)
        except ValidationError:
            self._endpoint.rejected("answered an event that is no chat.completion.chunk")
        if event.error is not None:
            self._failed(event.error)
        self._usage = event.usage or self._usage
        text = "".join(map(self._said, event.choices or ()))[: self._left_chars]
        self._left_chars -= len(text)
        return text

    def end(self) -> ChatEnd:
        """How the text ended, once nothing more comes."""
        if self._finish is None and self.is_full:
            self._finish = FinishReason.LENGTH
        if self._events == 0:
            self._endpoint.rejected("answered something that is no stream of events")
        if self._finish is None:
            self._endpoint.unavailable("broke off without an end")
        return ChatEnd(self._finish, self._usage.prompt_tokens, self._usage.completion_tokens)

    def _said(self, choice: _Choice) -> str:
        if choice.finish_reason:
            if choice.finish_reason not in _FINISH:
                self._endpoint.unavailable("broke off for a reason of its own")
            self._finish = _FINISH[choice.finish_reason]
        return (choice.delta and choice.delta.content) or ""

    def _failed(self, error: Any) -> None:
        """An error that came in place of an event: with an HTTP status, as some do, or none."""
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int):
            self._endpoint.refused(status, error.get("type"))
        self._endpoint.unavailable("broke off with an error")
