"""A tenant learns nothing about other tenants from caches, ids or counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hrag.client import Client
from hrag.errors import CollectionNotFound, Unauthenticated
from hrag.server.auth import Role
from hrag.types import Document
from tests.support.servers import credentials
from tests.support.servers.openai_server import OpenAIServer
from tests.support.servers.processes import Running, running
from tests.support.until import until

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(300)]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def endpoint() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def services(
    endpoint: OpenAIServer,
    keys: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _no_settings_from_outside: None,
) -> Iterator[Running]:
    credentials.new_key(keys)
    settings = {
        "HRAG_EMBEDDER": "openai",
        "OPENAI_BASE_URL": endpoint.base_url,
        "OPENAI_API_KEY": "sk-test",
        "HRAG_OPENAI_DIMENSIONS": str(endpoint.dimension),
        "HRAG_INDEXER_NICENESS": "0",
        "HRAG_SEGMENT_MIN_LEAVES": "64",
        "HRAG_AUTH": "api_key",
        "HRAG_API_KEYS_FILE": str(keys),
    }
    with running(tmp_path_factory.mktemp("secrets") / "store", settings) as both:
        yield both


def _client(services: Running, keys: Path, tenant: str, role: Role) -> Client:
    """Returns a client with a new key, which both services have read."""
    key = credentials.new_key(keys, tenant, role=role)
    client = Client(services.indexer.address, services.retriever.address, token=key)
    until(lambda: _is_admitted(client, tenant))
    return client


def _is_admitted(client: Client, tenant: str) -> bool:
    """Returns True if both services know the client's key. They check the file once a second."""
    try:
        client.list_collections(tenant)
        client.search(tenant, "anything")
    except Unauthenticated:
        return False
    except CollectionNotFound:
        return True
    return True


def _embedding_requests(endpoint: OpenAIServer, text: str) -> int:
    """Returns how many requests to the endpoint contained the text."""
    return sum(text in request["input"] for request in endpoint.requests)


def test_a_query_of_another_tenant_is_embedded_again(
    services: Running, endpoint: OpenAIServer, keys: Path
) -> None:
    secret = "will we buy the company in May"
    clients = {}
    for tenant in ("one", "other"):
        clients[tenant] = _client(services, keys, tenant, Role.WRITE)
        clients[tenant].ingest(tenant, Document("Dogs bark.", "d"))
    for expected, tenant in ((1, "one"), (1, "one"), (2, "other"), (2, "other")):
        clients[tenant].search(tenant, secret)
        assert _embedding_requests(endpoint, secret) == expected
    for client in clients.values():
        client.close()


def test_only_an_admin_sees_ids_and_counts_of_all_tenants(services: Running, keys: Path) -> None:
    with _client(services, keys, "large", Role.WRITE) as client:
        text = " ".join(f"Sentence {number} tells a story of its own." for number in range(4_000))
        client.ingest("large", Document(text, "d"))
        until(lambda: bool(client.index_status("large").embedded.segments), WAIT_S)
        segments = client.index_status("large").embedded.segments
        assert [segment.segment_id for segment in segments] == [0] * len(segments)
        assert client.server_info().reader is None
    with _client(services, keys, "large", Role.ADMIN) as admin:
        assert admin.index_status("large").embedded.segments[0].segment_id > 0
        assert admin.search("large", "a story").passages
        assert admin.server_info().reader.embedded.collections_loaded > 0
