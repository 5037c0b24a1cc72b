"""Tests of sequence numbers: only a change of a tenant gets one, the tenant's next."""

import pytest

from hrag.engine.embedded.maintenance import reclaim
from hrag.engine.embedded.store.change_log import commit_cursor
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionExists, DocumentNotFound
from hrag.types import SummaryUnit
from tests.support.documents.fakes import collection_settings, prepared, seal, sentences
from tests.support.engines.summarisers import summary_collection
from tests.support.engines.summary_model import ModelCollection, ModelSummaries, summarise

SETTINGS = collection_settings(summaries=SummaryUnit.CHUNK)


@pytest.fixture
def writer(store):
    return EmbeddedWriter(store)


def last_sequence(store, tenant_id: str = "t") -> int:
    """Returns the sequence number of the tenant's last change, 0 if there is none."""
    with store.read() as txn:
        return read_usage(txn, tenant_id).sequence


def test_each_tenant_has_its_own_sequence_numbers(store, writer):
    for tenant_id, documents in (("t", 3), ("t2", 1), ("t", 2)):
        name = f"c{documents}"
        _, created = writer.create_collection(tenant_id, name, collection_settings())
        opened = writer.open(tenant_id, name)
        results = [writer.put(opened, prepared(f"d{n}", "text")) for n in range(documents)]
        expected = list(range(created + 1, created + 1 + documents))
        assert [result.sequence for result in results] == expected
    assert (last_sequence(store), last_sequence(store, "t2"), last_sequence(store, "none")) == (
        7,
        2,
        0,
    )


def test_documents_of_one_commit_have_different_sequence_numbers(store, writer):
    for tenant_id in ("t", "t2"):
        writer.create_collection(tenant_id, "c", collection_settings())
    handles = [writer.open(tenant_id, "c") for tenant_id in ("t", "t2", "t")]
    documents = [(handle, prepared(f"d{n}", "text")) for n, handle in enumerate(handles)]
    assert [result.sequence for result in writer.put_many(documents)] == [2, 2, 3]


def test_a_document_and_its_summaries_are_deleted_in_one_change(store, writer):
    writer.create_collection("t", "c", SETTINGS)
    opened = writer.open("t", "c")
    stored = writer.put(opened, prepared("d", sentences(20), SETTINGS))
    summarise(writer, ModelSummaries(ModelCollection(SETTINGS)))
    assert last_sequence(store) == stored.sequence + 1
    deleted = writer.delete(opened, "d")
    assert deleted == stored.sequence + 2 == last_sequence(store)
    assert writer.status(opened).committed_sequence == deleted
    assert writer.status(summary_collection(store, opened)).committed_sequence == deleted


def test_a_deletion_of_a_collection_uses_one_sequence_number_and_they_never_restart(store, writer):
    writer.create_collection("t", "c", SETTINGS)
    assert writer.delete_collection("t", "c") == 2
    while reclaim.reclaim_some(store):
        pass
    assert writer.create_collection("t", "c", SETTINGS)[1] == 3


def test_calls_that_change_no_data_of_the_tenant_use_no_sequence_number(store, writer):
    writer.create_collection("t", "c", collection_settings())
    opened, document = writer.open("t", "c"), prepared("d", sentences(9))
    stored = writer.put(opened, document)
    with store.read() as txn:
        cursor = commit_cursor(txn)
    assert writer.put(opened, document).sequence == stored.sequence
    with pytest.raises(DocumentNotFound):
        writer.delete(opened, "nobody")
    with pytest.raises(CollectionExists):
        writer.create_collection("t", "c", collection_settings())
    record = seal(store, opened.collection_id)
    assert record.covered_sequence == last_sequence(store) == stored.sequence
    with store.read() as txn:
        # Sealing adds one entry to the list of commits, so that readers load the segment.
        assert commit_cursor(txn) == cursor + 1
