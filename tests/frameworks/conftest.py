"""Fixtures for the tests of all frameworks: services with documents, and no other network.

The tests run in an environment in which the frameworks are installed. In other environments pytest
collects no test, because importing the frameworks would fail.
"""

import os
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from hrag.client import Client
from hrag.types import Document, Page
from tests.support.servers.processes import Running, running

if find_spec("langchain_core") is None:
    collect_ignore_glob = ["test_*.py"]

# The frameworks read these variables when they are imported.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"
os.environ["LANGSMITH_TRACING"] = "false"

TENANT = "acme"
PETS = (Page("Cats sleep all day. They like fish."), Page("Dogs bark at night. They dig holes."))
KEYS = "# Keys\n\n## Rotation\n\nRotate every key once a month.\n\n## Loss\n\nReport a lost key.\n"
DOCUMENTS = (
    Document(PETS, "pets", "Pets", "pets.pdf", metadata={"team": "zoo", "year": 2025}),
    Document(
        KEYS,
        "keys",
        "Keys",
        "keys.md",
        mime_type="text/markdown",
        metadata={"team": "security", "year": 2026, "tags": ["a", "b"], "date": "2026-03-01"},
    ),
    Document(
        "Bread rises in the oven. Dogs may not eat it.",
        "bread",
        metadata={"team": "kitchen", "score": "forged", "document_id": "forged"},
    ),
    Document("Rivers flow to the sea.", "rivers", metadata={"date": "2025-12-31"}),
)
QUERY = "what do dogs do?"


@pytest.fixture(scope="session")
def services(
    tmp_path_factory: pytest.TempPathFactory, _no_settings_from_outside: None
) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("frameworks") / "store") as both:
        for document in DOCUMENTS:
            both.client.ingest(TENANT, document)
        both.client.ingest("other", Document("Dogs are another tenant's secret.", "secret"))
        yield both


@pytest.fixture
def client(services: Running) -> Client:
    return services.client


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes connections of Python's sockets fail, so no framework downloads or reports anything.

    The clients of hrag still work, because gRPC does not use Python's sockets.
    """

    def refuse(self: socket.socket, address: object) -> None:
        raise AssertionError(f"connects to {address}")

    def connect_locally(self: socket.socket, address: object) -> None:
        if self.family != socket.AF_UNIX:
            refuse(self, address)
        connect(self, address)

    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", connect_locally)


@pytest.fixture(autouse=True)
def _files_in_the_test_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes frameworks store their files in a folder of the test."""
    monkeypatch.setenv("LLAMA_INDEX_CACHE_DIR", str(tmp_path))
