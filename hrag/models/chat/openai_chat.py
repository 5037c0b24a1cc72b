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

import structlog
from httpx2 import Response
from openai import APIStatusError, Timeout

from hrag.models.chat import ChatEnd, Completion, Pieces
from hrag.models.chat.reasoning_tags import ReasoningSplitter, TagUse, TextPiece
from hrag.models.chat.stream_event import FINISH_REASONS, TOOL_REASONS, ReportedTokens, read_event
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.models.endpoint.openai_endpoint import (
    Endpoint,
    ErrorMapping,
    RetryPolicy,
    read_until,
    refused_content,
)
from hrag.models.endpoint.refused_parameters import refused_parameters
from hrag.values.answers import FinishReason, Reasoning
from hrag.values.deadline import Deadline
from hrag.values.errors import ChatRejected, ChatUnavailable, DeadlineExceeded

_log = structlog.get_logger()

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
_DATA = b"data:"
_DONE = b"[DONE]"
_EMPTY = (b"", b"null")  # Some endpoints send events with this data to keep a connection open.
_REFUSED = (
    "check the limits of HRAG_CHAT_MODEL on the lengths of prompt and answer; the reply names no "
    "parameter that can be left out of the request"
)
_ERRORS = ErrorMapping(
    ChatUnavailable,
    ChatRejected,
    ChatRejected,
    {
        400: _REFUSED,
        413: _REFUSED,
        422: _REFUSED,
        401: "check HRAG_CHAT_API_KEY, or OPENAI_API_KEY if that is used",
        403: "the key in HRAG_CHAT_API_KEY, or OPENAI_API_KEY, may not use this model",
        404: "check HRAG_CHAT_MODEL, and HRAG_CHAT_BASE_URL or OPENAI_BASE_URL",
    },
)


