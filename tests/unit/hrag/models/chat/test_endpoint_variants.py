"""The chat model understands the variants of OpenAI's protocol that endpoints speak.

Each variant has the form that the documentation or the code of an endpoint gives.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from hrag.errors import ChatRejected, ChatUnavailable
from hrag.models.chat import ChatEnd
from hrag.models.chat.openai_chat import MAX_TOKEN_CHARS, OpenAIChat
from hrag.models.chat.reasoning_tags import TagUse
from hrag.models.endpoint.endpoint_access import EndpointAccess
from hrag.values.answers import FinishReason, Reasoning
from hrag.values.deadline import NEVER
from tests.support.servers.openai_server import (
    COMPLETION_TOKENS,
    SAID,
    Fault,
    OpenAIServer,
    Reply,
    body,
    event,
    events,
    piece,
    refuse,
    says,
)

DONE = b"data: [DONE]\n\n"
THOUGHT, ANSWER = "Passage [1] says that cats sleep.", "Dogs bark [1]."
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH
MAX_TOKENS = 100


@pytest.fixture
def model(server: OpenAIServer) -> OpenAIChat:
    return OpenAIChat(model="m", access=EndpointAccess(server.base_url, "k"), max_retries=0)


def read(model: OpenAIChat, max_tokens: int = MAX_TOKENS) -> tuple[str, str, ChatEnd]:
    """Returns the reasoning, the text and the end of a reply."""
    *pieces, end = model.stream("Hello?", max_tokens, NEVER)
    assert isinstance(end, ChatEnd)
    reasoning = [piece.text for piece in pieces if isinstance(piece, Reasoning)]
    text = [piece for piece in pieces if isinstance(piece, str)]
    assert all((*reasoning, *text))
    return "".join(reasoning), "".join(text), end


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """Returns an event with these fields in its `delta`."""
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


# The following tests cover parameters that an endpoint refuses.


def extra(name: str) -> str:
    """Returns the words by which Mistral's API refuses a parameter that it does not know."""
    return json.dumps({"detail": [{"type": "extra_forbidden", "loc": ["body", name]}]})


def refusing(*names: str, status: int = 422, words: Callable[[str], str] = extra) -> Fault:
    """Refuses a request with one of the parameters, which the refusal names."""

    def fault(reply: Reply) -> Reply:
        sent = [name for name in names if name in reply.request]
        return refuse(status, words=words(sent[0]))(reply) if sent else reply

    return fault


def parameters(request: dict[str, Any]) -> set[str]:
    return request.keys() - {"model", "messages", "stream"}


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("refused", "left", "requests"),
    [
        ((), {"max_completion_tokens", "stream_options"}, 1),
        (("max_completion_tokens",), {"max_tokens", "stream_options"}, 2),
        (("stream_options",), {"max_completion_tokens"}, 2),
        (("max_completion_tokens", "stream_options"), {"max_tokens"}, 3),
        (("max_completion_tokens", "max_tokens"), {"stream_options"}, 3),
        (("max_completion_tokens", "max_tokens", "stream_options"), set(), 4),
    ],
)
def test_refused_parameters_are_left_out_and_remembered(
    refused: tuple[str, ...],
    left: set[str],
    requests: int,
    status: int,
    server: OpenAIServer,
    model: OpenAIChat,
) -> None:
    server.inject(refusing(*refused, status=status), times=requests + 1)
    with capture_logs() as logs:
        assert read(model)[1] == "".join(SAID)
        assert len(server.requests) == requests
        assert read(model)[1] == "".join(SAID)
    assert len(server.requests) == requests + 1
    assert parameters(server.requests[-1]) == left
    assert server.requests[-1].get("max_tokens", MAX_TOKENS) == MAX_TOKENS
    names = [entry["parameters"] for entry in logs]
    assert names == ([", ".join(sorted(refused))] if refused else [])


