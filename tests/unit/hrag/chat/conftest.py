"""An OpenAI-compatible server that misbehaves on demand."""

from collections.abc import Iterator

import pytest

from tests.openai_server import (
    OpenAIServer,
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with OpenAIServer() as server:
        yield server
