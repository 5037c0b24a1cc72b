"""Fixtures with an OpenAI-compatible server that misbehaves on demand."""

from collections.abc import Iterator

import pytest

from tests.support.servers.openai_server import OpenAIServer


@pytest.fixture
def server(_loopback_endpoints: None) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server