def test_several_parameters_that_one_refusal_names_are_left_out_together(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    words = "unknown fields: max_completion_tokens, stream_options"
    server.inject(refuse(400, words=words))
    assert read(model)[1] == "".join(SAID)
    assert [parameters(request) for request in server.requests[1:]] == [{"max_tokens"}]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "max_completion_tokens is too large: 5000"),
        (422, "Unprocessable Entity"),
        (400, "unsupported: temperature"),
        (401, "unsupported: stream_options"),
        (404, "unsupported: stream_options"),
    ],
)
def test_other_refusals_are_errors_at_once(
    status: int, words: str, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(refuse(status, words=words))
    with pytest.raises(ChatRejected, match=f"answered {status}"):
        read(model)
    assert len(server.requests) == 1


def test_parameters_are_not_remembered_if_the_request_is_refused_without_them_too(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    """An endpoint may repeat a prompt that contains the name of a parameter."""
    server.inject(refuse(400, words="invalid: What is stream_options?"))
    server.inject(refuse(400, words="invalid: What is it?"))
    with pytest.raises(ChatRejected, match="names no parameter that can be left out"):
        read(model)
    read(model)
    assert parameters(server.requests[-1]) == {"max_completion_tokens", "stream_options"}


def test_a_parameter_is_left_out_also_after_a_retry(server: OpenAIServer) -> None:
    model = OpenAIChat(model="m", access=EndpointAccess(server.base_url, "k"), max_retries=1)
    server.inject(refusing("stream_options"))
    server.inject(refuse(503, retry_after="0.001"))
    server.inject(refusing("stream_options"), times=2)
    assert read(model)[1] == "".join(SAID)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("max_tokens", "pieces", "name"),
    [
        (COMPLETION_TOKENS, SAID, "max_completion_tokens"),
        (COMPLETION_TOKENS - 1, SAID, "max_tokens"),
        (COMPLETION_TOKENS, ["x" * COMPLETION_TOKENS * MAX_TOKEN_CHARS, "x"], "max_tokens"),
    ],
)
def test_an_endpoint_that_ignores_a_limit_gets_it_by_its_older_name(
    max_tokens: int, pieces: list[str], name: str, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(says(*pieces), times=2)
    read(model, max_tokens)
    read(model, max_tokens)
    assert [parameters(request) for request in server.requests] == [
        {"max_completion_tokens", "stream_options"},
        {name, "stream_options"},
    ]


# The following tests cover finish reasons.


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("stop STOP eos eos_token end_turn stop_sequence COMPLETE done FINISH_REASON_STOP", STOP),
        ("length max_tokens MAX_TOKENS model_length max_output_tokens ERROR_LIMIT", LENGTH),
        (
            "content_filter SAFETY RECITATION refusal sensitive PROHIBITED_CONTENT",
            FinishReason.CONTENT_FILTER,
        ),
        # With text, a call of a tool is an end like any other.
        ("tool_calls function_call tool_use", STOP),
        # The stream is complete, so a name that nobody knows means some end.
        ("whatever StopCriteria 停止", STOP),
    ],
)
def test_every_finish_reason_in_use_is_understood(
    names: str, reason: FinishReason, server: OpenAIServer, model: OpenAIChat
) -> None:
    for name in names.split():
        server.inject(says(ANSWER, finish=name))
        _, text, end = read(model)
        assert (name, text, end.finish_reason) == (name, ANSWER, reason)
        assert (end.prompt_tokens, end.completion_tokens) == (12, 3)


@pytest.mark.parametrize(
    "name", ["error", "ERROR", "abort", "network_error", "insufficient_system_resource"]
)
def test_a_finish_reason_that_means_a_failure_is_an_error_after_the_text(
    name: str, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(says(ANSWER, finish=name))
    stream = model.stream("Hello?", MAX_TOKENS, NEVER)
    assert next(stream) == ANSWER
    with pytest.raises(ChatUnavailable, match="ended the reply early, with an error"):
        next(stream)


@pytest.mark.parametrize("name", ["", "null", "none", None])
def test_an_empty_finish_reason_does_not_end_the_text(
    name: str | None, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(piece("Dogs ", name), piece("bark [1].", name), piece("", "stop"), DONE))
    assert read(model)[1:] == (ANSWER, ChatEnd(STOP))
    server.inject(events(piece(ANSWER, name), DONE))
    with pytest.raises(ChatUnavailable, match="without a finish reason"):
        read(model)


def test_an_unknown_finish_reason_does_not_hide_that_the_stream_was_cut(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(piece(ANSWER, "whatever"), None))
    with pytest.raises(ChatUnavailable, match="ended the reply early"):
        read(model)


TOOL_CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}


