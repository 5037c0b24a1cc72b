"""Builds the image and starts docker-compose.yml, once for all tests of a session."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hrag.cli.processes import INDEXER, RETRIEVER, free_addresses
from tests.containers import engine
from tests.containers.stack import Stack, new_key


@pytest.fixture(scope="session")
def stack(_no_settings_from_outside: None) -> Iterator[Stack]:
    indexer, retriever, prometheus = free_addresses(3)
    container_engine = engine.find_engine(
        {
            "HRAG_INDEXER_PORT": indexer.rpartition(":")[2],
            "HRAG_RETRIEVER_PORT": retriever.rpartition(":")[2],
            "HRAG_PROMETHEUS_PORT": prometheus.rpartition(":")[2],
            "HRAG_INDEXER_CPUS": "1",
            "HRAG_RETRIEVER_CPUS": "1",
        }
    )
    container_engine.down("--volumes")
    try:
        container_engine.build()
        container_engine.up()
        stack = Stack(container_engine, {INDEXER: indexer, RETRIEVER: retriever})
        stack.wait_until_serving()
        yield replace(stack, token=new_key(stack))
    finally:
        print(container_engine.logs())  # noqa: T201 - pytest shows the logs if a test failed
        container_engine.down("--volumes")
