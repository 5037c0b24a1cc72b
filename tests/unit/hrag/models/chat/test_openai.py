"""The OpenAI chat model handles every known kind of invalid, late or missing reply."""

import json
import time
import traceback
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from hrag.errors import ChatRejected, ChatUnavailable, DeadlineExceeded
from hrag.models.chat import ChatEnd, Completion
from hrag.models.chat import openai_chat as chat
from hrag.models.chat.openai_chat import MAX_LINE_BYTES, MAX_TOKEN_CHARS, OpenAIChat
from hrag.models.chat.reasoning_tags import TagUse
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.values.answers import FinishReason
from hrag.values.deadline import NEVER, Deadline
from tests.support.servers import openai_server
from tests.support.servers.openai_server import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    SAID,
    Fault,
    OpenAIServer,
    before_event,
    event,
    events,
    piece,
    says,
)
from tests.support.until import until

KEY = "sk-test-4711"
PROMPT = "What is the secret?"
# This value of the header Retry-After, in seconds, makes retries almost immediate.
AT_ONCE = "0.001"
NORMAL_END = ChatEnd(FinishReason.STOP, PROMPT_TOKENS, COMPLETION_TOKENS)


ModelFactory = Callable[..., OpenAIChat]


@pytest.fixture
def model_with(server: OpenAIServer) -> ModelFactory:
    def make(base_url: str = server.base_url, **changes: Any) -> OpenAIChat:
        return OpenAIChat(model="test-model", access=EndpointAccess(base_url, KEY), **changes)

    return make


@pytest.fixture
def model(model_with: ModelFactory) -> OpenAIChat:
    return model_with()


@pytest.fixture
def untagged_model(model_with: ModelFactory) -> OpenAIChat:
    """A model that is known to write untagged text, so its text is not held back."""
    return model_with(tag_use=TagUse.UNTAGGED)


def completed(model: OpenAIChat, max_tokens: int = 100, deadline: Deadline = NEVER) -> Completion:
    return model.complete(PROMPT, max_tokens, deadline)


# The following tests cover requests and replies.