def test_a_call_of_a_tool_in_place_of_text_is_an_error(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(delta(tool_calls=[TOOL_CALL]), delta("tool_calls"), DONE))
    with pytest.raises(ChatRejected, match="called a tool"):
        read(model)
    server.inject(events(piece(ANSWER), delta("tool_calls", tool_calls=[TOOL_CALL]), DONE))
    assert read(model)[1:] == (ANSWER, ChatEnd(STOP))


# The following tests cover the forms of texts, events and token counts.


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ("", "")),
        ("", ("", "")),
        (ANSWER, ("", ANSWER)),
        ([{"type": "text", "text": "Dogs "}, {"type": "text", "text": "bark [1]."}], ("", ANSWER)),
        (["Dogs ", "bark [1]."], ("", ANSWER)),
        ([{"type": "output_text", "text": {"value": ANSWER}}], ("", ANSWER)),
        ([{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "a"}], ("", "a")),
        ([{"type": "image_url", "image_url": {"url": "x"}}, None, 17, []], ("", "")),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}], (THOUGHT, "")),
        (
            [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}],
            (THOUGHT, ANSWER),
        ),
        ([{"type": "refusal", "refusal": "No."}], ("", "No.")),
    ],
)
def test_a_content_may_be_a_string_or_a_list_of_parts(
    content: Any, expected: tuple[str, str], server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(delta(content=content), piece(None, "stop"), DONE))
    assert read(model)[:2] == expected


def test_a_refusal_in_a_field_of_its_own_is_the_text(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(delta(content=None, refusal="I can't."), piece(None, "stop"), DONE))
    assert read(model)[1] == "I can't."


@pytest.mark.parametrize(
    "sent",
    [
        b"data:\n\n",
        b"data: \n\n",
        b"data: null\n\n",
        b"data: {}\n\n",
        b"event: ping\ndata: {}\n\n",
        b"id: 1\nretry: 10\n\n",
        event({"choices": []}),
        event({"choices": [None], "usage": None}),
        event({"choices": [{}]}),
        event({"choices": [{"delta": None}]}),
        event({"choices": [{"delta": {"role": "assistant", "content": None}, "logprobs": None}]}),
        event({"choices": None, "error": None, "object": None}),
    ],
)
def test_events_without_text_are_no_end_and_no_error(
    sent: bytes, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(sent, piece("Dogs "), sent, piece("bark [1].", "stop"), sent, DONE))
    assert read(model)[1:] == (ANSWER, ChatEnd(STOP))


