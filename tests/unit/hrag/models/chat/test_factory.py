"""The settings determine which chat model is opened."""

from typing import Any

import pytest

from hrag.config import CommonSettings, SettingsError
from hrag.models.chat import ChatEnd
from hrag.models.chat.chat_factory import open_chat
from hrag.values.answers import Reasoning
from hrag.values.deadline import NEVER
from tests.support.servers.openai_server import (
    SAID,
    OpenAIServer,
    says,
)

KEY = "sk-test-4711"


def _open_from(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Any:
    for name, value in ({"HRAG_CHAT_MODEL": "m"} | variables).items():
        monkeypatch.setenv(name, value)
    return open_chat(CommonSettings())


def test_no_chat_model_is_opened_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _open_from(monkeypatch, HRAG_CHAT_MODEL="", OPENAI_API_KEY=KEY) is None


CHAT_KEY, SHARED_KEY = "sk-own", "sk-shared"


@pytest.mark.parametrize(
    ("variables", "key"),
    [
        ({"OPENAI_BASE_URL": "here", "OPENAI_API_KEY": SHARED_KEY}, SHARED_KEY),
        (
            {
                "OPENAI_BASE_URL": "here",
                "OPENAI_API_KEY": SHARED_KEY,
                "HRAG_CHAT_API_KEY": CHAT_KEY,
            },
            CHAT_KEY,
        ),
        ({"HRAG_CHAT_BASE_URL": "here", "HRAG_CHAT_API_KEY": CHAT_KEY}, CHAT_KEY),
        (
            {
                "HRAG_CHAT_BASE_URL": "here",
                "OPENAI_BASE_URL": "http://127.0.0.1:9/",
                "OPENAI_API_KEY": SHARED_KEY,
            },
            "none",
        ),
    ],
)
def test_a_key_is_sent_only_to_its_endpoint(
    variables: dict[str, str],
    key: str,
    server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OPENAI_API_KEY is never sent to the endpoint that HRAG_CHAT_BASE_URL names."""
    settings = {name: value.replace("here", server.base_url) for name, value in variables.items()}
    model = _open_from(monkeypatch, **settings, HRAG_CHAT_TIMEOUT_S="5")
    assert model.name == "openai/m"
    assert model.complete("Hello?", 100, NEVER).text == "".join(SAID)
    assert server.authorizations == [f"Bearer {key}"]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, r"OPENAI_API_KEY='': HRAG_CHAT_MODEL requires a key, unless OPENAI_BASE_URL"),
        ({"HRAG_CHAT_BASE_URL": "localhost:1/v1"}, r"HRAG_CHAT_BASE_URL='localhost:1/v1': it must"),
        ({"OPENAI_BASE_URL": "ftp://host"}, r"OPENAI_BASE_URL='ftp://host': it must"),
        ({"HRAG_CHAT_API_KEY": "sk secret\n"}, r"HRAG_CHAT_API_KEY \(not shown\): it must"),
    ],
)
def test_the_refusal_of_an_invalid_setting_names_it(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        _open_from(monkeypatch, **variables)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("tags", "finish", "expected"),
    [
        ("auto", "length", ["Dogs bark"]),
        ("both", "length", ["Dogs ", "bark"]),
        ("closing", "length", [Reasoning("Dogs bark")]),
        ("closing", "stop", ["Dogs bark"]),
    ],
)
def test_the_settings_say_how_the_model_marks_reasoning(
    tags: str,
    finish: str,
    expected: list[Any],
    server: OpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"HRAG_CHAT_BASE_URL": server.base_url, "HRAG_CHAT_REASONING_TAGS": tags}
    model = _open_from(monkeypatch, **variables)
    server.inject(says("Dogs ", "bark", finish=finish))
    *pieces, end = model.stream("Hello?", 100, NEVER)
    assert isinstance(end, ChatEnd)
    assert pieces == expected
