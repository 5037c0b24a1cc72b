"""A client reads its addresses and its token from the environment, and its errors have hints."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from hrag.client import AsyncClient, Client
from hrag.client.credentials import ClientCredentials
from hrag.client.targets import targets
from hrag.errors import InternalError, InvalidArgument, ServiceUnavailable, Unauthenticated
from tests.support.methods import servicer_of
from tests.support.servers.credentials import TENANT, new_key
from tests.support.servers.pki import Authority
from tests.support.servers.servers import INDEXER, RETRIEVER, serving

KINDS = pytest.mark.parametrize("kind", [Client, AsyncClient])


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """Yields the addresses of both services; the environment has them and a key."""
    path = tmp_path / "keys.json"
    key = new_key(path)
    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": path}
    with (
        serving(servicer_of(INDEXER), INDEXER, **variables) as indexer,
        serving(servicer_of(RETRIEVER), RETRIEVER, **variables) as retriever,
    ):
        monkeypatch.setenv("HRAG_INDEXER_ADDRESS", indexer)
        monkeypatch.setenv("HRAG_RETRIEVER_ADDRESS", retriever)
        monkeypatch.setenv("HRAG_TOKEN", key)
        yield indexer, retriever, key


def test_the_environment_is_read_when_a_client_is_made(guarded, monkeypatch):
    with Client() as client:
        for name in ("HRAG_INDEXER_ADDRESS", "HRAG_RETRIEVER_ADDRESS", "HRAG_TOKEN"):
            monkeypatch.delenv(name)
        client.list_documents(TENANT)
        assert client.batch_search([]) == []
    with Client() as client:
        assert client._targets["indexer"].address == "127.0.0.1:50051"
        assert client._targets["retriever"].address == "127.0.0.1:50052"


async def test_the_asyncio_client_reads_it_too(guarded):
    async with AsyncClient() as client:
        await client.list_documents(TENANT)


def test_the_token_of_the_environment_is_not_sent_to_an_address_that_is_passed(guarded):
    indexer, retriever, key = guarded
    with Client(retriever=retriever) as client:
        client.list_documents(TENANT)
        with pytest.raises(Unauthenticated, match="HRAG_TOKEN is not sent to an address that"):
            client.batch_search([])
    with Client(indexer, token=key) as client:
        client.list_documents(TENANT)
    with Client(token="") as client, pytest.raises(Unauthenticated) as caught:
        client.list_documents(TENANT)
    assert f"the indexer at {indexer}" in caught.value.message
    assert "token (on the command line --token)" in caught.value.message


def test_an_empty_variable_and_a_wildcard_address_mean_this_machine(monkeypatch):
    monkeypatch.setenv("HRAG_INDEXER_ADDRESS", "")
    monkeypatch.setenv("HRAG_RETRIEVER_ADDRESS", "0.0.0.0:7")
    with Client() as client:
        addresses = [target.address for target in client._targets.values()]
    assert addresses == ["127.0.0.1:50051", "127.0.0.1:7"]


@KINDS
async def test_a_token_of_the_environment_stays_on_this_machine_without_tls(kind, monkeypatch):
    monkeypatch.setenv("HRAG_RETRIEVER_ADDRESS", "retriever:1")
    monkeypatch.setenv("HRAG_TOKEN", "hrag_secret")
    with pytest.raises(InvalidArgument, match="insecure_plaintext=True allows it") as caught:
        kind()
    assert "secret" not in caught.value.message
    assert kind(insecure_plaintext=True)._targets["retriever"].metadata
    assert kind(token="")._targets["retriever"].metadata == ()


def test_an_unreachable_service_is_named_with_the_command_that_starts_it():
    with Client("127.0.0.1:9", "127.0.0.1:9") as client:
        with pytest.raises(ServiceUnavailable) as caught:
            client.search("t", "x", timeout_s=60)
        message = caught.value.message
        assert message.startswith("cannot reach the retriever at 127.0.0.1:9; start both services")
        assert "TLS" not in message
        with pytest.raises(ServiceUnavailable, match="cannot reach the indexer at"):
            list(client.ingest_many("t", [], timeout_s=60))


def test_mixed_up_addresses_are_explained():
    with (
        serving(servicer_of(INDEXER), INDEXER) as address,
        Client(address, address) as client,
        pytest.raises(InternalError, match=r"the retriever at .* may be mixed up"),
    ):
        client.search("t", "x")


def test_a_lost_connection_may_be_a_matter_of_tls(tmp_path):
    authority = Authority(tmp_path, "ours")
    pair = authority.issue()
    files = {"HRAG_TLS_CERT_FILE": pair.cert_file, "HRAG_TLS_KEY_FILE": pair.key_file}
    with (
        serving(servicer_of(INDEXER), INDEXER, **files) as address,
        Client(address, address) as client,
        pytest.raises(ServiceUnavailable, match=r"if it serves with TLS, give ca_file \(on the"),
    ):
        client.list_documents("t", timeout_s=60)
    with (
        serving(servicer_of(INDEXER), INDEXER) as address,
        Client(address, address, ca_file=authority.ca_file) as client,
        pytest.raises(ServiceUnavailable, match="it may serve without TLS"),
    ):
        client.list_documents("t", timeout_s=60)


def test_an_http_server_at_the_address_is_named():
    with (
        HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server,
        Client("127.0.0.1:9", f"127.0.0.1:{server.server_port}") as client,
    ):
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            with pytest.raises(ServiceUnavailable, match="an HTTP server answers there") as caught:
                client.search("t", "x", timeout_s=60)
        finally:
            server.shutdown()
    assert "TLS" not in caught.value.message
    assert "start both services" not in caught.value.message


def test_a_refused_token_is_not_shown_and_its_sources_are_named(monkeypatch):
    monkeypatch.setenv("HRAG_TOKEN", "hrag_wrong")
    target = targets(None, None, None, ClientCredentials())["retriever"]
    error = target.explained(Unauthenticated("the call needs a valid credential"), None)
    assert error.message.endswith(
        "the service does not accept the key or token that was sent: it is the argument token "
        "(on the command line --token) or HRAG_TOKEN"
    )
