"""Documents are counted, changed and deleted by filter, through both services."""

from functools import partial

import pytest

from hrag.client import Client
from hrag.errors import (
    CollectionNotFound,
    DocumentChanged,
    DocumentNotFound,
    InvalidArgument,
    TooLarge,
)
from hrag.filters import AllOf, AnyOf, Exists, Filter, Match, Range
from hrag.types import Document, DocumentCount, IngestOutcome
from hrag.v1 import indexer_pb2

DRAFT = Match("metadata.state", ("draft",))


@pytest.fixture
def client(services, tenant: str) -> Client:
    """A client. Two tenants have the same five documents each, of which three are drafts."""
    for number in range(5):
        metadata = {"state": "draft" if number < 3 else "final", "number": number}
        document = Document(f"Dogs number {number}.", f"d{number}", metadata=metadata)
        services.client.ingest(tenant, document)
        services.client.ingest(f"{tenant}.other", document)
    return services.client


def test_documents_are_counted_and_listed_by_filter(client: Client, tenant: str) -> None:
    assert client.count_documents(tenant, filter=DRAFT) == DocumentCount(3, 5, 6)
    assert client.count_documents(tenant) == DocumentCount(5, 5, 6)
    first = client.list_documents(tenant, filter=DRAFT, page_size=2)
    second = client.list_documents(
        tenant, filter=DRAFT, page_size=2, page_token=first.next_page_token
    )
    ids = [info.document_id for page in (first, second) for info in page.items]
    assert (ids, second.next_page_token) == (["d0", "d1", "d2"], "")
    with pytest.raises(InvalidArgument) as caught:
        client.count_documents(tenant, filter=Match("colour", ("red",)))
    assert caught.value.field == "filter.match.field"
    with pytest.raises(CollectionNotFound):
        client.count_documents(tenant, collection="missing")


@pytest.mark.parametrize(
    ("filter", "says"),
    [
        (AnyOf((Match("title", ("x",)),) * 257), "257 conditions .* at most 256 are allowed"),
        (
            AllOf((Range("metadata.number", above=0),) * 33),
            "33 conditions .* at most 32 are allowed",
        ),
    ],
    ids=["conditions", "ranges"],
)
def test_the_conditions_of_a_filter_are_limited_in_every_call(
    client: Client, tenant: str, filter: Filter, says: str
) -> None:
    for call in (
        client.count_documents,
        client.list_documents,
        client.delete_documents,
        partial(client.search, query="dogs"),
    ):
        with pytest.raises(TooLarge, match=says) as caught:
            call(tenant, filter=filter)
        assert caught.value.field == "filter"
    assert client.count_documents(tenant).documents == 5


def test_documents_that_pass_a_filter_are_deleted(services, client: Client, tenant: str) -> None:
    used = client.index_status(tenant).tenant.documents
    deletion = client.delete_documents(tenant, DRAFT)
    assert (deletion.documents, deletion.sequence) == (3, 9)
    assert client.index_status(tenant).tenant.documents == used - 3
    passages = client.search(tenant, "dogs", limit=9, min_sequence=deletion.sequence).passages
    assert {passage.chunk.document_id for passage in passages} == {"d3", "d4"}
    again = client.delete_documents(tenant, DRAFT)
    assert (again.documents, again.sequence) == (0, 9)
    assert client.count_documents(f"{tenant}.other").documents == 5
    with pytest.raises(Exception, match=r"filter is missing.*DeleteCollection"):
        services.raw_indexer.DeleteDocuments(
            indexer_pb2.DeleteDocumentsRequest(tenant_id=tenant), timeout=10
        )


def test_changed_metadata_is_found_and_cited(client: Client, tenant: str) -> None:
    assert client.search(tenant, "dogs", filter=DRAFT, limit=9).passages
    updated = client.update_metadata(
        tenant, "d0", {"state": "final", "by": {"name": "Ann"}}, remove_keys=["number"]
    )
    assert updated.outcome is IngestOutcome.UPDATED
    assert updated.document.metadata == {"state": "final", "by": {"name": "Ann"}}
    by_ann = Match("metadata.by.name", ("Ann",))
    passages = client.search(tenant, "dogs", filter=by_ann, limit=9).passages
    assert [passage.chunk.metadata for passage in passages] == [updated.document.metadata]
    passages = client.search(tenant, "dogs", filter=DRAFT, limit=9).passages
    assert {passage.chunk.document_id for passage in passages} == {"d1", "d2"}
    sequence = updated.document.sequence
    moved = client.update_metadata(
        tenant, "d0", replace=True, source="s3://b", expected_sequence=sequence
    )
    assert (moved.document.metadata, moved.document.source) == ({}, "s3://b")
    with pytest.raises(DocumentChanged) as caught:
        client.update_metadata(tenant, "d0", {"a": 1}, expected_sequence=sequence)
    assert caught.value.field == "expected_sequence"
    assert client.count_documents(tenant, filter=Exists("source")).documents == 1
    assert client.count_documents(f"{tenant}.other", filter=DRAFT).documents == 3


def test_ingesting_a_document_again_restores_its_changed_metadata(
    client: Client, tenant: str
) -> None:
    original = Document("Dogs number 3.", "d3", metadata={"state": "final", "number": 3})
    assert client.ingest(tenant, original).outcome is IngestOutcome.UNCHANGED
    same = client.update_metadata(tenant, "d3", {"number": 3})
    assert same.outcome is IngestOutcome.UNCHANGED
    assert client.ingest(tenant, original).outcome is IngestOutcome.UNCHANGED
    client.update_metadata(tenant, "d3", {"number": 4})
    assert client.ingest(tenant, original).outcome is IngestOutcome.UPDATED
    assert client.get_document(tenant, "d3").metadata["number"] == 3
    with pytest.raises(DocumentNotFound):
        client.update_metadata(tenant, "missing", {"number": 4})
    with pytest.raises(InvalidArgument, match="changes nothing"):
        client.update_metadata(tenant, "d3")
