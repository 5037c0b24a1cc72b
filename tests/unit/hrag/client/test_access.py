"""Every call of a client carries its credentials, which never leave the machine in plaintext."""

import pytest

from hrag.client import AsyncClient, Client
from hrag.client.credentials import ClientCredentials
from hrag.errors import InvalidArgument, PermissionDenied, Unauthenticated
from hrag.types import Document, SearchQuery
from tests.support.methods import servicer_of
from tests.support.servers.credentials import OTHER, TENANT, new_key
from tests.support.servers.servers import INDEXER, RETRIEVER, serving


@pytest.fixture
def guarded_services(tmp_path):
    """Yields the addresses of both services, and a key with the role read."""
    path = tmp_path / "keys.json"
    key = new_key(path)
    variables = {"HRAG_AUTH": "api_key", "HRAG_API_KEYS_FILE": path}
    with (
        serving(servicer_of(INDEXER), INDEXER, **variables) as indexer,
        serving(servicer_of(RETRIEVER), RETRIEVER, **variables) as retriever,
    ):
        yield indexer, retriever, key


def test_each_kind_of_call_carries_the_token(guarded_services):
    indexer, retriever, key = guarded_services
    with Client(indexer, retriever, token=key) as client:
        client.list_documents(TENANT)
        assert client.batch_search([]) == []
        with pytest.raises(PermissionDenied, match="role write"):
            client.ingest(TENANT, Document("text"))
        with pytest.raises(PermissionDenied, match="role write"):
            list(client.ingest_many(TENANT, [Document("text")]))
        with pytest.raises(PermissionDenied, match=OTHER):
            list(client.answer(SearchQuery(OTHER, "why?")))
    with Client(indexer, retriever) as client, pytest.raises(Unauthenticated, match="credential"):
        client.list_documents(TENANT)


async def test_each_kind_of_asyncio_call_carries_the_token(guarded_services):
    indexer, retriever, key = guarded_services
    async with AsyncClient(indexer, retriever, token=key) as client:
        await client.list_documents(TENANT)
        with pytest.raises(PermissionDenied, match="role write"):
            await client.ingest(TENANT, Document("text"))
        with pytest.raises(PermissionDenied, match="role write"):
            _ = [result async for result in client.ingest_many(TENANT, [Document("text")])]
        with pytest.raises(PermissionDenied, match=OTHER):
            _ = [event async for event in client.answer(SearchQuery(OTHER, "why?"))]


@pytest.mark.parametrize("address", ["10.0.0.7:50052", "retriever:50052", "localhost.evil.com:1"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_a_token_does_not_leave_this_machine_in_plaintext(kind, address):
    with pytest.raises(InvalidArgument, match="plaintext") as caught:
        kind("127.0.0.1:1", address, token="hrag_secret")
    assert caught.value.field == "token"
    assert "secret" not in caught.value.message
    assert address in caught.value.message


@pytest.mark.parametrize("token", ["se cret", "secret\n", "secrät", "secret\0", "secret" * 1200])
def test_a_token_that_cannot_be_sent_is_refused_and_not_repeated(token):
    with pytest.raises(InvalidArgument) as caught:
        ClientCredentials(token)
    assert caught.value.field == "token"
    assert "cret" not in caught.value.message
    assert "secr" not in caught.value.message


def test_the_representation_of_credentials_hides_the_token():
    assert "secret" not in repr(ClientCredentials("secret"))
