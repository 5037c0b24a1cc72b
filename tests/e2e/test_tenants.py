"""Nothing crosses a tenant, in any call, by any id."""

import pytest

from hrag.errors import CollectionNotFound, DocumentNotFound, InvalidArgument
from hrag.types import Document, IngestResult

TEXT = "The quick brown fox jumps over the lazy dog. " * 200


@pytest.fixture
def pair(services, tenant):
    """Two tenants with one document each, of the same id and all but the same text."""
    own, other = tenant, f"{tenant}.other"
    for name in (own, other):
        services.client.ingest(name, Document(f"{TEXT} secret of {name}", document_id="same"))
    return own, other


def test_search_returns_the_own_document_only(services, pair):
    own, other = pair
    passages = services.client.search(own, "secret", limit=100).passages
    assert {passage.chunk.document_id for passage in passages} == {"same"}
    assert all(f"secret of {other}" not in passage.chunk.content for passage in passages)
    assert any(f"secret of {own}" in passage.chunk.content for passage in passages)


def test_chunks_and_hierarchies_are_the_own_ones(services, pair):
    own, _ = pair
    last = services.client.get_document(own, "same").chunks_per_level[0] - 1
    assert services.client.get_chunk(own, f"same#0.{last}").chunk.content.endswith(own)
    tree = services.client.get_hierarchy(own, f"same#0.{last}", depth=8, include_content=True)
    assert all(".other" not in node.chunk.content for node in (*tree.ancestors, *tree.siblings))


def test_a_tenant_lists_and_deletes_its_own(services, pair):
    own, other = pair
    services.client.ingest(own, Document("Only here.", document_id="extra"))
    services.client.delete_document(own, "same")
    assert [info.document_id for info in services.client.list_documents(own).items] == ["extra"]
    assert [info.document_id for info in services.client.list_documents(other).items] == ["same"]
    services.client.delete_collection(own, "default")
    assert services.client.list_collections(own).items == ()
    assert services.client.get_text(other, "same").endswith(f"secret of {other}")


@pytest.mark.parametrize("guess", ["../same", "same/..", "ѕame", "same\0", "", "x" * 10_000])
def test_ids_that_are_no_ids_are_refused(services, pair, guess):
    own, _ = pair
    with pytest.raises(InvalidArgument, match="document_id"):
        services.client.get_document(own, guess)


@pytest.mark.parametrize("name", ["../other", "tenant\0default", "tеnant", "a/b", " ", "x" * 65])
def test_tenants_that_are_no_names_are_refused(services, name):
    for ask in (services.client.search, services.client.get_document):
        with pytest.raises(InvalidArgument, match="tenant_id"):
            ask(name, "same")


def test_an_id_of_another_tenant_names_nothing(services, pair):
    own, other = pair
    secret = services.client.ingest(other, Document("Nobody else knows this."))
    assert isinstance(secret, IngestResult)
    with pytest.raises(DocumentNotFound):
        services.client.get_document(own, secret.document_id)
    with pytest.raises(DocumentNotFound):
        services.client.get_chunk(own, f"{secret.document_id}#0.0")
    with pytest.raises(DocumentNotFound):
        services.client.delete_document(own, secret.document_id)
    with pytest.raises(CollectionNotFound):
        services.client.search(own, "x", collection=other)
