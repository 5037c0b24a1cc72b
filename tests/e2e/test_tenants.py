"""No call returns or changes data of another tenant, whatever ids the call names."""

import pytest

from hrag.errors import CollectionNotFound, DocumentNotFound, InvalidArgument
from hrag.types import Document, IngestResult

TEXT = "The quick brown fox jumps over the lazy dog. " * 200


@pytest.fixture
def pair(services, tenant):
    """The ids of two tenants. Their documents have the same id and nearly the same text."""
    first_tenant, other = tenant, f"{tenant}.other"
    for name in (first_tenant, other):
        services.client.ingest(name, Document(f"{TEXT} secret of {name}", document_id="same"))
    return first_tenant, other


def test_a_search_returns_only_the_document_of_its_tenant(services, pair):
    first_tenant, other = pair
    passages = services.client.search(first_tenant, "secret", limit=100).passages
    assert {passage.chunk.document_id for passage in passages} == {"same"}
    assert all(f"secret of {other}" not in passage.chunk.content for passage in passages)
    assert any(f"secret of {first_tenant}" in passage.chunk.content for passage in passages)


def test_chunks_and_hierarchies_have_only_text_of_the_tenant(services, pair):
    first_tenant, _ = pair
    last = services.client.get_document(first_tenant, "same").chunks_per_level[0] - 1
    assert services.client.get_chunk(first_tenant, f"same#0.{last}").chunk.content.endswith(
        first_tenant
    )
    tree = services.client.get_hierarchy(
        first_tenant, f"same#0.{last}", depth=8, include_content=True
    )
    assert all(".other" not in node.chunk.content for node in (*tree.ancestors, *tree.siblings))


def test_a_tenant_lists_and_deletes_only_its_documents(services, pair):
    first_tenant, other = pair
    services.client.ingest(first_tenant, Document("Only here.", document_id="extra"))
    services.client.delete_document(first_tenant, "same")
    assert [info.document_id for info in services.client.list_documents(first_tenant).items] == [
        "extra"
    ]
    assert [info.document_id for info in services.client.list_documents(other).items] == ["same"]
    services.client.delete_collection(first_tenant, "default")
    assert services.client.list_collections(first_tenant).items == ()
    assert services.client.get_text(other, "same").endswith(f"secret of {other}")


@pytest.mark.parametrize("guess", ["../same", "same/..", "ѕame", "same\0", "", "x" * 10_000])
def test_invalid_document_ids_are_refused(services, pair, guess):
    first_tenant, _ = pair
    with pytest.raises(InvalidArgument, match="document_id"):
        services.client.get_document(first_tenant, guess)


@pytest.mark.parametrize("name", ["../other", "tenant\0default", "tеnant", "a/b", " ", "x" * 65])
def test_invalid_tenant_ids_are_refused(services, name):
    for ask in (services.client.search, services.client.get_document):
        with pytest.raises(InvalidArgument, match="tenant_id"):
            ask(name, "same")


def test_an_id_of_another_tenant_is_not_found(services, pair):
    first_tenant, other = pair
    secret = services.client.ingest(other, Document("Nobody else knows this."))
    assert isinstance(secret, IngestResult)
    with pytest.raises(DocumentNotFound):
        services.client.get_document(first_tenant, secret.document_id)
    with pytest.raises(DocumentNotFound):
        services.client.get_chunk(first_tenant, f"{secret.document_id}#0.0")
    with pytest.raises(DocumentNotFound):
        services.client.delete_document(first_tenant, secret.document_id)
    with pytest.raises(CollectionNotFound):
        services.client.search(first_tenant, "x", collection=other)
