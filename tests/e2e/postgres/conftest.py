"""Fixtures of the tests that run only with `--engine=postgres`."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.servers import stores
from tests.support.servers.postgres_server import PostgresServer


@pytest.fixture(scope="session", autouse=True)
def _with_postgres(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--engine") != "postgres":
        pytest.skip("needs --engine=postgres")


@pytest.fixture
def own_server(_engine: None) -> Iterator[PostgresServer]:
    """A PostgreSQL server for the stores of one test. The test may stop and kill the server."""
    with closing(PostgresServer()) as server, stores.in_postgres(server):
        yield server
