"""Requests texts from any endpoint with OpenAI's `POST /chat/completions`.

Replies are always streamed. So a timeout applies to each piece of a reply, not to the whole reply,
and a truncated reply is recognised. Only events with data count as pieces: comments, which some
endpoints send to keep a connection open, do not extend the timeout. A request may be retried until
its reply has started, but not after a timeout. Everything in a reply is validated before use.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from httpx2 import Response
from openai import Timeout
from pydantic import BaseModel, Field, ValidationError

from hrag.models.chat import ChatEnd, Completion, Pieces
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import Endpoint, ErrorMapping, RetryPolicy, read_until
from hrag.values.answers import FinishReason
from hrag.values.deadline import Deadline
from hrag.values.errors import ChatRejected, ChatUnavailable, DeadlineExceeded

MAX_RETRIES = 2
# A text may have at most `max_tokens * MAX_TOKEN_CHARS` characters. Few tokens have more than 32
# characters, so only a model that ignores `max_tokens` exceeds this limit.
MAX_TOKEN_CHARS = 32
# The maximum length of a line of a reply, in bytes. A line contains one piece of the text, so valid
# lines are much shorter.
MAX_LINE_BYTES = 1 << 20
# The time limit for a whole reply. Without this limit, a caller without a deadline could occupy its
# thread for ever.
MAX_REPLY_S = 600.0
# After the text is complete, the token counts must arrive within this time. When the time has
# passed, reading stops even if the stream has not ended, because some endpoints do not close the
# stream.
MAX_END_S = 2.0

# The longest delay before a retry. If the endpoint asks for a longer delay in `Retry-After`, the
# request is not retried and fails at once, so that the caller need not wait.
_MAX_RETRY_DELAY_S = 10.0
_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_DATA = b"data:"
_DONE = b"[DONE]"
_ERRORS = ErrorMapping(
    ChatUnavailable,
    ChatRejected,
    ChatRejected,
    {
        400: "check the limits of HRAG_CHAT_MODEL on the lengths of prompt and answer",
        401: "check HRAG_CHAT_API_KEY, or OPENAI_API_KEY if that is used",
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
    """The used fields of `chat.completion.chunk`, OpenAI's event with a piece of the text."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class OpenAIChat:
    """The chat model of an OpenAI-compatible endpoint. Thread-safe."""

    def __init__(
        self,
        *,
        model: str,
        access: EndpointAccess,
        timeout_s: float = 60.0,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """Creates the client; sends no request.

        `timeout_s` limits the wait for each event of a reply, not the whole reply. A request has at
        most `1 + max_retries` attempts, but never more than five attempts.
        """
        self.name = f"openai/{model}"
        self._model = model
        self._timeout_s = timeout_s
        retries = RetryPolicy(max_retries, _MAX_RETRY_DELAY_S, after_timeout=False)
        self._endpoint = Endpoint("chat", access, _ERRORS, retries, timeout_s)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """Returns the complete text. Implements `ChatModel.complete`."""
        *pieces, end = self.stream(prompt, max_tokens, deadline)
        assert isinstance(end, ChatEnd)
        return Completion("".join(map(str, pieces)), end)

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """Yields the pieces of the text, then a ChatEnd. Implements `ChatModel.stream`.

        A text with more than `max_tokens * MAX_TOKEN_CHARS` characters is cut at this length, and
        its finish reason is LENGTH.
        """
        deadline.check("requesting from the chat model")
        reply = _Reply(self._endpoint, max_tokens * MAX_TOKEN_CHARS)
        try:
            request = partial(self._request, prompt, max_tokens)
            with self._endpoint.stream(request, deadline) as response:
                yield from self._pieces(response, reply, deadline)
        except (ChatUnavailable, DeadlineExceeded):
            if not reply.is_finished:
                # If the caller's deadline has passed, DeadlineExceeded is raised instead of the
                # endpoint's error.
                deadline.check("waiting for the chat model")
                raise
        yield reply.end()

    def _pieces(self, response: Response, reply: "_Reply", deadline: Deadline) -> Iterator[str]:
        """Yields the pieces of the text.

        After the text is complete, continues to read for at most MAX_END_S seconds, because the
        token counts may arrive after the text.
        """
        is_ending = False
        for data in self._data(response, deadline):
            if data == _DONE:
                return
            if piece := reply.piece(data):
                yield piece
            if reply.is_full:
                return
            if reply.is_finished and not is_ending:
                is_ending = True
                read_until(response, deadline.within(MAX_END_S))

    def _request(self, prompt: str, max_tokens: int, timeout: Timeout) -> Response:
        # The raw response is used, because the SDK's parser neither limits the size of a reply nor
        # checks the types of its fields.
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
        """Yields the data of each server-sent event. In these replies, the data is one line."""
        limit = Deadline.after(MAX_REPLY_S)
        next_data = Deadline.after(self._timeout_s)
        incomplete = b""
        for received in chain(response.iter_bytes(), (b"\n",)):
            deadline.check("the chat model was answering")
            if limit.remaining_s <= 0:
                self._endpoint.raise_unavailable(
                    f"had not finished its reply after {MAX_REPLY_S:g} s"
                )
            *lines, incomplete = (incomplete + received).split(b"\n")
            if len(incomplete) > MAX_LINE_BYTES:
                self._endpoint.raise_rejected(f"returned a line of over {MAX_LINE_BYTES} bytes")
            data = [line[len(_DATA) :].strip() for line in lines if line.startswith(_DATA)]
            yield from data
            if data:
                next_data = Deadline.after(self._timeout_s)
            elif next_data.remaining_s <= 0:
                self._endpoint.raise_unavailable(f"sent no data for {self._timeout_s:g} s")


class _Reply:
    """The state of reading one streamed reply: its finish reason, token counts and length."""

    def __init__(self, endpoint: Endpoint, max_chars: int) -> None:
        self._endpoint = endpoint
        self._remaining_chars = max_chars
        self._finish: FinishReason | None = None
        self._usage = _Usage()
        self._events = 0

    @property
    def is_full(self) -> bool:
        """True if the text has reached its maximum length."""
        return self._remaining_chars <= 0

    @property
    def is_finished(self) -> bool:
        """True if the endpoint has sent a finish reason."""
        return self._finish is not None

    def piece(self, data: bytes) -> str:
        """Reads the data of an event, and returns the text in it, which may be empty."""
        self._events += 1
        try:
            event = _Event.model_validate_json(data)
        except ValidationError:
            self._endpoint.raise_rejected("returned an event that is not a chat.completion.chunk")
        if event.error is not None:
            self._raise_error(event.error)
        self._usage = event.usage or self._usage
        text = "".join(map(self._text, event.choices or ()))[: self._remaining_chars]
        self._remaining_chars -= len(text)
        return text

    def end(self) -> ChatEnd:
        """Returns the finish reason and the token counts. Must be called after the last event.

        Raises ChatUnavailable if the reply is incomplete, and ChatRejected if it has no events.
        """
        if self._finish is None and self.is_full:
            self._finish = FinishReason.LENGTH
        if self._events == 0:
            self._endpoint.raise_rejected("returned a reply that is not an event stream")
        if self._finish is None:
            self._endpoint.raise_unavailable("ended the reply early, without a finish reason")
        return ChatEnd(self._finish, self._usage.prompt_tokens, self._usage.completion_tokens)

    def _text(self, choice: _Choice) -> str:
        if choice.finish_reason:
            if choice.finish_reason not in _FINISH:
                self._endpoint.raise_unavailable(
                    "ended the reply early, with an unknown finish reason"
                )
            self._finish = _FINISH[choice.finish_reason]
        return (choice.delta and choice.delta.content) or ""

    def _raise_error(self, error: Any) -> None:
        """Raises the error that an endpoint sent as an event.

        Some endpoints send an HTTP status as the error's `code`.
        """
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int):
            self._endpoint.raise_for_status(status, error.get("type"))
        self._endpoint.raise_unavailable("ended the reply early, with an error")
