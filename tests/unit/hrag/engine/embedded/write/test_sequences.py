"""Each change of a tenant has that tenant's next sequence, and nothing else takes one."""

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


def sequence_of(store, tenant_id: str = "t") -> int:
    with store.read() as txn:
        return read_usage(txn, tenant_id).sequence


def test_tenants_count_apart(store, writer):
    for tenant_id, documents in (("t", 3), ("t2", 1), ("t", 2)):
        name = f"c{documents}"
        _, created = writer.create_collection(tenant_id, name, collection_settings())
        opened = writer.open(tenant_id, name)
        results = [writer.put(opened, prepared(f"d{n}", "text")) for n in range(documents)]
        expected = list(range(created + 1, created + 1 + documents))
        assert [result.sequence for result in results] == expected
    assert (sequence_of(store), sequence_of(store, "t2"), sequence_of(store, "none")) == (7, 2, 0)


def test_documents_of_one_commit_have_sequences_of_their_own(store, writer):
    for tenant_id in ("t", "t2"):
        writer.create_collection(tenant_id, "c", collection_settings())
    handles = [writer.open(tenant_id, "c") for tenant_id in ("t", "t2", "t")]
    documents = [(handle, prepared(f"d{n}", "text")) for n, handle in enumerate(handles)]
    assert [result.sequence for result in writer.put_many(documents)] == [2, 2, 3]


def test_a_document_and_its_summaries_go_by_one_change(store, writer):
    writer.create_collection("t", "c", SETTINGS)
    opened = writer.open("t", "c")
    stored = writer.put(opened, prepared("d", sentences(20), SETTINGS))
    summarise(writer, ModelSummaries(ModelCollection(SETTINGS)))
    assert sequence_of(store) == stored.sequence + 1
    deleted = writer.delete(opened, "d")
    assert deleted == stored.sequence + 2 == sequence_of(store)
    assert writer.status(opened).committed_sequence == deleted
    assert writer.status(summary_collection(store, opened)).committed_sequence == deleted


def test_a_deleted_collection_takes_one_sequence_and_numbers_never_restart(store, writer):
    writer.create_collection("t", "c", SETTINGS)
    assert writer.delete_collection("t", "c") == 2
    while reclaim.reclaim_some(store):
        pass
    assert writer.create_collection("t", "c", SETTINGS)[1] == 3


def test_what_changes_nothing_of_the_tenant_takes_no_sequence(store, writer):
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
    assert record.covered_sequence == sequence_of(store) == stored.sequence
    with store.read() as txn:
        assert commit_cursor(txn) == cursor + 1  # Readers learn of the segment by it.
