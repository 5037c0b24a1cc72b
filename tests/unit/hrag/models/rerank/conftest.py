"""Fixtures with a rerank server for both request forms that misbehaves on demand."""

from collections.abc import Iterator

import pytest

from tests.support.servers.rerank_server import RerankServer


@pytest.fixture
def server(_loopback_endpoints: None) -> Iterator[RerankServer]:
    with RerankServer() as server:
        yield server