@pytest.mark.parametrize(
    ("usages", "counts"),
    [
        ([None], (0, 0)),
        ([{}], (0, 0)),
        ([{"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}], (0, 0)),
        ([{"prompt_tokens": 7, "completion_tokens": None}], (7, 0)),
        ([{"prompt_tokens": 7, "completion_tokens": 1}, {"completion_tokens": 2}], (7, 2)),
        ([{"prompt_tokens": 7, "completion_tokens": 1}, {"prompt_tokens": None}, None], (7, 1)),
        ([{"prompt_tokens": 7.0, "completion_tokens": 1, "details": {"a": None}}], (7, 1)),
    ],
)
def test_token_counts_may_be_missing_or_null(
    usages: list[Any], counts: tuple[int, int], server: OpenAIServer, model: OpenAIChat
) -> None:
    counted = [event({"choices": [], "usage": usage}) for usage in usages]
    server.inject(events(piece(ANSWER), *counted[:-1], piece("", "stop"), counted[-1], DONE))
    assert read(model)[2] == ChatEnd(STOP, *counts)


@pytest.mark.parametrize(
    "sent",
    [
        event({"object": "error", "message": "secret", "type": "x", "code": None}),
        event({"error": {"message": "secret"}, "choices": []}),
        b"event: error\n" + event({"error": "secret"}),
    ],
)
def test_an_error_in_the_middle_keeps_the_text_before(
    sent: bytes, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(piece("Dogs "), piece("bark"), sent))
    stream = model.stream("Hello?", MAX_TOKENS, NEVER)
    assert next(stream) == "Dogs bark"
    with pytest.raises(ChatUnavailable, match="ended the reply early, with an error"):
        next(stream)


@pytest.mark.parametrize("sent", [None, b"data: {", piece(17)])
def test_a_stream_that_is_cut_or_invalid_keeps_the_text_before(
    sent: bytes | None, server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(piece("Dogs "), piece("bark"), sent))
    stream = model.stream("Hello?", MAX_TOKENS, NEVER)
    assert next(stream) == "Dogs bark"
    with pytest.raises((ChatUnavailable, ChatRejected)):
        next(stream)


# The following tests cover reasoning.


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": THOUGHT},
        {"reasoning": THOUGHT},
        {"thinking": THOUGHT},
        {"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": THOUGHT}]},
        # Some endpoints send the same text in two fields.
        {"reasoning": THOUGHT, "reasoning_content": THOUGHT},
        {"reasoning": THOUGHT, "reasoning_details": [{"text": THOUGHT}]},
        {"reasoning_content": THOUGHT, "content": ""},
    ],
)
def test_reasoning_in_a_field_of_its_own_is_no_text(
    fields: dict[str, Any], server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(events(delta(**fields), piece("Dogs "), piece("bark [1].", "stop"), DONE))
    *pieces, _ = model.stream("Hello?", MAX_TOKENS, NEVER)
    # The text is not held back, because the server has separated the reasoning.
    assert pieces == [Reasoning(THOUGHT), "Dogs ", "bark [1]."]


@pytest.mark.parametrize("value", [None, "", [], {}, 17, True, [None], {"effort": "low"}])
def test_a_field_without_reasoning_is_ignored(
    value: Any, server: OpenAIServer, model: OpenAIChat
) -> None:
    fields = {"reasoning": value, "reasoning_details": value}
    server.inject(events(delta(content=ANSWER, **fields), piece("", "stop"), DONE))
    assert read(model)[:2] == ("", ANSWER)


def test_reasoning_longer_than_its_limit_is_left_out_and_the_answer_still_comes(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    limit = 2 * MAX_TOKEN_CHARS
    thought = delta(reasoning_content="x" * (limit - 1))
    server.inject(events(thought, thought, thought, piece("Dogs.", "stop"), DONE))
    assert read(model, max_tokens=2)[:2] == ("x" * limit, "Dogs.")


def test_a_model_that_tags_its_reasoning_is_read_right_from_its_first_reply(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    for text in (f"{THOUGHT}</think>\n\n{ANSWER}", f"<think>{THOUGHT}</think>{ANSWER}", THOUGHT):
        server.inject(says(*text))
    assert read(model)[:2] == (THOUGHT, ANSWER)
    assert read(model)[:2] == (THOUGHT, ANSWER)
    # A complete reply without tags is an answer.
    assert read(model)[:2] == ("", THOUGHT)


def test_a_reply_that_is_cut_within_reasoning_has_no_answer(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    server.inject(says(f"{THOUGHT}</think>{ANSWER}"))
    read(model)
    server.inject(says(THOUGHT, finish="length"))
    reasoning, text, end = read(model)
    assert (reasoning, text, end.finish_reason) == (THOUGHT, "", LENGTH)
    server.inject(says(f"<think>{THOUGHT}"))
    assert read(model)[:2] == (THOUGHT, "")


def test_text_is_held_back_only_until_a_reply_without_tags_is_complete(
    server: OpenAIServer, model: OpenAIChat
) -> None:
    for expected in ([ANSWER], list(SAID)):
        *pieces, _ = model.stream("Hello?", MAX_TOKENS, NEVER)
        assert pieces == expected


@pytest.mark.parametrize("tag_use", TagUse)
def test_what_is_known_of_a_model_may_be_set(tag_use: TagUse, server: OpenAIServer) -> None:
    access = EndpointAccess(server.base_url, "k")
    model = OpenAIChat(model="m", access=access, tag_use=tag_use)
    for _ in range(2):
        *pieces, _ = model.stream("Hello?", MAX_TOKENS, NEVER)
        assert pieces == (list(SAID) if tag_use is TagUse.UNTAGGED else [ANSWER])


def test_a_completion_has_no_reasoning(server: OpenAIServer, model: OpenAIChat) -> None:
    server.inject(events(delta(reasoning=THOUGHT), piece(ANSWER, "stop"), DONE))
    assert model.complete("Hello?", MAX_TOKENS, NEVER).text == ANSWER
    server.inject(body(b"<html>"))
    with pytest.raises(ChatRejected):
        model.complete("Hello?", MAX_TOKENS, NEVER)


# The following tests cover whole replies in the form of one server each.

USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}


def _chunk(finish: str | None = None, usage: Any = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event(chunk | {"choices": [choice], "usage": usage})


COUNTS = event({"choices": [], "usage": USAGE})
MISTRAL_PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]


@pytest.mark.parametrize(
    ("refused", "sent"),
    [
        pytest.param(
            (),
            [
                _chunk(role="assistant", content="", reasoning=THOUGHT),
                _chunk(role="assistant", content=ANSWER),
                _chunk("stop", role="assistant", content=""),
                COUNTS,
                DONE,
            ],
            id="Ollama",
        ),
        pytest.param(
            (),
            [
                _chunk(role="assistant", content=""),
                _chunk(reasoning=THOUGHT, reasoning_content=THOUGHT),
                _chunk(content=ANSWER),
                _chunk("stop", content="", stop_reason=None),
                COUNTS,
                DONE,
            ],
            id="vLLM with a parser",
        ),
        pytest.param(
            (),
            [
                _chunk(role="assistant", content="", reasoning_content=None),
                *(_chunk(content=part) for part in (THOUGHT, "\n</think>", "\n\n", ANSWER)),
                _chunk("stop", content=""),
                COUNTS,
                DONE,
            ],
            id="vLLM without a parser",
        ),
        pytest.param(
            (),
            [
                _chunk(role="assistant", content=None),
                _chunk(reasoning_content=THOUGHT),
                _chunk(content=ANSWER),
                _chunk("stop"),
                event({"choices": [], "usage": USAGE, "timings": {"prompt_n": 12}}),
                DONE,
            ],
            id="llama.cpp",
        ),
        pytest.param(
            ("max_completion_tokens", "stream_options"),
            [
                _chunk(role="assistant", content=""),
                _chunk(content=MISTRAL_PARTS),
                _chunk(content=[{"type": "text", "text": ANSWER}]),
                _chunk("stop", usage=USAGE, content=""),
                DONE,
            ],
            id="Mistral",
        ),
        pytest.param(
            (),
            [
                _chunk("null", content=None, reasoning_content=THOUGHT, role="assistant"),
                _chunk("null", content=ANSWER, reasoning_content=None),
                _chunk("stop", content="", reasoning_content=None),
                COUNTS,
                DONE,
            ],
            id="DashScope",
        ),
        pytest.param(
            (),
            [
                *(_chunk(role="assistant", content=part) for part in ("<think>", THOUGHT)),
                *(_chunk(role="assistant", content=part) for part in ("</think>", "\n", ANSWER)),
                _chunk("stop"),
                COUNTS,
                DONE,
            ],
            id="LM Studio",
        ),
    ],
)
def test_the_reply_of_each_server_is_read(
    refused: tuple[str, ...], sent: list[bytes], server: OpenAIServer, model: OpenAIChat
) -> None:
    def fault(reply: Reply) -> Reply:
        return refusing(*refused)(events(*sent)(reply))

    server.inject(fault, times=4)
    for _ in range(2):
        reasoning, text, end = read(model)
        assert (reasoning.strip(), text, end) == (THOUGHT, ANSWER, ChatEnd(STOP, 12, 3))
