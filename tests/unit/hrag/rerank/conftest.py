"""A server with both forms of `/rerank` that misbehaves on demand."""

from collections.abc import Iterator

import pytest

from tests.rerank_server import RerankServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RerankServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with RerankServer() as server:
        yield server
