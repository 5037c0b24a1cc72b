"""The parameters that an endpoint refuses are found in every form in which endpoints name them."""

import json
from typing import Any

import pytest

from hrag.models.endpoint.refused_parameters import refused_parameters

LIMIT, OPTIONS, TEMPERATURE = "max_completion_tokens", "stream_options", "temperature"
SENT = (LIMIT, OPTIONS, TEMPERATURE)


def _extra(*names: Any) -> dict[str, Any]:
    """Returns an error of pydantic about a field that is not known."""
    message = "Extra inputs are not permitted"
    return {"type": "extra_forbidden", "loc": ["body", *names], "msg": message, "input": 64}


def _openai(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": None, **more}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(
            {"object": "error", "message": {"detail": [_extra(OPTIONS)]}}, {OPTIONS}, id="Mistral"
        ),
        pytest.param(
            {"object": "error", "message": json.dumps({"detail": [_extra(OPTIONS)]})},
            {OPTIONS},
            id="Mistral, JSON in a string",
        ),
        pytest.param({"detail": [_extra(LIMIT), _extra(OPTIONS)]}, {LIMIT, OPTIONS}, id="FastAPI"),
        pytest.param(
            {"object": "error", "message": str([_extra(OPTIONS)]), "type": "BadRequestError"},
            {OPTIONS},
            id="vLLM, Python in a string",
        ),
        pytest.param({"detail": [_extra(OPTIONS, "include_usage")]}, {OPTIONS}, id="a part of it"),
        pytest.param({"detail": [_extra("messages", 0, "name")]}, set(), id="another place"),
        pytest.param(
            _openai(f"Unrecognized request argument supplied: {LIMIT}"), {LIMIT}, id="Azure"
        ),
        pytest.param(
            _openai(
                "Unsupported parameter: 'max_completion_tokens' is not supported with this model. "
                "Use 'max_tokens' instead.",
                param=LIMIT,
                code="unsupported_parameter",
            ),
            {LIMIT},
            id="OpenAI",
        ),
        pytest.param(
            _openai(
                "Unsupported value: 'temperature' does not support 0 with this model. Only the "
                "default (1) value is supported.",
                param="temperature",
                code="unsupported_value",
            ),
            {TEMPERATURE},
            id="OpenAI, a value",
        ),
        pytest.param(_openai("Invalid value", param="temperature"), {TEMPERATURE}, id="param"),
        pytest.param(_openai("no", param=LIMIT, code="unknown_parameter"), {LIMIT}, id="code"),
        pytest.param(
            [{"error": {"message": f'Unknown name "{OPTIONS}": Cannot find field.', "code": 400}}],
            {OPTIONS},
            id="Google",
        ),
        pytest.param({"message": f'json: unknown field "{LIMIT}"'}, {LIMIT}, id="Go"),
        pytest.param(
            {"message": f"invalid request: parameter '{OPTIONS}' is not a valid field"},
            {OPTIONS},
            id="Cohere",
        ),
        pytest.param(
            {"error": f"Additional properties are not allowed ('{LIMIT}' was unexpected)"},
            {LIMIT},
            id="JSON Schema",
        ),
        pytest.param(
            {"title": "Bad Request", "detail": f"{LIMIT} isn't supported"}, {LIMIT}, id="RFC 9457"
        ),
        pytest.param(
            f"create() got an unexpected keyword argument '{OPTIONS}'", {OPTIONS}, id="text"
        ),
        pytest.param(
            _openai(
                f"'max_tokens' or '{LIMIT}' is too large: 5000. This model's maximum context "
                "length is 4096 tokens and your request has 100 input tokens.",
                param=LIMIT,
            ),
            set(),
            id="a limit that is too large",
        ),
        pytest.param(
            _openai(f"{LIMIT} is not allowed to exceed 4096"), set(), id="a limit that exceeds"
        ),
        pytest.param(
            _openai(f"<400> InvalidParameter: Range of {LIMIT} should be [1, 8192]"),
            set(),
            id="a limit out of range",
        ),
        pytest.param(_openai("Unsupported: max_tokens"), set(), id="a parameter that was not sent"),
        pytest.param(_openai(f"Unsupported: my{LIMIT} {LIMIT}2"), set(), id="other words"),
        pytest.param(
            _openai("This model's maximum context length is 4096 tokens."), set(), id="no"
        ),
        pytest.param(
            {"detail": [{"type": "missing", "loc": ["body", "x"], "input": dict.fromkeys(SENT)}]},
            set(),
            id="the request is repeated",
        ),
        pytest.param("", set(), id="empty"),
        pytest.param("<html>Bad Request</html>", set(), id="HTML"),
        pytest.param("[" * 100_000, set(), id="deep"),
        pytest.param({"error": None, "message": 17, "detail": [None, [[1]]]}, set(), id="odd"),
    ],
)
def test_refused_parameters_are_found(content: Any, expected: set[str]) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    assert refused_parameters(text, SENT) == expected


@pytest.mark.parametrize("content", ["{}", "[]", "null", '"stream_options"', "stream_options"])
def test_any_mention_of_a_parameter_that_limits_nothing_refuses_it(content: str) -> None:
    assert refused_parameters(content, SENT) == ({OPTIONS} if OPTIONS in content else set())