class OpenAIChat:
    """The chat model of an OpenAI-compatible endpoint. Thread-safe."""

    def __init__(
        self,
        *,
        model: str,
        access: EndpointAccess,
        timeout_s: float = 60.0,
        max_retries: int = MAX_RETRIES,
        tag_use: TagUse | None = None,
    ) -> None:
        """Creates the client; sends no request.

        `timeout_s` limits the wait for each event of a reply, not the whole reply. A request has at
        most `1 + max_retries` attempts, but never more than five attempts. `tag_use` says how the
        model marks reasoning in its text; if it is None, this is learned from the replies.
        """
        self.name = f"openai/{model}"
        self._model = model
        self._timeout_s = timeout_s
        self._learns_tag_use = tag_use is None
        self._tag_use = tag_use or TagUse.UNKNOWN
        self._left_out: frozenset[str] = frozenset()  # The parameters that the endpoint refuses.
        retries = RetryPolicy(max_retries, _MAX_RETRY_DELAY_S, after_timeout=False)
        self._endpoint = Endpoint("chat", access, _ERRORS, retries, timeout_s)

    def complete(self, prompt: str, max_tokens: int, deadline: Deadline) -> Completion:
        """Returns the complete text. Implements `ChatModel.complete`."""
        *pieces, end = self.stream(prompt, max_tokens, deadline)
        assert isinstance(end, ChatEnd)
        return Completion("".join(piece for piece in pieces if isinstance(piece, str)), end)

    def stream(self, prompt: str, max_tokens: int, deadline: Deadline) -> Pieces:
        """Yields the pieces, then a ChatEnd. Implements `ChatModel.stream`.

        A text with more than `max_tokens * MAX_TOKEN_CHARS` characters is cut at this length, and
        its finish reason is LENGTH.
        """
        deadline.check("requesting from the chat model")
        tag_use = self._tag_use
        reply = _Reply(self._endpoint, max_tokens * MAX_TOKEN_CHARS, tag_use)
        try:
            request = partial(self._request, prompt, max_tokens)
            with self._endpoint.stream(request, deadline) as response:
                yield from self._pieces(response, reply, deadline)
            yield from reply.rest()
        except (ChatUnavailable, ChatRejected, DeadlineExceeded) as error:
            yield from reply.rest()
            if isinstance(error, ChatRejected) or not reply.is_finished:
                # If the caller's deadline has passed, DeadlineExceeded is raised instead of the
                # endpoint's error.
                deadline.check("waiting for the chat model")
                raise
        finally:
            if self._learns_tag_use and reply.tag_use is not tag_use:
                self._tag_use = reply.tag_use
        end = reply.end()
        if reply.is_full or end.completion_tokens > max_tokens:
            # The endpoint ignores the parameter, as Ollama does, which knows only its older name.
            self._remember(self._left_out | {"max_completion_tokens"})
        yield end

    def _pieces(
        self, response: Response, reply: "_Reply", deadline: Deadline
    ) -> Iterator[TextPiece]:
        """Yields the pieces of the text and of the reasoning.

        After the text is complete, continues to read for at most MAX_END_S seconds, because the
        token counts may arrive after the text.
        """
        is_ending = False
        for data in self._data(response, deadline):
            if data == _DONE:
                return
            yield from reply.pieces(data)
            if reply.is_full:
                return
            if reply.is_finished and not is_ending:
                is_ending = True
                read_until(response, deadline.within(MAX_END_S))

    def _request(self, prompt: str, max_tokens: int, timeout: Timeout) -> Response:
        """Sends the request, without the parameters that the endpoint refuses by name.

        If the endpoint refuses further parameters, sends the request again without them. They are
        remembered when the endpoint has accepted the request.
        """
        left_out = self._left_out
        while True:
            parameters = _parameters(max_tokens, left_out)
            try:
                # The raw response is used, because the SDK's parser neither limits the size of a
                # reply nor checks the types of its fields.
                raw = self._endpoint.client.chat.completions.with_raw_response.create(
                    model=self._model,
                    messages=[{"role": "user", "content": prompt}],
                    stream=True,
                    timeout=timeout,
                    **parameters,
                )
            except APIStatusError as error:
                refused = refused_parameters(refused_content(error) or "", parameters)
                if not refused:
                    raise
                left_out |= refused
            else:
                self._remember(left_out)
                return raw.http_response

    def _remember(self, left_out: frozenset[str]) -> None:
        if refused := left_out - self._left_out:
            self._left_out |= refused
            names = ", ".join(sorted(refused))
            _log.warning("chat_parameters_left_out", endpoint=self._endpoint.name, parameters=names)

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
            data = [value for value in data if value not in _EMPTY]
            yield from data
            if data:
                next_data = Deadline.after(self._timeout_s)
            elif next_data.remaining_s <= 0:
                self._endpoint.raise_unavailable(f"sent no data for {self._timeout_s:g} s")


def _parameters(max_tokens: int, left_out: frozenset[str]) -> dict[str, Any]:
    """Returns the parameters that an endpoint may refuse, without those in `left_out`.

    `max_tokens` is the older name of `max_completion_tokens`, and is sent in its place.
    """
    name = "max_completion_tokens"
    if name in left_out:
        name = "max_tokens"
    parameters = {name: max_tokens, "stream_options": {"include_usage": True}}
    return {name: value for name, value in parameters.items() if name not in left_out}


