"""What tenants have stored is counted, and bounded, in the transaction that stores it."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from hrag.engine.embedded.maintenance import reclaim
from hrag.engine.embedded.store import schema
from hrag.engine.embedded.store.environment import Store
from hrag.engine.embedded.store.queries import address_of
from hrag.engine.embedded.store.tenant_usage import read_usage
from hrag.engine.embedded.write.writer import EmbeddedWriter
from hrag.errors import CollectionExists, HragError, StorageQuotaExceeded
from hrag.observe.metrics import INSTRUMENTS
from hrag.types import IngestOutcome, IngestResult, SummaryUnit
from hrag.values.quotas import Quota, TenantUsage
from hrag.values.tree import ParsedText
from tests.support.documents.fakes import collection_settings, prepared, sentences
from tests.support.engines.summary_model import ModelCollection, ModelSummaries, summarise
from tests.unit.hrag.engine.embedded.store.bits import flip


class Quotas:
    """The same for all, until it is set anew."""

    def __init__(self) -> None:
        self.quota = Quota()

    def __call__(self, _tenant_id: str) -> Quota:
        return self.quota

    def set(self, **bounds: int | None) -> None:
        self.quota = Quota(**bounds)


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


@pytest.fixture
def writer(store: Store, quotas: Quotas) -> EmbeddedWriter:
    writer = EmbeddedWriter(store, quota_of=quotas)
    writer.create_collection("t", "c", collection_settings())
    return writer


def put(writer: EmbeddedWriter, document_id: str, count: int = 5, seed: int = 0) -> IngestResult:
    document = prepared(document_id, sentences(count, seed), seed=seed)
    return writer.put(writer.open("t", "c"), document)


def used(writer: EmbeddedWriter, tenant_id: str = "t", name: str = "c") -> TenantUsage:
    return replace(writer.status(writer.open(tenant_id, name)).tenant, quota=Quota())


def test_a_tenant_has_what_the_records_of_its_documents_say(store, writer):
    """Which is about what the file grows by: `test_stored_bytes.py`."""
    put(writer, "a", 40)
    put(writer, "b", 3)
    with store.read() as txn:
        keys = list(txn.ordinals.keys())
        documents = [txn.documents.require(address_of(txn, *key)) for key in keys]
    assert used(writer).stored_bytes == sum(each.stored_bytes for each in documents)


def test_all_collections_of_a_tenant_count_together_and_no_others(writer):
    writer.create_collection("t", "c2", collection_settings())
    writer.create_collection("t2", "c", collection_settings())
    put(writer, "a")
    one = used(writer).stored_bytes
    for tenant, name in (("t", "c2"), ("t2", "c"), ("t2", "c")):
        writer.put(writer.open(tenant, name), prepared("a", sentences(5)))
    assert used(writer) == used(writer, name="c2") == TenantUsage(2, 2, 2 * one)
    assert used(writer, "t2") == TenantUsage(1, 1, one)


def test_a_deletion_frees_quota_at_once(store, writer):
    put(writer, "a")
    before = used(writer)
    put(writer, "b", 30)
    writer.delete(writer.open("t", "c"), "b")
    assert used(writer) == before
    writer.create_collection("t", "c2", collection_settings())
    writer.put(writer.open("t", "c2"), prepared("a", sentences(5)))
    writer.delete_collection("t", "c2")
    assert used(writer) == before
    writer.delete_collection("t", "c")
    with store.read() as txn:
        assert read_usage(txn, "t")[:3] == (0, 0, 0)
    while reclaim.reclaim_some(store):
        pass


def test_summaries_count_by_their_bytes_and_are_never_refused(store, quotas, writer):
    settings = collection_settings(summaries=SummaryUnit.CHUNK)
    writer.create_collection("t", "s", settings)
    opened = writer.open("t", "s")
    document = prepared("a", sentences(40), settings)
    writer.put(opened, document)
    before = used(writer)
    assert before.collections == 2
    quotas.set(max_bytes=before.stored_bytes, max_documents=1, max_collections=1)
    model = ModelCollection(settings)
    assert summarise(writer, ModelSummaries(model)) == 1
    after = used(writer)
    assert (after.collections, after.documents) == (2, 1)
    assert after.stored_bytes > before.stored_bytes
    assert writer.put(opened, document).outcome is IngestOutcome.UNCHANGED
    quotas.set(max_bytes=before.stored_bytes)
    smaller = prepared("a", sentences(10, 1), settings, seed=1)
    assert writer.put(opened, smaller).outcome is IngestOutcome.UPDATED
    assert used(writer).stored_bytes < before.stored_bytes
    writer.delete_collection("t", "s")
    assert used(writer) == TenantUsage(1, 0, 0)


# What is refused


def refused(act: Callable[[], object], quota: str) -> str:
    """Its message; it is counted, too."""
    labels = {"quota": quota}
    before = INSTRUMENTS.get_sample_value("hrag_quota_refusals_total", labels) or 0
    with pytest.raises(StorageQuotaExceeded) as caught:
        act()
    assert INSTRUMENTS.get_sample_value("hrag_quota_refusals_total", labels) == before + 1
    assert (caught.value.field, caught.value.tenant_id) == (quota, "t")
    assert caught.value.retry_s is None
    return caught.value.message


def test_bytes_up_to_the_last_one_and_not_one_more(writer, quotas):
    put(writer, "a", 20)
    first = used(writer).stored_bytes
    quotas.set(max_bytes=2 * first)
    assert put(writer, "b", 20).outcome is IngestOutcome.CREATED
    assert used(writer).stored_bytes == 2 * first
    writer.delete(writer.open("t", "c"), "b")
    quotas.set(max_bytes=2 * first - 1)
    before = used(writer)
    message = refused(lambda: put(writer, "b", 20), "bytes")
    for part in (f"{first:,} of the {2 * first - 1:,} bytes", f"least {first:,} more", "'t'"):
        assert part in message
    assert "HRAG_TENANT_MAX_BYTES" in message
    assert used(writer) == before


def test_documents_and_collections_up_to_the_limit(writer, quotas):
    quotas.set(max_documents=2, max_collections=2)
    put(writer, "a")
    put(writer, "b")
    message = refused(lambda: put(writer, "c"), "documents")
    assert "2 of the 2 documents" in message
    assert "HRAG_TENANT_MAX_DOCUMENTS" in message
    writer.create_collection("t", "c2", collection_settings())
    refused(lambda: writer.create_collection("t", "c3", collection_settings()), "collections")
    with pytest.raises(CollectionExists):
        writer.create_collection("t", "c2", collection_settings())
    writer.delete_collection("t", "c2")
    writer.create_collection("t", "c3", collection_settings())
    writer.delete(writer.open("t", "c"), "a")
    assert put(writer, "c").outcome is IngestOutcome.CREATED


def test_an_update_counts_by_what_it_adds(writer, quotas):
    put(writer, "a", 20)
    small = used(writer).stored_bytes
    put(writer, "a", 40, seed=1)
    large = used(writer).stored_bytes
    quotas.set(max_bytes=large, max_documents=1)
    assert put(writer, "a", 40, seed=2).outcome is IngestOutcome.UPDATED
    assert put(writer, "a", 20).outcome is IngestOutcome.UPDATED
    quotas.set(max_bytes=large - 1)
    message = refused(lambda: put(writer, "a", 40, seed=1), "bytes")
    assert f"least {large - small:,} more" in message


def test_what_does_not_grow_is_taken_even_far_over_the_quota(writer, quotas):
    put(writer, "a", 20)
    put(writer, "b", 20)
    quotas.set(max_bytes=1, max_documents=1, max_collections=1)
    assert put(writer, "a", 20).outcome is IngestOutcome.UNCHANGED
    assert put(writer, "a", 10).outcome is IngestOutcome.UPDATED
    refused(lambda: put(writer, "a", 11), "bytes")
    writer.delete(writer.open("t", "c"), "b")


def test_of_documents_that_come_together_those_that_fit_are_stored(writer, quotas):
    put(writer, "a", 10)
    one = used(writer).stored_bytes
    quotas.set(max_bytes=3 * one)
    opened = writer.open("t", "c")
    group = [prepared(name, sentences(count)) for name, count in (("b", 10), ("x", 60), ("c", 10))]
    group += [prepared("d", sentences(10)), prepared("a", sentences(10))]
    results = writer.put_many([(opened, document) for document in group])
    outcomes = [None if isinstance(one, HragError) else one.outcome for one in results]
    created, unchanged = IngestOutcome.CREATED, IngestOutcome.UNCHANGED
    assert outcomes == [created, None, created, None, unchanged]
    assert {result.field for result in results if isinstance(result, HragError)} == {"bytes"}
    assert used(writer) == TenantUsage(1, 3, 3 * one)


def test_a_refused_document_writes_nothing(store, writer, quotas):
    put(writer, "a")
    quotas.set(max_documents=1)
    transaction = store.env.info()["last_txnid"]
    refused(lambda: put(writer, "b"), "documents")
    assert store.env.info()["last_txnid"] == transaction


def test_room_can_be_asked_for_before_there_is_a_document(writer, quotas):
    put(writer, "a", 20)
    has = used(writer).stored_bytes
    quotas.set(max_bytes=has + 10)
    writer.admit("t", "c", "new", "", 10)
    refused(lambda: writer.admit("t", "c", "new", "", 11), "bytes")
    writer.admit("t", "c", "a", "", has + 10)
    refused(lambda: writer.admit("t", "c", "a", "", has + 11), "bytes")
    quotas.set(max_documents=1)
    writer.admit("t", "c", "a", "", 1 << 40)
    refused(lambda: writer.admit("t", "c", "new", "", 1), "documents")


@pytest.mark.parametrize("database", ["documents", "texts", "ordinals", "document_ids"])
def test_a_damaged_document_counts_as_the_one_that_replaces_it(store, writer, quotas, database):
    """So ingesting it again mends it for a tenant at its quota, too."""
    put(writer, "a", 20)
    put(writer, "b", 20)
    has = used(writer)
    quotas.set(max_documents=2, max_bytes=has.stored_bytes)
    flip(store, database)
    content_hash = prepared("a", sentences(20)).content_hash
    assert writer.admit("t", "c", "a", content_hash, has.stored_bytes // 2).unchanged is None
    refused(lambda: put(writer, "a", 40), "bytes")
    assert put(writer, "a", 20).outcome is IngestOutcome.UPDATED
    assert used(writer) == has


def test_a_damaged_document_that_is_not_counted_any_more_counts_as_a_new_one(store, writer, quotas):
    for name in "ab":
        put(writer, name)
    for number in (1, 2):
        flip(store, "documents", schema.u64(number))
    quotas.set(max_documents=2)
    put(writer, "a")  # Counts what can be read.
    put(writer, "c")
    refused(lambda: put(writer, "b"), "documents")
    quotas.set(max_documents=3)
    assert put(writer, "b").outcome is IngestOutcome.UPDATED


def test_writers_side_by_side_cannot_exceed_it_together(writer, quotas):
    quotas.set(max_documents=7)
    outcomes = []

    def work(number: int) -> None:
        for n in range(5):
            try:
                outcomes.append(put(writer, f"d{number}-{n}", 2).outcome)
            except StorageQuotaExceeded:
                outcomes.append(None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outcomes.count(IngestOutcome.CREATED), outcomes.count(None)) == (7, 13)
    assert used(writer).documents == 7


def test_a_document_takes_as_much_wherever_it_is_stored(store, writer):
    put(writer, "a")
    first = used(writer).stored_bytes
    for number in range(12):
        writer.create_collection("t", f"c{number}", collection_settings())
    writer.put(writer.open("t", "c11"), prepared("a", ParsedText(sentences(5))))
    assert used(writer).stored_bytes == 2 * first
