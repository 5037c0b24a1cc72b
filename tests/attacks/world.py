"""Runs services that require API keys, with one tenant that attacks and one that searches."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hrag.client import Client
from hrag.server.auth import Role
from hrag.types import Document
from hrag.v1 import retriever_pb2 as pb
from tests.attacks.http2 import Connection, half_open
from tests.support.servers.credentials import new_key
from tests.support.servers.forked import Forked
from tests.support.servers.processes import FAST, Running, Start, running

ATTACKER, VICTIM = "attacker", "victim"
LIMITS = {
    "HRAG_ARRIVAL_TIMEOUT_S": "3",
    "HRAG_STREAM_IDLE_TIMEOUT_S": "3",
    "HRAG_SEND_TIMEOUT_S": "3",
}
SEARCH = "/hrag.v1.RetrieverService/Search"
BATCH_SEARCH = "/hrag.v1.RetrieverService/BatchSearch"
INGEST = "/hrag.v1.IndexerService/IngestDocument"
INGEST_MANY = "/hrag.v1.IndexerService/IngestDocuments"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
HALF_OPEN = 1000
IDLE_STREAMS = 200
UNREAD = 100
_WORDS = "The keeper of the lighthouse wrote down every ship that passed the northern rocks. "


@dataclass(frozen=True)
class Guarded:
    """Services that require API keys. Each of the two tenants has a document."""

    services: Running
    key_file: Path
    attacker_key: str
    """A key of the role WRITE for the attacking tenant."""
    victim_key: str
    victim: Client

    def attacker(self) -> Client:
        """Returns a client of the attacking tenant, with new connections."""
        return _client(self.services, self.attacker_key)

    def search(self) -> object:
        """Runs a search as the tenant that does not attack."""
        return self.victim.search(VICTIM, "which ship passed", limit=3, timeout_s=30)


def _client(services: Running, key: str) -> Client:
    return Client(services.indexer.address, services.retriever.address, token=key)


@contextmanager
def guarded_services(
    folder: Path, start: Start = Forked, settings: Mapping[str, str] = LIMITS
) -> Iterator[Guarded]:
    """Runs both services, with their store, keys and logs in `folder`."""
    keys = folder / "keys.json"
    attacker_key = new_key(keys, ATTACKER, role=Role.WRITE)
    victim_key = new_key(keys, VICTIM, role=Role.WRITE)
    settings = {**FAST, **settings, "HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": str(keys)}
    with (
        running(folder / "store", settings, start) as services,
        _client(services, attacker_key) as attacker,
        _client(services, victim_key) as victim,
    ):
        attacker.ingest(ATTACKER, Document(_WORDS * 2000, "log"))
        victim.ingest(VICTIM, Document(_WORDS * 50, "log"))
        yield Guarded(services, keys, attacker_key, victim_key, victim)


@contextmanager
def everything_at_once(guarded: Guarded) -> Iterator[None]:
    """Runs several attacks during the block: half-open calls, idle streams and unread replies.

    Some half-open calls have no API key; all other calls have the key of the attacking tenant.
    """
    services, key = guarded.services, guarded.attacker_key
    retriever, indexer = services.retriever.address, services.indexer.address
    with (
        half_open(retriever, SEARCH, HALF_OPEN // 2),
        half_open(retriever, SEARCH, HALF_OPEN // 2, key),
        half_open(indexer, INGEST_MANY, IDLE_STREAMS // 2, key),
        half_open(retriever, REFLECTION, IDLE_STREAMS // 2, key),
        closing(Connection(retriever, window_bytes=0)) as unread,
    ):
        for _ in range(UNREAD):
            unread.call(BATCH_SEARCH, large_batch(), key)
        yield


def large_batch() -> bytes:
    """Returns an encoded BatchSearch request whose reply has 2 MB."""
    search = pb.SearchRequest(tenant_id=ATTACKER, text="ship", limit=100, return_level=1)
    return pb.BatchSearchRequest(searches=[search] * 12).SerializeToString()
