"""Guarded services and their tenants."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hrag.auth import Role
from hrag.client import Client
from hrag.types import Document
from tests.credentials import new_key
from tests.processes import FAST, Running, running

ATTACKER, VICTIM = "attacker", "victim"
LIMITS = {
    "HRAG_ARRIVAL_TIMEOUT_S": "3",
    "HRAG_STREAM_IDLE_TIMEOUT_S": "3",
    "HRAG_SEND_TIMEOUT_S": "3",
}
_WORDS = "The keeper of the lighthouse wrote down every ship that passed the northern rocks. "


@dataclass(frozen=True)
class Guarded:
    """Services that require API keys, with a document of each tenant."""

    services: Running
    key_file: Path
    attacker_key: str
    """It may write for its own tenant."""
    victim: Client

    def attacker(self) -> Client:
        """A client of the attacking tenant, with its own connections."""
        return _client(self.services, self.attacker_key)

    def search(self) -> object:
        """A search of the tenant that is not attacking."""
        return self.victim.search(VICTIM, "which ship passed", limit=3, timeout_s=30)


def _client(services: Running, key: str) -> Client:
    return Client(services.indexer.address, services.retriever.address, token=key)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    attacker_key = new_key(keys, ATTACKER, role=Role.WRITE)
    victim_key = new_key(keys, VICTIM, role=Role.WRITE)
    settings = {**FAST, **LIMITS, "HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(keys)}
    with (
        running(tmp_path_factory.mktemp("attacks") / "store", settings) as services,
        _client(services, attacker_key) as attacker,
        _client(services, victim_key) as victim,
    ):
        attacker.ingest(ATTACKER, Document(_WORDS * 2000, "log"))
        victim.ingest(VICTIM, Document(_WORDS * 50, "log"))
        yield Guarded(services, keys, attacker_key, victim)
