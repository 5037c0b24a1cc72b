"""One event of a streamed reply, as OpenAI and the endpoints that imitate it send it.

Endpoints differ in the forms of an event. A text may be a string or a list of parts. Reasoning may
be in a field of its own, whose name differs, or in parts of the type `thinking`. Token counts may
be missing or null. The finish reason may be one of another API (`FINISH_REASONS`).
"""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from hrag.values.answers import FinishReason

_STOP = """stop eos eos_token eot end_turn end_of_turn end_of_text endoftext stop_sequence
stop_token stop_word stop_string complete completed done end finished normal pause_turn"""
_LENGTH = """length max_tokens max_token max_length max_output_tokens max_completion_tokens
max_new_tokens model_length context_length model_context_window_exceeded length_limit token_limit
tokens_limit error_limit limit truncated incomplete"""
_CONTENT_FILTER = """content_filter content_filtered filtered safety image_safety recitation refusal
blocked blocklist prohibited_content spii sensitive error_toxic toxic guardrail guardrails
guardrail_intervened moderation policy_violation"""
_TOOL = """tool_calls tool_call tool_use function_call"""
_FAILED = """error failed failure abort aborted cancelled canceled cancel interrupted timeout
network_error insufficient_system_resource unavailable malformed_function_call
unexpected_tool_call"""
# Endpoints write these in place of a missing finish reason, also in events before the last one.
_NONE = ("", "null", "none", "unspecified")

# The reason for each known name, in lower case. A model that calls a tool ends its text normally.
FINISH_REASONS: dict[str, FinishReason] = {
    name: reason
    for names, reason in (
        (_STOP, FinishReason.STOP),
        (_TOOL, FinishReason.STOP),
        (_LENGTH, FinishReason.LENGTH),
        (_CONTENT_FILTER, FinishReason.CONTENT_FILTER),
        (_FAILED, FinishReason.FAILED),
    )
    for name in names.split()
}
TOOL_REASONS = frozenset(_TOOL.split())
_PREFIX = re.compile(r"\A(?:finish_?reason|stop_?reason)[_.:]")

# The names of the field with reasoning. If an event has several, they contain the same text.
_REASONING_FIELDS = (
    *("reasoning_content", "reasoning", "thinking", "reasoning_text", "thought"),
    "reasoning_details",
)
# The fields in which a part has its text.
_PART_FIELDS = ("text", "thinking", "reasoning", "summary", "refusal", "value")
_REASONING_TYPES = frozenset({"thinking", "reasoning", "thought"})


class _Delta(BaseModel, extra="allow"):
    content: str | list[Any] | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    delta: _Delta | None = None
    finish_reason: str | None = None


class ReportedTokens(BaseModel):
    """The token counts of an event; None if the event does not have the count."""

    prompt_tokens: int | None = Field(default=None, ge=0, lt=1 << 32)
    completion_tokens: int | None = Field(default=None, ge=0, lt=1 << 32)


class _Event(BaseModel):
    """The used fields of `chat.completion.chunk`, OpenAI's event with a piece of the text."""

    choices: list[_Choice | None] | None = None
    usage: ReportedTokens | None = None
    error: Any = None
    object: Any = None


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a reply: its text, its reasoning, and what it says of the end of the reply.

    `finish` is the finish reason in lower case, or empty. `error` is the error that the endpoint
    sent in place of a piece, or None.
    """

    text: str
    reasoning: str
    finish: str
    usage: ReportedTokens
    error: Any


def read_event(data: bytes) -> StreamEvent:
    """Reads the data of an event. Raises ValueError if it is not a `chat.completion.chunk`."""
    try:
        event = _Event.model_validate_json(data)
    except ValidationError as error:
        # The message of the cause contains the data, so it is not passed on.
        raise ValueError("not a chat.completion.chunk") from error
    choices = [choice for choice in event.choices or () if choice is not None]
    deltas = [choice.delta for choice in choices if choice.delta is not None]
    return StreamEvent(
        text="".join(_text(delta.content) + (delta.refusal or "") for delta in deltas),
        reasoning="".join(map(_reasoning, deltas)),
        finish=_finish([choice.finish_reason for choice in choices]),
        usage=event.usage or ReportedTokens(),
        # Some endpoints send the error itself as the event.
        error=event.error if event.object != "error" else event.error or "error",
    )


def _finish(reasons: list[str | None]) -> str:
    names = [_PREFIX.sub("", (reason or "").strip().lower()) for reason in reasons]
    return next((name for name in names if name not in _NONE), "")


def _text(content: str | list[Any] | None) -> str:
    """Returns the text of a content, without its parts of reasoning and of other kinds."""
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content if not _is_reasoning(part))
    return content or ""


def _reasoning(delta: _Delta) -> str:
    """Returns the reasoning in fields of its own, and in parts of the content."""
    fields = delta.model_extra or {}
    texts = (_part_text(fields.get(name)) for name in _REASONING_FIELDS)
    parts = delta.content if isinstance(delta.content, list) else ()
    return next(filter(None, texts), "") + "".join(map(_part_text, filter(_is_reasoning, parts)))


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _REASONING_TYPES


def _part_text(part: Any, levels: int = 3) -> str:
    """Returns the text of a part of a content: of a string, an object, or a list of parts.

    A part of Mistral's contains a list of parts in turn, so parts are read three levels deep. Other
    parts, for example references and pictures, have no text.
    """
    if isinstance(part, str):
        return part
    if not levels:
        return ""
    if isinstance(part, list):
        return "".join(_part_text(item, levels - 1) for item in part)
    if not isinstance(part, dict):
        return ""
    texts = (_part_text(part.get(name), levels - 1) for name in _PART_FIELDS)
    return next(filter(None, texts), "")