class _Reply:
    """The state of reading one streamed reply: its finish reason, token counts and length."""

    def __init__(self, endpoint: Endpoint, max_chars: int, tag_use: TagUse) -> None:
        self._endpoint = endpoint
        self._splitter = ReasoningSplitter(tag_use)
        self._remaining_chars = max_chars
        # Reasoning in a field of its own has a limit of its own, because some endpoints do not
        # count it in the length of the text. Further reasoning is left out.
        self._remaining_reasoning = max_chars
        self._finish: FinishReason | None = None
        self._finish_name = ""
        self._has_text = False
        self._prompt_tokens = self._completion_tokens = 0
        self._events = 0

    @property
    def is_full(self) -> bool:
        """True if the text has reached its maximum length."""
        return self._remaining_chars <= 0

    @property
    def is_finished(self) -> bool:
        """True if the endpoint has sent a finish reason that is known."""
        return self._finish is not None

    @property
    def tag_use(self) -> TagUse:
        """How the model marks reasoning, as far as it is known after this reply."""
        return self._splitter.tag_use

    def pieces(self, data: bytes) -> list[TextPiece]:
        """Reads the data of an event; returns the pieces of text and reasoning that are known now.

        Some text may be held back, because it may be reasoning.
        """
        self._events += 1
        try:
            event = read_event(data)
        except ValueError:
            self._endpoint.raise_rejected("returned an event that is not a chat.completion.chunk")
        if event.error is not None:
            self._raise_error(event.error)
        self._count(event.usage)
        pieces = self._reasoning(event.reasoning) + self._text(event.text)
        if event.finish:
            self._end_text(event.finish)
        return pieces + self.rest() if self.is_finished else pieces

    def rest(self) -> list[TextPiece]:
        """Returns the text that was held back. Must be called after the last event."""
        is_complete = self._finish is FinishReason.STOP
        return self._noted(self._splitter.finish(is_complete=is_complete))

    def end(self) -> ChatEnd:
        """Returns the finish reason and the token counts. Must be called after `rest`.

        Raises ChatUnavailable if the reply is incomplete. Raises ChatRejected if it has no events,
        or calls a tool and has no text.
        """
        if self._events == 0:
            self._endpoint.raise_rejected("returned a reply that is not an event stream")
        if self._finish is None and self.is_full:
            self._finish = FinishReason.LENGTH
        if self._finish is None and self._finish_name:
            # The stream has ended as it should, so the unknown name means an end of some kind.
            self._finish = FinishReason.STOP
        if self._finish is None:
            self._endpoint.raise_unavailable("ended the reply early, without a finish reason")
        if self._finish_name in TOOL_REASONS and not self._has_text:
            self._endpoint.raise_rejected("called a tool, although none is offered, and no text")
        return ChatEnd(self._finish, self._prompt_tokens, self._completion_tokens)

    def _text(self, text: str) -> list[TextPiece]:
        text = text[: self._remaining_chars]
        self._remaining_chars -= len(text)
        return self._noted(self._splitter.feed(text))

    def _reasoning(self, text: str) -> list[TextPiece]:
        """Returns the pieces after an event with this reasoning in a field of its own."""
        if not text:
            return []
        pieces = self._noted(self._splitter.expect_no_tags())
        text = text[: self._remaining_reasoning]
        self._remaining_reasoning -= len(text)
        return [*pieces, Reasoning(text)] if text else pieces

    def _noted(self, pieces: list[TextPiece]) -> list[TextPiece]:
        self._has_text |= any(isinstance(piece, str) and piece.strip() for piece in pieces)
        return pieces

    def _end_text(self, finish: str) -> None:
        """Notes the finish reason. Raises ChatUnavailable if it means a failure."""
        self._finish_name = finish
        reason = FINISH_REASONS.get(finish)
        if reason is FinishReason.FAILED:
            self._endpoint.raise_unavailable("ended the reply early, with an error")
        self._finish = reason or self._finish

    def _count(self, usage: ReportedTokens) -> None:
        """Notes the token counts. A count that an event does not have keeps its value."""
        if usage.prompt_tokens is not None:
            self._prompt_tokens = usage.prompt_tokens
        if usage.completion_tokens is not None:
            self._completion_tokens = usage.completion_tokens

    def _raise_error(self, error: Any) -> None:
        """Raises the error that an endpoint sent as an event.

        Some endpoints send an HTTP status as the error's `code`.
        """
        status = error.get("code") if isinstance(error, dict) else None
        if isinstance(status, int):
            self._endpoint.raise_for_status(status, error.get("type"))
        self._endpoint.raise_unavailable("ended the reply early, with an error")