def test_a_request_contains_model_prompt_limit_and_key(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    completed(model, 77)
    (request,) = server.requests
    assert request == {
        "model": "test-model",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_completion_tokens": 77,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert server.authorizations == [f"Bearer {KEY}"]
    assert model.name == "openai/test-model"


def test_each_piece_of_text_is_yielded_as_soon_as_it_arrives(
    server: OpenAIServer, untagged_model: OpenAIChat
) -> None:
    may_continue = Event()
    server.inject(before_event(1, may_continue))
    stream = untagged_model.stream(PROMPT, 100, NEVER)
    assert next(stream) == SAID[0]
    may_continue.set()
    assert list(stream) == [*SAID[1:], NORMAL_END]


def test_a_completion_has_the_complete_text(model: OpenAIChat) -> None:
    assert completed(model) == Completion("".join(SAID), NORMAL_END)


def test_text_of_any_script_arrives_unchanged(server: OpenAIServer, model: OpenAIChat) -> None:
    pieces = ("狗会叫", "。", "🐕", "\n\n\0 data: [DONE]\r\n")
    server.inject(says(*pieces))
    assert completed(model).text == "".join(pieces)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
    ],
)
def test_the_end_of_a_text_has_the_finish_reason_of_the_endpoint(
    finish: str, expected: FinishReason, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(says("cut", finish=finish))
    assert completed(model).end.finish_reason is expected


def test_unreported_token_counts_are_0(server: OpenAIServer, model: OpenAIChat) -> None:
    server.inject(says("text", usage=False))
    assert completed(model) == Completion("text", ChatEnd(FinishReason.STOP))


@pytest.mark.parametrize(
    "events_sent",
    [
        pytest.param((piece("a"), piece("b", "stop")), id="end with the last piece, no [DONE]"),
        pytest.param((b": wait\n\n", piece("ab", "stop"), b"data: [DONE]"), id="comments"),
        pytest.param((piece("ab", "stop").replace(b"\n", b"\r\n"),), id="CRLF"),
        pytest.param(tuple(bytes([b]) for b in piece("ab", "stop")), id="byte by byte"),
        pytest.param((piece("a") + piece("b") + piece(None, "stop"),), id="several at once"),
        pytest.param((piece("ab"), event({"choices": None}), piece("", "stop")), id="null"),
        pytest.param((piece("ab", "stop"), None), id="lost after its end"),
        pytest.param((piece("ab", "stop"), 30.0), id="silent after its end"),
    ],
)
def test_variants_of_the_protocol_are_understood(
    events_sent: tuple[bytes, ...], server: OpenAIServer, model_with: ModelFactory
) -> None:
    server.inject(events(*events_sent))
    completion = completed(model_with(timeout_s=20.0))
    assert (completion.text, completion.end.finish_reason) == ("ab", FinishReason.STOP)


@pytest.mark.parametrize("end_s", [0.2, 60.0])
@pytest.mark.parametrize("repeated", [b"", b": still here\n\n", piece("")], ids=ascii)
def test_the_end_of_the_stream_is_awaited_only_briefly_after_the_text(
    repeated: bytes,
    end_s: float,
    server: OpenAIServer,
    model: OpenAIChat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait ends after MAX_END_S or at the deadline of the caller. The call does not fail."""
    monkeypatch.setattr(chat, "MAX_END_S", end_s)
    pauses = [repeated, 0.05] * 400 if repeated else [30.0]
    server.inject(events(piece("ab", "stop"), *pauses))
    deadline_s = 60.0 if end_s < 1 else 1.0
    began = time.monotonic()
    completion = completed(model, deadline=Deadline.after(deadline_s))
    assert (completion.text, completion.end.finish_reason) == ("ab", FinishReason.STOP)
    assert time.monotonic() - began < 18


def test_closing_the_stream_disconnects_from_the_endpoint(
    server: OpenAIServer, untagged_model: OpenAIChat
) -> None:
    server.inject(before_event(1, 30))
    stream = untagged_model.stream(PROMPT, 100, NEVER)
    assert next(stream) == SAID[0]
    stream.close()
    until(lambda: server.streams_left)
    assert server.streams_left == 1


# The following tests cover retries.


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503])
def test_transient_errors_are_retried(status: int, server: OpenAIServer, model: OpenAIChat) -> None:
    server.inject(openai_server.refuse(status, retry_after=AT_ONCE), times=2)
    assert completed(model).text == "".join(SAID)
    assert server.calls == 3


def test_a_lost_connection_is_retried(server: OpenAIServer, model: OpenAIChat) -> None:
    server.inject(openai_server.hang_up)
    began = time.monotonic()
    assert completed(model).text == "".join(SAID)
    assert 0.4 < time.monotonic() - began < 30


@pytest.mark.parametrize("requested", ["soon", "-1", "inf"])
def test_an_invalid_retry_after_is_ignored(
    requested: str, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(openai_server.refuse(429, retry_after=requested), times=3)
    began = time.monotonic()
    with pytest.raises(ChatUnavailable):
        completed(model)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("deadline_s", [55.0, 200.0])
def test_a_long_retry_after_fails_at_once(
    deadline_s: float, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(openai_server.refuse(429, "rate_limit_exceeded", retry_after="60"))
    began = time.monotonic()
    with pytest.raises(ChatUnavailable, match=r"429 \(rate_limit_exceeded\)"):
        completed(model, deadline=Deadline.after(deadline_s))
    assert time.monotonic() - began < 50
    assert server.calls == 1


def test_a_reply_that_has_started_is_not_retried(
    server: OpenAIServer, untagged_model: OpenAIChat
) -> None:
    server.inject(before_event(2, None))
    stream = untagged_model.stream(PROMPT, 100, NEVER)
    assert [next(stream), next(stream)] == list(SAID[:2])
    with pytest.raises(ChatUnavailable, match="ended the reply early"):
        next(stream)
    assert server.calls == 1


# The following tests cover persistent errors.


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_that_persists_raises_chat_unavailable(
    status: int, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(openai_server.refuse(status, "secret", AT_ONCE), times=100)
    with pytest.raises(ChatUnavailable) as raised:
        completed(model)
    assert raised.value.message == (
        f"the chat endpoint {server.address} answered {status}; gave up after at most 3 attempts"
    )
    assert server.calls == 3


@pytest.mark.parametrize(
    "fault", [openai_server.slow(30), before_event(0, 30), before_event(2, 30)]
)
def test_a_timeout_raises_chat_unavailable_without_a_retry(
    fault: Fault, server: OpenAIServer, model_with: ModelFactory
) -> None:
    server.inject(fault)
    with pytest.raises(ChatUnavailable, match=r"did not answer within 0\.2 s"):
        completed(model_with(timeout_s=0.2))
    assert server.calls == 1


@pytest.mark.parametrize("filler", [b": wait\n\n", b"\n", b"event: ping\n\n", b": "])
@pytest.mark.parametrize("said", [(), (piece("Dogs"),)], ids=["before the text", "in the text"])
def test_only_events_with_data_extend_the_timeout(
    said: tuple[bytes, ...], filler: bytes, server: OpenAIServer, model_with: ModelFactory
) -> None:
    """Comments and other lines without data would keep an answer alive until its deadline."""
    server.inject(events(*said, *(filler, 0.05) * 600, piece("", "stop")))
    # If a busy machine delays the headers of the reply, the message is that of a missing reply.
    with pytest.raises(ChatUnavailable, match=r"(sent no data for|did not answer within) 0\.2 s"):
        completed(model_with(timeout_s=0.2))
    assert server.calls == 1


def test_a_reply_whose_events_have_data_may_last_longer_than_the_timeout(
    server: OpenAIServer, model_with: ModelFactory
) -> None:
    """Between the pieces there are comments."""
    pieces = (b": wait\n\n", 0.2, piece("a"), 0.2) * 6
    server.inject(events(*pieces, piece("", "stop")))
    assert completed(model_with(timeout_s=2.0)).text == "a" * 6


def test_a_deadline_that_passes_during_the_reply_raises_deadline_exceeded(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(before_event(1, 30))
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="chat model"):
        completed(model, deadline=Deadline.after(0.3))
    assert time.monotonic() - began < 25


def test_no_request_is_sent_after_the_deadline(server: OpenAIServer, model: OpenAIChat) -> None:
    with pytest.raises(DeadlineExceeded):
        completed(model, deadline=Deadline.after(-1))
    assert server.calls == 0


def test_an_endpoint_that_does_not_run_raises_chat_unavailable(model_with: ModelFactory) -> None:
    with OpenAIServer() as stopped:
        pass
    with pytest.raises(ChatUnavailable, match=r"cannot be reached .*refused") as raised:
        completed(model_with(stopped.base_url, max_retries=0))
    assert stopped.address in raised.value.message


@pytest.mark.parametrize(
    ("status", "code", "problem"),
    [
        (400, "context_length_exceeded", "400 (context_length_exceeded): check the limits"),
        (413, None, "answered 413: check the limits"),
        (401, "invalid_api_key", "401 (invalid_api_key): check HRAG_CHAT_API_KEY"),
        (403, None, "403: the key in HRAG_CHAT_API_KEY"),
        (404, "model_not_found", "404 (model_not_found): check HRAG_CHAT_MODEL"),
        (422, "secret", "answered 422: check the limits"),
    ],
)
def test_a_rejected_request_is_not_retried(
    status: int, code: str | None, problem: str, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(openai_server.refuse(status, code))
    with pytest.raises(ChatRejected) as raised:
        completed(model)
    assert problem in raised.value.message
    assert server.address in raised.value.message
    assert server.calls == 1


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_errors_repeat_neither_key_nor_prompt(
    status: int, server: OpenAIServer, model_with: ModelFactory
) -> None:
    words = f"Incorrect API key {KEY} for '{PROMPT}'"
    server.inject(openai_server.refuse(status, PROMPT, words=words))
    base_url = server.base_url.replace("127.0.0.1", "user:password@127.0.0.1")
    with pytest.raises((ChatUnavailable, ChatRejected)) as raised:
        completed(model_with(base_url, max_retries=0))
    logged = "".join(traceback.format_exception(raised.value))
    assert KEY not in logged
    assert "secret" not in logged
    assert "password" not in raised.value.message


# The following tests cover invalid streams.


CUT = "ended the reply early"
NO_CHUNK = "an event that is not a chat.completion.chunk"
NO_EVENTS = "not an event stream"


@pytest.mark.parametrize(
    ("fault", "raised", "problem"),
    [
        pytest.param(before_event(0, None), ChatUnavailable, CUT, id="lost at once"),
        pytest.param(before_event(2, None), ChatUnavailable, CUT, id="lost in the middle"),
        pytest.param(says("a", finish=None), ChatUnavailable, CUT, id="no finish reason"),
        pytest.param(says("a", finish="error"), ChatUnavailable, CUT, id="another reason"),
        pytest.param(
            before_event(1, event({"error": {"message": "secret", "code": "secret"}})),
            ChatUnavailable,
            "ended the reply early, with an error",
            id="error in place of an event",
        ),
        pytest.param(
            events(event({"error": {"message": "secret", "code": 400}})),
            ChatRejected,
            "answered 400: check",
            id="error with a status",
        ),
        pytest.param(
            events(event({"error": "secret"})), ChatUnavailable, CUT, id="error that is a text"
        ),
        pytest.param(before_event(1, b"data: {\n\n"), ChatRejected, NO_CHUNK, id="truncated"),
        pytest.param(before_event(1, b"data: \xff\n\n"), ChatRejected, NO_CHUNK, id="not UTF-8"),
        pytest.param(before_event(1, b"data: []\n\n"), ChatRejected, NO_CHUNK, id="list"),
        pytest.param(before_event(1, piece({"a": "secret"})), ChatRejected, NO_CHUNK, id="object"),
        pytest.param(before_event(1, piece(17)), ChatRejected, NO_CHUNK, id="number"),
        pytest.param(before_event(1, piece("a", 17)), ChatRejected, NO_CHUNK, id="finish 17"),
        pytest.param(before_event(1, piece("\ud800")), ChatRejected, NO_CHUNK, id="surrogate"),
        pytest.param(
            before_event(1, event({"usage": {"prompt_tokens": -1}})),
            ChatRejected,
            NO_CHUNK,
            id="negative usage",
        ),
        pytest.param(
            before_event(1, event({"usage": {"prompt_tokens": 1 << 32}})),
            ChatRejected,
            NO_CHUNK,
            id="huge usage",
        ),
        pytest.param(
            before_event(1, b"data: " + b"[" * 200_000 + b"\n"), ChatRejected, NO_CHUNK, id="deep"
        ),
        pytest.param(
            before_event(1, b"data: " + b"x" * MAX_LINE_BYTES), ChatRejected, "a line of", id="long"
        ),
        pytest.param(
            openai_server.body(b"<html>secret</html>"), ChatRejected, NO_EVENTS, id="HTML"
        ),
        pytest.param(openai_server.body(b""), ChatRejected, NO_EVENTS, id="empty"),
        pytest.param(
            openai_server.body(json.dumps({"choices": [{"message": {}}]}).encode()),
            ChatRejected,
            NO_EVENTS,
            id="whole in place of streamed",
        ),
    ],
)
# If the collector closed idle connections of earlier tests deep in a recursion, its warning would
# fail.
@pytest.mark.usefixtures("no_garbage")
def test_an_invalid_stream_is_an_error_and_the_next_request_succeeds(
    fault: Fault, raised: type[Exception], problem: str, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(fault)
    with pytest.raises(raised) as caught:
        completed(model)
    message = str(caught.value)
    assert problem in message
    assert server.address in message
    assert "secret" not in message
    assert server.calls == 1
    assert completed(model).text == "".join(SAID)


@pytest.mark.parametrize("pause_s", [0.0, 30.0])
def test_a_text_longer_than_its_limit_is_cut(
    pause_s: float, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(piece("x" * 50), piece("x" * 50), pause_s, *[piece("x")] * 100))
    completion = completed(model, max_tokens=2)
    assert completion.text == "x" * 2 * MAX_TOKEN_CHARS
    assert completion.end.finish_reason is FinishReason.LENGTH


def test_a_reply_that_does_not_end_raises_chat_unavailable(
    server: OpenAIServer, model: OpenAIChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments in the reply prevent a timeout of the connection, but MAX_REPLY_S ends the call."""
    monkeypatch.setattr(chat, "MAX_REPLY_S", 0.3)
    server.inject(events(*(b": still here\n\n", 0.02) * 500))
    with pytest.raises(ChatUnavailable, match=r"not finished its reply after 0\.3 s"):
        completed(model)
